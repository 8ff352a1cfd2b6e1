package policy

import (
	"slices"
	"sort"

	simpolicy "github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Order serves one of the simulator's orders: a job is boosted by the part of the waiting jobs that the order would put behind
// it, so that the first of all gets the whole boost and the last none.
type Order struct{ Order simpolicy.Order }

// Name is the order's.
func (o Order) Name() string { return o.Order.Name() }

// Prepare sorts the waiting jobs' keys.
func (o Order) Prepare(s *State) Prepared {
	p := &prepared{order: o.Order, state: s, keys: make([]float64, len(s.Waiting))}
	for i := range s.Waiting {
		p.keys[i] = o.Order.Key(&s.Waiting[i], s.Now)
	}
	slices.Sort(p.keys)
	return p
}

type prepared struct {
	order simpolicy.Order
	state *State
	keys  []float64 // ascending
}

// Decide counts by binary search. With nobody waiting there is nobody to pass, and nothing to say.
func (p *prepared) Decide(r *workload.Request) Advice {
	if len(p.keys) == 0 {
		return Advice{}
	}
	key := p.order.Key(r, p.state.Now)
	// Jobs with the same key came earlier and stay in front.
	ahead := sort.Search(len(p.keys), func(i int) bool { return p.keys[i] > key })
	score := float64(len(p.keys)-ahead) / float64(len(p.keys))
	return Advice{Score: score, Value: score}
}

// Act takes the first job in order that fits anywhere, on the first node, fastest first, where it leaves the fewest cards.
func (p *prepared) Act(jobs []workload.Request) (Action, bool) {
	best, found := Action{}, false
	var bestKey float64
	for i := range jobs {
		key := p.order.Key(&jobs[i], p.state.Now)
		if found && key >= bestKey {
			continue
		}
		if node, card, fits := tightest(p.state.Nodes, &jobs[i]); fits {
			best, bestKey, found = Action{Job: i, Node: node, Card: card, Value: p.Decide(&jobs[i]).Value}, key, true
		}
	}
	return best, found
}

// tightest is best fit over the nodes: of those that fit, the one with the least of its cards free (of its CPUs, for a job
// without cards), the earlier of equals.
func tightest(nodes []Node, r *workload.Request) (node, card int, found bool) {
	left := int64(0)
	for i := range nodes {
		c, fits := nodes[i].Fits(r)
		if !fits {
			continue
		}
		free := nodes[i].CPUMilli
		if r.GPUs > 0 {
			free = 0
			for _, milli := range nodes[i].CardMilli {
				free += int64(milli)
			}
		}
		if !found || free < left {
			node, card, left, found = i, c, free, true
		}
	}
	return node, card, found
}

// Fixed gives every job the same advice and the first job the first node: to test what is around a policy.
type Fixed struct{ Advice Advice }

// Name is "fixed".
func (Fixed) Name() string { return "fixed" }

// Prepare keeps the state for Act.
func (f Fixed) Prepare(s *State) Prepared { return &fixed{f.Advice, s} }

type fixed struct {
	advice Advice
	state  *State
}

func (f *fixed) Decide(*workload.Request) Advice { return f.advice }

func (f *fixed) Act(jobs []workload.Request) (Action, bool) {
	for i := range jobs {
		for j := range f.state.Nodes {
			if card, fits := f.state.Nodes[j].Fits(&jobs[i]); fits {
				return Action{Job: i, Node: j, Card: card, Value: f.advice.Value}, true
			}
		}
	}
	return Action{}, false
}
