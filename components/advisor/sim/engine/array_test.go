package engine

import (
	"testing"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

func task(id, submit, run, array int64, limit int32) workload.Job {
	j := job(id, submit, run, 1)
	j.Array, j.ArrayLimit = array, limit
	return j
}

// Of an array with %2 two tasks run at once, though there is room for all; a job behind it does not wait for them.
func TestArrayLimit(t *testing.T) {
	cfg := func() Config {
		return Config{Spec: cluster.Homogeneous(1, 64, 8, "a"), Scheduler: discipline(t, "fcfs")}
	}
	jobs := []workload.Job{task(101, 0, 10, 100, 2), task(102, 0, 30, 100, 2), task(103, 0, 10, 100, 2), task(104, 0, 10, 100, 2), job(200, 1, 5, 1)}
	got, _ := simulate(t, cfg(), jobs)
	expect(t, got, map[int64]fate{101: {end: 10}, 102: {end: 30}, 103: {start: 10, end: 20}, 104: {start: 20, end: 30}, 200: {start: 1, end: 6}})
	for i := range jobs {
		jobs[i].ArrayLimit = 0
	}
	got, _ = simulate(t, cfg(), jobs)
	expect(t, got, map[int64]fate{103: {end: 10}, 104: {end: 10}})
}

// Whoever waits for an array waits for all its tasks, and never runs if one of them was cancelled. A task that is cancelled while it
// is held back frees no place.
func TestArrayDependency(t *testing.T) {
	cfg := func() Config {
		return Config{Spec: cluster.Homogeneous(1, 64, 8, "a"), Scheduler: discipline(t, "fcfs")}
	}
	after, late := job(300, 1, 5, 1), job(400, 100, 5, 1)
	after.After, late.After = []int64{100}, []int64{100}
	got, _ := simulate(t, cfg(), []workload.Job{task(101, 0, 10, 100, 1), task(102, 0, 30, 100, 1), after, late})
	expect(t, got, map[int64]fate{102: {start: 10, end: 40}, 300: {start: 40, end: 45}, 400: {start: 100, end: 105}})

	withdrawn := task(102, 0, 30, 100, 1)
	withdrawn.CancelAt = 5 * sec
	got, _ = simulate(t, cfg(), []workload.Job{task(101, 0, 10, 100, 1), withdrawn, task(103, 0, 30, 100, 1), after, late})
	expect(t, got, map[int64]fate{102: {start: -1, end: 5, outcome: Cancelled}, 103: {start: 10, end: 40},
		300: {start: -1, end: 40, outcome: Cancelled}, 400: {start: -1, end: 100, outcome: Cancelled}})
}

// The ids of jobs that did not complete are remembered in bounded memory, the latest of them.
func TestBrokenIDsAreBounded(t *testing.T) {
	e := &Engine{broken: map[int64]struct{}{}}
	for id := range int64(3 * brokenIDs / 2) {
		e.breakID(id)
	}
	_, first := e.broken[0]
	_, last := e.broken[3*brokenIDs/2-1]
	if len(e.broken) != brokenIDs || first || !last {
		t.Errorf("%d ids are remembered, the first %v, the last %v", len(e.broken), first, last)
	}
}
