package placement

import (
	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
)

// Chooser finds the best node for demands. It keeps the scores of every kind of demand it has seen and recomputes those of nodes
// that have changed since, so that a search costs a scan of whole numbers.
type Chooser struct {
	policy Policy
	nodes  []*cluster.Node
	kinds  map[kind]*column
	random *Random
	fits   []int
}

type column struct {
	score   []int64 // −1 where the demand does not fit
	version []uint64
}

// NewChooser prepares to choose among nodes, which stay in this order: ties go to the first.
func NewChooser(p Policy, nodes []*cluster.Node) *Chooser {
	c := &Chooser{policy: p, nodes: nodes, kinds: map[kind]*column{}}
	c.random, _ = p.(*Random)
	return c
}

// Policy is the policy that chooses.
func (c *Chooser) Policy() Policy { return c.policy }

// Best gives the index of the best node on which the demand fits.
func (c *Chooser) Best(d *cluster.Demand) (int, bool) {
	col := c.column(d)
	best, top := -1, int64(-1)
	if c.random != nil {
		c.fits = c.fits[:0]
	}
	for i, n := range c.nodes {
		if col.version[i] != n.Version {
			col.version[i] = n.Version
			col.score[i] = -1
			if n.Fits(d) {
				col.score[i] = c.policy.Score(n, d)
			}
		}
		s := col.score[i]
		if s < 0 {
			continue
		}
		if c.random != nil {
			c.fits = append(c.fits, i)
		}
		if s > top {
			best, top = i, s
		}
	}
	if c.random != nil && len(c.fits) > 1 {
		best = c.fits[c.random.Stream.IntN(len(c.fits))]
	}
	return best, best >= 0
}

// kind is what tells demands apart.
type kind struct {
	cpu, mem              int64
	cards, milli, cardMem int32
	avoid, types          string
}

func (c *Chooser) column(d *cluster.Demand) *column {
	k := kind{d.CPUMilli, d.MemMiB, d.Cards, d.Milli, d.CardMemMiB, d.Avoid, cluster.JoinTypes(d.Types)}
	if col := c.kinds[k]; col != nil {
		return col
	}
	col := &column{score: make([]int64, len(c.nodes)), version: make([]uint64, len(c.nodes))}
	c.kinds[k] = col
	return col
}
