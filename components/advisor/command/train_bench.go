package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/advisor/nn/bench"
)

func newTrainBench() *cobra.Command {
	var rounds int
	var name string
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure updates and inference beside PyTorch",
		Long: `bench measures updates a second of twin quantile critics at three shapes and of RLPD's ten critics, on one thread (processor time) and
on two (the clock), and the time of a choice for one state, each beside PyTorch in turn. Before it is timed, every loss of an update is
compared with PyTorch's. It prints lines of make bench; without torch, figures that need it are undecided.`,
		Example: "  advisor train bench --name learner-update-S",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if rounds < 1 {
				return fmt.Errorf("--rounds is %d; use at least 1", rounds)
			}
			return bench.Run(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), name, rounds)
		},
	}
	c.Flags().IntVar(&rounds, "rounds", 9, "rounds; the figures are medians of them, and the second and the second last decide")
	c.Flags().StringVar(&name, "name", "", "measure only figures whose names contain this")
	return c
}
