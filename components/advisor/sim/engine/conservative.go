package engine

import (
	"cmp"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// conservative is conservative backfill on a cluster: at every event every waiting job, in order, is given the earliest time at
// which the cluster, as it will be if jobs end at their limits and those ranked before take their places, has room for it for all of
// its limit; those whose time is now start on the places planned for them. A plan holds the cluster's state at each moment at
// which it changes: its cost grows with nodes times the square of jobs, which suits clusters of up to some hundreds of nodes.
type conservative struct {
	rank   Ranker
	queue  []*Job
	byEnd  []*Job
	frames []frame
	spare  [][]*cluster.Node
}

// frame is the state of all nodes from a time on.
type frame struct {
	at    workload.Time
	nodes []*cluster.Node
}

// Name is the order and its backfill.
func (c *conservative) Name() string { return c.rank.Name() + "+conservative" }

// Stopped passes on to the ranker what it may want to charge.
func (c *conservative) Stopped(v *View, j *Job) {
	if r, ok := c.rank.(Observer); ok {
		r.Stopped(v, j)
	}
}

// Pass plans everybody and starts who is due.
func (c *conservative) Pass(v *View) workload.Time {
	e := v.e
	c.queue = append(c.queue[:0], e.waiting...)
	if len(c.queue) == 0 {
		return workload.Never
	}
	c.rank.Rank(v, c.queue)
	sortJobs(c.queue)
	c.look(v)
	for _, j := range c.queue {
		at, pieces, ok := c.earliest(v, j)
		if !ok {
			continue // it fits only on nodes that have failed or are drained: no promise
		}
		end := at + v.delay(j) + j.Remaining()
		c.cut(v, end)
		c.take(at, end, pieces)
		if at > e.now {
			continue
		}
		for i := range pieces {
			e.nodes[pieces[i].node].Set(true, e.host[pieces[i].node].window > 0) // one that is off powers up
		}
		j.pieces, j.stretched = pieces, c.stretched(v, j, pieces)
		e.start(j)
	}
	return workload.Never
}

// stretched says that a job has been spread over more nodes than it needs.
func (c *conservative) stretched(v *View, j *Job, pieces []piece) bool {
	return len(pieces) > 1 && j.GPUs <= v.e.maxCard
}

// look makes the frames of the running jobs: now, and whenever one of them ends at the latest.
func (c *conservative) look(v *View) {
	e := v.e
	for _, f := range c.frames {
		c.spare = append(c.spare, f.nodes)
	}
	c.frames = append(c.frames[:0], frame{e.now, c.nodes(v)})
	for i, n := range e.nodes {
		f := c.frames[0].nodes[i]
		f.Assign(n)
		if e.host[i].state == off {
			f.Set(true, e.host[i].window > 0)
		}
	}
	c.byEnd = append(c.byEnd[:0], e.running...)
	slices.SortFunc(c.byEnd, func(a, b *Job) int {
		return cmp.Or(cmp.Compare(a.EndsBy(e.now), b.EndsBy(e.now)), cmp.Compare(a.Seq, b.Seq))
	})
	for _, j := range c.byEnd {
		i := c.cut(v, j.EndsBy(e.now))
		for k := range j.pieces {
			c.frames[i].nodes[j.pieces[k].node].Give(&j.pieces[k].demand, j.pieces[k].cards)
		}
	}
}

func (c *conservative) nodes(v *View) []*cluster.Node {
	if k := len(c.spare); k > 0 {
		n := c.spare[k-1]
		c.spare = c.spare[:k-1]
		return n
	}
	return v.e.cfg.Spec.Build()
}

// cut makes a time the beginning of a frame and gives its index. The time is not before the first.
func (c *conservative) cut(v *View, at workload.Time) int {
	i, found := slices.BinarySearchFunc(c.frames, at, func(f frame, t workload.Time) int { return cmp.Compare(f.at, t) })
	if found {
		return i
	}
	f := frame{at, c.nodes(v)}
	for k, n := range c.frames[i-1].nodes {
		f.nodes[k].Assign(n)
	}
	c.frames = slices.Insert(c.frames, i, f)
	return i
}

// earliest finds the first time from which on a job fits for as long as it may run, and where.
func (c *conservative) earliest(v *View, j *Job) (workload.Time, []piece, bool) {
	e := v.e
	m := &e.mirror
	length := v.delay(j) + j.Remaining()
	for i := range c.frames {
		at, avoid := c.frames[i].at, ""
		if i == 0 {
			avoid = e.avoid(j)
		}
		for k, n := range c.frames[i].nodes {
			m.nodes[k].Assign(n)
		}
		for _, f := range c.frames[i+1:] {
			if f.at-at >= length {
				break
			}
			for k, n := range f.nodes {
				m.nodes[k].Lower(n)
			}
		}
		if pieces, _, ok := e.fitOn(j, m.nodes, m.chooser, nil, avoid); ok {
			return at, pieces, true
		}
	}
	return 0, nil, false
}

// take reserves pieces from a frame's beginning until a time.
func (c *conservative) take(from, to workload.Time, pieces []piece) {
	for i := range c.frames {
		f := &c.frames[i]
		if f.at < from || f.at >= to {
			continue
		}
		for k := range pieces {
			f.nodes[pieces[k].node].Take(&pieces[k].demand, pieces[k].cards)
		}
	}
}
