package generate

import (
	"math"
	"testing"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

func collect(t testing.TB, src workload.Source, err error) []workload.Job {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := workload.Collect(src)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(jobs); i++ {
		if jobs[i].Submit < jobs[i-1].Submit {
			t.Fatal("jobs are out of order")
		}
	}
	return jobs
}

// The offered load is what was asked for, and a seed gives the same jobs again.
func TestLublinLoad(t *testing.T) {
	l := Lublin{Procs: 256, Jobs: 20000, Load: .9, Seed: 1}
	src, err := l.Source()
	jobs := collect(t, src, err)
	work, serial := 0.0, 0
	for _, j := range jobs {
		work += workload.InSeconds(j.Run) * float64(j.Procs)
		if j.Procs == 1 {
			serial++
		}
		if j.Procs < 1 || j.Procs > 256 || j.Limit != j.Run {
			t.Fatalf("job %+v", j)
		}
	}
	load := work / 256 / workload.InSeconds(jobs[len(jobs)-1].Submit)
	if math.Abs(load-.9) > .001 {
		t.Errorf("the offered load is %.4f", load)
	}
	if p := float64(serial) / float64(len(jobs)); p < .24 || p > .40 { // 24.4 % by the model, and narrow parallel jobs rounded down to one
		t.Errorf("%.3f of the jobs are serial", p)
	}
	again, err := l.Source()
	for i, j := range collect(t, again, err) {
		if j.Submit != jobs[i].Submit || j.Run != jobs[i].Run || j.Procs != jobs[i].Procs {
			t.Fatal("the same seed gives other jobs")
		}
	}
}

// Common random numbers: another load moves arrivals and leaves sizes and run times alone.
func TestLoadMovesArrivalsAlone(t *testing.T) {
	a, err := Lublin{Procs: 64, Jobs: 500, Load: .5, Seed: 3}.Source()
	ja := collect(t, a, err)
	b, err := Lublin{Procs: 64, Jobs: 500, Load: 1, Seed: 3}.Source()
	for i, j := range collect(t, b, err) {
		if j.Run != ja[i].Run || j.Procs != ja[i].Procs {
			t.Fatal("run times or sizes changed with the load")
		}
	}
}

// The mix has its shares, its load, and its burstiness.
func TestMix(t *testing.T) {
	for _, cv := range []float64{1, 4, 13} {
		src, err := Mix{Kinds: AIMix, Jobs: 40000, Cards: 4, Load: .8, CV: cv, Seed: 2, Users: 4, Estimate: 2}.Source()
		jobs := collect(t, src, err)
		count := map[string]int{}
		work, sum, sq := 0.0, 0.0, 0.0
		for i, j := range jobs {
			count[j.Model]++
			work += workload.InSeconds(j.Run) * float64(j.GPUs) * float64(j.GPUMilli) / 1000
			if i > 0 {
				g := workload.InSeconds(j.Submit - jobs[i-1].Submit)
				sum, sq = sum+g, sq+g*g
			}
			if j.Limit < j.Run || j.Class == workload.Latency && j.Deadline <= j.Submit {
				t.Fatalf("job %+v", j)
			}
		}
		n := float64(len(jobs))
		for _, k := range AIMix {
			if p := float64(count[k.Model]) / n; math.Abs(p-k.Share) > .01 {
				t.Errorf("%s is %.3f of the jobs, want %.2f", k.Model, p, k.Share)
			}
		}
		if load := work / 4 / workload.InSeconds(jobs[len(jobs)-1].Submit); math.Abs(load-.8) > .01 {
			t.Errorf("the offered load is %.3f", load)
		}
		mean := sum / (n - 1)
		if got := math.Sqrt(sq/(n-1)-mean*mean) / mean; math.Abs(got-cv) > .15*cv {
			t.Errorf("the coefficient of variation is %.2f, want %g", got, cv)
		}
	}
}

func TestRefusals(t *testing.T) {
	if _, err := (Lublin{Procs: 0, Jobs: 1, Load: 1}).Source(); err == nil {
		t.Error("no processors are accepted")
	}
	if _, err := (Mix{Kinds: AIMix, Jobs: 1, Cards: 1, Load: 1, CV: .5}).Source(); err == nil {
		t.Error("a coefficient of variation below 1 is accepted")
	}
}
