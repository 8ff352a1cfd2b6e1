package command

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/advisor/rl"
	"github.com/berth-hpc/berth/components/advisor/rl/actors"
)

// digest tells whether a learner and an actor mean the same.
func (f *learnFlags) digest(s *setting) (string, error) {
	p := f.plan
	p.Steps, p.Save = 0, 0
	b, err := json.Marshal([]any{s.learn, p, f.curriculum, f.weights, f.candidates, f.boosts, f.window, f.first, rl.Topology(s.spec), s.spec, s.data})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// collect trains on what actors make, until the steps are done or the context ends.
func (f *learnFlags) collect(ctx context.Context, s *setting, t *rl.Trainer, told func(func() string)) error {
	settings, err := f.digest(s)
	if err != nil {
		return err
	}
	server, err := actors.Listen(f.out, f.listen, settings, t.Episode)
	if err != nil {
		return err
	}
	defer server.Close(5 * time.Second)
	publish := func() {
		server.Publish(actors.Policy{Version: t.Learner.ActorUpdates, Params: slices.Clone(t.Learner.Actor.P), Random: t.Step < f.plan.Warmup})
		t.Episode = server.Episode()
	}
	begin, first := time.Now(), t.Step
	told(func() string {
		return fmt.Sprintf("%d actors  %.0f steps/s  staleness %.1f updates, at most %d", server.Actors(), float64(t.Step-first)/time.Since(begin).Seconds(), t.Stale.Mean(), t.Stale.Max)
	})
	publish()
	return t.Collect(func() *rl.Stretch { return server.Next(ctx) }, publish)
}

func newTrainActor() *cobra.Command {
	f := &learnFlags{}
	var steps int
	var patience time.Duration
	c := &cobra.Command{
		Use:   "actor --out FOLDER --cluster FILE",
		Short: "Act for a learner that listens, and give it the experience",
		Long: `actor takes part in the training of a folder whose learner runs with --listen: it plays episodes with the newest policy and sends them.
The learner's addresses and the secret are in FOLDER/learner.json, so both must see the folder. All flags that decide what is learned must
be the learner's. It waits for a learner, and for one that comes back; it ends when the learner is done.`,
		Example: `  advisor train --cluster clusters/lab.cue --out /home/shared/run --listen :0 &
  advisor train actor --cluster clusters/lab.cue --out /home/shared/run`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.out == "" {
				return fmt.Errorf("--out is missing; name the folder of the training")
			}
			if steps < 1 || steps > 10000 {
				return fmt.Errorf("--stretch is %d; use 1 to 10000", steps)
			}
			s, err := f.setting(rl.Train)
			if err != nil {
				return err
			}
			settings, err := f.digest(s)
			if err != nil {
				return err
			}
			e, err := rl.NewCluster(s.env)
			if err != nil {
				return err
			}
			host, err := os.Hostname()
			if err != nil {
				return err
			}
			a, err := rl.NewActor(fmt.Sprintf("%s.%d.%d", host, os.Getpid(), time.Now().UnixNano()), s.learn, e, e.Encoding())
			if err != nil {
				return err
			}
			begin := time.Now()
			n, err := actors.Act(c.Context(), f.out, settings, a, steps, patience)
			if err != nil && !(errors.Is(err, context.Canceled) && c.Context().Err() != nil) {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "acted %d steps, %.0f a second\n", n, float64(n)/time.Since(begin).Seconds())
			return err
		},
	}
	f.register(c)
	c.Flags().StringVar(&f.out, "out", "", "folder of the training")
	c.Flags().StringVar(&f.arm, "arm", "rdsac_mean", "learner: sac, rdsac_mean or rdsac_cvar")
	c.Flags().Uint64Var(&f.config.Seed, "seed", 42, "seed of the training")
	c.Flags().IntVar(&steps, "stretch", 32, "steps that are sent together")
	c.Flags().DurationVar(&patience, "patience", 5*time.Minute, "how long to wait for a learner")
	return c
}
