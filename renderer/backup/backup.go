// Package backup writes down what a cluster cannot make again, and puts it back: slurmdbd's database and what slurmctld keeps
// (queue, nodes, reservations, the accepted configuration), in one file. Secrets and homes are no part of it: the first are
// sealed in Git, the second are files of people.
package backup

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/berth-hpc/berth/renderer/site"
)

//go:embed scripts
var scripts embed.FS

// script is a shell script of this package, to be run where the data is: it needs nothing of the image but Debian's tools.
func script(name string) string {
	text, err := scripts.ReadFile("scripts/" + name + ".sh")
	if err != nil {
		panic(err) // a name that is not in this package
	}
	return string(text)
}

// Container is one of a pod.
type Container struct{ Pod, Name string }

// Exec runs a command in a container. The error has the command's own words.
type Exec func(ctx context.Context, at Container, stdin io.Reader, stdout io.Writer, argv ...string) error

// run runs one of the scripts and gives what it printed.
func (e Exec) run(ctx context.Context, at Container, stdin io.Reader, name string, args ...string) (string, error) {
	var out strings.Builder
	err := e(ctx, at, stdin, &out, append([]string{"sh", "-c", script(name), name}, args...)...)
	return strings.TrimSpace(out.String()), err
}

// ask runs a command and gives what it printed.
func (e Exec) ask(ctx context.Context, at Container, argv ...string) (string, error) {
	var out strings.Builder
	err := e(ctx, at, nil, &out, argv...)
	return strings.TrimSpace(out.String()), err
}

// Paths are where the volumes are mounted.
type Paths struct{ State, Database string }

// Mounted are the chart's.
var Mounted = Paths{State: "/var/spool/slurm", Database: "/var/lib/mysql"}

// databaseName is slurmdbd's (StorageLoc).
const databaseName = "slurm_acct_db"

// The containers that run in a cluster that works.
var (
	controller = Container{"slurm-controller-0", "slurmctld"}
	database   = Container{"slurm-database-0", "mariadb"}
)

// Source is a cluster that a backup is made of. Nothing in it stops for that.
type Source struct {
	Site  *site.Site
	Exec  Exec
	Paths Paths
	// Berth is the version of this program.
	Berth string
	// Settle is how long a change may take until slurmctld has it on disk: SAVE_MAX_WAIT of its state_save.c, 5 s, and room.
	Settle time.Duration
	// Patience bounds the wait until slurmdbd has what slurmctld has to tell it.
	Patience time.Duration
}

// Save writes a backup to the file and reads it again. The state is copied first and the database then, so that the database knows
// of each job's end that the state knows.
func (s *Source) Save(ctx context.Context, to io.Writer) (*Manifest, error) {
	m := Manifest{Format: format, Site: s.Site.Name, Cluster: s.Site.Cluster.Name, Berth: s.Berth}
	if err := s.describe(ctx, &m); err != nil {
		return nil, err
	}
	w := newWriter(to)
	m.Began = time.Now().UTC().Truncate(time.Second)
	err := w.part(statePart, func(part io.Writer) error {
		return s.Exec(ctx, controller, nil, part, "sh", "-c", script("copy-state"), "copy-state", s.Paths.State, strconv.Itoa(int(s.Settle.Seconds())))
	})
	if err != nil {
		return nil, fmt.Errorf("copy slurmctld's state: %w", err)
	}
	if err := s.accounted(ctx); err != nil {
		return nil, err
	}
	err = w.part(databasePart, func(part io.Writer) error {
		return s.Exec(ctx, database, nil, part, "sh", "-c", script("dump-database"), "dump-database", databaseName)
	})
	if err != nil {
		return nil, fmt.Errorf("dump the database: %w", err)
	}
	m.Ended = time.Now().UTC().Truncate(time.Second)
	return &m, w.close(&m)
}

// describe asks the cluster what it is.
func (s *Source) describe(ctx context.Context, m *Manifest) error {
	version, err := slurmVersion(ctx, s.Exec, controller)
	if err != nil {
		return err
	}
	m.Slurm = version
	name, err := s.Exec.ask(ctx, controller, "cat", s.Paths.State+"/state/clustername")
	if err != nil {
		return fmt.Errorf("which cluster is it? %w", err)
	}
	if name, _, _ = strings.Cut(name, "|"); name != m.Cluster {
		return fmt.Errorf("the cluster that answers is %s, that of site %s is %s: choose another with --kubeconfig or --context", name, m.Site, m.Cluster)
	}
	if m.MariaDB, err = s.Exec.ask(ctx, database, "mariadbd", "--version"); err != nil {
		return err
	}
	if _, after, found := strings.Cut(m.MariaDB, "Ver "); found {
		m.MariaDB, _, _ = strings.Cut(after, " ")
	}
	states, err := s.Exec.ask(ctx, controller, "squeue", "--all", "--array", "--noheader", "--format=%T")
	if err != nil {
		return err
	}
	m.Jobs = map[string]int{}
	for state := range strings.FieldsSeq(states) {
		m.Jobs[state]++
	}
	return nil
}

// slurmVersion is such as 24.11.5.
func slurmVersion(ctx context.Context, exec Exec, at Container) (string, error) {
	out, err := exec.ask(ctx, at, "slurmctld", "-V")
	if err != nil {
		return "", fmt.Errorf("which Slurm is it? %w", err)
	}
	words := strings.Fields(out) // slurm-wlm 24.11.5
	if len(words) != 2 {
		return "", fmt.Errorf("which Slurm is it? slurmctld -V prints %q", out)
	}
	return words[1], nil
}

// release is a version's major.minor: what Slurm's state and database differ by.
func release(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}

// accounted waits until slurmctld has told slurmdbd of everything: what it still has to tell is in its memory alone, so neither in
// the state's copy nor in the database.
func (s *Source) accounted(ctx context.Context) error {
	deadline := time.Now().Add(s.Patience)
	for {
		out, err := s.Exec.ask(ctx, controller, "sdiag")
		if err != nil {
			return err
		}
		waiting, err := agentQueue(out)
		if err != nil || waiting == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("slurmctld has %d messages for slurmdbd that it could not deliver within %s: they would be in no backup; see berth status, and the log of deployment/slurm-accounting", waiting, s.Patience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func agentQueue(sdiag string) (int, error) {
	for line := range strings.Lines(sdiag) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "DBD Agent queue size" {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, errors.New("sdiag says no DBD Agent queue size")
}
