package rl

import (
	"fmt"
	"math"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/nn"
	"github.com/berth-hpc/berth/components/advisor/sim/engine"
	"github.com/berth-hpc/berth/components/advisor/sim/experiment"
	"github.com/berth-hpc/berth/components/advisor/sim/metrics"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Chooser picks an action of a state. It keeps memory between calls and is for one goroutine.
type Chooser struct {
	Encoding Encoding
	Actor    *nn.Net[float32]
	scratch  nn.Scratch[float32]
	x, y     []float32
}

// Scores gives the actor's logits for a state's rows, valid until the next call. Once its memory has grown it allocates nothing.
func (c *Chooser) Scores(s *State) []float32 {
	c.x = c.Encoding.Encode(c.x[:0], s)
	c.y = grow(c.y, s.N)
	c.Actor.Forward(&c.scratch, s.N, c.x, c.y)
	return c.y
}

// Best is the row with the highest score, the first of equals.
func (c *Chooser) Best(s *State) int {
	best := 0
	y := c.Scores(s)
	for i, v := range y {
		if v > y[best] {
			best = i
		}
	}
	return best
}

// Ways to choose with a checkpoint.
const (
	// ActGreedy takes the action that the actor finds most likely.
	ActGreedy = "greedy"
	// ActSample draws from the actor, as in training. Where many actions are nearly alike, such as starts of like jobs, the likeliest
	// single one may be another kind of action, and unlike what the policy mostly does.
	ActSample = "sample"
	// ActValue takes the action that the critics value most, by the risk that the checkpoint was trained for.
	ActValue = "value"
)

// fractions of the midpoints of so many equal parts of (0, level).
const valueTaus = 32

// values puts what the checkpoint's critics think of every row into q.
func (c *Checkpoint) values(s *nn.Scratch[float32], x, cos []float32, n int, one, q []float32) {
	clear(q)
	for _, critic := range c.Critics {
		if c.Header.Config.IQN {
			critic.MeanQuantiles(s, &nn.Rows[float32]{N: n, X: x, State: make([]int32, n), States: 1, Taus: valueTaus, Cos: cos}, one)
		} else {
			critic.Forward(s, n, x, one)
		}
		for i, v := range one {
			q[i] += v
		}
	}
}

// chooserOf gives a way to choose.
func chooserOf(c *Checkpoint, act string, seed uint64) (func(*State) int, error) {
	ch := &Chooser{Encoding: c.Header.Encoding, Actor: c.Actor}
	switch act {
	case "", ActGreedy:
		return ch.Best, nil
	case ActSample:
		rng := NewSource(seed, purposeAct)
		var p []float32
		return func(s *State) int {
			y := ch.Scores(s)
			p = grow(p, s.N)
			nn.Softmax(y, y, p)
			return draw(p, rng.Float32())
		}, nil
	case ActValue:
		var scratch nn.Scratch[float32]
		var x, one, q []float32
		cfg := &c.Header.Config
		taus, cos := make([]float32, valueTaus), make([]float32, valueTaus*cfg.Cosines)
		for i := range taus {
			taus[i] = float32(cfg.level(math.MaxInt64) * (float64(i) + .5) / valueTaus)
		}
		nn.Cosines(cos, taus, cfg.Cosines)
		return func(s *State) int {
			x = c.Header.Encoding.Encode(x[:0], s)
			one, q = grow(one, s.N), grow(q, s.N)
			c.values(&scratch, x, cos, s.N, one, q)
			best := 0
			for i, v := range q {
				if v > q[best] {
					best = i
				}
			}
			return best
		}, nil
	}
	return nil, fmt.Errorf("a policy cannot act by %q; use %s, %s or %s", act, ActGreedy, ActSample, ActValue)
}

// Fates are the ends of the jobs of one episode: of all, and of the latency class.
type Fates struct {
	All, Latency metrics.Summary
	// Starved counts jobs that never started.
	Starved int
}

// Evaluate runs a policy over an episode of a cluster, choosing as act says.
func Evaluate(c *Checkpoint, cfg ClusterConfig, act string, episode uint64) (Fates, error) {
	var all, latency metrics.Collector
	var f Fates
	choose, err := chooserOf(c, act, episode)
	if err != nil {
		return f, err
	}
	cfg.Ended = func(r *engine.Result) {
		q := r.Request
		failed := r.Outcome != engine.Completed && r.Outcome != engine.TimedOut
		if r.Outcome == engine.Starved {
			f.Starved++
		}
		m := metrics.Job{ID: q.ID, Submit: q.Submit, Start: r.Start, End: r.End, Service: r.Service, Width: float64(q.GPUs), User: q.User, Deadline: q.Deadline, Failed: failed, Preempts: r.Preempts}
		all.Add(&m)
		if q.Class == workload.Latency {
			latency.Add(&m)
		}
	}
	e, err := NewCluster(cfg)
	if err != nil {
		return f, err
	}
	if err := e.Reset(episode); err != nil {
		return f, err
	}
	for !e.Done() {
		if _, err := e.Step(choose(e.Observe())); err != nil {
			return f, err
		}
	}
	if n := e.env.Left(); n > 0 {
		f.Starved += n
	}
	cards, _ := cfg.Spec.Cards()
	f.All, f.Latency = all.Summary(float64(cards)), latency.Summary(float64(cards))
	return f, nil
}

// EvaluateBaseline runs a policy of the simulator over the same episode.
func EvaluateBaseline(name string, cfg ClusterConfig, episode uint64) (Fates, error) {
	jobs, err := cfg.Episodes(episode)
	if err != nil {
		return Fates{}, err
	}
	latency := map[int64]bool{}
	for i := range jobs {
		if jobs[i].Class == workload.Latency {
			latency[jobs[i].ID] = true
		}
	}
	var lat metrics.Collector
	s := experiment.Setup{Spec: cfg.Spec, Policy: name, Placement: "best-fit", Seed: cfg.Seed, Job: func(r *experiment.JobResult) {
		if latency[r.ID] {
			lat.Add(&metrics.Job{ID: r.ID, Submit: r.Submit, Start: r.Start, End: r.End, Service: r.Service, Width: r.Width, Deadline: r.Deadline,
				Failed: !slices.Contains([]string{"completed", "timeout"}, r.Outcome)})
		}
	}}
	out, err := experiment.Run(s, workload.FromSlice(jobs))
	if err != nil {
		return Fates{}, fmt.Errorf("baseline %s: %w", name, err)
	}
	cards, _ := cfg.Spec.Cards()
	return Fates{All: out.Summary, Latency: lat.Summary(float64(cards))}, nil
}
