package placement

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
)

func nodes() []*cluster.Node {
	return []*cluster.Node{
		cluster.NewNode("empty", "a", 64000, 1<<20, 4, 0),
		cluster.NewNode("used", "a", 64000, 1<<20, 4, 0),
		cluster.NewNode("shared", "a", 64000, 1<<20, 4, 0),
	}
}

// On an empty node, one with two cards taken and one with a card half taken, each policy goes where its definition says.
func TestWhereEachPolicyGoes(t *testing.T) {
	whole := &cluster.Demand{CPUMilli: 1000, Cards: 1, Milli: 1000}
	half := &cluster.Demand{CPUMilli: 1000, Cards: 1, Milli: 500}
	for _, c := range []struct {
		policy, share, whole string
	}{
		{"first-fit", "empty", "empty"},
		{"best-fit", "used", "used"},         // least left
		{"gpu-packing", "shared", "used"},    // a shared card first, then a free card of a used node
		{"dot-product", "used", "used"},      // free resources least aligned with the demand
		{"fgd", "shared", "empty"},           // fewest new fragments; a whole card makes none anywhere, so the first
		{"gpu-clustering", "shared", "used"}, // beside jobs of its own kind
	} {
		typical := []Typical{{Demand: *whole, Share: .5}, {Demand: *half, Share: .5}}
		for what, want := range map[string]string{"share": c.share, "whole": c.whole} {
			ns := nodes()
			ns[1].Take(whole, []int{0})
			ns[1].Take(whole, []int{1})
			ns[2].Take(half, []int{0})
			p, err := ByName(c.policy, typical, 1)
			if err != nil {
				t.Fatal(err)
			}
			d := half
			if what == "whole" {
				d = whole
			}
			if i, ok := NewChooser(p, ns).Best(d); !ok || ns[i].Name != want {
				t.Errorf("%s puts a %s on node %s, want %s", c.policy, what, ns[max(i, 0)].Name, want)
			}
		}
	}
	if _, err := ByName("nowhere", nil, 1); err == nil {
		t.Error("a policy that does not exist is found")
	}
}

// Whatever the cluster holds, a choice fits, its cards serve the demand and are different, and nothing is chosen only if nothing fits;
// the chooser's memory of scores changes nothing.
func TestChoicesFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(Names).Draw(t, "policy")
		typical := []Typical{{Demand: cluster.Demand{CPUMilli: 2000, Cards: 1, Milli: 500}, Share: .7}, {Demand: cluster.Demand{CPUMilli: 4000, Cards: 2, Milli: 1000}, Share: .3}}
		p, err := ByName(name, typical, 5)
		if err != nil {
			t.Fatal(err)
		}
		ns := nodes()
		ch := NewChooser(p, ns)
		for range rapid.IntRange(1, 30).Draw(t, "jobs") {
			d := &cluster.Demand{CPUMilli: rapid.Int64Range(0, 40000).Draw(t, "cpu"), Cards: int32(rapid.IntRange(0, 4).Draw(t, "cards")), Milli: 1000}
			switch d.Cards {
			case 0:
				d.Milli = 0
			case 1:
				d.Milli = int32(rapid.IntRange(1, 1000).Draw(t, "milli"))
			}
			i, ok := ch.Best(d)
			fits := slices.ContainsFunc(ns, func(n *cluster.Node) bool { return n.Fits(d) })
			if ok != fits || ok && !ns[i].Fits(d) {
				t.Fatalf("%s chooses node %d (%v) for %+v; some node fits: %v", name, i, ok, d, fits)
			}
			if !ok {
				continue
			}
			if j, _ := NewChooser(p, ns).Best(d); name != "random" && j != i {
				t.Fatalf("%s chooses node %d, without memory node %d", name, i, j)
			}
			cards := p.Cards(ns[i], d, nil)
			if len(cards) != int(d.Cards) {
				t.Fatalf("%s gives %d cards of %d", name, len(cards), d.Cards)
			}
			for k, c := range cards {
				if !ns[i].Serves(c, d) || slices.Contains(cards[:k], c) {
					t.Fatalf("%s gives cards %v on %v", name, cards, ns[i].CardLeft)
				}
			}
			ns[i].Take(d, cards)
		}
	})
}

// The commonest demands that make up 95 % are kept, and their shares sum to 1.
func TestTypicalDemands(t *testing.T) {
	var ds []cluster.Demand
	for i := range 100 {
		d := cluster.Demand{CPUMilli: 1000, Cards: 1, Milli: 500}
		if i >= 60 {
			d.Milli = 1000
		}
		if i >= 97 {
			d.Cards = 8
		}
		ds = append(ds, d)
	}
	got := TypicalDemands(ds)
	if len(got) != 2 || got[0].Demand.Milli != 500 || got[0].Share+got[1].Share < .999999 || got[0].Share < .6 {
		t.Errorf("%+v", got)
	}
}
