package pool_test

import (
	"testing"

	"github.com/berth-hpc/berth/components/advisor/sim/generate"
	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/pool"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

func lublin(tb testing.TB, n int, load float64) []pool.Job {
	src, err := generate.Lublin{Procs: 256, Jobs: n, Load: load, Seed: 1}.Source()
	if err != nil {
		tb.Fatal(err)
	}
	jobs, err := workload.Collect(src)
	if err != nil {
		tb.Fatal(err)
	}
	out := make([]pool.Job, len(jobs))
	for i := range jobs {
		out[i] = pool.FromWorkload(&jobs[i])
	}
	return out
}

// One operation is 20,000 jobs at offered load 0.9.
func BenchmarkEASY(b *testing.B) {
	jobs := lublin(b, 20000, .9)
	d := policy.Discipline{Order: policy.FCFS, Backfill: policy.EASY}
	b.ReportAllocs()
	for b.Loop() {
		e, err := pool.New(pool.Config{Procs: 256, Discipline: d}, nil)
		if err != nil {
			b.Fatal(err)
		}
		for i := range jobs {
			if err := e.Submit(&jobs[i]); err != nil {
				b.Fatal(err)
			}
		}
		e.Drain()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/40000, "ns/event")
}
