package engine

import (
	"math"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// preemptive runs, at every event, the jobs that come first in an order over all live jobs and fit together; the others wait.
type preemptive struct {
	name string
	// key ranks live jobs, the smallest first.
	key func(v *View, j *Job) float64
	// wake is when a key may change although nothing happens.
	wake  func(v *View, j *Job) workload.Time
	jobs  []*Job
	start []*Job
	stop  []*Job
	hold  map[int32]bool
}

func (p *preemptive) Name() string { return p.name }

// SRTF is shortest (estimated) remaining time first.
func SRTF() Scheduler {
	return &preemptive{name: "srtf", key: func(_ *View, j *Job) float64 { return float64(j.Remaining()) }}
}

// SRSF is shortest remaining service first: remaining time times cards.
func SRSF() Scheduler {
	return &preemptive{name: "srsf", key: func(_ *View, j *Job) float64 { return float64(j.Remaining()) * policy.Width(&j.Request) }}
}

// TiresiasThresholds end the queues of discretised 2D-LAS, in card-seconds of attained service (the values of the Tiresias
// artefact that Muri compares with).
var TiresiasThresholds = []float64{3250, 7200}

// Tiresias is discretised two-dimensional least attained service: jobs sink through queues as their attained service passes
// thresholds; within a queue running jobs go before waiting ones, and then by arrival.
func Tiresias(thresholds []float64) Scheduler {
	level := func(j *Job) int {
		s := workload.InSeconds(j.Executed) * policy.Width(&j.Request)
		l := 0
		for l < len(thresholds) && s >= thresholds[l] {
			l++
		}
		return l
	}
	return &preemptive{name: "tiresias",
		key: func(_ *View, j *Job) float64 {
			k := float64(2 * level(j))
			if !j.Running {
				k++
			}
			return k
		},
		wake: func(v *View, j *Job) workload.Time {
			l := level(j)
			if l == len(thresholds) {
				return workload.Never
			}
			at := workload.Seconds(math.Ceil(thresholds[l]/policy.Width(&j.Request)*1e3)/1e3) - j.Executed
			return max(v.Now(), j.ready) + max(at, 1)
		}}
}

// GittinsScheduler ranks by the Gittins index of attained service (time times cards) under a distribution of services. The index is looked
// at in steps: a job is looked at again after quantum of service.
func GittinsScheduler(g *policy.Gittins, quantum float64) Scheduler {
	return &preemptive{name: "gittins",
		key: func(_ *View, j *Job) float64 {
			a := workload.InSeconds(j.Executed) * policy.Width(&j.Request)
			return -g.Index(math.Floor(a/quantum) * quantum)
		},
		wake: func(v *View, j *Job) workload.Time {
			w := policy.Width(&j.Request)
			a := workload.InSeconds(j.Executed) * w
			next := (math.Floor(a/quantum) + 1) * quantum
			return max(v.Now(), j.ready) + max(workload.Seconds((next-a)/w), workload.Second)
		}}
}

// Pass plans on an empty cluster: in order, running jobs keep their places and waiting ones take any, also of running jobs that
// come later; then those who lost their places are preempted and the winners start.
func (p *preemptive) Pass(v *View) workload.Time {
	e := v.e
	p.jobs = append(append(p.jobs[:0], e.running...), e.waiting...)
	for _, j := range p.jobs {
		j.Key = p.key(v, j)
	}
	sortJobs(p.jobs)
	m := &e.mirror
	for i, n := range e.nodes {
		m.nodes[i].CopyFrom(n)
		if e.host[i].state == off {
			m.nodes[i].Set(true, e.host[i].window > 0)
		}
	}
	for _, j := range e.running {
		for k := range j.pieces {
			m.nodes[j.pieces[k].node].Give(&j.pieces[k].demand, j.pieces[k].cards)
		}
	}
	p.start, p.stop = p.start[:0], p.stop[:0]
	if p.hold == nil {
		p.hold = map[int32]bool{}
	}
	clear(p.hold)
	for _, j := range p.jobs {
		p.planOne(v, j)
	}
	for _, j := range p.stop {
		v.Preempt(j)
	}
	for _, j := range p.start {
		v.Start(j) // what the plan placed may, once in a while, not fit as the policy places it now: it then waits for the next event
	}
	next := workload.Never
	if p.wake != nil {
		for _, j := range e.running {
			next = min(next, p.wake(v, j))
		}
	}
	return next
}

// planOne takes a job's place on the mirror and notes what must change for it.
func (p *preemptive) planOne(v *View, j *Job) {
	m := &v.e.mirror
	if j.Running {
		if !slices.ContainsFunc(j.pieces, func(pc piece) bool { return !canHold(m, &pc) }) {
			for k := range j.pieces {
				m.nodes[j.pieces[k].node].Take(&j.pieces[k].demand, j.pieces[k].cards)
			}
			return
		}
		p.stop = append(p.stop, j)
	}
	if p.hold[j.shape] {
		return
	}
	pieces, _, ok := v.e.fitOn(j, m.nodes, m.chooser, nil, v.e.avoid(j))
	if !ok {
		p.hold[j.shape] = len(v.e.cfg.Spec.Maintenance) == 0
		return
	}
	for k := range pieces {
		m.nodes[pieces[k].node].Take(&pieces[k].demand, pieces[k].cards)
	}
	p.start = append(p.start, j)
}

// canHold says that the very cards of a piece are free on the mirror.
func canHold(m *mirror, p *piece) bool {
	n := m.nodes[p.node]
	if n.CPULeft < p.demand.CPUMilli || n.MemLeft < p.demand.MemMiB {
		return false
	}
	for _, c := range p.cards {
		if !n.Serves(c, &p.demand) {
			return false
		}
	}
	return true
}
