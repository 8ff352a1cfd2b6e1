package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// What a job had of a card and of CPUs is in `berth usage` once it has ended, under its account and user: a whole card for as long
// as sacct says, and a quarter of one for a job that shares.
func TestUsage(t *testing.T) {
	r := begin(t, 8*time.Minute)
	s := r.clone()
	used := func() (cpus, gpus float64) {
		t.Helper()
		out := s.must("berth", "usage", siteName, "--start", "1d", "--account", "vision", "--user", student, "--output", "csv")
		lines := strings.Split(out, "\n")
		if lines[0] != "account,user,jobs,cpu_hours,gpu_hours" || len(lines) > 2 {
			t.Fatalf("berth usage prints\n%s", out)
		}
		if len(lines) == 1 {
			return 0, 0
		}
		fields := strings.Split(lines[1], ",")
		if fields[0] != "vision" || fields[1] != student {
			t.Fatalf("berth usage prints\n%s", out)
		}
		cpus, _ = strconv.ParseFloat(fields[3], 64)
		gpus, _ = strconv.ParseFloat(fields[4], 64)
		return cpus, gpus
	}
	cpusBefore, gpusBefore := used()
	seconds := func(id string) (n float64) {
		t.Helper()
		r.waitJob(id, "COMPLETED", workerStarts)
		r.eventually(60*time.Second, "accounting has the job's end", func() (bool, string) {
			out, err := r.as(student, "sacct --noheader --parsable2 --allocations --format=state,elapsedraw --jobs="+id)
			state, text, _ := strings.Cut(strings.TrimSpace(out), "|")
			n, _ = strconv.ParseFloat(text, 64)
			return err == nil && state == "COMPLETED", out
		})
		return n
	}
	whole := seconds(r.submit(student, "--partition=gpu-rtx3080 --gres=gpu:1 --ntasks=2 --mem=256M", "sleep 20"))
	shared := seconds(r.submit(student, "--partition=gpu-rtx3080 --gres=mps:25 --ntasks=1 --mem=256M", "sleep 20"))
	cpus, gpus := used()
	for what, pair := range map[string][2]float64{"CPU": {cpus - cpusBefore, 2*whole + shared}, "GPU": {gpus - gpusBefore, whole + shared/4}} {
		// CSV has four digits of an hour.
		if got := pair[0] * 3600; got < pair[1]-1 || got > pair[1]+1 {
			t.Errorf("%.1f more %s-seconds, want %.1f", got, what, pair[1])
		}
	}
	if out := s.must("berth", "usage", siteName, "--start", "1d", "--by", "account", "--output", "chart"); !strings.HasPrefix(out, "GPU-hours, ") || !strings.Contains(out, "\nvision ") {
		t.Errorf("the chart is\n%s", out)
	}
}
