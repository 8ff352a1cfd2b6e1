package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/advisor/rl"
)

func newCheckpoint() *cobra.Command {
	c := &cobra.Command{
		Use:   "checkpoint",
		Short: "Look at trained policies, verify and evaluate them",
	}
	c.AddCommand(newCheckpointInspect(), newCheckpointVerify(), newCheckpointEvaluate())
	return c
}

// checkpointPath is a file, or the newest checkpoint of a training's folder.
func checkpointPath(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("there is no checkpoint: %w", err)
	}
	if !st.IsDir() {
		return path, nil
	}
	latest, err := rl.ReadLatest(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return filepath.Join(path, "checkpoints", latest.Checkpoint+".safetensors"), nil
}

func loadCheckpoint(path string) (*rl.Checkpoint, error) {
	p, err := checkpointPath(path)
	if err != nil {
		return nil, err
	}
	return rl.LoadCheckpoint(p)
}

func newCheckpointInspect() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:     "inspect FILE|FOLDER",
		Short:   "Print what a checkpoint says of itself",
		Example: "  advisor checkpoint inspect runs/lab-42\n  advisor checkpoint inspect runs/lab-42 --output json",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ck, err := loadCheckpoint(args[0])
			if err != nil {
				return err
			}
			switch output {
			case "json":
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(struct {
					Digest string `json:"digest"`
					rl.Header
				}{ck.Digest, ck.Header})
			case "text":
				return inspect(c.OutOrStdout(), ck)
			}
			return fmt.Errorf("--output is %q; use text or json", output)
		},
	}
	c.Flags().StringVar(&output, "output", "text", "text or json")
	return c
}

func inspect(w io.Writer, ck *rl.Checkpoint) error {
	h := &ck.Header
	params := len(ck.Actor.P)
	for _, n := range ck.Critics {
		params += len(n.P)
	}
	risk := h.Config.Risk
	if risk == rl.RiskCVaR {
		risk = fmt.Sprintf("cvar at %g", h.Config.CVaR)
	}
	_, err := fmt.Fprintf(w, "digest       sha256:%s\nlearner      iqn %v, risk %s, %d critics, hidden %v\nparameters   %d\nobservation  %s, %d features a row\ntopology     %s\ndata         %s %s %s\nseed         %d\nsteps        %d (%d critic updates)\nrevision     %s\nreward scale %.6g\nvalues       %.4g\n",
		ck.Digest, h.Config.IQN, risk, h.Config.Critics, h.Config.Hidden, params, h.Encoding.Version, h.Encoding.Width(), strings.Join(h.Topology, " "),
		h.Data.Source, h.Data.Split, h.Data.Digest, h.Seed, h.Steps, h.Updates, h.Revision, h.RewardScale, h.ValueQuantiles)
	return err
}

func newCheckpointVerify() *cobra.Command {
	var site string
	c := &cobra.Command{
		Use:     "verify FILE|FOLDER…",
		Short:   "Check that checkpoints are whole, and fit a cluster",
		Example: "  advisor checkpoint verify runs/*\n  advisor checkpoint verify policy.safetensors --cluster clusters/lab.cue",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			bad := 0
			for _, a := range args {
				ck, err := loadCheckpoint(a)
				note := ""
				if err == nil && site != "" {
					f := &learnFlags{cluster: site}
					spec, e := f.spec()
					if e != nil {
						return e
					}
					note, err = ck.Header.CheckTopology(rl.Topology(spec))
				}
				if err != nil {
					bad++
					fmt.Fprintf(c.OutOrStdout(), "%s: REFUSED: %v\n", a, err)
					continue
				}
				if note != "" {
					note = " (" + note + ")"
				}
				fmt.Fprintf(c.OutOrStdout(), "%s: ok, sha256:%s%s\n", a, ck.Digest, note)
			}
			if bad > 0 {
				return problems{fmt.Sprintf("%d of %d checkpoints refused", bad, len(args))}
			}
			return nil
		},
	}
	c.Flags().StringVar(&site, "cluster", "", "cluster that they must fit: a JSON description or a site file")
	return c
}

func newCheckpointEvaluate() *cobra.Command {
	f := &learnFlags{}
	var baselines []string
	var episodes int
	var split, act string
	var jobs int
	var load float64
	c := &cobra.Command{
		Use:   "evaluate FILE|FOLDER --cluster FILE [--trace FILE --split test]",
		Short: "Run a policy and textbook baselines over the same held-out episodes",
		Long: `evaluate prints a line a policy and episode: mean, 95th and 99th percentile and CVaR95 of completion time, longest wait, missed
deadlines, and the 99th percentile of the latency class. Data that the policy was trained on are refused.`,
		Example: "  advisor checkpoint evaluate runs/lab-42 --cluster clusters/lab.cue --episodes 8 --jobs-each 300 --load 0.95",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ck, err := loadCheckpoint(args[0])
			if err != nil {
				return err
			}
			f.curriculum = rl.Curriculum{JobsFrom: jobs, JobsTo: jobs, LoadFrom: load, LoadTo: load}
			f.config = ck.Header.Config
			s, err := f.setting(split)
			if err != nil {
				return err
			}
			if s.data.Digest == "" {
				s.data.Last = f.first + uint64(episodes)
			}
			if err := ck.Header.Data.Overlap(s.data); err != nil {
				return fmt.Errorf("the policy was trained on what it is to be evaluated on: %w", err)
			}
			note, err := ck.Header.CheckTopology(rl.Topology(s.spec))
			if err != nil {
				return err
			}
			if note != "" {
				fmt.Fprintln(c.ErrOrStderr(), "advisor: note:", note)
			}
			return evaluate(c.OutOrStdout(), ck, s, act, baselines, episodes)
		},
	}
	f.register(c)
	for _, name := range []string{"first-episode"} {
		if err := errors.Join(c.Flags().Set(name, "1")); err != nil {
			panic(err) // the flag was registered above
		}
	}
	c.Flags().StringSliceVar(&baselines, "baselines", []string{"fcfs", "fcfs+easy", "sjf+easy", "saf+easy"}, "policies of the simulator to run beside it")
	c.Flags().StringVar(&act, "act", rl.ActGreedy, "how the policy acts: greedy (the actor's likeliest action), sample (drawn from the actor, as in training) or value (what the critics value most)")
	c.Flags().IntVar(&episodes, "episodes", 8, "episodes")
	c.Flags().StringVar(&split, "split", rl.Test, "split of the trace")
	c.Flags().IntVar(&jobs, "jobs-each", 300, "jobs an episode")
	c.Flags().Float64Var(&load, "load", .95, "offered load of generated episodes")
	return c
}

func evaluate(w io.Writer, ck *rl.Checkpoint, s *setting, act string, baselines []string, episodes int) error {
	fmt.Fprintf(w, "%-12s %7s %9s %9s %9s %9s %9s %7s %9s %8s\n", "policy", "episode", "meanJCT", "p95JCT", "p99JCT", "CVaR95", "maxWait", "missed", "p99lat", "starved")
	for e := range uint64(episodes) {
		row := func(name string, f rl.Fates) {
			a := &f.All
			fmt.Fprintf(w, "%-12s %7d %9.1f %9.1f %9.1f %9.1f %9.1f %7d %9.1f %8d\n", name, e, a.MeanJCT, a.P95JCT, a.P99JCT, a.CVaR95, a.Max, a.Violations, f.Latency.P99JCT, f.Starved)
		}
		f, err := rl.Evaluate(ck, s.env, act, e)
		if err != nil {
			return err
		}
		row("learned", f)
		for _, b := range baselines {
			if f, err = rl.EvaluateBaseline(b, s.env, e); err != nil {
				return err
			}
			row(b, f)
		}
	}
	return nil
}
