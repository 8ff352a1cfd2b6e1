// Package placement decides on which node and which cards a job goes. The policies are those that the fragmentation gradient
// descent paper (Weng et al., ATC'23) compares, with its scores (0 to 100, truncated to whole numbers), so that its published
// allocation ratios can be reproduced; ties go to the first node in the order given.
package placement

import (
	"fmt"
	"math"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/random"
)

// Policy scores nodes and chooses cards.
type Policy interface {
	Name() string
	// Score rates a node on which the demand fits; more is better.
	Score(n *cluster.Node, d *cluster.Demand) int64
	// Cards appends the cards the demand gets on a node on which it fits.
	Cards(n *cluster.Node, d *cluster.Demand, dst []int) []int
}

// Largest sizes of a node, by which scores are normalised (the same as in the original).
const (
	maxCPUMilli  = 128000
	maxCardMilli = 8000
	maxScore     = 100
)

// cards chooses whole cards in order of index, and for a share the card with the least room that serves it.
func cards(n *cluster.Node, d *cluster.Demand, dst []int) []int {
	if d.Cards == 0 {
		return dst
	}
	if d.Cards == 1 && d.Milli < cluster.WholeCard {
		best := -1
		for i, left := range n.CardLeft {
			if n.Serves(i, d) && (best < 0 || left < n.CardLeft[best]) {
				best = i
			}
		}
		return append(dst, best)
	}
	want := d.Cards
	for i := range n.CardLeft {
		if want == 0 {
			break
		}
		if n.Serves(i, d) {
			dst = append(dst, i)
			want--
		}
	}
	return dst
}

type bestCards struct{}

func (bestCards) Cards(n *cluster.Node, d *cluster.Demand, dst []int) []int { return cards(n, d, dst) }

// BestFit prefers the node with the least left, CPU and cards weighted equally.
type BestFit struct{ bestCards }

// Name is the policy's name.
func (BestFit) Name() string { return "best-fit" }

// Score is 100·(1 − ½·(free CPU − wanted)/128 cores − ½·(free cards − wanted)/8 cards).
func (BestFit) Score(n *cluster.Node, d *cluster.Demand) int64 {
	s := float64(float64(n.CPULeft-d.CPUMilli)/maxCPUMilli) * 0.5
	s += float64(float64(n.TotalLeft()-d.CardTotal())/maxCardMilli) * 0.5
	return int64((1 - s) * maxScore)
}

// DotProduct prefers nodes whose free resources are least aligned with the demand (the packing heuristic of Tetris, Grandl et
// al. 2014, turned round as the FGD paper does).
type DotProduct struct{ bestCards }

// Name is the policy's name.
func (DotProduct) Name() string { return "dot-product" }

// Score is 100·(1 − ½·(free · wanted)), both normalised by the largest node.
func (DotProduct) Score(n *cluster.Node, d *cluster.Demand) int64 {
	s := float64(float64(n.CPULeft) / maxCPUMilli * (float64(d.CPUMilli) / maxCPUMilli))
	s += float64(float64(n.TotalLeft()) / maxCardMilli * (float64(d.CardTotal()) / maxCardMilli))
	return int64(maxScore * (1 - s/2))
}

// Packing prefers cards already shared, then free cards of used nodes, then free nodes.
type Packing struct{ bestCards }

// Name is the policy's name.
func (Packing) Name() string { return "gpu-packing" }

// Score is in three bands: shared cards above 50, free cards on a used node 33 to 50, free nodes up to 33.
func (Packing) Score(n *cluster.Node, d *cluster.Demand) int64 {
	if d.Cards == 0 || d.Milli == 0 {
		return 0
	}
	free := n.FreeCards()
	if free == len(n.CardLeft) {
		return max(maxScore/3-int64(free), int64(free))
	}
	opened, ratio := int64(0), int64(0)
	want := d.Cards
	for _, i := range ascending(n, make([]int, 0, 16)) {
		if want == 0 {
			break
		}
		if left := n.CardLeft[i]; left >= d.Milli {
			want--
			if left == cluster.WholeCard {
				opened++
			}
			ratio += int64(left) * 100 / cluster.WholeCard
		}
	}
	if opened > 0 {
		return max(maxScore/2-opened, maxScore/3)
	}
	return max(maxScore-ratio/10, maxScore/2)
}

// ascending gives card indices by what is left, the fullest first, ties by index.
func ascending(n *cluster.Node, idx []int) []int {
	for i, left := range n.CardLeft {
		k := len(idx)
		for k > 0 && n.CardLeft[idx[k-1]] > left {
			k--
		}
		idx = append(idx, 0)
		copy(idx[k+1:], idx[k:])
		idx[k] = i
	}
	return idx
}

// Clustering keeps jobs that want equally many cards together, fuller nodes first.
type Clustering struct{ bestCards }

// Name is the policy's name.
func (Clustering) Name() string { return "gpu-clustering" }

// Score is in four bands of 25: only the same kind of job on the node, the same and others, nobody, only others.
func (Clustering) Score(n *cluster.Node, d *cluster.Demand) int64 {
	if d.Cards == 0 {
		return 0
	}
	within := maxScore / 4 * (maxCardMilli - n.TotalLeft()) / maxCardMilli
	groups, same := n.Groups(d.Group())
	switch {
	case same && groups == 1:
		return within + maxScore*3/4
	case same:
		return within + maxScore*2/4
	case groups == 0:
		return within + maxScore/4
	}
	return within
}

// FirstFit takes the first node with room.
type FirstFit struct{ bestCards }

// Name is the policy's name.
func (FirstFit) Name() string { return "first-fit" }

// Score is the same everywhere.
func (FirstFit) Score(*cluster.Node, *cluster.Demand) int64 { return 0 }

// Random takes a random node with room, and a random card of those that serve a share.
type Random struct{ Stream random.Stream }

// Name is the policy's name.
func (*Random) Name() string { return "random" }

// Score is not used: Chooser draws among the nodes that fit.
func (*Random) Score(*cluster.Node, *cluster.Demand) int64 { return 0 }

// Cards draws the card of a share evenly among those that serve it; whole cards go by index.
func (r *Random) Cards(n *cluster.Node, d *cluster.Demand, dst []int) []int {
	if d.Cards != 1 || d.Milli >= cluster.WholeCard {
		return cards(n, d, dst)
	}
	seen, pick := 0, -1
	for i := range n.CardLeft {
		if n.Serves(i, d) {
			seen++
			if r.Stream.IntN(seen) == 0 {
				pick = i
			}
		}
	}
	return append(dst, pick)
}

// ByName finds a policy. FGD needs the mix of demands that is expected; seed is for random.
func ByName(name string, typical []Typical, seed uint64) (Policy, error) {
	switch name {
	case "best-fit":
		return BestFit{}, nil
	case "dot-product":
		return DotProduct{}, nil
	case "gpu-packing":
		return Packing{}, nil
	case "gpu-clustering":
		return Clustering{}, nil
	case "first-fit":
		return FirstFit{}, nil
	case "fgd":
		return NewFGD(typical), nil
	case "random":
		return &Random{Stream: random.New(seed, random.Placement)}, nil
	}
	return nil, fmt.Errorf("no placement policy is called %q; use %s", name, strings.Join(Names, ", "))
}

// Names lists the policies.
var Names = []string{"first-fit", "random", "dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd"}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
