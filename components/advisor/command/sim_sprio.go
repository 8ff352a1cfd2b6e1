package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/advisor/sim/sprio"
)

func newSimSprio() *cobra.Command {
	var lines strings.Builder
	for _, k := range sprio.Commands {
		fmt.Fprintf(&lines, "\n  %s > %s", k.Line, k.Name)
	}
	return &cobra.Command{
		Use:   "sprio DIRECTORY",
		Short: "Compare the priorities that a slurmctld computed with the simulator's",
		Long: `sprio computes the multifactor priority of every pending job from what Slurm's commands have printed into files of a
directory, and compares it, part by part, with what slurmctld computed. It exits with 1 if any differs by more than rounding. On a
host with Slurm's commands:
` + lines.String(),
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			capture := sprio.Capture{}
			for _, k := range sprio.Commands {
				b, err := os.ReadFile(filepath.Join(args[0], k.Name))
				if err != nil {
					return fmt.Errorf("cannot read the output of `%s`: %w", k.Line, err)
				}
				capture[k.Name] = string(b)
			}
			r, err := sprio.Check(capture)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return printSprio(c, r)
		},
	}
}

func printSprio(c *cobra.Command, r *sprio.Report) error {
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "job\tage\tfair share\tjob size\tpartition\tQOS\tpriority\tours\tdiffers\t")
	bad := 0
	for _, row := range r.Rows {
		t := row.Theirs
		if len(row.Differs) > 0 {
			bad++
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%s\t\n", row.Job, t.Age, t.FairShare, t.JobSize, t.Partition, t.QOS, t.Priority, row.Ours.Priority, strings.Join(row.Differs, ", "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range r.SharesDiffer {
		fmt.Fprintln(c.OutOrStdout(), "fair share of", s)
	}
	kept := "kept apart"
	if r.Merged {
		kept = "ranked together"
	}
	fmt.Fprintf(c.OutOrStdout(), "%d of %d jobs and %d of %d fair-share factors agree (accounts of equal level fair share %s)\n",
		len(r.Rows)-bad, len(r.Rows), r.Shares-len(r.SharesDiffer), r.Shares, kept)
	if !r.Agrees() {
		return problems{"slurmctld and the simulator differ"}
	}
	return nil
}
