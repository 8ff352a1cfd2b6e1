package pool_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-hpc/berth/components/advisor/sim/generate"
	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/pool"
	"github.com/berth-hpc/berth/components/advisor/sim/random"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// waits runs a single-class queue on so many servers and gives batch means of the waiting time, in seconds.
func waits(t *testing.T, servers int32, rate float64, service func(random.Stream) float64) (mean, halfWidth float64, st *pool.Stats) {
	const jobs, batches = 400_000, 40
	src := generate.Queue{Jobs: jobs, Rate: rate, Service: service, Seed: 11}.Source()
	var means []float64
	sum, n := 0.0, 0
	st, err := pool.Run(pool.Config{Procs: servers, Discipline: policy.Discipline{Order: policy.FCFS}}, src, func(r *pool.Result) {
		sum += workload.InSeconds(r.Start - r.Submit)
		if n++; n == jobs/batches {
			means = append(means, sum/float64(n))
			sum, n = 0, 0
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	means = means[1:] // warm-up
	for _, m := range means {
		mean += m / float64(len(means))
	}
	v := 0.0
	for _, m := range means {
		v += (m - mean) * (m - mean) / float64(len(means)-1)
	}
	return mean, 3.6 * math.Sqrt(v/float64(len(means))), st // t quantile of 99.9 % at 38 degrees of freedom
}

func exponential(mean float64) func(random.Stream) float64 {
	return func(s random.Stream) float64 { return s.Exp(mean) }
}

// erlangC is the probability of waiting in M/M/c at offered load a.
func erlangC(c int, a float64) float64 {
	b := 1.0
	for k := 1; k <= c; k++ {
		b = a * b / (float64(k) + a*b)
	}
	return b / (1 - a/float64(c)*(1-b))
}

func TestQueueingTheory(t *testing.T) {
	// M/M/1: W = ρ/(µ−λ). M/M/c: W = C(c, a)/(cµ−λ). M/G/1 (Pollaczek and Khinchine): W = λ·E[S²]/(2(1−ρ)).
	hyper := func(s random.Stream) float64 { return s.HyperExp(1, 2) } // E[S²] = 1 + 4
	for _, c := range []struct {
		name    string
		servers int32
		rate    float64
		service func(random.Stream) float64
		want    float64
	}{
		{"M/M/1", 1, .7, exponential(1), .7 / (1 - .7)},
		{"M/M/4", 4, 3.2, exponential(1), erlangC(4, 3.2) / (4 - 3.2)},
		{"M/M/16", 16, 13, exponential(1), erlangC(16, 13) / (16 - 13)},
		{"M/D/1", 1, .8, func(random.Stream) float64 { return 1 }, .8 / (2 * (1 - .8))},
		{"M/H2/1", 1, .6, hyper, .6 * 5 / (2 * (1 - .6))},
	} {
		mean, half, st := waits(t, c.servers, c.rate, c.service)
		if math.Abs(mean-c.want) > half {
			t.Errorf("%s: mean wait %.4f ± %.4f s, theory %.4f", c.name, mean, half, c.want)
		}
		// Little: jobs waiting on average = rate × mean wait, as measured.
		length := workload.InSeconds(st.LastEnd - st.FirstSubmit)
		if l, lw := workload.InSeconds(int64(st.WaitingArea))/length, float64(st.Jobs)/length*mean; math.Abs(l-lw) > .05*l+1e-9 {
			t.Errorf("%s: %.4f waiting on average, rate times wait is %.4f", c.name, l, lw)
		}
		t.Logf("%s: %.4f ± %.4f, theory %.4f", c.name, mean, half, c.want)
	}
}

// Work conservation: on one processor the last end is the same under every order, because somebody always runs while somebody
// waits.
func TestWorkConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var jobs []pool.Job
		at := int64(0)
		for i := range rapid.IntRange(1, 60).Draw(t, "jobs") {
			at += rapid.Int64Range(0, 50).Draw(t, "gap")
			run := rapid.Int64Range(1, 100).Draw(t, "run")
			jobs = append(jobs, pool.Job{ID: int64(i), Submit: at, Run: run, Limit: run, Procs: 1})
		}
		want, busy := int64(0), int64(0)
		for _, j := range jobs {
			busy = max(busy, j.Submit) + j.Run
		}
		want = busy
		for _, o := range policy.Orders() {
			if st := run(t, 1, policy.Discipline{Order: o}, jobs, nil); st.LastEnd != want {
				t.Fatalf("%s ends at %d, a work-conserving server at %d", o.Name(), st.LastEnd, want)
			}
		}
	})
}

func run(t interface{ Fatal(...any) }, procs int32, d policy.Discipline, jobs []pool.Job, sink func(*pool.Result)) *pool.Stats {
	e, err := pool.New(pool.Config{Procs: procs, Discipline: d}, sink)
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if err := e.Submit(&jobs[i]); err != nil {
			t.Fatal(err)
		}
	}
	e.Drain()
	return e.Stats()
}

// srpt is the mean response of shortest remaining processing time on one server, computed directly.
func srpt(jobs []pool.Job) float64 {
	type left struct{ rest, submit int64 }
	var in []left
	now, next, total := int64(0), 0, 0.0
	for next < len(jobs) || len(in) > 0 {
		if len(in) == 0 {
			now = max(now, jobs[next].Submit)
		}
		for next < len(jobs) && jobs[next].Submit <= now {
			in = append(in, left{jobs[next].Run, jobs[next].Submit})
			next++
		}
		slices.SortStableFunc(in, func(a, b left) int { return int(a.rest - b.rest) })
		until := now + in[0].rest
		if next < len(jobs) {
			until = min(until, jobs[next].Submit)
		}
		in[0].rest -= until - now
		now = until
		if in[0].rest == 0 {
			total += float64(now - in[0].submit)
			in = in[1:]
		}
	}
	return total / float64(len(jobs))
}

// No policy has a lower mean response on one server than SRPT (Schrage 1968), nothing is oversubscribed, nobody is lost.
func TestSRPTBoundAndCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		procs := int32(rapid.IntRange(1, 16).Draw(t, "procs"))
		var jobs []pool.Job
		at := int64(0)
		for i := range rapid.IntRange(1, 80).Draw(t, "jobs") {
			at += rapid.Int64Range(0, 30).Draw(t, "gap")
			run := rapid.Int64Range(1, 100).Draw(t, "run")
			jobs = append(jobs, pool.Job{ID: int64(i), Submit: at, Run: run, Limit: max(run*rapid.Int64Range(1, 4).Draw(t, "over")/rapid.Int64Range(1, 2).Draw(t, "under"), 1),
				Procs: int32(rapid.IntRange(1, int(procs)).Draw(t, "width"))})
		}
		for _, name := range []string{"fcfs", "sjf", "saf", "f1", "wfp3", "unicep", "fcfs+easy", "fcfs+easy-sjf", "saf+easy", "wfp3+easy", "fcfs+conservative", "sjf+conservative", "saf+greedy"} {
			d, err := policy.ParseDiscipline(name)
			if err != nil {
				t.Fatal(err)
			}
			var rs []pool.Result
			run(t, procs, d, jobs, func(r *pool.Result) { rs = append(rs, *r) })
			checkCapacity(t, name, procs, jobs, rs)
		}
		if procs == 1 {
			bound := srpt(jobs)
			for _, o := range policy.Orders() {
				mean := 0.0
				run(t, 1, policy.Discipline{Order: o}, jobs, func(r *pool.Result) { mean += float64(r.End-r.Submit) / float64(len(jobs)) })
				if mean < bound-1e-9 {
					t.Fatalf("%s has a mean response of %g, SRPT %g", o.Name(), mean, bound)
				}
			}
		}
	})
}

func checkCapacity(t *rapid.T, name string, procs int32, jobs []pool.Job, rs []pool.Result) {
	if len(rs) != len(jobs) {
		t.Fatalf("%s: %d of %d jobs ended", name, len(rs), len(jobs))
	}
	type edge struct {
		at    int64
		procs int32
	}
	var edges []edge
	seen := map[int64]bool{}
	for _, r := range rs {
		if seen[r.ID] || r.Start < r.Submit || r.End-r.Start != jobs[r.ID].Run {
			t.Fatalf("%s: bad fate %+v", name, r)
		}
		seen[r.ID] = true
		edges = append(edges, edge{r.Start, r.Procs}, edge{r.End, -r.Procs})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return int(a.procs - b.procs)
	})
	used := int32(0)
	for _, e := range edges {
		if used += e.procs; used > procs {
			t.Fatalf("%s: %d of %d processors in use at %d", name, used, procs, e.at)
		}
	}
}

// With exact estimates conservative backfill keeps its promises: what comes later changes no start.
func TestConservativeKeepsFirstPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var jobs []pool.Job
		at := int64(0)
		for i := range rapid.IntRange(2, 40).Draw(t, "jobs") {
			at += rapid.Int64Range(0, 20).Draw(t, "gap")
			run := rapid.Int64Range(1, 60).Draw(t, "run")
			jobs = append(jobs, pool.Job{ID: int64(i), Submit: at, Run: run, Limit: run, Procs: int32(rapid.IntRange(1, 8).Draw(t, "width"))})
		}
		// With exact estimates a job's reservation depends on earlier jobs alone: cutting off later ones changes no start.
		cut := rapid.IntRange(1, len(jobs)).Draw(t, "cut")
		d := policy.Discipline{Order: policy.FCFS, Backfill: policy.Conservative}
		whole, part := map[int64]int64{}, map[int64]int64{}
		run(t, 8, d, jobs, func(r *pool.Result) { whole[r.ID] = r.Start })
		run(t, 8, d, jobs[:cut], func(r *pool.Result) { part[r.ID] = r.Start })
		for id, start := range part {
			if whole[id] != start {
				t.Fatalf("job %d starts at %d, at %d without the jobs after job %d", id, whole[id], start, cut-1)
			}
		}
	})
}

// Ten processors. A holds six until 100, B wants eight and C nine after it; D is narrow and long. EASY promises a start to B alone: D
// passes, because two processors are left beside B, and C waits for D. Conservative backfill promises one to C as well, and D waits.
func TestConservativeAgainstEASY(t *testing.T) {
	jobs := []pool.Job{{ID: 1, Submit: 0, Run: 100, Limit: 100, Procs: 6}, {ID: 2, Submit: 1, Run: 100, Limit: 100, Procs: 8},
		{ID: 3, Submit: 2, Run: 50, Limit: 50, Procs: 9}, {ID: 4, Submit: 3, Run: 300, Limit: 300, Procs: 2}}
	for name, want := range map[string][]int64{"fcfs": {0, 100, 200, 250}, "fcfs+easy": {0, 100, 303, 3}, "fcfs+conservative": {0, 100, 200, 250}} {
		d, err := policy.ParseDiscipline(name)
		if err != nil {
			t.Fatal(err)
		}
		run(t, 10, d, jobs, func(r *pool.Result) {
			if r.Start != want[r.ID-1] {
				t.Errorf("%s: job %d starts at %d, want %d", name, r.ID, r.Start, want[r.ID-1])
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	e, err := pool.New(pool.Config{Procs: 4, Discipline: policy.Discipline{Order: policy.FCFS}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range []pool.Job{{ID: 1, Run: 1, Limit: 1, Procs: 5}, {ID: 2, Run: -1, Limit: 1, Procs: 1}, {ID: 3, Run: 1, Procs: 1}, {ID: 4, Run: 1, Limit: 1}} {
		if err := e.Submit(&j); err == nil {
			t.Errorf("job %d is accepted", j.ID)
		} else if got := err.Error(); got == "" || !contains(got, fmt.Sprint("job ", j.ID)) {
			t.Errorf("job %d: the error does not name it: %v", j.ID, err)
		}
	}
	if err := e.Submit(&pool.Job{ID: 5, Submit: 10, Run: 1, Limit: 1, Procs: 1}); err != nil {
		t.Fatal(err)
	}
	if err := e.Submit(&pool.Job{ID: 6, Submit: 9, Run: 1, Limit: 1, Procs: 1}); err == nil {
		t.Error("a job from the past is accepted")
	}
}

func contains(s, part string) bool {
	for i := 0; i+len(part) <= len(s); i++ {
		if s[i:i+len(part)] == part {
			return true
		}
	}
	return false
}
