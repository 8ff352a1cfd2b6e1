package env

import (
	"fmt"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/engine"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// window picks the jobs to look at: the oldest half, the newest quarter, and of those between the most urgent (an eighth of the
// window, by deadline) and the shortest.
func (e *Env) window(waiting []*engine.Job) {
	e.pick = e.pick[:0]
	w := e.cfg.Window
	for i, j := range waiting {
		j.Key = float64(i) / float64(len(waiting))
	}
	if len(waiting) <= w {
		e.pick = append(e.pick, waiting...)
		return
	}
	head, tail := w/2, w/4
	e.pick = append(e.pick, waiting[:head]...)
	e.pick = append(e.pick, waiting[len(waiting)-tail:]...)
	between := waiting[head : len(waiting)-tail]
	base := len(e.pick)
	e.least(between, base, base+w/8, func(j *engine.Job) (workload.Time, bool) { return j.Deadline, j.Deadline != 0 })
	urgent := len(e.pick)
	e.least(between, urgent, w, func(j *engine.Job) (workload.Time, bool) {
		for _, u := range e.pick[base:urgent] {
			if u == j {
				return 0, false
			}
		}
		return j.Remaining(), true
	})
}

// least puts the jobs of the smallest keys into the window's places from base to end, by insertion. Jobs without a key are left out.
func (e *Env) least(jobs []*engine.Job, base, end int, key func(*engine.Job) (workload.Time, bool)) {
	for _, j := range jobs {
		v, ok := key(j)
		if !ok || end == base {
			continue
		}
		k := len(e.pick)
		if k == end {
			if last, _ := key(e.pick[k-1]); last <= v {
				continue
			}
			k--
		} else {
			e.pick = append(e.pick, nil)
		}
		for ; k > base; k-- {
			if before, _ := key(e.pick[k-1]); before <= v {
				break
			}
			e.pick[k] = e.pick[k-1]
		}
		e.pick[k] = j
	}
}

// held offers a job that fits nowhere now to Boost.
func (e *Env) held(j *engine.Job) {
	o := &e.obs
	o.Held = append(o.Held, j)
	o.HX = append(o.HX, [Features]float32{})
	e.job(j, &o.HX[len(o.HX)-1])
}

// Boost puts a held job before all others: until it starts, others start only if their limits end them before the first of the
// running jobs must end, so that nothing can delay it. One job is boosted at a time. Time passes only if no choice is left.
func (e *Env) Boost(i int) (Transition, error) {
	if i < 0 || i >= len(e.obs.Held) {
		return Transition{}, fmt.Errorf("boost %d is not one of the %d held jobs", i, len(e.obs.Held))
	}
	m := e.mark()
	e.boosted, e.boostID = e.obs.Held[i], e.obs.Held[i].ID
	return e.since(m)
}

// reserve gives how long a job may take that starts in front of a boosted one.
func (e *Env) reserve(v *engine.View) workload.Time {
	if e.boosted != nil && (e.boosted.Running || len(v.Running()) == 0 && !v.Fits(e.boosted)) {
		e.boosted = nil // it has started, or waiting for it would be in vain
	}
	if e.boosted == nil {
		return workload.Never
	}
	first := workload.Never
	for _, j := range v.Running() {
		first = min(first, j.EndsBy(e.eng.Now()))
	}
	return first - e.eng.Now()
}

// Imbalance is the variance of the used parts of the nodes, 0 to ¼.
func (e *Env) Imbalance() float64 {
	var s, q, n float64
	for _, node := range e.eng.View().Nodes() {
		if len(node.CardLeft) == 0 {
			continue
		}
		used := 1 - float64(node.TotalLeft())/float64(len(node.CardLeft))/cluster.WholeCard
		s, q, n = s+used, q+float64(used*used), n+1
	}
	if n == 0 {
		return 0
	}
	return max(q/n-float64(s/n)*float64(s/n), 0)
}

// Now is the present time.
func (e *Env) Now() workload.Time { return e.eng.Now() }

// CanWait says that something will yet happen: a job arrives or a running one ends.
func (e *Env) CanWait() bool { return e.next < len(e.jobs) || e.more() }

// Used is the part of all cards in use.
func (e *Env) Used() float64 { return 1 - float64(e.obs.G[GlobalFree]) }

// Left is the number of jobs still in the system.
func (e *Env) Left() int { return e.eng.Live() }
