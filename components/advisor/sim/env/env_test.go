package env

import (
	"math"
	"testing"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/engine"
	"github.com/berth-hpc/berth/components/advisor/sim/generate"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// lab is a cluster of eight nodes with one card each, of two speeds.
func lab() *cluster.Spec {
	return &cluster.Spec{Name: "lab", Pools: []cluster.Pool{
		{Name: "fast", Nodes: 4, CPUs: 16, GPUs: 1, GPUType: "a", Speed: 2},
		{Name: "slow", Nodes: 4, CPUs: 16, GPUs: 1, GPUType: "b", Speed: 1},
	}}
}

func mix(t testing.TB, n int, load float64) []workload.Job {
	src, err := generate.Mix{Kinds: generate.AIMix, Jobs: n, Cards: 12, Load: load, Seed: 4, Estimate: 2, MaxCards: 1}.Source()
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := workload.Collect(src)
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// An episode ends with every job ended, and its rewards sum to minus the time jobs spent in the system (Little), over the norm.
func TestEpisode(t *testing.T) {
	jobs := mix(t, 300, .9)
	e, err := New(Config{Spec: lab(), Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reset(jobs); err != nil {
		t.Fatal(err)
	}
	sum, steps := 0.0, 0
	for done := e.Done(); !done; steps++ {
		tr, err := e.Step(0)
		if err != nil {
			t.Fatal(err)
		}
		sum, done = sum+tr.Reward, tr.Done
		if steps > 10*len(jobs) {
			t.Fatal("the episode does not end")
		}
	}
	st := e.Stats()
	if st.Jobs != 300 || e.eng.Live() != 0 || steps != 300 {
		t.Errorf("%d jobs, %d left, %d steps", st.Jobs, e.eng.Live(), steps)
	}
	if want := -st.SystemArea / 3600; math.Abs(sum-want) > 1e-6*math.Abs(want) || sum == 0 {
		t.Errorf("rewards sum to %g, want %g", sum, want)
	}
}

// What the agent sees does not depend on true run times: permuting them leaves the first observation of a full queue as it is.
func TestTruthDoesNotLeak(t *testing.T) {
	jobs := mix(t, 60, .9)
	for i := range jobs {
		jobs[i].Submit = jobs[0].Submit
		jobs[i].Deadline = 0
	}
	observe := func() ([][Features]float32, [Globals]float32) {
		e, err := New(Config{Spec: lab(), Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		o, err := e.Reset(jobs)
		if err != nil {
			t.Fatal(err)
		}
		if o.N == 0 {
			t.Fatal("no candidates")
		}
		return append([][Features]float32{}, o.X...), o.G
	}
	x, g := observe()
	for i := range jobs {
		k := (i*17 + 5) % len(jobs)
		jobs[i].Run, jobs[k].Run = jobs[k].Run, jobs[i].Run
	}
	y, h := observe()
	if g != h {
		t.Errorf("globals %v became %v", g, h)
	}
	for i := range x {
		if x[i] != y[i] {
			t.Fatalf("candidate %d: %v became %v", i, x[i], y[i])
		}
	}
}

func TestBadActions(t *testing.T) {
	e, err := New(Config{Spec: lab()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reset(mix(t, 20, .5)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Step(e.Observation().N); err == nil {
		t.Error("an action beyond the candidates is accepted")
	}
	wide := mix(t, 1, .5)
	wide[0].GPUs = 2
	if _, err := e.Reset(wide); err == nil {
		t.Error("a job wider than any node is accepted")
	}
}

// A step allocates nothing once the episode has warmed up.
func TestStepAllocatesNothing(t *testing.T) {
	jobs := mix(t, 6000, .95)
	e, err := New(Config{Spec: lab(), Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reset(jobs); err != nil {
		t.Fatal(err)
	}
	step := func() {
		if e.Done() {
			t.Fatal("the episode is too short for this test")
		}
		if _, err := e.Step(e.Observation().N / 2); err != nil {
			t.Fatal(err)
		}
	}
	for range 3000 {
		step()
	}
	if n := testing.AllocsPerRun(2000, step); n != 0 {
		t.Errorf("a step makes %g allocations", n)
	}
}

// A boosted job that needs a whole node is not delayed: no job starts before it that may run beyond the first end.
func TestBoost(t *testing.T) {
	s := workload.Second
	job := func(id int64, submit, run int64, milli int32) workload.Job {
		j := workload.Job{Run: run * s}
		j.ID, j.Submit, j.Limit, j.GPUs, j.GPUMilli, j.CPUMilli = id, submit*s, run*s, 1, milli, 1000
		return j
	}
	spec := &cluster.Spec{Pools: []cluster.Pool{{Name: "one", Nodes: 1, CPUs: 16, GPUs: 1, GPUType: "a", Speed: 1}}}
	jobs := []workload.Job{job(1, 0, 100, 500), job(2, 1, 50, 1000), job(3, 2, 200, 500), job(4, 3, 60, 500)}
	started := map[int64]int64{}
	e, err := New(Config{Spec: spec, Seed: 1, Boosts: 4, Ended: func(r *engine.Result) { started[r.Request.ID] = r.Start / s }})
	if err != nil {
		t.Fatal(err)
	}
	o, err := e.Reset(jobs)
	if err != nil {
		t.Fatal(err)
	}
	if o.Jobs[0].ID != 1 {
		t.Fatalf("job %d comes first", o.Jobs[0].ID)
	}
	if _, err := e.Step(0); err != nil {
		t.Fatal(err)
	}
	if len(o.Held) != 1 || o.Held[0].ID != 2 || o.Jobs[0].ID != 3 {
		t.Fatalf("%d held, candidate %d", len(o.Held), o.Jobs[0].ID)
	}
	if _, err := e.Boost(0); err != nil {
		t.Fatal(err)
	}
	if o.N != 1 || o.Jobs[0].ID != 4 || len(o.Held) != 0 {
		t.Fatalf("%d candidates, first %d; only job 4 ends in time", o.N, o.Jobs[0].ID)
	}
	for !e.Done() {
		if _, err := e.Step(0); err != nil {
			t.Fatal(err)
		}
	}
	if started[2] > 100 || started[4] != 3 || started[3] < started[2]+50 { // co-location moves ends a little
		t.Errorf("starts %v", started)
	}
}
