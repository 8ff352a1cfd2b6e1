package queue

import (
	"encoding/binary"
	"math/bits"
)

// Fit says which jobs a sweep is looking for: those of at most Free processors that end within Window or need at most
// Extra processors.
type Fit struct {
	Free, Extra int32
	Window      int64
	// Above is a promise of the caller: no job of at most so many processors fits, because all of them were tried when more time was
	// left. The sweep does not look for them.
	Above int32
}

// search is a sweep under way. A job fits if it is not wider than free, and not both longer than window and wider than extra; one
// branch says that, a predictable one: the sign bit of (free−w) | (window−limit)&(extra−w) is not set.
type search struct {
	x                          *Index
	free, window, extra, above int64
	short                      uint32 // the window, squeezed
	lo, hi                     uint64 // the classes in which jobs may fit
	take                       func(slot int32)
	changed                    uint64 // classes of a leaf that lost their shortest job
}

// narrow sets which classes are sought with the processors that are free now, and says whether anybody is in them.
func (s *search) narrow() bool {
	if s.free <= s.above {
		return false
	}
	s.hi = uint64(s.x.class(int32(s.free)))
	return s.x.present&(2<<(s.hi&63)-1<<(s.lo&63)) != 0
}

// Sweep takes out, in order, every job that fits what those before it have left, and hands its slot to take: one backfill
// pass. It updates f.
func (x *Index) Sweep(f *Fit, take func(slot int32)) {
	if f.Free <= f.Above || x.n == 0 {
		return
	}
	s := search{x: x, free: int64(f.Free), window: f.Window, extra: int64(f.Extra), above: int64(f.Above), take: take}
	s.lo = uint64(x.class(f.Above + 1))
	if !s.narrow() {
		return
	}
	if x.root == nil {
		x.visits++
		x.n -= x.only.sweep(&s)
	} else {
		s.short = squeeze(f.Window)
		before := x.n
		x.sweep(x.root, &s)
		if x.n != before {
			x.settle()
		}
	}
	f.Free, f.Extra = int32(s.free), int32(s.extra)
}

// sweep takes out of a leaf what fits and counts it.
func (l *leaf) sweep(s *search) (taken int) {
	n := int(l.n)
	asks, classes := l.ask[:n], l.class
	free, window, extra := s.free, s.window, s.extra
	lo, hi := (128-s.lo)*lanes, (127-s.hi)*lanes
sweep:
	for at := int(l.off) &^ 7; at < n; at += 8 {
		w := binary.LittleEndian.Uint64(classes[at:])
		for m := (w + lo) &^ (w + hi) & (128 * lanes); m != 0; m &= m - 1 {
			i := at + bits.TrailingZeros64(m)/8
			if i >= len(asks) {
				break
			}
			a := &asks[i]
			w := int64(a.procs)
			if (free-w)|((window-a.limit)&(extra-w)) < 0 {
				continue
			}
			free -= w
			if a.limit > window {
				extra -= w
			}
			slot := a.slot
			s.free = free
			l.taken(i, s)
			taken++
			s.take(slot)
			if !s.narrow() {
				break sweep
			}
			hi = (127 - s.hi) * lanes
		}
	}
	s.free, s.extra = free, extra
	if taken > 0 && l.n-l.off > 2*l.live+8 {
		l.close() // the next sweep has less to look at
	}
	return taken
}

// taken cuts out what a sweep has chosen, and notes whether it was the shortest of its class.
func (l *leaf) taken(i int, s *search) {
	c := int(l.class[i])
	if l.shortest != nil && squeeze(l.ask[i].limit) <= l.shortest[c] {
		s.changed |= 1 << c
	}
	l.cut(i)
	s.x.left(c)
}

// next is the first child from i on that may hold a job that fits: one of the class of free or lower that is short enough, or one
// of the class of extra or lower.
func (in *inner) next(i int, s *search) int {
	if !s.narrow() {
		return in.n
	}
	short := in.shortest[s.hi*fanout:][:in.n]
	window := s.short
	if extra := min(s.extra, s.free); extra > s.above {
		narrow := in.shortest[s.x.class(int32(extra))*fanout:][:in.n]
		for ; i < len(short); i++ {
			if short[i] <= window || narrow[i] != nobody {
				return i
			}
		}
		return i
	}
	for ; i < len(short); i++ {
		if short[i] <= window {
			return i
		}
	}
	return i
}

func (x *Index) sweep(in *inner, s *search) {
	x.visits++
	for i := in.next(0, s); i < in.n; i = in.next(i, s) {
		before := x.n
		if in.bottom {
			x.visits++
			s.changed = 0
			x.n -= in.leaves[i].sweep(s)
		} else {
			x.sweep(in.kids[i], s)
		}
		if x.n == before {
			x.tighten(in, i)
			i++
			continue
		}
		if in.bottom {
			in.lost(i, s.changed)
		} else {
			in.stale[i] = true
		}
		if !x.thinned(in, i) {
			i++
		}
		// What moved down to i, or was joined, has not been looked at or is looked at again, which does no harm.
	}
}

// lost brings the summary of leaf i up to date after some classes have lost their shortest jobs.
func (in *inner) lost(i int, classes uint64) {
	l := in.leaves[i]
	for m := classes; m != 0; m &= m - 1 {
		c := bits.TrailingZeros64(m)
		l.shortest[c] = l.least(c)
		in.renew(i, c, l.shortest)
	}
}
