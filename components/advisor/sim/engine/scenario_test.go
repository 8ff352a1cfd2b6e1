package engine

import (
	"testing"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

func one(p cluster.Pool) *cluster.Spec {
	p.Name = "p"
	if p.CPUs == 0 {
		p.CPUs = 16
	}
	if p.GPUs > 0 {
		p.GPUType = "a"
	}
	return &cluster.Spec{Name: "one", Pools: []cluster.Pool{p}}
}

func expect(t *testing.T, got map[int64]fate, want map[int64]fate) {
	t.Helper()
	for id, w := range want {
		if g := got[id]; g.outcome != w.outcome || g.end != w.end || w.start >= 0 && g.start != w.start || g.preempts != w.preempts || g.requeues != w.requeues {
			t.Errorf("job %d: %+v, want %+v", id, g, w)
		}
	}
}

// A node that is off takes its time to come up, runs, waits, and goes off; the next job pays again. The price is of that time.
func TestElasticPool(t *testing.T) {
	spec := one(cluster.Pool{Nodes: 1, GPUs: 1, Elastic: true, Startup: cluster.Duration(90 * sec), Idle: cluster.Duration(300 * sec), Price: 3.6})
	got, st := simulate(t, Config{Spec: spec, Scheduler: discipline(t, "fcfs")}, []workload.Job{job(1, 0, 100, 1), job(2, 200, 100, 1), job(3, 1000, 100, 1)})
	// Job 2 finds the node up; it goes off at 300 + 300, and job 3 waits for it again.
	expect(t, got, map[int64]fate{1: {end: 190}, 2: {start: 200, end: 300}, 3: {start: 1000, end: 1190}})
	if want := (600 + 190) / 1000.0; st.NodeStarts != 2 || st.Cost < want-1e-9 || st.Cost > want+1e-9 {
		t.Errorf("started %d times at a cost of %g, want 2 and %g", st.NodeStarts, st.Cost, want)
	}
}

// Preemption keeps the work and costs the restart: SRTF lets the short job through, and the long one ends 7 s later than its work.
func TestPreemptionCost(t *testing.T) {
	got, _ := simulate(t, Config{Spec: one(cluster.Pool{Nodes: 1, GPUs: 1}), Scheduler: SRTF()}, []workload.Job{job(1, 0, 1000, 1), job(2, 100, 50, 1)})
	expect(t, got, map[int64]fate{1: {start: 0, end: 1057, preempts: 1}, 2: {start: 100, end: 150}})
}

// A job that would run into maintenance waits for its end; one that fits before it does not.
func TestMaintenance(t *testing.T) {
	spec := one(cluster.Pool{Nodes: 2, GPUs: 1})
	spec.Maintenance = []cluster.Window{{Start: cluster.Duration(500 * sec), End: cluster.Duration(800 * sec)}}
	got, _ := simulate(t, Config{Spec: spec, Scheduler: discipline(t, "fcfs+greedy")}, []workload.Job{job(1, 0, 600, 1), job(2, 0, 400, 1)})
	expect(t, got, map[int64]fate{1: {start: 800, end: 1400}, 2: {start: 0, end: 400}})
}

// A drained node starts nothing until its drain ends, and does not disturb who runs; the other node of the pool goes on.
func TestDrain(t *testing.T) {
	spec := one(cluster.Pool{Nodes: 2, GPUs: 1})
	spec.Maintenance = []cluster.Window{{Pool: "p", Start: cluster.Duration(50 * sec), End: cluster.Duration(800 * sec), Drain: true, Nodes: 1}}
	got, _ := simulate(t, Config{Spec: spec, Scheduler: discipline(t, "fcfs"), Placement: "first-fit"},
		[]workload.Job{job(1, 0, 200, 1), job(2, 0, 300, 1), job(3, 60, 700, 1), job(4, 60, 10, 1)})
	// Jobs 1 and 2 run through; job 3 gets the node that is not drained, and job 4 the other when its drain ends.
	expect(t, got, map[int64]fate{1: {start: 0, end: 200}, 2: {start: 0, end: 300}, 3: {start: 300, end: 1000}, 4: {start: 800, end: 810}})
}

// Dependencies: after completes, then starts; what waits for a cancelled job is cancelled with it.
func TestDependenciesAndCancellation(t *testing.T) {
	jobs := []workload.Job{job(1, 0, 100, 1), job(2, 0, 10, 1), job(3, 0, 10, 1), job(4, 0, 10, 1)}
	jobs[1].After = []int64{1}
	jobs[2].CancelAt = 50 * sec
	jobs[2].After = []int64{2}
	jobs[3].After = []int64{3}
	got, _ := simulate(t, Config{Spec: one(cluster.Pool{Nodes: 4, GPUs: 1}), Scheduler: discipline(t, "fcfs")}, jobs)
	expect(t, got, map[int64]fate{1: {end: 100}, 2: {start: 100, end: 110}, 3: {outcome: Cancelled, start: -1, end: 50}, 4: {outcome: Cancelled, start: -1, end: 50}})
}

// Out of memory, the wrong type and too many cards are impossible at once; limits end jobs.
func TestImpossibleAndLimits(t *testing.T) {
	jobs := []workload.Job{job(1, 0, 100, 1), job(2, 0, 100, 1), job(3, 0, 100, 5), job(4, 0, 100, 1)}
	jobs[0].GPUMemMiB = 13000
	jobs[1].GPUTypes = []string{"h100"}
	jobs[3].Limit = 60 * sec
	got, _ := simulate(t, Config{Spec: one(cluster.Pool{Nodes: 2, GPUs: 2, GPUMemory: 12288}), Scheduler: discipline(t, "fcfs"), EnforceLimits: true}, jobs)
	expect(t, got, map[int64]fate{1: {outcome: Impossible, start: -1}, 2: {outcome: Impossible, start: -1}, 3: {outcome: Impossible, start: -1}, 4: {outcome: TimedOut, end: 60}})
}

// A gang wider than a node takes whole nodes; spread gangs pay the penalty.
func TestGangs(t *testing.T) {
	spec := one(cluster.Pool{Nodes: 2, GPUs: 4})
	jobs := []workload.Job{job(1, 0, 100, 6), job(2, 0, 100, 2)}
	got, _ := simulate(t, Config{Spec: spec, Scheduler: discipline(t, "fcfs")}, jobs)
	expect(t, got, map[int64]fate{1: {end: 100}, 2: {end: 100}})
	spec.Spread = .5
	jobs = []workload.Job{job(1, 0, 1000, 3), job(2, 0, 1000, 3), job(3, 0, 100, 2)}
	got, _ = simulate(t, Config{Spec: spec, Scheduler: discipline(t, "fcfs")}, jobs)
	expect(t, got, map[int64]fate{3: {start: 0, end: 200}})
}

// Shares of a card: a small model runs at full speed on a quarter, a large one at a quarter; neighbours slow each other down, equally
// under every policy.
func TestShares(t *testing.T) {
	share := func(id, submit int64, milli, util int32) workload.Job {
		j := job(id, submit, 100, 1)
		j.GPUMilli, j.Util = milli, util
		return j
	}
	spec := one(cluster.Pool{Nodes: 1, GPUs: 1})
	got, _ := simulate(t, Config{Spec: spec, Scheduler: discipline(t, "fcfs")}, []workload.Job{share(1, 0, 250, 20), share(2, 1000, 250, 100)})
	expect(t, got, map[int64]fate{1: {end: 100}, 2: {start: 1000, end: 1400}})
	two := []workload.Job{share(1, 0, 500, 50), share(2, 0, 500, 50)}
	quiet, _ := simulate(t, Config{Spec: spec, Scheduler: discipline(t, "fcfs"), NoInterference: true, Seed: 1}, two)
	expect(t, quiet, map[int64]fate{1: {end: 100}, 2: {end: 100}})
	a, _ := simulate(t, Config{Spec: spec, Scheduler: discipline(t, "fcfs"), Seed: 1}, two)
	b, _ := simulate(t, Config{Spec: spec, Scheduler: discipline(t, "sjf+easy"), Seed: 1}, two)
	if a[1] != b[1] || a[2] != b[2] || a[1].end == 100 && a[2].end == 100 {
		t.Errorf("neighbours end at %v under one policy and at %v under another", a, b)
	}
}

// A failed node's jobs are requeued and lose what they had not checkpointed.
func TestNodeFailure(t *testing.T) {
	pool := cluster.Pool{Nodes: 1, GPUs: 1, MTBF: cluster.Duration(3000 * sec), MTTR: cluster.Duration(50 * sec)}
	jobs := []workload.Job{job(1, 0, 6000, 1)}
	lost, st := simulate(t, Config{Spec: one(pool), Scheduler: discipline(t, "fcfs"), Seed: 2}, jobs)
	kept, _ := simulate(t, Config{Spec: one(pool), Scheduler: discipline(t, "fcfs"), Seed: 2, CheckpointEvery: 100 * sec}, jobs)
	if st.NodeFailures == 0 || lost[1].requeues == 0 || kept[1].end >= lost[1].end || kept[1].end < 6000 || lost[1].outcome != Completed {
		t.Errorf("%d failures; %+v without checkpoints, %+v with", st.NodeFailures, lost[1], kept[1])
	}
}

// A job that is far longer than nodes live ends after so many failures without a checkpoint, together with who waits for it; with
// checkpoints it gets through.
func TestJobLongerThanNodesLive(t *testing.T) {
	pool := cluster.Pool{Nodes: 1, GPUs: 1, MTBF: cluster.Duration(3000 * sec), MTTR: cluster.Duration(50 * sec)}
	after := job(2, 10, 100, 1)
	after.After = []int64{1}
	jobs := []workload.Job{job(1, 0, 300000, 1), after, job(3, 20, 100, 1)}
	lost, st := simulate(t, Config{Spec: one(pool), Scheduler: discipline(t, "fcfs"), Seed: 2}, jobs)
	if lost[1].outcome != NodeFail || lost[1].requeues != MostFutile-1 || lost[2].outcome != Cancelled || lost[3].outcome != Completed {
		t.Errorf("without checkpoints %+v, %d failures", lost, st.NodeFailures)
	}
	kept, _ := simulate(t, Config{Spec: one(pool), Scheduler: discipline(t, "fcfs"), Seed: 2, CheckpointEvery: 100 * sec}, jobs)
	if kept[1].outcome != Completed || kept[2].outcome != Completed {
		t.Errorf("with checkpoints %+v", kept)
	}
}

// Multifactor: who has used less goes first, although he came later.
func TestFairShareOrders(t *testing.T) {
	jobs := []workload.Job{job(1, 0, 3600, 1), job(2, 10, 100, 1), job(3, 20, 100, 1)}
	for i, u := range []string{"heavy", "heavy", "light"} {
		jobs[i].User, jobs[i].Account = u, "lab"
	}
	s, err := Ordered(DefaultMultifactor(), policy.None, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := simulate(t, Config{Spec: one(cluster.Pool{Nodes: 1, GPUs: 1}), Scheduler: s}, jobs)
	expect(t, got, map[int64]fate{3: {start: 3600, end: 3700}, 2: {start: 3700, end: 3800}})
}
