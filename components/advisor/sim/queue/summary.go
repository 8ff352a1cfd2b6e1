package queue

import (
	"math"
	"math/bits"
)

// Widths fall into classes, two an octave: 1, 2, 3, 4, 5 to 6, 7 to 8, 9 to 12, 13 to 16 and so on. Widths up to 2^23 are told
// apart; wider ones share the last class.
const maxClasses = 46

func class(procs int32) int {
	w := uint32(procs - 1)
	b := bits.Len32(w) // procs lies above 2^(b−1) and up to 2^b
	if b < 2 {
		return b
	}
	return min(2*(b-1)+int(w>>(b-2)&1), maxClasses-1)
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

// bounds says whether a job decides the summary of child i, so that without it the summary is but a bound.
func (s *summary) bounds(i int, short uint32, c int) bool { return short <= s.shortest[c*fanout+i] }

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
	var short [maxClasses]uint32
	for c := range short[:x.classes] {
		short[c] = nobody
	}
	l, last := in.leaves[i], x.classes-1
	for k := int(l.off); k < int(l.n); k++ {
		a := &l.ask[k]
		c, v := min(class(a.procs), last), squeeze(a.limit)
		if a.procs == gap {
			v = nobody
		}
		short[c] = min(short[c], v)
	}
	least := uint32(nobody)
	for c := range x.classes {
		least = min(least, short[c])
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
