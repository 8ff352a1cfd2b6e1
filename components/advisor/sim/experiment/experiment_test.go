package experiment

import (
	"math"
	"strings"
	"testing"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

const sec = workload.Second

func job(id, submit, run int64, cards, milli int32) workload.Job {
	j := workload.Job{Run: run * sec}
	j.ID, j.Submit, j.Limit, j.GPUs, j.GPUMilli, j.Procs = id, submit*sec, run*sec, cards, milli, max(cards, 1)
	return j
}

// One card of which a half is held for 100 s and the other half for 50 of them: three quarters of its SMs, all of its time.
func TestBothUtilisations(t *testing.T) {
	o, err := Run(Setup{Spec: cluster.Homogeneous(1, 8, 1, "a"), Policy: "fcfs", NoInterference: true}, workload.FromSlice([]workload.Job{job(1, 0, 100, 1, 500), job(2, 0, 50, 1, 500)}))
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(o.Summary.Utilisation-.75) > 1e-9 || math.Abs(o.CardsHeld-1) > 1e-9 {
		t.Errorf("shares held %g, cards held %g; want 0.75 and 1", o.Summary.Utilisation, o.CardsHeld)
	}
}

// An id that two jobs in the system have is given to the first; one that comes back later is nobody's.
func TestDuplicateIDs(t *testing.T) {
	jobs := []workload.Job{job(7, 0, 100, 1, 1000), job(7, 1, 10, 1, 1000), job(7, 1000, 10, 1, 1000)}
	for name, s := range map[string]Setup{"pool": {Procs: 4, Policy: "fcfs"}, "cluster": {Spec: cluster.Homogeneous(1, 8, 4, "a"), Policy: "fcfs"}} {
		ids := map[int64]int{}
		s.Job = func(j *JobResult) { ids[j.ID]++ }
		o, err := Run(s, workload.FromSlice(jobs))
		if err != nil || o.Renamed != 1 || ids[7] != 2 || ids[-1] != 1 {
			t.Errorf("%s: %v, ids %v: %v", name, o, ids, err)
		}
	}
}

// Every policy that is offered runs, on a pool or a cluster, and ends every job; what is not offered is refused with the names there are.
func TestPolicies(t *testing.T) {
	jobs := []workload.Job{job(1, 0, 100, 1, 1000), job(2, 1, 50, 2, 1000), job(3, 2, 20, 1, 500)}
	for _, p := range append([]string{"fcfs", "sjf+easy", "fcfs+easy-saf", "saf+conservative", "f1+greedy", "wfp3", "unicep+easy"}, ClusterPolicies...) {
		s := Setup{Spec: cluster.Homogeneous(1, 8, 2, "a"), Policy: p, Gittins: []float64{10, 100}}
		if o, err := Run(s, workload.FromSlice(jobs)); err != nil || o.Summary.Jobs != 3 || o.Summary.Failed != 0 {
			t.Errorf("%s on a cluster: %+v, %v", p, o, err)
		}
	}
	for _, c := range []struct {
		s    Setup
		want string
	}{
		{Setup{Procs: 4, Policy: "srtf"}, "policy srtf needs a cluster"},
		{Setup{Spec: cluster.Homogeneous(1, 8, 2, "a"), Policy: "fastest"}, "on a cluster also srtf"},
		{Setup{Spec: cluster.Homogeneous(1, 8, 2, "a"), Policy: "gittins"}, "needs a sample of job sizes"},
		{Setup{Spec: cluster.Homogeneous(1, 8, 2, "a"), Policy: "multifactor+greedy"}, "multifactor goes with"},
		{Setup{Spec: cluster.Homogeneous(1, 8, 2, "a"), Policy: "fcfs+conservative-sjf"}, "in one order"},
	} {
		if _, err := Run(c.s, workload.FromSlice(jobs)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.s.Policy, err, c.want)
		}
	}
}

// Estimates change limits and nothing else, and the same seed changes them equally.
func TestEstimates(t *testing.T) {
	jobs := []workload.Job{job(1, 0, 100, 1, 1000), job(2, 1, 50, 2, 1000)}
	jobs[0].Limit = 7000 * sec
	read := func(e Estimates) []workload.Job {
		out, err := workload.Collect(e.Apply(workload.FromSlice(jobs)))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if j := read(Estimates{Kind: "trace"})[0]; j.Limit != 7000*sec {
		t.Errorf("the trace's limit became %d", j.Limit)
	}
	if j := read(Estimates{Kind: "exact"})[0]; j.Limit != 100*sec || j.Run != 100*sec {
		t.Errorf("exact: limit %d, run time %d", j.Limit, j.Run)
	}
	a, b := read(Estimates{Kind: "factor", Factor: 4, Seed: 1}), read(Estimates{Kind: "factor", Factor: 4, Seed: 1})
	for i := range a {
		if a[i].Limit != b[i].Limit || a[i].Limit < a[i].Run || a[i].Limit > 4*a[i].Run {
			t.Errorf("factor: limits %d and %d for a run time of %d", a[i].Limit, b[i].Limit, a[i].Run)
		}
	}
}
