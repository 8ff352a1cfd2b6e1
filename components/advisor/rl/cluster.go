package rl

import (
	"fmt"
	"math"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/engine"
	"github.com/berth-hpc/berth/components/advisor/sim/env"
)

// ObservationVersion changes with what a row or the global part means.
const ObservationVersion = "berth.observation/1"

// Features of a row beyond the simulator's: what kind of action it is.
const (
	kindStart = env.Features + iota
	kindDefer
	kindBoost
	rowFeatures
)

// MaxCandidates bounds the actions of a state.
const MaxCandidates = 256

// Weights are what a site wants: completion times, used cards, met deadlines, and no node loaded more than others.
type Weights struct {
	Completion  float64 `json:"completion"`
	Utilisation float64 `json:"utilisation"`
	Miss        float64 `json:"miss"`
	Balance     float64 `json:"balance"`
}

// ClusterConfig describes scheduling on a cluster as an environment.
type ClusterConfig struct {
	Spec     *cluster.Spec
	Episodes Episodes
	Weights  Weights
	// Hour is the unit of discounting and of rewards, in seconds (3600 if 0). A job costs Completion for each such unit in the
	// system: summed over an episode, minus the total of completion times (Little's law).
	Hour  float64
	Gamma float64
	// Candidates, Window and Boosts bound the actions; see package env.
	Candidates, Window, Boosts int
	Seed                       uint64
	// Ended, if set, is told of every job that ended.
	Ended func(*engine.Result)
}

// Cluster is scheduling on a simulated cluster: actions start a job on a node and card, defer, or boost a job that fits nowhere.
type Cluster struct {
	cfg   ClusterConfig
	env   *env.Env
	obs   *env.Observation
	state State
	kind  []int // of each row: index of a candidate, env.Wait, or boost −2−i
}

// NewCluster makes the environment.
func NewCluster(cfg ClusterConfig) (*Cluster, error) {
	if cfg.Hour == 0 {
		cfg.Hour = 3600
	}
	if cfg.Candidates <= 0 {
		cfg.Candidates = 64
	}
	if cfg.Boosts < 0 || cfg.Candidates+cfg.Boosts+1 > MaxCandidates {
		return nil, fmt.Errorf("%d candidates and %d boosts; all actions together are at most %d", cfg.Candidates, cfg.Boosts, MaxCandidates)
	}
	e, err := env.New(env.Config{Spec: cfg.Spec, Seed: cfg.Seed, Candidates: cfg.Candidates, Norm: cfg.Hour, MissCost: cfg.Weights.Miss, Window: cfg.Window,
		Boosts: cfg.Boosts, Ended: cfg.Ended})
	if err != nil {
		return nil, err
	}
	n := cfg.Candidates + cfg.Boosts + 1
	c := &Cluster{cfg: cfg, env: e, kind: make([]int, 0, n)}
	c.state.X, c.state.Global = make([]float32, 0, n*rowFeatures), make([]float32, env.Globals)
	return c, nil
}

// Encoding is how the networks see this environment.
func (c *Cluster) Encoding() Encoding {
	return Encoding{Version: ObservationVersion, Row: rowFeatures, Global: env.Globals, Pool: true, Names: FeatureNames()}
}

// FeatureNames are of a row, and then of the global part.
func FeatureNames() []string {
	return []string{"wait", "limit", "width", "share", "utilisation", "latency", "slack", "speed", "free-after", "card-load", "preempted", "rank",
		"start", "defer", "boost", "waiting", "running", "free", "work"}
}

// Topology names the nodes' types in the site's order.
func Topology(s *cluster.Spec) []string {
	var out []string
	for _, n := range s.Build() {
		if len(n.CardLeft) > 0 {
			out = append(out, n.Type)
		}
	}
	return out
}

// Features are the lengths of a row and of the global part.
func (c *Cluster) Features() (int, int) { return rowFeatures, env.Globals }

// Reset begins an episode.
func (c *Cluster) Reset(episode uint64) error {
	jobs, err := c.cfg.Episodes(episode)
	if err != nil {
		return fmt.Errorf("episode %d: %w", episode, err)
	}
	if c.obs, err = c.env.Reset(jobs); err != nil {
		return fmt.Errorf("episode %d: %w", episode, err)
	}
	c.look()
	return nil
}

// Observe gives the present state. It has at least one row unless the episode is over.
func (c *Cluster) Observe() *State { return &c.state }

// Done says that the episode is over.
func (c *Cluster) Done() bool { return c.state.N == 0 || c.env.Done() }

// look turns the observation into rows.
func (c *Cluster) look() {
	o, s := c.obs, &c.state
	s.X, c.kind = s.X[:0], c.kind[:0]
	row := func(x *[env.Features]float32, kind int, action int) {
		s.X = append(s.X, x[:]...)
		for k := env.Features; k < rowFeatures; k++ {
			v := float32(0)
			if k == kind {
				v = 1
			}
			s.X = append(s.X, v)
		}
		c.kind = append(c.kind, action)
	}
	for i := range o.N {
		row(&o.X[i], kindStart, i)
	}
	if o.N > 0 && c.env.CanWait() {
		var none [env.Features]float32
		row(&none, kindDefer, env.Wait)
	}
	for i := range o.Held {
		row(&o.HX[i], kindBoost, -2-i)
	}
	if o.N == 0 {
		s.X, c.kind = s.X[:0], c.kind[:0]
	}
	s.N = len(c.kind)
	copy(s.Global, o.G[:])
}

// Step takes the action of a row.
func (c *Cluster) Step(action int) (Outcome, error) {
	if action < 0 || action >= len(c.kind) {
		return Outcome{}, fmt.Errorf("action %d is not one of %d", action, len(c.kind))
	}
	used, imbalance := c.env.Used(), c.env.Imbalance()
	var t env.Transition
	var err error
	if k := c.kind[action]; k <= -2 {
		t, err = c.env.Boost(-2 - k)
	} else {
		t, err = c.env.Step(k)
	}
	if err != nil {
		return Outcome{}, err
	}
	c.look()
	hours := t.Elapsed / c.cfg.Hour
	w := &c.cfg.Weights
	flow := float64(-w.Completion*t.Area) + hours*(float64(w.Utilisation*used)-float64(w.Balance*imbalance))
	return Outcome{Reward: flow*c.annuity(hours) - w.Miss*float64(t.Misses), Elapsed: hours, Done: t.Done || c.state.N == 0}, nil
}

// annuity discounts what flows evenly over a step: (1 − γ^h)/(−h·ln γ).
func (c *Cluster) annuity(hours float64) float64 {
	r := -math.Log(c.cfg.Gamma) * hours
	if !(r > 1e-9) {
		return 1
	}
	return -math.Expm1(-r) / r
}

// Jobs gives the fate of the jobs as the environment counts them.
func (c *Cluster) Jobs() *engine.Stats { return c.env.Stats() }
