// Package pool is the engine for rigid jobs on a pool of identical processors, the model of the parallel workloads archive.
// It streams: its memory follows the jobs in the system, not the trace.
package pool

import (
	"fmt"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/queue"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Job is what a pool needs to know of a job. Limit is the user's estimate; only the engine looks at Run.
type Job struct {
	ID, Submit, Run, Limit int64
	Procs                  int32
}

// FromWorkload takes the part of a job that a pool looks at.
func FromWorkload(j *workload.Job) Job {
	return Job{ID: j.ID, Submit: j.Submit, Run: j.Run, Limit: j.Limit, Procs: j.Procs}
}

// Result is the fate of one job, in microseconds.
type Result struct {
	ID, Submit, Start, End int64
	Procs                  int32
	Killed                 bool // ended at its limit
}

// Config describes a simulation.
type Config struct {
	Procs      int32
	Discipline policy.Discipline
	// EnforceLimits ends a job at its limit. Without it a job runs on, and reservations assume that it may end at any moment.
	EnforceLimits bool
}

// Engine simulates one pool. Submit jobs in order of time, then Drain. The zero value is not usable; see New.
type Engine struct {
	cfg   Config
	sink  func(*Result)
	procs int32
	free  int32
	now   int64
	seq   int64

	// Live jobs, by slot.
	jobs  []live
	spare []int32

	ends    endHeap
	running runningList

	// The waiting queue: sorted for static orders (candidates is the same index if both orders agree), else all is scanned.
	static     bool
	waiting    *queue.Index
	candidates *queue.Index
	chosen     func(owner, procs int32, limit int64) // start or choose, bound once
	scratch    workload.Request
	unsorted   []int32
	ranked     []ranked

	pass  pass
	fit   queue.Fit
	plan  plan
	stats Stats
}

// live is a job in the system: 64 bytes, one line of a processor's cache.
type live struct {
	Job
	start int64
	seq   int64
	_     int64
}

// pass is what is known between scheduling passes.
type pass struct {
	due     bool  // something happened at the present time
	full    bool  // a completion, or an arrival that needs more than a look at itself
	fresh   int32 // the one job that has arrived and is not in the queue yet, −1 if none
	blocked bool  // the head of the queue does not fit, and head, shadow and extra describe it
	headKey float64
	headSeq int64
	shadow  int64
	extra   int32
	// tried says that every waiting job has been tried against head, shadow and extra as they are, with seen processors free.
	tried    bool
	seen     int32
	headWide int32
}

// Stats counts what the engine did.
type Stats struct {
	Jobs, Events, Passes int64
	MaxWaiting           int
	MaxRunning           int
	LastEnd, LastStart   int64
	FirstSubmit          int64
	// BusyArea is processor-microseconds of work done.
	BusyArea float64
	// WaitingArea is job-microseconds waited, and SystemArea job-microseconds in the system: integrals over time for Little's law.
	WaitingArea, SystemArea float64
	// Visits counts the nodes of the waiting queue's index that were looked into: what passes cost, on any machine.
	Visits int64
}

// New makes an engine; sink gets every job as it ends.
func New(cfg Config, sink func(*Result)) (*Engine, error) {
	if cfg.Procs <= 0 {
		return nil, fmt.Errorf("a pool of %d processors cannot run anything; give it at least one", cfg.Procs)
	}
	if cfg.Discipline.Order == nil {
		return nil, fmt.Errorf("no order of the queue is given; use one of policy.Orders")
	}
	e := &Engine{cfg: cfg, sink: sink, procs: cfg.Procs, free: cfg.Procs, now: -1 << 62}
	e.pass.fresh = -1
	cand := cfg.Discipline.Candidates()
	e.static = cfg.Discipline.Order.Static() && cand.Static() && cfg.Discipline.Backfill != policy.Conservative
	if e.static {
		e.waiting = queue.NewIndex(cfg.Procs)
		e.candidates, e.chosen = e.waiting, e.start
		if cand.Name() != cfg.Discipline.Order.Name() && cfg.Discipline.Backfill != policy.None {
			e.candidates = queue.NewIndex(cfg.Procs)
			e.chosen = e.choose
		}
	}
	return e, nil
}

// Stats gives the counts so far.
func (e *Engine) Stats() *Stats {
	if e.static {
		e.stats.Visits = e.waiting.Visits()
		if e.candidates != e.waiting {
			e.stats.Visits += e.candidates.Visits()
		}
	}
	return &e.stats
}

// Waiting is the number of waiting jobs.
func (e *Engine) Waiting() int {
	if e.static {
		return e.waiting.Len()
	}
	return len(e.unsorted)
}

// Submit lets the simulation run up to a job's submission and puts the job in the queue. Jobs come in order of submission.
func (e *Engine) Submit(j *Job) error {
	if j.Procs <= 0 || j.Procs > e.procs {
		return fmt.Errorf("job %d asks for %d processors; the pool has %d", j.ID, j.Procs, e.procs)
	}
	if j.Run < 0 || j.Limit <= 0 {
		return fmt.Errorf("job %d: run time %d µs and limit %d µs; a run time is not negative and a limit is at least 1", j.ID, j.Run, j.Limit)
	}
	if j.Submit < e.now {
		return fmt.Errorf("job %d is submitted at %d µs, before the job ahead of it (%d µs); sort the trace by submission", j.ID, j.Submit, e.now)
	}
	if e.stats.Jobs == 0 {
		e.stats.FirstSubmit = j.Submit
	}
	if j.Submit > e.now {
		e.advance(j.Submit)
	}
	e.stats.Jobs++
	e.stats.Events++
	s := e.take()
	l := &e.jobs[s]
	l.Job = *j
	l.seq = e.seq
	e.seq++
	e.pass.due = true
	switch {
	case e.static && e.pass.fresh < 0 && !e.pass.full:
		e.pass.fresh = s // most likely it starts at once, or is all that needs a look: keep it out of the queue until then
		return nil
	case e.pass.fresh >= 0:
		e.enqueue(e.pass.fresh)
		e.pass.fresh, e.pass.full = -1, true
	}
	e.pass.tried = false
	e.enqueue(s)
	return nil
}

// Advance runs up to a time, before which nothing more is submitted.
func (e *Engine) Advance(t int64) {
	if e.stats.Jobs > 0 && t > e.now {
		e.advance(t)
	}
}

// Drain runs until the last job has ended.
func (e *Engine) Drain() {
	e.advance(workload.Never)
}

// advance handles everything before t, and the completions at t, which come before arrivals.
func (e *Engine) advance(t int64) {
	if e.pass.due {
		e.schedule()
	}
	for {
		at, i := e.nextEnd()
		if at > t || at == workload.Never {
			break
		}
		e.tick(at)
		for next := at; next == at; next, i = e.nextEnd() {
			if i < 0 {
				e.complete(e.ends.pop().slot)
			} else {
				s := slotOf(e.running[i].owner)
				e.running.cut(i)
				e.finish(s)
			}
		}
		e.pass.full, e.pass.due = true, true
		if at == t {
			return
		}
		e.schedule()
	}
	if t != workload.Never {
		e.tick(t)
	}
}

// nextEnd is when the next running job ends, and its place in the running list; −1 if it is the first of the heap. Jobs that run
// for exactly their limit end in the order of the list and never enter the heap.
func (e *Engine) nextEnd() (at int64, i int) {
	at, i = workload.Never, -1
	for k := len(e.running) - 1; k >= 0; k-- {
		if e.running[k].exact() {
			at, i = e.running[k].end, k
			break
		}
	}
	if len(e.ends) > 0 {
		if h := &e.ends[0]; h.at < at || h.at == at && h.seq < e.jobs[slotOf(e.running[i].owner)].seq {
			return h.at, -1
		}
	}
	return at, i
}

func (e *Engine) tick(t int64) {
	if e.now >= 0 || e.stats.Jobs > 0 {
		dt := float64(t - e.now)
		w := float64(e.Waiting())
		e.stats.WaitingArea += float64(dt * w)
		e.stats.SystemArea += float64(dt * (w + float64(len(e.running))))
	}
	e.now = t
}

func (e *Engine) take() int32 {
	if n := len(e.spare); n > 0 {
		s := e.spare[n-1]
		e.spare = e.spare[:n-1]
		return s
	}
	if n := len(e.jobs); n == cap(e.jobs) {
		e.jobs = slices.Grow(e.jobs, n+64) // twice as many: to copy a long queue is slow
	}
	e.jobs = append(e.jobs, live{})
	return int32(len(e.jobs) - 1)
}

// complete ends a job that ran for longer or shorter than its limit.
func (e *Engine) complete(s int32) {
	l := &e.jobs[s]
	e.running.remove(l.start+l.Limit, s)
	e.plan.valid = false
	e.pass.tried = false // it may have ended early, which moves the shadow
	e.finish(s)
}

// finish ends a job that is in the running list no more.
func (e *Engine) finish(s int32) {
	l := &e.jobs[s]
	e.free += l.Procs
	e.stats.Events++
	e.stats.LastEnd = e.now
	e.stats.BusyArea += float64(float64(l.Procs) * float64(e.now-l.start))
	if e.sink != nil {
		r := Result{ID: l.ID, Submit: l.Submit, Start: l.start, End: e.now, Procs: l.Procs}
		r.Killed = e.cfg.EnforceLimits && l.Run > l.Limit
		e.sink(&r)
	}
	e.spare = append(e.spare, s)
}

// start gives a job its processors. The caller has taken it out of the queue. All that is needed of the record is given, because in a
// long queue the record itself has long left the processor's cache.
func (e *Engine) start(owner, procs int32, limit int64) {
	s := slotOf(owner)
	l := &e.jobs[s]
	l.start = e.now
	e.free -= procs
	e.occupy(e.now+limit, procs, owner)
	if owner < 0 {
		run := l.Run
		if e.cfg.EnforceLimits {
			run = min(run, limit)
		}
		e.ends.push(end{e.now + run, l.seq, s})
	}
	e.stats.LastStart = e.now
	e.stats.MaxRunning = max(e.stats.MaxRunning, len(e.running))
}

// owner names a job in lists: its slot, or the complement of that if it may end before or after its limit.
func (e *Engine) owner(s int32) int32 {
	l := &e.jobs[s]
	if l.Run == l.Limit || l.Run > l.Limit && e.cfg.EnforceLimits {
		return s
	}
	return ^s
}

func slotOf(owner int32) int32 { return owner ^ owner>>31 }

func (e *Engine) request(l *live) *workload.Request {
	r := &e.scratch
	r.ID, r.Submit, r.Limit, r.Procs = l.ID, l.Submit, l.Limit, l.Procs
	return r
}

func (e *Engine) enqueue(s int32) {
	l := &e.jobs[s]
	if !e.static {
		e.unsorted = append(e.unsorted, s)
		e.stats.MaxWaiting = max(e.stats.MaxWaiting, len(e.unsorted))
		return
	}
	e.insert(s, e.cfg.Discipline.Order.Key(e.request(l), e.now))
}

// insert puts a job with its key into the sorted queues.
func (e *Engine) insert(s int32, key float64) {
	l := &e.jobs[s]
	e.waiting.Insert(queue.Entry{Key: key, Seq: l.seq, Limit: l.Limit, Procs: l.Procs, Slot: e.owner(s)})
	if e.candidates != e.waiting {
		key = e.cfg.Discipline.Candidates().Key(e.request(l), e.now)
		e.candidates.Insert(queue.Entry{Key: key, Seq: l.seq, Limit: l.Limit, Procs: l.Procs, Slot: e.owner(s)})
	}
	e.stats.MaxWaiting = max(e.stats.MaxWaiting, e.waiting.Len())
}

// remove takes a job out of a sorted queue of an order. The order is static, so that it gives the same key as before.
func (e *Engine) remove(s int32, from *queue.Index, o policy.Order) {
	l := &e.jobs[s]
	from.Remove(o.Key(e.request(l), e.now), l.seq)
}

// Run simulates a whole source.
func Run(cfg Config, src workload.Source, sink func(*Result)) (*Stats, error) {
	e, err := New(cfg, sink)
	if err != nil {
		return nil, err
	}
	for j, err := range src {
		if err != nil {
			return nil, err
		}
		p := FromWorkload(&j)
		if err := e.Submit(&p); err != nil {
			return nil, err
		}
	}
	e.Drain()
	return e.Stats(), nil
}
