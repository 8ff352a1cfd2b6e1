package engine

import (
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// watchIdle starts the clock of an elastic node without work.
func (e *Engine) watchIdle(i int) {
	h := &e.host[i]
	h.idle++
	if h.pool.Elastic && h.state == on && e.nodes[i].Idle() {
		e.push(event{at: e.now + workload.Time(h.pool.Idle), kind: idle, node: i, version: h.idle})
	}
}

// powerDown stops a node that has been idle long enough, unless its pool would fall below its minimum.
func (e *Engine) powerDown(i int, version uint32) {
	h := &e.host[i]
	if h.idle != version || h.state != on || !e.nodes[i].Idle() {
		return
	}
	up := 0
	for k := range e.host {
		if e.host[k].pool == h.pool && (e.host[k].state == on || e.host[k].state == starting) {
			up++
		}
	}
	if up <= h.pool.Min {
		return
	}
	e.account(i)
	h.state = off
	e.refresh(i)
}

// account adds what a node has cost since it came up.
func (e *Engine) account(i int) {
	h := &e.host[i]
	if h.state != on && h.state != starting {
		return
	}
	hours := workload.InSeconds(e.now-h.upSince) / 3600
	e.stats.UpHours += hours
	e.stats.Cost += float64(hours * h.pool.Price)
	h.upSince = e.now
}

// refresh tells the node whether it can be used.
func (e *Engine) refresh(i int) {
	h := &e.host[i]
	e.nodes[i].Set(h.state == on || h.state == starting, h.window > 0)
}

// evict puts the jobs of a node back into the queue. lost says that work since the last checkpoint is gone.
func (e *Engine) evict(i int, lost bool) {
	for _, j := range slices.Clone(e.running) {
		if !slices.ContainsFunc(j.pieces, func(p piece) bool { return p.node == i }) {
			continue
		}
		e.progress(j)
		if lost {
			done := j.truth - j.left
			if every := e.cfg.CheckpointEvery; every > 0 {
				done -= done % every
			} else {
				done = 0
			}
			j.left = j.truth - done
			if j.futile++; j.left < j.kept {
				j.kept, j.futile = j.left, 0
			}
		}
		e.stop(j)
		if j.futile == MostFutile {
			e.finish(j, NodeFail)
			continue
		}
		j.requeues++
		e.enqueue(j)
	}
}

// MostFutile is after how many failures of nodes, with nothing saved between them, a job is given up. A job that would end in one of a
// hundred attempts reaches it once in 23,000 times; one that is much longer than nodes live would be put back for ever.
const MostFutile = 1000

func (e *Engine) fail(i int) {
	h := &e.host[i]
	next := workload.Time(h.failure.Exp(float64(h.pool.MTBF)))
	if h.state == off || h.state == failed {
		e.push(event{at: e.now + next, kind: failure, node: i})
		return
	}
	e.stats.NodeFailures++
	e.account(i)
	h.state = failed
	e.refresh(i)
	e.evict(i, true)
	back := e.now + max(workload.Time(h.repair.Exp(float64(h.pool.MTTR))), 1)
	e.push(event{at: back, kind: repair, node: i})
	e.push(event{at: back + next, kind: failure, node: i})
}

// maintain opens or closes a maintenance window or a drain. Who is still there when maintenance opens, beyond its limit, is put back in
// the queue; who is on a node that is drained stays.
func (e *Engine) maintain(w int, opens bool) {
	win := e.cfg.Spec.Maintenance[w]
	left := win.Nodes
	for i := range e.host {
		if win.Pool != "" && e.host[i].pool.Name != win.Pool {
			continue
		}
		if win.Nodes > 0 {
			if left == 0 {
				break
			}
			left--
		}
		if opens {
			e.host[i].window++
		} else {
			e.host[i].window--
		}
		e.refresh(i)
		if opens && !win.Drain {
			e.evict(i, false)
		}
	}
}

// avoid names the pool in which a job may not start now, because it would run into maintenance: "" none, "*" all. Where two
// windows of different pools are ahead, both matter and the job waits.
func (e *Engine) avoid(j *Job) string {
	out := ""
	for _, w := range e.cfg.Spec.Maintenance {
		start, end := e.origin+workload.Time(w.Start), e.origin+workload.Time(w.End)
		if w.Drain || e.now >= end || e.now+j.Limit-j.Executed <= start {
			continue
		}
		switch {
		case w.Pool == "" || out != "" && out != w.Pool:
			return "*"
		default:
			out = w.Pool
		}
	}
	return out
}
