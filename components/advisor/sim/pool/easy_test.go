package pool_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/pool"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// plainEASY simulates as one writes it down first: at every moment all that ended goes, all that arrived comes, the queue is sorted,
// the head gets a reservation, and the others are tried in order. It gives the start of every job.
func plainEASY(procs int32, o policy.Order, jobs []pool.Job) map[int64]int64 {
	start := map[int64]int64{}
	var queue, running []pool.Job
	free, next, now := procs, 0, int64(0)
	launch := func(j pool.Job) {
		start[j.ID], free = now, free-j.Procs
		running = append(running, j)
	}
	for next < len(jobs) || len(running) > 0 {
		now = 1 << 62
		if next < len(jobs) {
			now = jobs[next].Submit
		}
		for _, j := range running {
			now = min(now, start[j.ID]+j.Run)
		}
		running = slices.DeleteFunc(running, func(j pool.Job) bool {
			if start[j.ID]+j.Run > now {
				return false
			}
			free += j.Procs
			return true
		})
		for ; next < len(jobs) && jobs[next].Submit == now; next++ {
			queue = append(queue, jobs[next])
		}
		slices.SortFunc(queue, func(a, b pool.Job) int {
			key := func(j pool.Job) float64 {
				return o.Key(&workload.Request{Submit: j.Submit, Limit: j.Limit, Procs: j.Procs}, now)
			}
			return cmp.Or(cmp.Compare(key(a), key(b)), cmp.Compare(a.ID, b.ID))
		})
		for len(queue) > 0 && queue[0].Procs <= free {
			launch(queue[0])
			queue = queue[1:]
		}
		if len(queue) == 0 {
			continue
		}
		slices.SortFunc(running, func(a, b pool.Job) int { return cmp.Compare(start[a.ID]+a.Limit, start[b.ID]+b.Limit) })
		avail, shadow := free, now
		for _, j := range running {
			if end := start[j.ID] + j.Limit; avail >= queue[0].Procs && end > shadow {
				break
			} else {
				avail, shadow = avail+j.Procs, max(end, now)
			}
		}
		extra := avail - queue[0].Procs
		rest := queue[:1:1]
		for _, j := range queue[1:] {
			switch {
			case j.Procs <= free && now+j.Limit <= shadow:
				launch(j)
			case j.Procs <= free && j.Procs <= extra:
				extra -= j.Procs
				launch(j)
			default:
				rest = append(rest, j)
			}
		}
		queue = rest
	}
	return start
}

// EASY starts every job when the plain form of the algorithm does, under any order, with estimates that are exact, too long or too
// short.
func TestEASYAgainstPlainForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		procs := int32(rapid.IntRange(1, 32).Draw(t, "procs"))
		exact := rapid.Bool().Draw(t, "exact")
		var jobs []pool.Job
		at := int64(1_000_000)
		for i := range rapid.IntRange(1, 120).Draw(t, "jobs") {
			at += rapid.Int64Range(0, 25).Draw(t, "gap")
			run := rapid.Int64Range(1, 100).Draw(t, "run")
			limit := run
			if !exact {
				limit = max(run*rapid.Int64Range(1, 3).Draw(t, "over")/rapid.Int64Range(1, 2).Draw(t, "under"), 1)
			}
			jobs = append(jobs, pool.Job{ID: int64(i), Submit: at, Run: run, Limit: limit, Procs: int32(rapid.IntRange(1, int(procs)).Draw(t, "width"))})
		}
		for _, o := range []policy.Order{policy.FCFS, policy.SJF, policy.SAF, policy.F1} {
			want := plainEASY(procs, o, jobs)
			run(t, procs, policy.Discipline{Order: o, Backfill: policy.EASY}, jobs, func(r *pool.Result) {
				if r.Start != want[r.ID] {
					t.Fatalf("%s: job %d starts at %d, in the plain form at %d", o.Name(), r.ID, r.Start, want[r.ID])
				}
			})
		}
	})
}
