package command

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/advisor/rl"
)

func newFinetune() *cobra.Command {
	f := &learnFlags{}
	var from string
	var utd int
	c := &cobra.Command{
		Use:   "finetune --from FOLDER --cluster FILE --out FOLDER [--trace FILE]",
		Short: "Go on learning from other data, with the old experience at hand (RLPD)",
		Long: `finetune takes the newest policy of a training and goes on learning, after RLPD (Ball et al. 2023): one half of each batch is the
training's own experience (offline), the other half is new (online), from the trace or mix given here. Ten critics with LayerNorm, the
least of two drawn at random in the target, the mean of all in the actor. The scale of rewards stays what it was.`,
		Example: "  advisor finetune --from runs/lab-42 --cluster clusters/lab.cue --trace history.txt --out runs/lab-42-history",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if from == "" {
				return fmt.Errorf("--from is missing; name the folder of a training")
			}
			latest, err := rl.ReadLatest(from)
			if err != nil {
				return fmt.Errorf("%s: %w", from, err)
			}
			old, err := rl.LoadCheckpoint(filepath.Join(from, "checkpoints", latest.Checkpoint+".safetensors"))
			if err != nil {
				return err
			}
			offline, err := rl.LoadReplay(from)
			if err != nil {
				return err
			}
			// The actor keeps its shape; what the old training chose, this one keeps unless told otherwise.
			cfg, seed := old.Header.Config, f.config.Seed
			for name, keep := range map[string]func(){
				"cvar": func() { cfg.CVaR = f.config.CVaR }, "gamma": func() { cfg.Gamma = f.config.Gamma },
				"actor-rate": func() { cfg.ActorRate = f.config.ActorRate }, "critic-rate": func() { cfg.CriticRate = f.config.CriticRate },
			} {
				if c.Flags().Changed(name) {
					keep()
				}
			}
			s, err := f.setting(rl.Train)
			if err != nil {
				return err
			}
			cfg = cfg.RLPD(utd)
			cfg.Seed = seed
			// The anneal of risk is over.
			cfg.AnnealSteps = 0
			s.learn, s.env.Gamma = cfg, cfg.Gamma
			if note, err := old.Header.CheckTopology(rl.Topology(s.spec)); err != nil {
				return err
			} else if note != "" {
				fmt.Fprintln(c.ErrOrStderr(), "advisor: note:", note)
			}
			return f.run(c, s, offline, old)
		},
	}
	f.register(c)
	c.Flags().StringVar(&f.out, "out", "", "folder of the new training")
	c.Flags().StringVar(&from, "from", "", "folder of the training to begin with")
	c.Flags().IntVar(&utd, "utd", 4, "critic updates for one step")
	c.Flags().Uint64Var(&f.config.Seed, "seed", 42, "seed of batches and actions")
	return c
}
