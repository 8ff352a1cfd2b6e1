package engine

import (
	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// View is what a scheduler sees of the cluster, and how it acts.
type View struct {
	e    *Engine
	left []*Job
}

// Now is the present time.
func (v *View) Now() workload.Time { return v.e.now }

// Waiting lists the eligible waiting jobs in order of arrival (requeued ones last). The slice is the view's own copy until the
// next call.
func (v *View) Waiting() []*Job {
	v.left = append(v.left[:0], v.e.waiting...)
	return v.left
}

// Running lists the running jobs in no particular order. It is the engine's own: do not start or preempt while ranging over it.
func (v *View) Running() []*Job { return v.e.running }

// Nodes gives the nodes, to look at.
func (v *View) Nodes() []*cluster.Node { return v.e.nodes }

// Capacity is the number of cards (or processors, where there are no cards) of the cluster.
func (v *View) Capacity() float64 {
	n, _ := v.e.cfg.Spec.Cards()
	return float64(n)
}

// Start places a waiting job now if there is room, and says whether there was.
func (v *View) Start(j *Job) bool {
	if j.Running || !v.e.fit(j) {
		return false
	}
	v.e.start(j)
	return true
}

// StartOn places a waiting single-node job on a node and, for a share, a card; card −1 leaves the choice of cards to the
// placement policy. It says whether there was room.
func (v *View) StartOn(j *Job, node, card int) bool {
	if j.Running || !v.FitsOn(j, node, card) {
		return false
	}
	pieces, p := grow(j.pieces[:0])
	p.node, p.demand = node, v.demand(j)
	if card >= 0 {
		p.cards = append(p.cards[:0], card)
	} else {
		p.cards = v.e.chooser.Policy().Cards(v.e.nodes[node], &p.demand, p.cards[:0])
	}
	j.pieces, j.stretched = pieces, false
	v.e.start(j)
	return true
}

// FitsOn says whether StartOn would find room.
func (v *View) FitsOn(j *Job, node, card int) bool {
	d := v.demand(j)
	n := v.e.nodes[node]
	if v.e.avoid(j) != "" {
		d.Avoid = v.e.avoid(j)
	}
	if !n.Fits(&d) {
		return false
	}
	return card < 0 || d.Cards == 1 && card < len(n.CardLeft) && n.Serves(card, &d)
}

func (v *View) demand(j *Job) cluster.Demand {
	d := cluster.Demand{CPUMilli: j.CPUMilli, MemMiB: j.MemMiB, Cards: j.GPUs, Milli: j.GPUMilli, CardMemMiB: j.GPUMemMiB, Types: j.GPUTypes}
	if j.GPUs == 0 {
		d.Milli, d.CardMemMiB = 0, 0
	}
	return d
}

// Fits says whether there is room for a waiting job now.
func (v *View) Fits(j *Job) bool { return v.e.fit(j) }

// Preempt puts a running job back into the queue. It keeps its work, and pays the restart cost when it starts again.
func (v *View) Preempt(j *Job) {
	if !j.Running {
		return
	}
	v.e.progress(j)
	v.e.stop(j)
	j.Preempts++
	v.e.stats.Preempts++
	v.e.enqueue(j)
}

// Remaining is the estimated time a job still needs: its limit less what it has executed, at least one microsecond.
func (j *Job) Remaining() workload.Time { return max(j.Limit-j.Executed, 1) }

// Since is when the present stretch of a running job began.
func (j *Job) Since() workload.Time { return j.began }

// EndsBy is when a running job ends at the latest, by its limit.
func (j *Job) EndsBy(now workload.Time) workload.Time { return max(now, j.ready) + j.Remaining() }

// Shape numbers what the job asks for; jobs of one shape fit together or not at all.
func (j *Job) Shape() int32 { return j.shape }

// reservation is the plan for a blocked job: when it will fit if running jobs end at their limits, with its place on the mirror
// taken.
type reservation struct {
	at workload.Time
	ok bool
}

// Reserve finds when a blocked job will fit and takes its place in the future. Borrow then says who may start in front of it.
func (v *View) Reserve(j *Job, byEnd []*Job) reservation {
	e := v.e
	m := &e.mirror
	for i, n := range e.nodes {
		m.nodes[i].CopyFrom(n)
		if e.host[i].state == off {
			m.nodes[i].Set(true, e.host[i].window > 0)
		}
	}
	need := int64(j.GPUs) * int64(j.GPUMilli)
	free := int64(0)
	for _, n := range m.nodes {
		if n.Usable() && (len(j.GPUTypes) == 0 || contains(j.GPUTypes, n.Type)) {
			free += n.TotalLeft()
		}
	}
	var pieces []piece
	for i := 0; i < len(byEnd); {
		at := byEnd[i].EndsBy(e.now)
		for ; i < len(byEnd) && byEnd[i].EndsBy(e.now) == at; i++ {
			for k := range byEnd[i].pieces {
				p := &byEnd[i].pieces[k]
				m.nodes[p.node].Give(&p.demand, p.cards)
				free += p.demand.CardTotal()
			}
		}
		if free < need {
			continue
		}
		got, _, ok := e.fitOn(j, m.nodes, m.chooser, pieces, "")
		if ok {
			for k := range got {
				m.nodes[got[k].node].Take(&got[k].demand, got[k].cards)
			}
			return reservation{at, true}
		}
	}
	return reservation{}
}

func contains(types []string, t string) bool {
	for _, x := range types {
		if x == t {
			return true
		}
	}
	return false
}

// Borrow starts a waiting job if it fits now and does not delay the reservation: it ends in time, or what it takes is also free
// when the reserved job starts.
func (v *View) Borrow(j *Job, r reservation) bool {
	e := v.e
	if j.Running || !e.fit(j) {
		return false
	}
	if r.ok && e.now+v.delay(j)+j.Remaining() > r.at {
		m := &e.mirror
		for i := range j.pieces {
			if !m.nodes[j.pieces[i].node].Fits(&j.pieces[i].demand) {
				return false
			}
		}
		for i := range j.pieces {
			p := &j.pieces[i]
			n := m.nodes[p.node]
			n.Take(&p.demand, e.chooser.Policy().Cards(n, &p.demand, nil))
		}
	}
	e.start(j)
	return true
}

// delay is what a job that has been preempted pays before it goes on.
func (v *View) delay(j *Job) workload.Time {
	if j.first < 0 {
		return 0
	}
	return v.e.cfg.RestartCost(j)
}
