package pool

import (
	"github.com/berth-hpc/berth/components/advisor/sim/queue"
)

// plan is what conservative backfill remembers between passes.
type plan struct {
	profile queue.Profile
	at      map[int32]int64 // planned start by slot
	valid   bool
}

// conservative gives every waiting job, in order, the earliest start in the profile and starts those whose time has come. The
// plan is made anew at every event; while nothing has ended ahead of its estimate and the order is static, an arrival at the
// end of the queue leaves all other reservations as they are, and planning just the new job gives the same plan.
func (e *Engine) conservative() {
	p := &e.plan
	order := e.cfg.Discipline.Order
	if p.at == nil {
		p.at = map[int32]int64{}
	}
	q := e.rank(order)
	if p.valid && order.Static() && e.extendPlan(q) {
		return
	}
	p.profile.Reset(e.now, e.free)
	for i := len(e.running) - 1; i >= 0; i-- {
		r := &e.running[i]
		// A job beyond its estimate may end at any moment: assume the next microsecond.
		p.profile.Add(max(r.end, e.now+1), 1<<62, r.procs)
	}
	clear(p.at)
	for _, c := range q {
		e.reserve(c.slot)
	}
	p.valid = true
	e.startPlanned(q)
}

// extendPlan keeps the plan if it still holds, and reports whether it did. It does not after an early completion (complete
// drops it then), while somebody overruns, and when a newcomer ranks before others.
func (e *Engine) extendPlan(q []ranked) bool {
	p := &e.plan
	if n := len(e.running); n > 0 && e.running[n-1].end <= e.now {
		return false
	}
	for i, c := range q {
		if at, known := p.at[c.slot]; !known && i != len(q)-1 || known && at < e.now {
			return false
		}
	}
	p.profile.Advance(e.now)
	if n := len(q); n > 0 {
		if _, known := p.at[q[n-1].slot]; !known {
			e.reserve(q[n-1].slot)
		}
	}
	e.startPlanned(q)
	return true
}

func (e *Engine) reserve(s int32) {
	p, l := &e.plan, &e.jobs[s]
	at := p.profile.Earliest(e.now, l.Limit, l.Procs)
	p.profile.Add(at, at+l.Limit, -l.Procs)
	p.at[s] = at
}

func (e *Engine) startPlanned(q []ranked) {
	for _, c := range q {
		if e.plan.at[c.slot] == e.now && e.jobs[c.slot].Procs <= e.free {
			delete(e.plan.at, c.slot)
			e.leave(c.slot)
			e.launch(c.slot)
		}
	}
}
