package rl

import (
	"fmt"
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

// Fates are the ends of the jobs of one episode: of all, and of the latency class.
type Fates struct {
	All, Latency metrics.Summary
	// Starved counts jobs that never started.
	Starved int
}

// Evaluate runs the greedy policy over an episode of a cluster.
func Evaluate(c *Checkpoint, cfg ClusterConfig, episode uint64) (Fates, error) {
	var all, latency metrics.Collector
	var f Fates
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
	ch := Chooser{Encoding: c.Header.Encoding, Actor: c.Actor}
	for !e.Done() {
		if _, err := e.Step(ch.Best(e.Observe())); err != nil {
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
