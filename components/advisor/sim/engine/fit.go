package engine

import (
	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/placement"
)

// mirror is a copy of the cluster on which schedulers try things out.
type mirror struct {
	nodes   []*cluster.Node
	chooser *placement.Chooser
}

func (m *mirror) build(s *cluster.Spec, p placement.Policy) {
	m.nodes = s.Build()
	m.chooser = placement.NewChooser(p, m.nodes)
}

// shape is what a job asks for.
type shape struct {
	gpus, milli, cardMem int32
	cpu, mem             int64
	types                string
}

// shapeOf numbers what a job asks for: jobs of one shape fit together or not at all.
func (e *Engine) shapeOf(j *Job) int32 {
	k := shape{j.GPUs, j.GPUMilli, j.GPUMemMiB, j.CPUMilli, j.MemMiB, cluster.JoinTypes(j.GPUTypes)}
	if s, ok := e.shapes[k]; ok {
		return s
	}
	s := int32(len(e.shapes))
	e.shapes[k] = s
	return s
}

// impossible says that the empty cluster could not serve the job: too large, the wrong type, or out of memory.
func (e *Engine) impossible(j *Job) bool {
	if v, ok := e.never[j.shape]; ok {
		return v
	}
	for _, n := range e.mirror.nodes {
		n.Clear()
		n.Set(true, false)
	}
	var pieces []piece
	_, _, ok := e.fitOn(j, e.mirror.nodes, e.mirror.chooser, pieces, "")
	e.never[j.shape] = !ok
	return !ok
}

// fit finds room for a job now, first on nodes that are up, then on elastic ones that could be. The pieces are kept in the job.
func (e *Engine) fit(j *Job) bool {
	avoid := e.avoid(j)
	pieces, stretched, ok := e.fitOn(j, e.nodes, e.chooser, j.pieces[:0], avoid)
	if !ok && e.wakeable() {
		e.powered(true)
		pieces, stretched, ok = e.fitOn(j, e.nodes, e.chooser, pieces[:0], avoid)
		e.powered(false)
		if ok {
			for i := range pieces {
				e.nodes[pieces[i].node].Set(true, e.host[pieces[i].node].window > 0)
			}
		}
	}
	j.pieces, j.stretched = pieces, stretched
	return ok
}

func (e *Engine) wakeable() bool {
	for i := range e.host {
		if e.host[i].state == off {
			return true
		}
	}
	return false
}

// powered lets elastic nodes that are off count as usable for a moment.
func (e *Engine) powered(yes bool) {
	for i := range e.host {
		if e.host[i].state == off {
			e.nodes[i].Set(yes, e.host[i].window > 0)
		}
	}
}

// fitOn finds pieces of nodes for a job: one node if its cards fit on one; else whole nodes of one type and the rest on
// another; else, if the cluster allows spreading, wherever cards of one type are free.
func (e *Engine) fitOn(j *Job, nodes []*cluster.Node, c *placement.Chooser, pieces []piece, avoid string) ([]piece, bool, bool) {
	d := &e.demand // kept by the engine, because placement policies are called through an interface
	*d = cluster.Demand{CPUMilli: j.CPUMilli, MemMiB: j.MemMiB, Cards: j.GPUs, Milli: j.GPUMilli, CardMemMiB: j.GPUMemMiB, Types: j.GPUTypes, Avoid: avoid}
	if j.GPUs == 0 {
		d.Milli, d.CardMemMiB = 0, 0
	}
	if i, ok := c.Best(d); ok {
		pieces, p := grow(pieces)
		p.node, p.demand = i, *d
		p.cards = c.Policy().Cards(nodes[i], d, p.cards[:0])
		return pieces, false, true
	}
	if j.GPUs <= 1 {
		return pieces, false, false
	}
	spread := j.GPUs <= e.maxCard
	if spread && e.cfg.Spec.Spread == 0 {
		return pieces, false, false
	}
	seen := ""
	for i := range nodes {
		t := nodes[i].Type
		if t == seen || t == "" || !nodes[i].Accepts(d) {
			continue
		}
		seen = t
		if out, ok := e.gang(j, nodes, t, pieces, avoid, spread); ok {
			return out, spread, true
		}
	}
	return pieces, false, false
}

// gang gathers a job's cards on nodes of a type, taking the nodes with most free cards first and as few as that allows. Only a
// spread gang may take part of a node before its last.
func (e *Engine) gang(j *Job, nodes []*cluster.Node, gpuType string, pieces []piece, avoid string, spread bool) ([]piece, bool) {
	left := j.GPUs
	unit := cluster.Demand{CPUMilli: j.CPUMilli / int64(j.GPUs), MemMiB: j.MemMiB / int64(j.GPUs), Cards: 1, Milli: j.GPUMilli, CardMemMiB: j.GPUMemMiB, Types: j.GPUTypes, Avoid: avoid}
	base := len(pieces)
	for want := e.maxCard; want > 0 && left > 0; want-- {
		for i, n := range nodes {
			if left == 0 {
				break
			}
			if n.Type != gpuType || taken(pieces[base:], i) {
				continue
			}
			k := min(want, left)
			if !spread && k < int32(len(n.CardLeft)) && k != left {
				continue
			}
			d := unit
			d.Cards, d.CPUMilli, d.MemMiB = k, unit.CPUMilli*int64(k), unit.MemMiB*int64(k)
			if !n.Fits(&d) {
				continue
			}
			var p *piece
			pieces, p = grow(pieces)
			p.node, p.demand, p.cards = i, d, p.cards[:0]
			for c := range n.CardLeft {
				if int32(len(p.cards)) < k && n.Serves(c, &d) {
					p.cards = append(p.cards, c)
				}
			}
			left -= k
		}
	}
	if left > 0 {
		return pieces[:base], false
	}
	return pieces, true
}

func taken(ps []piece, node int) bool {
	for i := range ps {
		if ps[i].node == node {
			return true
		}
	}
	return false
}

// grow appends a piece, keeping the memory of an earlier one in its place.
func grow(ps []piece) ([]piece, *piece) {
	if len(ps) < cap(ps) {
		ps = ps[:len(ps)+1]
	} else {
		ps = append(ps, piece{})
	}
	return ps, &ps[len(ps)-1]
}
