package command

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-hpc/berth/components/advisor/rl"
	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/generate"
	"github.com/berth-hpc/berth/components/advisor/sim/sitecluster"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
	"github.com/berth-hpc/berth/components/advisor/tensorboard"
)

// arms name the learners that are compared.
var arms = map[string]func(*rl.Config){
	"sac":        func(c *rl.Config) { c.IQN, c.Risk = false, rl.RiskMean },
	"rdsac_mean": func(c *rl.Config) { c.IQN, c.Risk = true, rl.RiskMean },
	"rdsac_cvar": func(c *rl.Config) { c.IQN, c.Risk = true, rl.RiskCVaR },
}

// learnFlags are the flags of everything that trains.
type learnFlags struct {
	trace              traceFlags
	cluster, out, arm  string
	noIQN, fast        bool
	quantiles          []int
	config             rl.Config
	plan               rl.Plan
	curriculum         rl.Curriculum
	weights            rl.Weights
	candidates, boosts int
	window, threads    int
	first              uint64
	quiet              bool
	listen             string
}

func (f *learnFlags) register(c *cobra.Command) {
	f.trace.register(c)
	f.config = rl.Defaults()
	s := c.Flags()
	s.StringVar(&f.cluster, "cluster", "", "cluster to learn on: a JSON description or a site file (clusters/lab.cue)")
	s.BoolVar(&f.noIQN, "no-iqn", false, "critics give one value instead of a law")
	s.BoolVar(&f.fast, "fast", false, "8 quantile fractions everywhere (the default; undoes --quantiles)")
	s.IntSliceVar(&f.quantiles, "quantiles", []int{8, 8, 8}, "quantile fractions of the estimate, the target and the actor (N,N′,K)")
	s.Float64Var(&f.config.CVaR, "cvar", f.config.CVaR, "level of the CVaR that rdsac_cvar maximises")
	s.Int64Var(&f.config.AnnealSteps, "anneal", f.config.AnnealSteps, "updates over which the level goes from 1 to --cvar")
	s.IntVar(&f.config.Critics, "critics", f.config.Critics, "size of the ensemble of critics")
	s.IntSliceVar(&f.config.Hidden, "hidden", f.config.Hidden, "widths of hidden layers")
	s.Float64Var(&f.config.Gamma, "gamma", f.config.Gamma, "discount over an hour")
	s.IntVar(&f.config.Batch, "batch", f.config.Batch, "transitions in a batch")
	s.Float64Var(&f.config.ActorRate, "actor-rate", f.config.ActorRate, "learning rate of the actor")
	s.Float64Var(&f.config.CriticRate, "critic-rate", f.config.CriticRate, "learning rate of the critics")
	s.BoolVar(&f.config.FixedAlpha, "fixed-alpha", false, "keep the temperature at --init-alpha")
	s.Float64Var(&f.config.InitAlpha, "init-alpha", f.config.InitAlpha, "temperature to start with")
	s.Float64Var(&f.config.EntropyTarget, "entropy-target", f.config.EntropyTarget, "entropy to aim at, as a part of log|A| of each state")
	s.BoolVar(&f.config.BackupEntropy, "backup-entropy", false, "put the entropy into the critics' target")
	s.BoolVar(&f.config.NormalizeReward, "normalize-reward", f.config.NormalizeReward, "divide rewards by the deviation of returns (never shift them)")
	s.Int64Var(&f.plan.Steps, "steps", 70000, "steps of the environment, in all")
	s.Int64Var(&f.plan.Warmup, "warmup", 2000, "first steps, taken at random")
	s.Int64Var(&f.plan.Every, "update-every", 1, "steps between updates")
	s.Int64Var(&f.plan.Save, "save-every", 2000, "steps between checkpoints")
	s.IntVar(&f.plan.Replay, "replay", 50000, "transitions kept")
	s.IntVar(&f.curriculum.JobsFrom, "jobs-from", 64, "jobs of the first episodes")
	s.IntVar(&f.curriculum.JobsTo, "jobs-to", 256, "jobs of the last episodes")
	s.Float64Var(&f.curriculum.LoadFrom, "load-from", .7, "offered load of the first episodes")
	s.Float64Var(&f.curriculum.LoadTo, "load-to", .95, "offered load of the last episodes")
	s.Uint64Var(&f.curriculum.Episodes, "curriculum", 200, "episodes over which length and load rise")
	s.Float64Var(&f.weights.Completion, "weight-completion", 1, "cost of an hour of a job in the system")
	s.Float64Var(&f.weights.Utilisation, "weight-utilisation", 0, "worth of an hour with all cards in use")
	s.Float64Var(&f.weights.Miss, "weight-miss", 0, "cost of a missed deadline")
	s.Float64Var(&f.weights.Balance, "balance-coef", 0, "cost of an hour at unit variance of the nodes' load (against concentration)")
	s.IntVar(&f.candidates, "candidates", 64, "starts considered at a time")
	s.IntVar(&f.boosts, "boosts", 8, "held jobs that may be boosted at a time")
	s.IntVar(&f.window, "window", 48, "waiting jobs looked at")
	s.IntVar(&f.threads, "threads", runtime.GOMAXPROCS(0), "threads (they change nothing in the result)")
	s.Uint64Var(&f.first, "first-episode", 1_000_000, "seed of the first generated episode; keep those of an evaluation out of reach")
	s.BoolVar(&f.quiet, "quiet", false, "no progress line")
}

// spec reads the cluster.
func (f *learnFlags) spec() (*cluster.Spec, error) {
	switch {
	case f.cluster == "":
		return nil, fmt.Errorf("--cluster is missing; name a site file such as clusters/lab.cue or a JSON description")
	case strings.HasSuffix(f.cluster, ".cue"):
		s, _, err := sitecluster.Load(f.cluster)
		return s, err
	}
	return cluster.LoadSpec(f.cluster)
}

// setting is what a command trains on.
type setting struct {
	spec  *cluster.Spec
	env   rl.ClusterConfig
	data  rl.Data
	learn rl.Config
}

func (f *learnFlags) setting(split string) (*setting, error) {
	spec, err := f.spec()
	if err != nil {
		return nil, err
	}
	// Processors cannot be placed on: pools without cards stay out.
	with := *spec
	with.Pools = nil
	for _, p := range spec.Pools {
		if p.GPUs > 0 {
			with.Pools = append(with.Pools, p)
		}
	}
	if len(with.Pools) == 0 {
		return nil, fmt.Errorf("%s has no cards to schedule", f.cluster)
	}
	s := &setting{spec: &with, learn: f.config}
	c := &s.learn
	if f.arm != "" {
		set, ok := arms[f.arm]
		if !ok {
			return nil, fmt.Errorf("there is no arm %q; use sac, rdsac_mean or rdsac_cvar", f.arm)
		}
		set(c)
	}
	if f.noIQN {
		c.IQN, c.Risk = false, rl.RiskMean
	}
	if f.fast {
		f.quantiles = []int{8, 8, 8}
	}
	if len(f.quantiles) != 3 {
		return nil, fmt.Errorf("--quantiles has %d numbers; give three, as in 8,8,8", len(f.quantiles))
	}
	c.Taus, c.TargetTaus, c.ActTaus = f.quantiles[0], f.quantiles[1], f.quantiles[2]
	c.Subset = min(2, c.Critics)
	if err := c.Validate(); err != nil {
		return nil, err
	}
	k := &f.curriculum
	if k.JobsFrom < 2 || k.JobsTo < 2 || !(k.LoadFrom > 0) || !(k.LoadTo > 0) {
		return nil, fmt.Errorf("episodes have %d to %d jobs at loads of %g to %g; use at least 2 jobs and loads above 0", k.JobsFrom, k.JobsTo, k.LoadFrom, k.LoadTo)
	}
	s.env = rl.ClusterConfig{Spec: s.spec, Weights: f.weights, Gamma: c.Gamma, Candidates: f.candidates, Window: f.window, Boosts: f.boosts, Seed: 1}
	return s, f.episodes(s, split)
}

// episodes sets where jobs come from: a trace's split, or the generated mix.
func (f *learnFlags) episodes(s *setting, split string) error {
	widest := 0
	capacity := 0.0
	for _, p := range s.spec.Pools {
		widest = max(widest, p.GPUs)
		speed := p.Speed
		if speed == 0 {
			speed = 1
		}
		capacity += speed * float64(p.Nodes*p.GPUs)
	}
	if f.trace.path == "" {
		mix := generate.Mix{Kinds: generate.AIMix, Cards: capacity, Estimate: 2, MaxCards: int32(widest), Users: 4}
		s.env.Episodes = rl.FromMix(mix, f.curriculum, f.first)
		s.data = rl.Data{Source: "generated: ai", First: f.first, Last: math.MaxUint64}
		if split == rl.Train {
			s.data.Last = f.first + 1_000_000
		}
		return nil
	}
	t, err := f.trace.open()
	if err != nil {
		return err
	}
	defer t.close()
	all, err := workload.Collect(t.src)
	if err != nil {
		return err
	}
	digest, err := rl.Digest(all)
	if err != nil {
		return err
	}
	jobs, err := rl.SplitJobs(all, split)
	if err != nil {
		return err
	}
	fit := jobs[:0:0]
	for _, j := range jobs {
		if j.GPUs >= 1 && int(j.GPUs) <= widest {
			fit = append(fit, j)
		}
	}
	if len(fit) < f.curriculum.JobsTo {
		return fmt.Errorf("the %s split of %s has %d jobs that fit on a node of the cluster; shorten episodes with --jobs-to, or use more data", split, f.trace.path, len(fit))
	}
	s.env.Episodes = rl.FromJobs(fit, f.curriculum, f.first)
	s.data = rl.Data{Source: filepath.Base(f.trace.path), Digest: digest, Split: split, From: fit[0].Submit, To: fit[len(fit)-1].Submit + 1}
	return nil
}

func newTrain() *cobra.Command {
	f := &learnFlags{}
	c := &cobra.Command{
		Use:   "train --cluster FILE --out FOLDER [--arm sac|rdsac_mean|rdsac_cvar] [--trace FILE]",
		Short: "Train a scheduling policy in the simulator",
		Long: `train learns a policy for a cluster by discrete soft actor-critic, with or without the law of returns and a risk measure. It
learns on a trace's training split, or on a generated AI mix. Equal settings and seeds give equal bytes.

The folder gets checkpoints (safetensors, named after their sha256), the state to resume from, latest.json, which names the newest of
both, progress.csv, and TensorBoard's event files. A training that was interrupted in any way goes on when the same command is given again, and ends with the
bytes it would have ended with.`,
		Example: `  advisor train --cluster clusters/lab.cue --out runs/lab-42 --arm rdsac_cvar --seed 42
  advisor train --cluster clusters/lab.cue --trace history.txt --out runs/history-42`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.train(c) },
	}
	f.register(c)
	c.Flags().StringVar(&f.out, "out", "", "folder of the training")
	c.Flags().StringVar(&f.arm, "arm", "rdsac_mean", "learner: sac, rdsac_mean or rdsac_cvar")
	c.Flags().Uint64Var(&f.config.Seed, "seed", 42, "seed of weights, batches and actions")
	c.Flags().StringVar(&f.listen, "listen", "", "let advisor train actor do the acting, from here or elsewhere, and listen for it on this address, as in :0")
	c.AddCommand(newTrainReport(), newTrainBench(), newTrainActor())
	return c
}

func (f *learnFlags) train(c *cobra.Command) error {
	s, err := f.setting(rl.Train)
	if err != nil {
		return err
	}
	return f.run(c, s, nil, nil)
}

// run makes the trainer, resumes what there is, and trains.
func (f *learnFlags) run(c *cobra.Command, s *setting, offline *rl.Replay, from *rl.Checkpoint) error {
	if f.out == "" {
		return fmt.Errorf("--out is missing; name the folder that the training lives in")
	}
	e, err := rl.NewCluster(s.env)
	if err != nil {
		return err
	}
	l, err := rl.NewLearner(s.learn, e.Encoding())
	if err != nil {
		return err
	}
	defer l.Close()
	l.Threads = f.threads
	if from != nil {
		if err := l.StartFrom(from); err != nil {
			return err
		}
	}
	t, err := rl.NewTrainer(f.plan, l, e)
	if f.listen != "" {
		t, err = rl.NewCollector(f.plan, l)
	}
	if err != nil {
		return err
	}
	t.Dir, t.Offline = f.out, offline
	t.Header = rl.Header{Topology: rl.Topology(s.spec), Data: s.data, Revision: revision(), Actors: f.listen != ""}
	t.Warn = func(w string) { fmt.Fprintln(c.ErrOrStderr(), "advisor: warning:", w) }
	err = t.Resume()
	switch {
	case errors.Is(err, rl.ErrFresh):
	case err != nil:
		return err
	default:
		fmt.Fprintf(c.ErrOrStderr(), "resumed at step %d of %d\n", t.Step, f.plan.Steps)
	}
	return f.drive(c, s, t)
}

func (f *learnFlags) drive(c *cobra.Command, s *setting, t *rl.Trainer) error {
	begin, first := time.Now(), t.Step
	line := progressLine(c, f.quiet)
	events, err := tensorboard.Create(f.out, t.Step, begin)
	if err != nil {
		return err
	}
	defer events.Close()
	var acting func() string
	t.Progress = func(p rl.Point) {
		values := scalars(&p)
		if acting != nil {
			values["actors/staleness"], values["actors/steps_per_second"] = t.Stale.Mean(), float64(t.Step-first)/time.Since(begin).Seconds()
		}
		if err := events.Scalars(time.Now(), p.Step, values); err != nil && t.Warn != nil {
			t.Warn(err.Error())
		}
		rate := float64(t.Step-first) / time.Since(begin).Seconds()
		eta := time.Duration(float64(f.plan.Steps-t.Step)/max(rate, 1e-9)) * time.Second
		line(fmt.Sprintf("step %d of %d  %.0f/s  ETA %s  return %.4g  entropy %.3f  α %.4f  Q %.4g ± %.2g", p.Step, f.plan.Steps, rate, eta, p.Return, p.Entropy, p.Alpha, p.Q, p.Spread))
		if acting != nil {
			fmt.Fprintln(c.ErrOrStderr(), acting())
		}
	}
	ctx := c.Context()
	if f.listen == "" {
		err = t.Run(func() bool { return ctx.Err() != nil })
	} else {
		err = f.collect(ctx, s, t, func(said func() string) { acting = said })
	}
	line("")
	if err != nil {
		return fmt.Errorf("%w\nthe last whole checkpoint in %s stays in force", err, f.out)
	}
	if t.Step < f.plan.Steps {
		if err := t.Save(); err != nil {
			return err
		}
		return fmt.Errorf("interrupted at step %d of %d; the same command goes on from there", t.Step, f.plan.Steps)
	}
	latest, err := rl.ReadLatest(f.out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "trained %d steps: %s\n", latest.Step, filepath.Join(f.out, "checkpoints", latest.Checkpoint+".safetensors"))
	return err
}

// scalars names a point's figures for TensorBoard, in groups.
func scalars(p *rl.Point) map[string]float64 {
	return map[string]float64{"episode/return": p.Return, "episode/length": p.Length, "loss/critic": p.Critic, "loss/actor": p.Actor, "policy/entropy": p.Entropy,
		"policy/alpha": p.Alpha, "value/q": p.Q, "value/q_spread": p.Spread, "value/cvar_level": p.Level}
}

// progressLine writes over one line of a terminal, or a line each where there is none. The empty string ends it.
func progressLine(c *cobra.Command, quiet bool) func(string) {
	w := c.ErrOrStderr()
	if quiet {
		return func(string) {}
	}
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return func(s string) {
			if s == "" {
				s = "\n"
			} else {
				s = "\r\x1b[K" + s
			}
			fmt.Fprint(w, s)
		}
	}
	return func(s string) {
		if s != "" {
			fmt.Fprintln(w, s)
		}
	}
}

// revision is the git revision that the program was built from, where the build knew.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return Version
}
