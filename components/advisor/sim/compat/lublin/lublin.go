// Package lublin reproduces the evaluation of RLScheduler (SC'20) on logs in the standard workload format, with the
// semantics of its simulator where they differ from the textbook: a selected job is committed to until it fits (sticky
// selection), its backfill has no rule for extra processors, and waiting jobs' "waiting time" is computed from a start time of
// −1. It exists to reproduce published tables; schedule with package pool.
package lublin

import (
	"fmt"
	"math"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/metrics"
	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Options choose the semantics.
type Options struct {
	Procs int
	// Policy is fcfs, wfp3, unicep, sjf or f1.
	Policy   string
	Backfill bool
	// NegativeWait reproduces the published WFP3 and UNICEP columns, in which a waiting job's wait is −(submit+1) instead of the
	// time since its submission.
	NegativeWait bool
}

// Sequence is the outcome of one sequence of jobs.
type Sequence struct {
	BSLD, Wait, Turnaround float64 // means; times in seconds
	// Utilisation divides by the time until the last start, as the original does, not by that until the last end.
	Utilisation float64
}

type job struct {
	submit, run, req int64 // seconds
	n                int
	start            int64
	key              [2]float64
}

type machine struct {
	opt     Options
	jobs    []*job
	next    int // next to arrive
	now     int64
	free    int
	waiting []*job
	running []*job
}

// Evaluate runs one sequence on an empty machine, beginning at the submission of its first job.
func Evaluate(jobs []workload.Job, opt Options) (Sequence, error) {
	if len(jobs) == 0 {
		return Sequence{}, fmt.Errorf("a sequence needs at least one job")
	}
	if !slices.Contains([]string{"fcfs", "wfp3", "unicep", "sjf", "f1"}, opt.Policy) {
		return Sequence{}, fmt.Errorf("the published evaluation has no policy %q; use fcfs, wfp3, unicep, sjf or f1", opt.Policy)
	}
	m := &machine{opt: opt, free: opt.Procs}
	for i := range jobs {
		j := &jobs[i]
		if int(j.Procs) > opt.Procs {
			return Sequence{}, fmt.Errorf("job %d asks for %d processors of %d; give the machine as many as its widest job has", j.ID, j.Procs, opt.Procs)
		}
		m.jobs = append(m.jobs, &job{submit: j.Submit / workload.Second, run: j.Run / workload.Second,
			req: j.Limit / workload.Second, n: int(j.Procs), start: -1})
	}
	m.now = m.jobs[0].submit
	m.arrive()
	for m.next < len(m.jobs) || len(m.waiting) > 0 {
		for len(m.waiting) == 0 {
			m.step()
		}
		m.startNext()
	}
	return m.outcome(), nil
}

func (m *machine) arrive() {
	m.waiting = append(m.waiting, m.jobs[m.next])
	m.next++
}

// step moves to the next event: an arrival, unless a completion is strictly earlier.
func (m *machine) step() {
	end, at := int64(math.MaxInt64), -1
	for i, r := range m.running {
		if e := r.start + r.run; e < end {
			end, at = e, i
		}
	}
	if m.next < len(m.jobs) && m.jobs[m.next].submit <= end {
		m.now = max(m.now, m.jobs[m.next].submit)
		m.arrive()
		return
	}
	m.now = max(m.now, end)
	m.free += m.running[at].n
	m.running = slices.Delete(m.running, at, at+1)
}

// startNext commits to the best waiting job and waits until it fits.
func (m *machine) startNext() {
	for _, j := range m.waiting {
		j.key = m.score(j)
	}
	best := slices.MinFunc(m.waiting, func(a, b *job) int {
		return slices.Compare(a.key[:], b.key[:])
	})
	if best.n > m.free && m.opt.Backfill {
		m.waitBackfilling(best)
	}
	for best.n > m.free {
		m.step()
	}
	m.start(best)
}

func (m *machine) waitBackfilling(head *job) {
	byEnd := slices.Clone(m.running)
	slices.SortStableFunc(byEnd, func(a, b *job) int { return int((a.start + a.req) - (b.start + b.req)) })
	shadow, free := m.now, m.free
	for _, r := range byEnd {
		free += r.n
		shadow = r.start + r.req
		if free >= head.n {
			break
		}
	}
	for head.n > m.free {
		order := slices.Clone(m.waiting)
		slices.SortStableFunc(order, func(a, b *job) int { return int(a.submit - b.submit) })
		for _, j := range order {
			if j != head && j.n <= m.free && m.now+j.req < shadow {
				m.start(j)
			}
		}
		m.step()
	}
}

func (m *machine) start(j *job) {
	j.start = m.now
	m.free -= j.n
	m.running = append(m.running, j)
	i := slices.Index(m.waiting, j)
	m.waiting = slices.Delete(m.waiting, i, i+1)
}

func (m *machine) score(j *job) [2]float64 {
	req, n, submit := float64(j.req), float64(j.n), float64(j.submit)
	wait := float64(m.now - j.submit)
	if m.opt.NegativeWait {
		wait = float64(-1 - j.submit)
	}
	switch m.opt.Policy {
	case "sjf":
		return [2]float64{req, submit}
	case "f1":
		return [2]float64{float64(math.Log10(req)*n) + float64(870*math.Log10(max(submit, 1))), 0}
	case "wfp3":
		return [2]float64{policy.WFP3Score(wait, req, n), 0}
	case "unicep":
		return [2]float64{policy.UNICEPScore(wait, req, n), 0}
	}
	return [2]float64{submit, 0}
}

func (m *machine) outcome() Sequence {
	var s Sequence
	var area float64
	last := m.jobs[0].start
	for _, j := range m.jobs {
		wait, run := float64(j.start-j.submit), float64(j.run)
		s.BSLD += metrics.BoundedSlowdown(wait, run)
		s.Wait += wait
		s.Turnaround += wait + run
		area += float64(run * float64(j.n))
		last = max(last, j.start)
	}
	n := float64(len(m.jobs))
	s.BSLD, s.Wait, s.Turnaround = s.BSLD/n, s.Wait/n, s.Turnaround/n
	s.Utilisation = area / (float64(last-m.jobs[0].submit) * float64(m.opt.Procs))
	return s
}
