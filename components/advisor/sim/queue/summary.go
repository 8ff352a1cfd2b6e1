package queue

import (
	"math"
	"math/bits"
)

// Widths fall into classes, one an octave: 1, 2 to 3, 4 to 7, 8 to 15 and so on. A power of two, which most widths are, is the narrowest
// of its class: when fewer processors are free, the class is out.
const (
	maxClasses = 31
	classWords = 32 // a power of two, so that no index needs a check
)

func class(procs int32) int {
	if uint32(procs) < uint32(len(narrowClass)) {
		return int(narrowClass[procs])
	}
	return classOf(procs)
}

// narrowClass holds the classes of the widths that most machines have: class is called several times an event.
var narrowClass = func() (t [1 << 10]uint8) {
	for w := range t {
		t[w] = uint8(classOf(int32(w)))
	}
	return t
}()

func classOf(procs int32) int { return max(bits.Len32(uint32(procs))-1, 0) }

// class is the class of a width in this index: the last one holds all widths from there on.
func (x *Index) class(procs int32) int { return min(class(procs), x.classes-1) }

// squeeze maps time limits to 32 bits, keeping their order though not all differences (those below 2^−25 are lost).
func squeeze(limit int64) uint32 {
	switch {
	case limit <= 0:
		return 0
	case limit == never:
		return nobody
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

// renew takes the shortest limits of a leaf's classes from c on, of which only that of c has changed, into the summary of child i.
func (s *summary) renew(i, c int, shortest []int64) {
	least := uint32(nobody)
	if c > 0 {
		least = s.shortest[(c-1)*fanout+i]
	}
	for ; c < len(shortest); c++ {
		least = min(least, squeeze(shortest[c]))
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
	l, least := in.leaves[i], uint32(nobody)
	for c := range l.shortest {
		least = min(least, squeeze(l.least(c)))
		in.shortest[c*fanout+i] = least
	}
	in.stale[i] = false
}

// summariseInner computes the summary of the inner child i from its own.
func (x *Index) summariseInner(in *inner, i int) {
	for c := range x.classes {
		in.shortest[c*fanout+i] = in.kids[i].least(c)
	}
	in.stale[i] = false
}

// least is the shortest limit of class c or lower.
func (in *inner) least(c int) uint32 {
	least := uint32(nobody)
	for _, v := range in.shortest[c*fanout:][:in.n] {
		least = min(least, v)
	}
	return least
}

// raise computes what is known of class c in the inner child i anew. Lower classes have no shorter limit: rows never rise with c.
func (in *inner) raise(i, c int) {
	for v := in.kids[i].least(c); c >= 0 && in.shortest[c*fanout+i] < v; c-- {
		in.shortest[c*fanout+i] = v
	}
}

// tighten is called where a search of child i has failed. Of an inner child only what has led the search there is computed anew, because
// removals below it make it stale again and again.
func (x *Index) tighten(in *inner, i int, s *search) {
	switch {
	case !in.stale[i]:
	case in.bottom:
		x.summariseLeaf(in, i)
	default:
		in.raise(i, s.hi)
		if extra := min(s.extra, s.free); extra > s.above {
			in.raise(i, x.class(int32(extra)))
		}
	}
}
