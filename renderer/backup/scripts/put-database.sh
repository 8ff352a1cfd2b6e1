# put-database VOLUME < SQL: makes a data directory beside the one that is there and fills it, with a server that nobody else can
# reach. Prints what the last statement does. Accounts and passwords are made at the real server's start.
set -eu
volume=$1
aside=$volume/.restored
run=${BERTH_RUN:-/run/mysqld}

rm -f -- "$volume/.before/.names"
rm -rf -- "$aside"
mkdir -m 0700 -- "$aside"
mariadb-install-db --no-defaults --datadir="$aside/data" --tmpdir="$run" --auth-root-authentication-method=socket \
    --skip-test-db > "$run/restore.log" 2>&1 < /dev/null || { cat -- "$run/restore.log" >&2; exit 1; }
mariadbd --defaults-file="${BERTH_MARIADB_CONF:-/etc/berth/mariadb.cnf}" --datadir="$aside/data" \
    --socket="$run/restore.sock" --pid-file="$run/restore.pid" --skip-networking --skip-grant-tables \
    --innodb-flush-log-at-trx-commit=0 > "$run/restore.log" 2>&1 < /dev/null &
server=$!
trap 'kill "$server" 2> /dev/null || true; wait' EXIT

client() {
    mariadb --no-defaults --protocol=socket --socket="$run/restore.sock" --batch --skip-column-names \
        --max-allowed-packet=64M --default-character-set=utf8mb4 "$@"
}
until client --execute='SELECT 1' > /dev/null 2>&1 < /dev/null; do
    kill -0 "$server" 2> /dev/null || { tail -n 20 -- "$run/restore.log" >&2; exit 1; }
    sleep 0.2
done
client
trap - EXIT
kill "$server"
wait "$server" || { tail -n 20 -- "$run/restore.log" >&2; exit 1; }
sync --file-system "$aside"
