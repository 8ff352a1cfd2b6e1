package engine

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/generate"
	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/pool"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

const sec = workload.Second

func discipline(t testing.TB, name string) Scheduler {
	d, err := policy.ParseDiscipline(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := FromDiscipline(d)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// job is a job of whole cards.
func job(id int64, submit, run int64, cards int32) workload.Job {
	j := workload.Job{Run: run * sec}
	j.ID, j.Submit, j.Limit, j.GPUs, j.GPUMilli, j.Procs = id, submit*sec, run*sec, cards, 1000, cards
	return j
}

type fate struct {
	outcome    Outcome
	start, end int64
	preempts   int
	requeues   int
}

func simulate(t testing.TB, cfg Config, jobs []workload.Job) (map[int64]fate, *Stats) {
	t.Helper()
	got := map[int64]fate{}
	st, err := Run(cfg, workload.FromSlice(jobs), func(r *Result) {
		if _, twice := got[r.Request.ID]; twice {
			t.Errorf("job %d ended twice", r.Request.ID)
		}
		got[r.Request.ID] = fate{r.Outcome, r.Start / sec, r.End / sec, r.Preempts, r.Requeues}
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, st
}

// On one node of identical processors the engine gives what the pool engine gives, start for start.
func TestAgreesWithPool(t *testing.T) {
	for _, name := range []string{"fcfs", "sjf", "saf", "wfp3", "fcfs+easy", "fcfs+easy-sjf", "saf+easy", "unicep+easy", "fcfs+greedy", "fcfs+conservative", "saf+conservative"} {
		t.Run(name, func(t *testing.T) {
			src, err := generate.Lublin{Procs: 64, Jobs: 400, Load: 1.1, Seed: 7, Estimate: 3}.Source()
			if err != nil {
				t.Fatal(err)
			}
			d, _ := policy.ParseDiscipline(name)
			want := map[int64]int64{}
			if _, err := pool.Run(pool.Config{Procs: 64, Discipline: d}, src, func(r *pool.Result) { want[r.ID] = r.Start }); err != nil {
				t.Fatal(err)
			}
			got := 0
			_, err = Run(Config{Spec: cluster.Homogeneous(1, 64, 0, ""), Scheduler: discipline(t, name)}, src, func(r *Result) {
				got++
				if r.Start != want[r.Request.ID] {
					t.Errorf("job %d starts at %d, in the pool at %d", r.Request.ID, r.Start, want[r.Request.ID])
				}
			})
			if err != nil || got != len(want) {
				t.Fatalf("%d of %d jobs ended: %v", got, len(want), err)
			}
		})
	}
}

// watch checks after every pass of a scheduler that nothing is oversubscribed and that nobody is both waiting and running.
type watch struct {
	Scheduler
	t interface{ Fatalf(string, ...any) }
}

func (w watch) Pass(v *View) workload.Time {
	wake := w.Scheduler.Pass(v)
	type held struct {
		cpu, mem int64
		cards    []int32
	}
	use := make([]held, len(v.e.nodes))
	for i, n := range v.e.nodes {
		use[i].cards = make([]int32, len(n.CardLeft))
	}
	for _, j := range v.e.running {
		if !j.Running {
			w.t.Fatalf("job %d is listed as running and is not", j.ID)
		}
		total := int32(0)
		for _, p := range j.pieces {
			if h := v.e.host[p.node]; h.state == failed || h.state == off || h.window > 0 {
				w.t.Fatalf("job %d runs on a node that is not there", j.ID)
			}
			use[p.node].cpu += p.demand.CPUMilli
			use[p.node].mem += p.demand.MemMiB
			for _, c := range p.cards {
				use[p.node].cards[c] += p.demand.Milli
				total++
			}
		}
		if total != j.GPUs {
			w.t.Fatalf("job %d asked for %d cards and holds %d", j.ID, j.GPUs, total)
		}
	}
	for i, n := range v.e.nodes {
		if use[i].cpu > n.CPUMilli || use[i].mem > n.MemMiB || n.CPULeft != n.CPUMilli-use[i].cpu {
			w.t.Fatalf("node %s: %d of %d CPU thousandths held, %d left", n.Name, use[i].cpu, n.CPUMilli, n.CPULeft)
		}
		for c, u := range use[i].cards {
			if u > cluster.WholeCard || n.CardLeft[c] != cluster.WholeCard-u {
				w.t.Fatalf("node %s card %d: %d held, %d left", n.Name, c, u, n.CardLeft[c])
			}
		}
	}
	for _, j := range v.e.waiting {
		if j.Running {
			w.t.Fatalf("job %d is waiting and running", j.ID)
		}
	}
	return wake
}

func schedulers() map[string]func() Scheduler {
	g, _ := policy.NewGittins([]float64{60, 300, 4000, 20000})
	m := map[string]func() Scheduler{
		"srtf": SRTF, "srsf": SRSF, "tiresias": func() Scheduler { return Tiresias(TiresiasThresholds) },
		"gittins":     func() Scheduler { return GittinsScheduler(g, 500) },
		"multifactor": func() Scheduler { s, _ := Ordered(DefaultMultifactor(), policy.EASY, nil); return s },
	}
	for _, n := range []string{"fcfs", "sjf+easy", "saf+greedy", "wfp3+easy", "fcfs+easy-sjf", "sjf+conservative"} {
		m[n] = func() Scheduler { d, _ := policy.ParseDiscipline(n); s, _ := FromDiscipline(d); return s }
	}
	return m
}

// Whatever the cluster, jobs, scheduler and misfortunes: no resource is oversubscribed, no job is lost, nobody starts before
// submission, and the work of a completed job was done.
func TestInvariants(t *testing.T) {
	all := schedulers()
	names := []string{"srtf", "srsf", "tiresias", "gittins", "multifactor", "fcfs", "sjf+easy", "saf+greedy", "wfp3+easy", "fcfs+easy-sjf", "sjf+conservative"}
	placements := []string{"first-fit", "random", "dot-product", "gpu-clustering", "gpu-packing", "best-fit"}
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		var jobs []workload.Job
		at := int64(0)
		n := rapid.IntRange(1, 40).Draw(t, "jobs")
		for i := range n {
			at += rapid.Int64Range(0, 300).Draw(t, "gap")
			j := job(int64(i+1), at, rapid.Int64Range(1, 5000).Draw(t, "run"), int32(rapid.IntRange(0, 6).Draw(t, "cards")))
			j.Limit = j.Run * rapid.Int64Range(1, 3).Draw(t, "over") / rapid.Int64Range(1, 2).Draw(t, "under")
			j.CPUMilli = rapid.Int64Range(1, 8).Draw(t, "cpu") * 1000
			if j.GPUs == 1 {
				j.GPUMilli = int32(rapid.SampledFrom([]int{250, 500, 1000}).Draw(t, "milli"))
				j.Util = int32(rapid.IntRange(10, 100).Draw(t, "util"))
			}
			j.User = rapid.SampledFrom([]string{"u", "v", "w"}).Draw(t, "user")
			if i > 0 && rapid.IntRange(0, 9).Draw(t, "dep") == 0 {
				j.After = []int64{rapid.Int64Range(1, int64(i)).Draw(t, "after")}
			}
			if rapid.IntRange(0, 9).Draw(t, "cancel") == 0 {
				j.CancelAt = j.Submit + rapid.Int64Range(1, 9000).Draw(t, "at")*sec
			}
			jobs = append(jobs, j)
		}
		name := rapid.SampledFrom(names).Draw(t, "scheduler")
		cfg := Config{Spec: spec, Scheduler: watch{all[name](), t}, Placement: rapid.SampledFrom(placements).Draw(t, "placement"),
			Seed: rapid.Uint64().Draw(t, "seed"), EnforceLimits: rapid.Bool().Draw(t, "limits"), NoInterference: rapid.Bool().Draw(t, "quiet")}
		ended := map[int64]Result{}
		st, err := Run(cfg, workload.FromSlice(jobs), func(r *Result) {
			if _, twice := ended[r.Request.ID]; twice {
				t.Fatalf("job %d ended twice", r.Request.ID)
			}
			c := *r
			ended[r.Request.ID] = c
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range jobs {
			r, ok := ended[jobs[i].ID]
			if !ok {
				t.Fatalf("job %d is lost", jobs[i].ID)
			}
			if r.Outcome == Completed && (r.Start < jobs[i].Submit || r.End < r.Start) {
				t.Fatalf("job %d: submitted %d, started %d, ended %d", jobs[i].ID, jobs[i].Submit, r.Start, r.End)
			}
		}
		// Little's law holds for any work-conserving or other policy, because it is an identity of areas.
		var sojourn float64
		for _, j := range jobs {
			sojourn += workload.InSeconds(ended[j.ID].End - j.Submit)
		}
		if math.Abs(sojourn-st.SystemArea) > 1e-3*(1+sojourn) {
			t.Fatalf("jobs were %g s in the system, the integral says %g", sojourn, st.SystemArea)
		}
	})
}

func drawSpec(t *rapid.T) *cluster.Spec {
	s := &cluster.Spec{Name: "drawn", Spread: rapid.SampledFrom([]float64{0, .8}).Draw(t, "spread")}
	for i := range rapid.IntRange(1, 3).Draw(t, "pools") {
		p := cluster.Pool{Name: fmt.Sprint("p", i), Nodes: rapid.IntRange(1, 3).Draw(t, "nodes"), CPUs: rapid.IntRange(4, 16).Draw(t, "cpus"),
			GPUs: rapid.IntRange(0, 4).Draw(t, "gpus"), Speed: rapid.SampledFrom([]float64{.5, 1, 2}).Draw(t, "speed")}
		if p.GPUs > 0 {
			p.GPUType = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "type")
		}
		if rapid.Bool().Draw(t, "elastic") {
			p.Elastic, p.Min, p.Startup, p.Idle, p.Price = true, rapid.IntRange(0, p.Nodes).Draw(t, "min"), cluster.Duration(90*sec), cluster.Duration(300*sec), 2
		}
		if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
			p.MTBF, p.MTTR = cluster.Duration(20000*sec), cluster.Duration(500*sec)
		}
		s.Pools = append(s.Pools, p)
	}
	if rapid.IntRange(0, 3).Draw(t, "window") == 0 {
		s.Maintenance = []cluster.Window{{Pool: "p0", Start: cluster.Duration(1000 * sec), End: cluster.Duration(2000 * sec)}}
	}
	return s
}

// Same seed, same fates.
func TestReproducible(t *testing.T) {
	run := func() string {
		src, err := generate.Mix{Kinds: generate.AIMix, Jobs: 300, Cards: 4, Load: 1.1, Seed: 3, CV: 3, Estimate: 2, Users: 4}.Source()
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		cfg := Config{Spec: cluster.Homogeneous(2, 16, 2, "a"), Scheduler: SRTF(), Placement: "random", Seed: 5}
		if _, err := Run(cfg, src, func(r *Result) { out += fmt.Sprintln(r.Request.ID, r.Outcome, r.Start, r.End, r.Preempts, r.Node) }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if a, b := run(), run(); a != b || a == "" {
		t.Error("two runs of one seed differ")
	}
}
