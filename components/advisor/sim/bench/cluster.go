package bench

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"runtime"
	"time"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/compat/openb"
	"github.com/berth-hpc/berth/components/advisor/sim/engine"
	"github.com/berth-hpc/berth/components/advisor/sim/env"
	"github.com/berth-hpc/berth/components/advisor/sim/generate"
	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/trace"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// philly runs all 82,247 jobs of the Philly trace through FCFS with EASY on 352 nodes of 8 cards. Reading the trace is not
// counted, as for the others.
func philly(shared string) ([]Line, error) {
	t, err := trace.Open(filepath.Join(shared, "traces", "philly", "philly.csv"), trace.Options{})
	if errors.Is(err, fs.ErrNotExist) {
		return []Line{{Name: "philly.easy", Unit: "s", Goal: "5s", Verdict: "undecided"}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer t.Close()
	jobs, err := workload.Collect(t.Jobs())
	if err != nil {
		return nil, err
	}
	s, err := engine.FromDiscipline(policy.Discipline{Order: policy.FCFS, Backfill: policy.EASY})
	if err != nil {
		return nil, err
	}
	e, err := engine.New(engine.Config{Spec: cluster.Homogeneous(352, 96, 8, "gpu"), Scheduler: s, Placement: "best-fit", Seed: 1}, nil)
	if err != nil {
		return nil, err
	}
	begin := processor()
	for i := range jobs {
		if err := e.Submit(&jobs[i]); err != nil {
			return nil, err
		}
	}
	e.Drain()
	took := (processor() - begin).Seconds()
	return []Line{{Name: "philly.easy", Value: took, Unit: "s", Ratio: float64(len(jobs)) / took, Goal: "5s", Verdict: verdict(took <= 5)}}, nil
}

// openbOriginal is how long the Go original takes for one FGD run on the default trace: 10 minutes by its own README, on 2 virtual
// processors. (Measured on a busy machine it was 42.)
const openbOriginal = 600 * time.Second

// openbRun times FGD on the default trace at seed 42.
func openbRun(shared string) ([]Line, error) {
	dir := filepath.Join(shared, "traces", "openb")
	pods, err := openb.ReadPods(filepath.Join(dir, "openb_pod_list_default.csv"))
	if errors.Is(err, fs.ErrNotExist) {
		return []Line{{Name: "openb.fgd", Unit: "s", Goal: "10x-original", Verdict: "undecided"}}, nil
	}
	if err != nil {
		return nil, err
	}
	nodes, err := openb.ReadNodes(filepath.Join(dir, "openb_node_list_gpu_node.csv"))
	if err != nil {
		return nil, err
	}
	begin := processor()
	if _, err := openb.Simulate(nodes, pods, "fgd", 42); err != nil {
		return nil, err
	}
	took := processor() - begin
	ratio := openbOriginal.Seconds() / took.Seconds()
	return []Line{{Name: "openb.fgd", Value: took.Seconds(), Unit: "s", Ratio: ratio, Goal: "10x-original", Verdict: verdict(ratio >= 10)}}, nil
}

// actor is a network of the size the advisor's actor has (a row of features a candidate, two hidden layers of 64, one score), to
// compare a step with an inference. Its weights do not matter.
type actor struct {
	w1     [64][env.Features]float32
	w2     [64][64]float32
	w3     [64]float32
	h1, h2 [64]float32
	score  []float32
}

func newActor(n int) *actor {
	a := &actor{score: make([]float32, n)}
	for i := range a.w1 {
		for k := range a.w1[i] {
			a.w1[i][k] = float32(math.Sin(float64(i*31 + k)))
		}
		for k := range a.w2[i] {
			a.w2[i][k] = float32(math.Cos(float64(i*17+k))) / 8
		}
		a.w3[i] = float32(math.Sin(float64(i)))
	}
	return a
}

// infer scores all rows and gives the best of the first n.
func (a *actor) infer(x [][env.Features]float32, n int) int {
	best := 0
	for r := range x {
		for i := range a.h1 {
			s := float32(0)
			for k, v := range x[r] {
				s += a.w1[i][k] * v
			}
			a.h1[i] = max(s, 0)
		}
		s := float32(0)
		for i := range a.h2 {
			t := float32(0)
			for k := range a.h1 {
				t += a.w2[i][k] * a.h1[k]
			}
			s += a.w3[i] * max(t, 0)
		}
		a.score[r] = s
		if r < n && s > a.score[best] {
			best = r
		}
	}
	return best
}

// envStep measures a step of the environment with 64 candidates: its allocations, and its cost beside an inference of the actor.
func envStep(string) ([]Line, error) {
	const warm, steps = 2000, 4000
	src, err := generate.Mix{Kinds: generate.AIMix, Jobs: 3 * (warm + steps), Cards: 24, Load: 1.3, Seed: 4, Estimate: 2, MaxCards: 1}.Source()
	if err != nil {
		return nil, err
	}
	jobs, err := workload.Collect(src)
	if err != nil {
		return nil, err
	}
	e, err := env.New(env.Config{Spec: &cluster.Spec{Name: "bench", Pools: []cluster.Pool{
		{Name: "fast", Nodes: 8, CPUs: 32, GPUs: 1, GPUType: "a", Speed: 2}, {Name: "slow", Nodes: 8, CPUs: 32, GPUs: 1, GPUType: "b", Speed: 1}}}, Seed: 1})
	if err != nil {
		return nil, err
	}
	if _, err := e.Reset(jobs); err != nil {
		return nil, err
	}
	a := newActor(64)
	var stepping, inferring time.Duration
	var before, after runtime.MemStats
	for i := range warm + steps {
		if i == warm {
			stepping, inferring = 0, 0
			runtime.ReadMemStats(&before)
		}
		t0 := time.Now()
		action := a.infer(e.Observation().X, e.Observation().N)
		t1 := time.Now()
		if _, err := e.Step(action); err != nil {
			return nil, err
		}
		stepping += time.Since(t1)
		inferring += t1.Sub(t0)
	}
	runtime.ReadMemStats(&after)
	allocs := float64(after.Mallocs-before.Mallocs) / steps
	cost := float64(stepping.Nanoseconds()) / steps
	inference := float64(inferring.Nanoseconds()) / steps
	return []Line{
		{Name: "env.step", Value: cost, Unit: "ns", Ratio: inference / cost, Goal: "below-inference", Verdict: verdict(cost < inference)},
		{Name: "env.step.allocations", Value: math.Floor(allocs), Unit: "allocs", Goal: "0", Verdict: verdict(allocs < 1)},
		{Name: "env.inference", Value: inference, Unit: "ns", Goal: "reference", Verdict: "ok"},
	}, nil
}
