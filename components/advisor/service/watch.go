package service

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-hpc/berth/components/advisor/snapshot"
)

// started is a job of the latency class that has started: when, and after what wait in seconds.
type started struct {
	at   int64
	wait float64
}

// tail is the rolling watch of waiting times. It is not safe for concurrent use.
type tail struct {
	jobs []started
	seen map[int64]int64 // job to start
}

// look takes the jobs of a snapshot that have started since the last look.
func (t *tail) look(s *snapshot.Snapshot, w *Watch, now time.Time) {
	if t.seen == nil {
		t.seen = map[int64]int64{}
	}
	oldest := now.Unix() - int64(w.WindowSeconds)
	present := make(map[int64]bool, len(s.Jobs))
	for i := range s.Jobs {
		j := &s.Jobs[i]
		present[j.ID] = true
		if j.Pending() || j.Start == 0 || j.Start < oldest || j.Start > now.Unix() || t.seen[j.ID] == j.Start || !w.covers(j) {
			continue
		}
		t.seen[j.ID] = j.Start
		t.jobs = append(t.jobs, started{j.Start, float64(j.Start - j.Submit)})
	}
	for id := range t.seen {
		if !present[id] {
			delete(t.seen, id)
		}
	}
	t.jobs = slices.DeleteFunc(t.jobs, func(s started) bool { return s.at < oldest })
}

func (w *Watch) covers(j *snapshot.Job) bool {
	if len(w.QOS) == 0 && len(w.Partitions) == 0 {
		return true
	}
	return slices.Contains(w.QOS, j.QOS) || slices.Contains(w.Partitions, j.Partition)
}

// crossed says which line the tail has crossed, "" for none.
func (t *tail) crossed(w *Watch) string {
	if len(t.jobs) < w.MinJobs {
		return ""
	}
	waits := make([]float64, len(t.jobs))
	late := 0
	for i, s := range t.jobs {
		waits[i] = s.wait
		if w.TargetWaitSeconds > 0 && s.wait > w.TargetWaitSeconds {
			late++
		}
	}
	slices.Sort(waits)
	if p95 := waits[int(0.95*float64(len(waits)))]; w.P95WaitSeconds > 0 && p95 > w.P95WaitSeconds {
		return fmt.Sprintf("the 95th percentile of the wait of the last %d jobs is %.0f s, above %.0f s", len(waits), p95, w.P95WaitSeconds)
	}
	if share := float64(late) / float64(len(waits)); w.TargetWaitSeconds > 0 && w.ViolationShare > 0 && share > w.ViolationShare {
		return fmt.Sprintf("%.0f %% of the last %d jobs waited longer than %.0f s, above %.0f %%", 100*share, len(waits), w.TargetWaitSeconds, 100*w.ViolationShare)
	}
	return ""
}
