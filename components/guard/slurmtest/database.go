package slurmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const slurmdbdConf = `AuthType=auth/slurm
DbdHost=ctl
SlurmUser=root
PidFile=%[1]s/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=test
StorageLoc=slurm_acct_db
`

// Database starts MariaDB and slurmdbd for the slurm.conf in the machine's directory, which names ctl as AccountingStorageHost.
func (m *Machine) Database() {
	m.t.Helper()
	m.Run("bash", "-c", "mkdir -p /run/mysqld && mariadb-install-db --no-defaults --user=root --datadir="+m.data()+" --auth-root-authentication-method=normal --skip-test-db > /dev/null")
	m.MariaDB()
	m.Run("mariadb", "--no-defaults", "--socket=/run/mysqld/mysqld.sock", "-e",
		"create database if not exists slurm_acct_db; create user if not exists slurm@localhost identified by 'test'; grant all on slurm_acct_db.* to slurm@localhost")
	m.Slurmdbd()
}

func (m *Machine) data() string { return filepath.Join(m.Dir, "database") }

// MariaDB starts it on what Database has made, and waits until it answers.
func (m *Machine) MariaDB() {
	m.t.Helper()
	m.Daemon("mariadbd.log", "mariadbd", "--no-defaults", "--user=root", "--datadir="+m.data(), "--socket=/run/mysqld/mysqld.sock", "--skip-networking", "--innodb-buffer-pool-size=64M")
	Eventually(m.t, time.Minute, "MariaDB answers", func() (bool, string) {
		out, err := m.Command("mariadb", "--no-defaults", "--socket=/run/mysqld/mysqld.sock", "-e", "select 1").CombinedOutput()
		return err == nil, string(out) + m.Log("mariadbd.log")
	})
}

// Slurmdbd starts it on the MariaDB that runs, and waits until it answers.
func (m *Machine) Slurmdbd() {
	m.t.Helper()
	environment := "SLURM_CONF=" + filepath.Join(m.Dir, "slurm.conf")
	if err := os.WriteFile(filepath.Join(m.Dir, "slurmdbd.conf"), fmt.Appendf(nil, slurmdbdConf, m.Dir), 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.Daemon("slurmdbd.log", "env", environment, "slurmdbd", "-D")
	Eventually(m.t, time.Minute, "slurmdbd answers", func() (bool, string) {
		out, err := m.Command("env", environment, "sacctmgr", "show", "cluster").CombinedOutput()
		return err == nil, string(out) + m.Log("slurmdbd.log")
	})
}
