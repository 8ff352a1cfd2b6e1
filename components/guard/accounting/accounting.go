package accounting

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

// callTimeout bounds one sacctmgr call; slurmdbd may wait for a lock of MariaDB's.
const callTimeout = time.Minute

// Runner runs a Slurm client and returns what it printed.
type Runner interface {
	Run(ctx context.Context, timeout time.Duration, name string, args ...string) (string, error)
}

// Database is Slurm's, through sacctmgr.
type Database struct{ Programs Runner }

// record is one row that sacctmgr printed, by column name.
type record map[string]string

// database is what sacctmgr shows, names folded as slurmdbd folds them.
type database struct {
	clusters            map[string]bool
	accounts            map[string]record
	accountAssociations map[string]record
	users               map[string]record
	userAssociations    map[string]record // by user/account
	qos                 map[string]record
}

// Reconcile adds and modifies until the database says what is wanted, and returns what it did. It looks again afterwards:
// a command that sacctmgr took without effect is an error, not a success that repeats for ever.
func (d *Database) Reconcile(ctx context.Context, cluster string, wanted v1alpha1.Accounts) ([]string, error) {
	steps, err := d.plan(ctx, cluster, wanted)
	if err != nil {
		return nil, err
	}
	var done []string
	for _, step := range steps {
		if _, err := d.Programs.Run(ctx, callTimeout, "sacctmgr", append([]string{"-i", "-Q"}, step...)...); err != nil {
			if !strings.Contains(err.Error(), "Nothing modified") && !strings.Contains(err.Error(), "Nothing new added") {
				return done, err
			}
		}
		done = append(done, step.String())
	}
	if len(done) == 0 {
		return nil, nil
	}
	left, err := d.plan(ctx, cluster, wanted)
	if err != nil {
		return done, err
	}
	if len(left) > 0 {
		return done, fmt.Errorf("sacctmgr took %q without effect", left[0])
	}
	return done, nil
}

func (d *Database) plan(ctx context.Context, cluster string, wanted v1alpha1.Accounts) ([]step, error) {
	have, err := d.read(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return plan(cluster, wanted, have)
}

// read asks sacctmgr for all that a plan needs.
func (d *Database) read(ctx context.Context, cluster string) (*database, error) {
	have := &database{
		clusters: map[string]bool{}, accounts: map[string]record{}, accountAssociations: map[string]record{},
		users: map[string]record{}, userAssociations: map[string]record{}, qos: map[string]record{},
	}
	for _, table := range []struct {
		args    []string
		columns []string
		take    func(record)
	}{
		{[]string{"cluster"}, []string{"cluster"}, func(r record) { have.clusters[strings.ToLower(r["cluster"])] = true }},
		{[]string{"account"}, []string{"account", "descr"}, func(r record) { have.accounts[r["account"]] = r }},
		{[]string{"user"}, []string{"user", "defaultaccount", "adminlevel"}, func(r record) { have.users[r["user"]] = r }},
		{[]string{"qos"}, []string{"name", "priority", "preempt", "preemptmode", "flags", "maxwall", "grptres", "maxtrespu", "maxjobspu", "usagefactor"},
			func(r record) { have.qos[r["name"]] = r }},
		// Without what an association inherits: a parent's limit is not this one's.
		{[]string{"assoc", "cluster=" + cluster, "wopl"}, []string{"account", "user", "partition", "parentname", "share", "grptres", "grptresmins", "maxjobs", "maxsubmit", "qos"},
			func(r record) {
				switch {
				case r["user"] == "":
					have.accountAssociations[r["account"]] = r
				case r["partition"] == "":
					have.userAssociations[r["user"]+"/"+r["account"]] = r
				}
			}},
	} {
		args := append([]string{"--noheader", "--parsable2", "show"}, table.args...)
		out, err := d.Programs.Run(ctx, callTimeout, "sacctmgr", append(args, "format="+strings.Join(table.columns, ","))...)
		if err != nil {
			return nil, err
		}
		if err := parse(out, table.columns, table.take); err != nil {
			return nil, fmt.Errorf("sacctmgr show %s: %w", table.args[0], err)
		}
	}
	return have, nil
}

// parse reads sacctmgr's --parsable2 lines.
func parse(out string, columns []string, take func(record)) error {
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if line == "" {
			continue
		}
		fields := strings.Split(line, "|")
		if len(fields) != len(columns) {
			return fmt.Errorf("%q has %d columns, want %d", line, len(fields), len(columns))
		}
		row := make(record, len(columns))
		for i, column := range columns {
			row[column] = fields[i]
		}
		take(row)
	}
	return nil
}
