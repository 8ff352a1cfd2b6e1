package queue

import (
	"math"
	"math/bits"
)

// Widths fall into classes, two an octave: 1, 2, 3, 4 to 5, 6 to 7, 8 to 11, 12 to 15, 16 to 23 and so on. A power of two, which
// most widths are, is the narrowest of its class: when fewer processors are free, the class is out. Widths below 2^23 are told apart;
// wider ones share the last class.
const maxClasses = 46

func class(procs int32) int {
	w := uint32(procs)
	b := bits.Len32(w) // procs is 2^(b−1) or more and below 2^b
	if b < 2 {
		return 0
	}
	return min(2*(b-1)+int(w>>(b-2)&1)-1, maxClasses-1)
}

// class is the class of a width in this index: the last one holds all widths from there on.
func (x *Index) class(procs int32) int { return min(class(procs), x.classes-1) }

// squeeze maps time limits to 32 bits, keeping their order though not all differences (those below 2^−25 are lost).
func squeeze(limit int64) uint32 {
	if limit <= 0 {
		return 0
	}
	n := bits.Len64(uint64(limit))
	return uint32(n)<<25 | uint32(uint64(limit)<<(64-n)>>38)&(1<<25-1)
}

// summary is what a node knows of its children. For each class of widths there is a row with a value a child, so that a search
// reads few cache lines: shortest[c·fanout+i] is the squeezed shortest limit among jobs of class c or lower of child i, nobody if
// there is none. Values are lower bounds, exact but for children marked as stale.
type summary struct {
	stale    [fanout]bool
	shortest []uint32
}

// nobody is above every squeezed limit.
const nobody = math.MaxUint32

// widen takes a job into the summary of child i.
func (s *summary) widen(i int, short uint32, c, classes int) {
	for ; c < classes; c++ {
		p := &s.shortest[c*fanout+i]
		if short >= *p {
			return // it does not rise with c: nothing further changes
		}
		*p = short
	}
}

// renew takes the shortest limits of a leaf's classes from c on, one of which has changed, into the summary of child i.
func (s *summary) renew(i, c int, shortest []uint32) {
	least := uint32(nobody)
	if c > 0 {
		least = s.shortest[(c-1)*fanout+i]
	}
	for ; c < len(shortest); c++ {
		least = min(least, shortest[c])
		p := &s.shortest[c*fanout+i]
		if *p == least {
			return // nothing further changes
		}
		*p = least
	}
}

func (s *summary) open(i, n, classes int) {
	copy(s.stale[i+1:n+1], s.stale[i:n])
	for c := range classes {
		row := s.shortest[c*fanout:][:fanout]
		copy(row[i+1:n+1], row[i:n])
	}
}

func (s *summary) drop(i, n, classes int) {
	copy(s.stale[i:n-1], s.stale[i+1:n])
	for c := range classes {
		row := s.shortest[c*fanout:][:fanout]
		copy(row[i:n-1], row[i+1:n])
	}
}

// take copies the children from half on of another summary.
func (s *summary) take(o *summary, half, classes int) {
	copy(s.stale[:], o.stale[half:])
	for c := range classes {
		copy(s.shortest[c*fanout:][:fanout], o.shortest[c*fanout+half:(c+1)*fanout])
	}
}

// summariseLeaf computes the summary of leaf i anew.
func (x *Index) summariseLeaf(in *inner, i int) {
	l := in.leaves[i]
	for c := range l.shortest {
		l.shortest[c] = nobody
	}
	for k := int(l.off); k < int(l.n); k++ {
		if c := l.class[k]; c != gapClass {
			l.shortest[c] = min(l.shortest[c], squeeze(l.ask[k].limit))
		}
	}
	least := uint32(nobody)
	for c, v := range l.shortest {
		least = min(least, v)
		in.shortest[c*fanout+i] = least
	}
	in.stale[i] = false
}

// summariseInner computes the summary of the inner child i from its own.
func (x *Index) summariseInner(in *inner, i int) {
	k := in.kids[i]
	for c := range x.classes {
		least := uint32(nobody)
		for _, v := range k.shortest[c*fanout:][:k.n] {
			least = min(least, v)
		}
		in.shortest[c*fanout+i] = least
	}
	in.stale[i] = false
}

// tighten is called where a search of child i has failed.
func (x *Index) tighten(in *inner, i int) {
	switch {
	case !in.stale[i]:
	case in.bottom:
		x.summariseLeaf(in, i)
	default:
		x.summariseInner(in, i)
	}
}
