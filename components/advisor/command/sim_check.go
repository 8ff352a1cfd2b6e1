package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/advisor/sim/anchor"
	"github.com/berth-hpc/berth/components/advisor/sim/bench"
)

func newSimAnchors() *cobra.Command {
	var shared string
	c := &cobra.Command{
		Use:   "anchors [GROUP…]",
		Short: "Compute every cell of the published tables and say which come out",
		Long: `anchors prints one line a cell: anchor, cell, the published value, ours, and ok or short. Groups are lublin (with the
textbook table), hpc2n, muri and openb. It exits with 1 if a cell is short.`,
		RunE: func(c *cobra.Command, args []string) error {
			short, err := anchor.Run(c.OutOrStdout(), shared, args...)
			if err != nil {
				return err
			}
			if short > 0 {
				return problems{fmt.Sprintf("%d cells are short", short)}
			}
			return nil
		},
	}
	c.Flags().StringVar(&shared, "shared", "../shared", "folder that holds traces/ and golden/")
	return c
}

func newSimBench() *cobra.Command {
	var shared, only string
	var megabytes int64
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the simulator's speed beside a plain Python simulator",
		Long: `bench prints one line a measurement: name, value, unit, ratio to what it is compared with, goal, and ok, short or undecided
(what it needs is not there). Times are processor times, so that other work on the machine changes them little.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return bench.Run(c.OutOrStdout(), shared, only, megabytes)
		},
	}
	c.Flags().StringVar(&shared, "shared", "../shared", "folder that holds traces/")
	c.Flags().Int64Var(&megabytes, "megabytes", 2048, "how long the file of large is")
	c.Flags().StringVar(&only, "only", "", "one of python, million, growth, philly, openb, env; and large, a long file read as a stream, which is measured only when named")
	return c
}
