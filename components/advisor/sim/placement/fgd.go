package placement

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
)

// Typical is a kind of demand and how often it is expected.
type Typical struct {
	Demand cluster.Demand
	Share  float64
}

// popularity is how much of all demands the typical ones must make up.
const popularity = 0.95

// TypicalDemands counts demands by CPU, cards, share and type and keeps the commonest until they make up 95 %. Their shares
// sum to 1.
func TypicalDemands(ds []cluster.Demand) []Typical {
	type shape struct {
		cpu   int64
		milli int32
		cards int32
		types string
	}
	count := map[shape]float64{}
	for i := range ds {
		d := &ds[i]
		count[shape{d.CPUMilli, d.Milli, d.Cards, strings.Join(d.Types, "|")}]++
	}
	shapes := make([]shape, 0, len(count))
	for s := range count {
		shapes = append(shapes, s)
	}
	slices.SortFunc(shapes, func(a, b shape) int {
		return -cmp.Or(cmp.Compare(count[a], count[b]), cmp.Compare(a.cpu, b.cpu), cmp.Compare(a.milli, b.milli),
			cmp.Compare(a.cards, b.cards), cmp.Compare(a.types, b.types))
	})
	total, cum := float64(len(ds)), 0.0
	var out []Typical
	for _, s := range shapes {
		if cum >= 100*popularity*total/100 {
			break
		}
		cum += count[s]
		t := Typical{Demand: cluster.Demand{CPUMilli: s.cpu, Milli: s.milli, Cards: s.cards}, Share: count[s] / total}
		if s.types != "" {
			t.Demand.Types = strings.Split(s.types, "|")
		}
		out = append(out, t)
	}
	if len(out) < len(shapes) {
		for i := range out {
			out[i].Share /= cum / total
		}
	}
	return out
}

// FGD is fragmentation gradient descent: it places a job where the expected amount of card that typical jobs cannot use grows
// least.
type FGD struct {
	typical []Typical
	left    []int32
}

// NewFGD makes the policy for a mix of demands.
func NewFGD(typical []Typical) *FGD { return &FGD{typical: typical} }

// Name is the policy's name.
func (*FGD) Name() string { return "fgd" }

// The ways in which a node's free cards are fragments for a demand. Sums are kept apart by kind and added in this order, as
// the original does, because truncated scores feel the last bit.
const (
	lackBoth = iota
	lackCards
	lackCPU
	noCards      // the demand wants none, and has its CPU
	noCardsOrCPU // the demand wants none, and CPU is lacking
	noAccess
	kinds
)

// Fragments is the expected amount of free card, in thousandths, that a demand of the typical mix cannot use on a node with so
// much CPU and these cards left.
func (f *FGD) Fragments(n *cluster.Node, cpuLeft int64, left []int32) float64 {
	total := int64(0)
	for _, l := range left {
		total += int64(l)
	}
	var sum [kinds]float64
	for i := range f.typical {
		t := &f.typical[i]
		d := &t.Demand
		cpu := cpuLeft >= d.CPUMilli
		if d.Milli == 0 {
			k := noCardsOrCPU
			if cpu {
				k = noCards
			}
			sum[k] += float64(t.Share * float64(total))
			continue
		}
		if !n.Accepts(d) {
			sum[noAccess] += float64(t.Share * float64(total))
			continue
		}
		serving, short := int32(0), int64(0)
		for _, l := range left {
			if l >= d.Milli {
				serving++
			} else {
				short += int64(l)
			}
		}
		switch {
		case serving >= d.Cards && cpu:
			sum[lackCards] += float64(t.Share * float64(short))
		case serving >= d.Cards:
			sum[lackCPU] += float64(t.Share * float64(total))
		case cpu:
			sum[lackCards] += float64(t.Share * float64(total))
		default:
			sum[lackBoth] += float64(t.Share * float64(total))
		}
	}
	s := 0.0
	for _, v := range sum {
		s += v
	}
	return s
}

// Score is 100·sigmoid of the fragments that the demand takes away, in cards; for a share, of the best card.
func (f *FGD) Score(n *cluster.Node, d *cluster.Demand) int64 {
	s, _ := f.rate(n, d)
	return s
}

// Cards chooses the card of a share by the same rating.
func (f *FGD) Cards(n *cluster.Node, d *cluster.Demand, dst []int) []int {
	if d.Cards != 1 || d.Milli >= cluster.WholeCard {
		return cards(n, d, dst)
	}
	_, c := f.rate(n, d)
	return append(dst, c)
}

func (f *FGD) rate(n *cluster.Node, d *cluster.Demand) (score int64, card int) {
	before := f.Fragments(n, n.CPULeft, n.CardLeft)
	f.left = append(f.left[:0], n.CardLeft...)
	rating := func() int64 {
		after := f.Fragments(n, n.CPULeft-d.CPUMilli, f.left)
		return int64(sigmoid((before-after)/1000) * maxScore)
	}
	if d.Cards != 1 || d.Milli >= cluster.WholeCard {
		want := d.Cards
		for _, i := range ascending(n, make([]int, 0, 16)) {
			if want == 0 {
				break
			}
			if f.left[i] >= d.Milli {
				f.left[i] -= d.Milli
				want--
			}
		}
		return rating(), -1
	}
	card = -1
	for i := range f.left {
		if !n.Serves(i, d) {
			continue
		}
		if i > 0 && card >= 0 && n.CardLeft[i] == n.CardLeft[i-1] && n.Serves(i-1, d) {
			continue // the same as its neighbour, which came first
		}
		f.left[i] -= d.Milli
		if s := rating(); card < 0 || s > score {
			score, card = s, i
		}
		f.left[i] += d.Milli
	}
	return score, card
}
