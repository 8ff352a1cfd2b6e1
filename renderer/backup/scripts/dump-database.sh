# dump-database NAME: the database as it is at one moment, as SQL; slurmdbd goes on meanwhile. All of Slurm's tables are InnoDB's,
# which one transaction sees unchanged. slurmdbd makes its procedures anew at each start.
set -eu
MYSQL_PWD=$(cat -- "${BERTH_DATABASE_PASSWORD:-/etc/slurm-keys/database/password}")
export MYSQL_PWD
exec mariadb-dump --no-defaults --protocol=tcp --host=127.0.0.1 --skip-ssl --user="${BERTH_DATABASE_USER:-slurm}" \
    --single-transaction --quick --no-tablespaces --hex-blob --max-allowed-packet=64M --default-character-set=utf8mb4 \
    --databases "$1"
