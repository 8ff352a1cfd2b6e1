package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/backup"
	"github.com/berth-hpc/berth/renderer/site"
)

func newBackup(s *settings) *cobra.Command {
	var f clusterFlags
	c := &cobra.Command{
		Use:   "backup [SITE] FILE",
		Short: "Write Slurm's database and state into one file",
		Long: `Backup writes what a cluster cannot make again into one file: slurmdbd's database, and what slurmctld keeps (the queue with the jobs'
scripts, nodes, reservations, usage) with the accepted configuration and the advisor's record. Nothing stops for it, and nothing
changes. The file is read again before it gets its name, and is for its owner alone: jobs' environments are in it.

Homes and shared files are no part of it, nor are secrets: those are sealed in Git.

It reaches the pods through kubectl.

` + exitCodesHelp,
		Example:           `  berth backup lab lab-2026-11-02.zip`,
		Args:              fileArg,
		ValidArgsFunction: s.completeSites,
		RunE: func(c *cobra.Command, args []string) error {
			one, path, err := s.siteAndFile(args)
			if err != nil {
				return err
			}
			if _, err := os.Lstat(path); err == nil {
				return fmt.Errorf("%s is there already: choose another name", path)
			}
			if err := f.named(); err != nil {
				return err
			}
			m, err := saveBackup(c.Context(), &f, one, path)
			if err != nil {
				return err
			}
			return s.print(m, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s\n%s: whole\n", describeBackup(m), args[len(args)-1])
				return err
			})
		},
	}
	f.add(c, s)
	return c
}

// fileArg takes a file, and a site before it.
func fileArg(c *cobra.Command, args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("%d arguments: say berth %s", len(args), c.Use)
	}
	return nil
}

// siteAndFile is what the arguments of fileArg mean.
func (s *settings) siteAndFile(args []string) (*site.Site, string, error) {
	file := args[len(args)-1]
	one, err := s.oneSite(args[:len(args)-1])
	if err != nil && len(args) == 1 {
		err = fmt.Errorf("%w; the site comes before the file, and %q is taken for the file", err, file)
	}
	return one, s.absolute(file), err
}

// describeBackup says of which cluster a backup is, and from when.
func describeBackup(m *backup.Manifest) string {
	return fmt.Sprintf("cluster %s (site %s, Slurm %s) as of %s: %s in the queue, %d tables", m.Cluster, m.Site, m.Slurm, m.Began.Local().Format("2006-01-02 15:04:05 MST"), m.Queue(), m.Tables)
}

// saveBackup makes the file, at once and whole.
func saveBackup(ctx context.Context, f *clusterFlags, one *site.Site, path string) (*backup.Manifest, error) {
	file, err := renameio.NewPendingFile(path, renameio.WithStaticPermissions(0o600))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Cleanup() }()
	source := backup.Source{Site: one, Exec: f.exec(one.Namespaces.Slurm), Paths: backup.Mounted, Berth: Version, Settle: 8 * time.Second, Patience: time.Minute}
	m, err := source.Save(ctx, file)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if _, err := backup.Open(file, info.Size()); err != nil {
		return nil, fmt.Errorf("the backup could not be read again: %w", err)
	}
	return m, file.CloseAtomicallyReplace()
}

// exec runs commands in a namespace's containers.
func (f *clusterFlags) exec(namespace string) backup.Exec {
	return func(ctx context.Context, at backup.Container, stdin io.Reader, stdout io.Writer, argv ...string) error {
		words := append(f.kubectl(namespace), "exec", at.Pod, "--container", at.Name)
		if stdin != nil {
			words = append(words, "--stdin")
		}
		words = append(append(words, "--"), argv...)
		var stderr bytes.Buffer
		command := exec.CommandContext(ctx, words[0], words[1:]...)
		command.Stdin, command.Stdout, command.Stderr = stdin, stdout, &stderr
		command.WaitDelay = 10 * time.Second
		err := command.Run()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if said := strings.TrimSpace(stderr.String()); said != "" {
				err = errors.New(said)
			}
			return fmt.Errorf("in pod %s: %w", at.Pod, err)
		}
		return nil
	}
}

func newRestore(s *settings) *cobra.Command {
	var f clusterFlags
	var yes bool
	var patience time.Duration
	c := &cobra.Command{
		Use:   "restore [SITE] FILE",
		Short: "Put a backup of Slurm's database and state in the place of what is there",
		Long: `Restore reads a file of berth backup to its end, and refuses one that is damaged, of another cluster or of another release of Slurm.
Without --yes it says what it would do, and ends with 1.

Then it has Flux leave Slurm alone, stops slurmctld, slurmdbd and MariaDB, unpacks the backup beside the data, and gives it the
data's place by renames: what fails before that leaves everything as it was. In any case it starts what it stopped and gives it back to
Flux; what was there before is deleted when all works again. Run again, it goes on where it was killed.

Slurm knows nothing then of what happened since the backup. Jobs that were submitted since are gone from queue and accounting, and
those of them that run are ended; jobs that waited or ran then are in the queue again, also those that have ended since, and batch
jobs that may be requeued run again. Job numbers go on from those of then. Cards and workers that changed since are a change of
configuration, which the guard applies as ever.

` + exitCodesHelp,
		Example: `  berth restore lab lab-2026-11-02.zip
  berth restore lab lab-2026-11-02.zip --yes`,
		Args:              fileArg,
		ValidArgsFunction: s.completeSites,
		RunE: func(c *cobra.Command, args []string) error {
			name := args[len(args)-1]
			one, path, err := s.siteAndFile(args)
			if err != nil {
				return err
			}
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			info, err := file.Stat()
			if err != nil {
				return err
			}
			archive, err := backup.Open(file, info.Size())
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := f.named(); err != nil {
				return err
			}
			say := func(format string, args ...any) {
				if s.output == "table" {
					fmt.Fprintf(s.env.Out, format+"\n", args...)
				}
			}
			r := backup.Restoration{Site: one, Archive: archive, Exec: f.exec(one.Namespaces.Slurm), Paths: backup.Mounted, Say: say, Patience: patience}
			if err := r.Refuse(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			say("%s: %s", name, describeBackup(&archive.Manifest))
			if !yes {
				say("It would stop slurmctld, slurmdbd and MariaDB of site %s and put this in the place of what they have.", one.Name)
				say("What happened since then is lost to Slurm: jobs submitted since are gone, those of them that run are ended.")
				return problems{"berth: nothing was done; with --yes it is"}
			}
			cluster, err := f.client()
			if err != nil {
				return err
			}
			r.Services = &backup.Kubernetes{Client: cluster, Site: one, Pace: time.Second, Say: say}
			if err := r.Run(c.Context()); err != nil {
				return err
			}
			return s.print(archive.Manifest, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "site %s is as of %s\n", one.Name, archive.Began.Local().Format("2006-01-02 15:04:05 MST"))
				return err
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do it")
	c.Flags().DurationVar(&patience, "wait-timeout", 10*time.Minute, "how long all may take to stop, and to work again")
	f.add(c, s)
	return c
}
