package command

import (
	"errors"
	"fmt"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/advisor/transition"
)

func newLog() *cobra.Command {
	c := &cobra.Command{
		Use:   "log",
		Short: "Check, summarize and export the record of what happened to jobs",
		Long:  `log reads the directory that advisor serve --log writes: each job's features, the advice, where Slurm put it, and how it ended.`,
	}
	c.AddCommand(newLogVerify(), newLogStats(), newLogExport())
	return c
}

func newLogVerify() *cobra.Command {
	return &cobra.Command{
		Use:     "verify DIR",
		Short:   "Check every line's checksum, schema and form",
		Example: "  advisor log verify /var/spool/slurm/advisor/log",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			good, bad := 0, 0
			err := transition.Read(args[0], func(*transition.Record) error { good++; return nil }, func(p transition.Problem) error {
				// The last line of a log in use may be half written.
				if !errors.Is(p.Why, transition.ErrTorn) {
					bad++
				}
				_, err := fmt.Fprintln(c.OutOrStdout(), p.Error())
				return err
			})
			if err != nil {
				return err
			}
			if good+bad == 0 {
				return fmt.Errorf("%s holds no records; is it the directory given to advisor serve --log?", args[0])
			}
			if bad > 0 {
				return problems{fmt.Sprintf("%d of %d records can't be read", bad, good+bad)}
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%d records, all good\n", good)
			return err
		},
	}
}

// skipping gives the log's jobs; lines that can't be read are counted on standard error.
func skipping(c *cobra.Command, dir string) ([]transition.Row, error) {
	bad := 0
	rows, err := transition.Rows(dir, func(transition.Problem) error { bad++; return nil })
	if bad > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "%d lines can't be read and are left out; advisor log verify names them\n", bad)
	}
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("%s holds no records; is it the directory given to advisor serve --log?", dir)
	}
	return rows, err
}

func newLogStats() *cobra.Command {
	return &cobra.Command{
		Use:   "stats DIR",
		Short: "Count jobs, advice and waits",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			rows, err := skipping(c, args[0])
			if err != nil {
				return err
			}
			s := transition.Summarize(rows)
			_, err = fmt.Fprintf(c.OutOrStdout(), `jobs       %d
started    %d
ended      %d
advised    %d
abstained  %d
wait       %d s p50, %d s p95, %d s p99
JCT        %d s p50, %d s p95, %d s p99
`, s.Jobs, s.Started, s.Ended, s.Advised, s.Abstained, s.Wait[0], s.Wait[1], s.Wait[2], s.JCT[0], s.JCT[1], s.JCT[2])
			return err
		},
	}
}

func newLogExport() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:     "export DIR --out FILE",
		Short:   "Write one row a job as Parquet",
		Example: "  advisor log export /var/spool/slurm/advisor/log --out jobs.parquet",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if out == "" {
				return errors.New("--out is missing; name the Parquet file to write")
			}
			rows, err := skipping(c, args[0])
			if err != nil {
				return err
			}
			file, err := renameio.NewPendingFile(out, renameio.WithPermissions(0o644))
			if err != nil {
				return err
			}
			defer func() { _ = file.Cleanup() }()
			if err := transition.Export(file, rows); err != nil {
				return err
			}
			if err := file.CloseAtomicallyReplace(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %d jobs\n", out, len(rows))
			return err
		},
	}
	c.Flags().StringVar(&out, "out", "", "Parquet file to write")
	return c
}
