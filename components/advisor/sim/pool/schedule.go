package pool

import (
	"math"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/policy"
)

// schedule starts what the discipline starts now.
func (e *Engine) schedule() {
	e.stats.Passes++
	p := &e.pass
	switch {
	case e.cfg.Discipline.Backfill == policy.Conservative:
		e.conservative()
	case !e.static:
		e.scan()
	case p.fresh < 0 || !e.glance(p.fresh):
		e.indexed()
	}
	p.due, p.full, p.fresh, p.seen = false, false, -1, e.free
}

// glance handles the commonest pass: one job has arrived and nothing else has changed. All others were found not to start when
// more time was left before the shadow, so only the new one needs a look. It reports whether that was enough; the job has then
// started or is in the queue. If it was not, the job is in the queue.
func (e *Engine) glance(s int32) bool {
	p, l := &e.pass, &e.jobs[s]
	if e.waiting.Len() == 0 && l.Procs <= e.free {
		e.launch(s)
		return true
	}
	key := e.cfg.Discipline.Order.Key(e.request(l), e.now)
	if e.waiting.Len() == 0 {
		e.insert(s, key)
		return false
	}
	first := key < p.headKey || key == p.headKey && l.seq < p.headSeq
	if first || e.overrun() {
		p.tried = false
		e.insert(s, key)
		return false
	}
	if e.passes(l) {
		e.launch(s)
		return true
	}
	e.insert(s, key)
	return true
}

// overrun says that a job runs beyond its limit: the shadow then moves with the clock.
func (e *Engine) overrun() bool {
	n := len(e.running)
	return n > 0 && e.running[n-1].end < e.now
}

// passes says whether a job may pass the blocked head, and takes it off the extra processors if that is why.
func (e *Engine) passes(l *live) bool {
	if l.Procs > e.free {
		return false
	}
	switch e.cfg.Discipline.Backfill {
	case policy.Greedy:
		return true
	case policy.EASY:
		if e.now+l.Limit <= e.pass.shadow {
			return true
		}
		if l.Procs <= e.pass.extra {
			e.pass.extra -= l.Procs
			return true
		}
	}
	return false
}

// indexed is a full pass over sorted queues.
func (e *Engine) indexed() {
	p := &e.pass
	if p.tried && p.headWide > e.free && !e.overrun() {
		// Only processors have become free, and the head is blocked as before: who was tried and is not wider than what was free
		// then does not start now, because there is less time left.
		e.backfill(p.extra, p.shadow-e.now, p.seen, true)
		return
	}
	p.blocked, p.tried = false, false
	for {
		head, ok := e.waiting.Min()
		if !ok {
			return
		}
		if head.Procs > e.free {
			p.blocked, p.headKey, p.headSeq = true, head.Key, head.Seq
			switch e.cfg.Discipline.Backfill {
			case policy.EASY:
				p.shadow, p.extra = e.shadow(head.Procs)
				p.tried, p.headWide = true, head.Procs
				e.backfill(p.extra, p.shadow-e.now, 0, false)
			case policy.Greedy:
				e.backfill(e.free, math.MaxInt64, 0, false)
			}
			return
		}
		e.waiting.PopMin()
		if e.candidates != e.waiting {
			e.remove(slotOf(head.Slot), e.candidates, e.cfg.Discipline.Candidates())
		}
		e.start(head.Slot, head.Procs, head.Limit)
	}
}

// shadow is when the head's processors will be free if every running job ends at its limit, and how many more there will be
// then.
func (e *Engine) shadow(need int32) (at int64, extra int32) {
	avail := e.free
	for i := len(e.running) - 1; i >= 0; i-- {
		r := &e.running[i]
		if avail >= need && r.end > at {
			break
		}
		avail += r.procs
		at = max(r.end, e.now)
	}
	return at, avail - need
}

// backfill starts candidates in order while they fit: those wider than above that end within a window or leave processors for the head.
func (e *Engine) backfill(extra int32, window int64, above int32, again bool) {
	f := &e.fit // written field by field: a copy of what has just been written in parts would stall
	f.Free, f.Extra, f.Window, f.Above, f.Again = e.free, extra, window, above, again
	e.candidates.Sweep(f, e.chosen)
	e.pass.extra = f.Extra
}

// choose starts a candidate that a sweep has taken out of the candidates, where they are an index of their own.
func (e *Engine) choose(owner, procs int32, limit int64) {
	e.remove(slotOf(owner), e.waiting, e.cfg.Discipline.Order)
	e.start(owner, procs, limit)
}

// launch starts a job whose record is at hand.
func (e *Engine) launch(s int32) {
	e.start(e.owner(s), e.jobs[s].Procs, e.jobs[s].Limit)
}

type ranked struct {
	key  float64
	seq  int64
	slot int32
}

func (e *Engine) rank(o policy.Order) []ranked {
	e.ranked = e.ranked[:0]
	for _, s := range e.unsorted {
		l := &e.jobs[s]
		e.ranked = append(e.ranked, ranked{o.Key(e.request(l), e.now), l.seq, s})
	}
	slices.SortFunc(e.ranked, func(a, b ranked) int {
		switch {
		case a.key < b.key:
			return -1
		case a.key > b.key:
			return 1
		case a.seq < b.seq:
			return -1
		}
		return 1
	})
	return e.ranked
}

func (e *Engine) leave(s int32) {
	i := slices.Index(e.unsorted, s)
	e.unsorted = slices.Delete(e.unsorted, i, i+1)
}

// scan is a full pass for orders that change with time: rank everybody anew.
func (e *Engine) scan() {
	q := e.rank(e.cfg.Discipline.Order)
	i := 0
	for ; i < len(q) && e.jobs[q[i].slot].Procs <= e.free; i++ {
		e.leave(q[i].slot)
		e.launch(q[i].slot)
	}
	if i == len(q) || e.cfg.Discipline.Backfill == policy.None {
		return
	}
	head := q[i].slot
	window, extra := int64(math.MaxInt64), e.free
	if e.cfg.Discipline.Backfill == policy.EASY {
		at, x := e.shadow(e.jobs[head].Procs)
		window, extra = at-e.now, x
	}
	if e.cfg.Discipline.BackfillOrder != nil {
		q, i = e.rank(e.cfg.Discipline.BackfillOrder), -1
	}
	for i++; i < len(q) && e.free > 0; i++ {
		l := &e.jobs[q[i].slot]
		if q[i].slot == head || l.Procs > e.free {
			continue
		}
		if l.Limit > window {
			if l.Procs > extra {
				continue
			}
			extra -= l.Procs
		}
		e.leave(q[i].slot)
		e.launch(q[i].slot)
	}
}
