// Package cluster models the machines: nodes of types with processors, memory and cards, shares of cards, what jobs hold of
// them, how fast a model runs where, and what neighbours on a card cost.
package cluster

import (
	"slices"
	"strings"
)

// WholeCard is a card in thousandths.
const WholeCard = 1000

// Node is one machine and what is left of it. A node of a pool that is powered down keeps its place; Up says whether it can be
// used.
type Node struct {
	Name string
	Pool string
	// Type is the model of its cards, "" without cards.
	Type     string
	CPUMilli int64
	MemMiB   int64
	// CardMemMiB is the memory of each card, 0 if not known (not checked then).
	CardMemMiB int32

	CPULeft int64
	MemLeft int64
	// CardLeft is what is left of each card in thousandths; the index is the card's.
	CardLeft    []int32
	CardMemLeft []int32
	// holders counts jobs by how many cards they hold (0: a share of one; see Affinity).
	holders map[int32]int32
	// Version changes whenever anything above does, so that scores may be kept.
	Version uint64
	Up      bool
	Drained bool

	origin, own uint64 // the versions of both when CopyFrom last made this node equal another
}

// NewNode makes an empty, usable node.
func NewNode(name, gpuType string, cpuMilli, memMiB int64, cards int, cardMemMiB int32) *Node {
	n := &Node{Name: name, Type: gpuType, CPUMilli: cpuMilli, MemMiB: memMiB, CardMemMiB: cardMemMiB, CPULeft: cpuMilli, MemLeft: memMiB,
		holders: map[int32]int32{}, Up: true, Version: 1}
	for range cards {
		n.CardLeft = append(n.CardLeft, WholeCard)
		n.CardMemLeft = append(n.CardMemLeft, cardMemMiB)
	}
	return n
}

// Usable says that jobs may start on the node.
func (n *Node) Usable() bool { return n.Up && !n.Drained }

// Demand is what one job wants of one node.
type Demand struct {
	CPUMilli, MemMiB int64
	Cards            int32
	Milli            int32 // of each card
	CardMemMiB       int32 // on each card
	Types            []string
	// Avoid is a pool the job may not start in now, because of planned maintenance; "*" is all.
	Avoid string
}

// JoinTypes makes one string of types, without allocating for none or one.
func JoinTypes(types []string) string {
	switch len(types) {
	case 0:
		return ""
	case 1:
		return types[0]
	}
	return strings.Join(types, "|")
}

// Group is the number of cards a job holds, or 0 for a share of one: jobs of a group are clustered by GPU clustering.
func (d *Demand) Group() int32 {
	if d.Cards == 1 && d.Milli < WholeCard {
		return 0
	}
	return d.Cards
}

// CardTotal is the sum of the thousandths wanted.
func (d *Demand) CardTotal() int64 { return int64(d.Milli) * int64(d.Cards) }

// Accepts says that the node's cards are of a type the demand allows.
func (n *Node) Accepts(d *Demand) bool {
	return len(d.Types) == 0 || n.Type != "" && slices.Contains(d.Types, n.Type)
}

// Fits says that the node has room.
func (n *Node) Fits(d *Demand) bool {
	if !n.Usable() || n.CPULeft < d.CPUMilli || n.MemLeft < d.MemMiB || d.Avoid != "" && (d.Avoid == "*" || d.Avoid == n.Pool) {
		return false
	}
	if d.Cards == 0 {
		return true
	}
	return n.Accepts(d) && n.CardsWith(d) >= int(d.Cards)
}

// CardsWith counts the cards that can serve the demand.
func (n *Node) CardsWith(d *Demand) int {
	k := 0
	for i, left := range n.CardLeft {
		if left >= d.Milli && (n.CardMemMiB == 0 || n.CardMemLeft[i] >= d.CardMemMiB) {
			k++
		}
	}
	return k
}

// Serves says that card i can serve the demand.
func (n *Node) Serves(i int, d *Demand) bool {
	return n.CardLeft[i] >= d.Milli && (n.CardMemMiB == 0 || n.CardMemLeft[i] >= d.CardMemMiB)
}

// Ever says that the node could serve the demand if it were empty.
func (n *Node) Ever(d *Demand) bool {
	if n.CPUMilli < d.CPUMilli || n.MemMiB < d.MemMiB {
		return false
	}
	return d.Cards == 0 || n.Accepts(d) && len(n.CardLeft) >= int(d.Cards) && (n.CardMemMiB == 0 || n.CardMemMiB >= d.CardMemMiB)
}

// Take gives the demand resources, on the cards named.
func (n *Node) Take(d *Demand, cards []int) { n.move(d, cards, 1) }

// Give takes them back.
func (n *Node) Give(d *Demand, cards []int) { n.move(d, cards, -1) }

func (n *Node) move(d *Demand, cards []int, sign int32) {
	n.Version++
	n.CPULeft -= int64(sign) * d.CPUMilli
	n.MemLeft -= int64(sign) * d.MemMiB
	for _, c := range cards {
		n.CardLeft[c] -= sign * d.Milli
		n.CardMemLeft[c] -= sign * d.CardMemMiB
	}
	if d.Cards > 0 {
		g := d.Group()
		n.holders[g] += sign
		if n.holders[g] == 0 {
			delete(n.holders, g)
		}
	}
}

// Groups is how many different groups of jobs hold cards of the node, and whether the given one does.
func (n *Node) Groups(g int32) (groups int, present bool) {
	_, present = n.holders[g]
	return len(n.holders), present
}

// TotalLeft is the sum over cards of what is left, in thousandths.
func (n *Node) TotalLeft() int64 {
	t := int64(0)
	for _, l := range n.CardLeft {
		t += int64(l)
	}
	return t
}

// FreeCards counts cards nobody holds anything of.
func (n *Node) FreeCards() int {
	k := 0
	for _, l := range n.CardLeft {
		if l == WholeCard {
			k++
		}
	}
	return k
}

// Set says whether the node can be used.
func (n *Node) Set(up, drained bool) {
	if n.Up != up || n.Drained != drained {
		n.Up, n.Drained = up, drained
		n.Version++
	}
}

// CopyFrom makes the node's resources those of another of the same shape.
func (n *Node) CopyFrom(o *Node) {
	if n.origin == o.Version && n.own == n.Version {
		return
	}
	n.Assign(o)
	n.origin, n.own = o.Version, n.Version
}

// Assign is CopyFrom for nodes that are made equal to several others in turn.
func (n *Node) Assign(o *Node) {
	n.CPULeft, n.MemLeft, n.Up, n.Drained = o.CPULeft, o.MemLeft, o.Up, o.Drained
	copy(n.CardLeft, o.CardLeft)
	copy(n.CardMemLeft, o.CardMemLeft)
	clear(n.holders)
	for k, v := range o.holders {
		n.holders[k] = v
	}
	n.Version++
}

// Lower cuts what is left down to what is left of another node of the same shape: afterwards, what fits on both fits.
func (n *Node) Lower(o *Node) {
	n.CPULeft, n.MemLeft = min(n.CPULeft, o.CPULeft), min(n.MemLeft, o.MemLeft)
	n.Up, n.Drained = n.Up && o.Up, n.Drained || o.Drained
	for i := range n.CardLeft {
		n.CardLeft[i], n.CardMemLeft[i] = min(n.CardLeft[i], o.CardLeft[i]), min(n.CardMemLeft[i], o.CardMemLeft[i])
	}
	n.Version++
}

// Clear empties the node.
func (n *Node) Clear() {
	n.CPULeft, n.MemLeft = n.CPUMilli, n.MemMiB
	for i := range n.CardLeft {
		n.CardLeft[i], n.CardMemLeft[i] = WholeCard, n.CardMemMiB
	}
	clear(n.holders)
	n.Version++
}

// Idle says that nobody holds anything of the node.
func (n *Node) Idle() bool {
	return n.CPULeft == n.CPUMilli && n.MemLeft == n.MemMiB && n.FreeCards() == len(n.CardLeft)
}
