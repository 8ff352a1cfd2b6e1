package queue

import "math/bits"

// Fit says which jobs a sweep is looking for: those of at most Free processors that end within Window or need at most
// Extra processors.
type Fit struct {
	Free, Extra int32
	Window      int64
	// Above is a promise of the caller: no job of at most so many processors fits, because all of them were tried when more time was
	// left. The sweep does not look for them.
	Above int32
	// Again is another one: since the last sweep neither Window has grown, beyond what has passed of it, nor Extra. Who was too long then
	// is not looked at.
	Again bool
}

// search is a sweep under way. A job fits if it is not wider than free, and not both longer than window and wider than extra; one
// branch says that, a predictable one: the sign bit of (free−w) | (window−limit)&(extra−w) is not set.
type search struct {
	x                          *Index
	free, window, extra, above int64
	short                      uint32 // the window, squeezed
	lo, hi                     int    // the classes in which jobs may fit
	take                       func(slot, procs int32, limit int64)
}

// narrow sets which classes are sought with the processors that are free now, and says whether anybody is in them.
func (s *search) narrow() bool {
	if s.free <= s.above {
		return false
	}
	s.hi = s.x.class(int32(s.free))
	return s.x.present&s.sought() != 0
}

// sought is the set of classes from lo to hi.
func (s *search) sought() uint64 { return 2<<(s.hi&63) - 1<<(s.lo&63) }

// Sweep takes out, in order, every job that fits what those before it have left, and hands its slot and what it asks for to take:
// one backfill pass. It updates f.
func (x *Index) Sweep(f *Fit, take func(slot, procs int32, limit int64)) {
	if !f.Again {
		x.round++
	}
	if f.Free <= f.Above || x.n == 0 {
		return
	}
	s := &x.search
	s.free, s.window, s.extra, s.above, s.take = int64(f.Free), f.Window, int64(f.Extra), int64(f.Above), take
	s.lo = x.class(f.Above + 1)
	if !s.narrow() {
		return
	}
	if x.root == nil {
		x.visits++
		x.n -= x.only.sweep(s)
	} else {
		s.short = squeeze(f.Window)
		before := x.n
		x.sweep(x.root, s)
		if x.n != before {
			x.settle()
		}
	}
	f.Free, f.Extra = int32(s.free), int32(s.extra)
}

// marks is where in word w jobs of some classes are.
func (l *leaf) marks(w int, classes uint64) (m uint64) {
	for word := &l.member[w]; classes != 0; classes &= classes - 1 {
		m |= word[bits.TrailingZeros64(classes)&(classWords-1)]
	}
	return m
}

// fit drops marks from the lowest on until the lowest is of a job that fits. In gone it gives those who are too long, and too wide for
// the extra processors.
func fit(m uint64, asks *[64]ask, free, window, extra int64) (left, gone uint64) {
	for ; m != 0; m &= m - 1 {
		a := &asks[bits.TrailingZeros64(m)&63]
		w := int64(a.procs)
		late := (window - a.limit) & (extra - w)
		if (free-w)|late >= 0 {
			break
		}
		gone |= m & -m & uint64(late>>63)
	}
	return m, gone
}

// sweep takes out of a leaf what fits and counts it.
func (l *leaf) sweep(s *search) (taken int) {
	x, free, window, extra := s.x, s.free, s.window, s.extra
	classes := x.present & s.sought()
	if l.round != x.round {
		l.round = x.round
		clear(l.gone)
	}
sweep:
	for at, n := int(l.off)&^63, int(l.n); at < n; at += 64 {
		asks := (*[64]ask)(l.ask[at:])
		m, gone := fit(l.marks(at>>6, classes)&^l.gone[at>>6], asks, free, window, extra)
		l.gone[at>>6] |= gone
		for m != 0 {
			i := bits.TrailingZeros64(m) & 63
			a := asks[i]
			// There are no branches here that could not be predicted.
			w := int64(a.procs)
			free -= w
			extra -= w & ((window - a.limit) >> 63)
			c := x.class(a.procs)
			l.cut(at+i, c)
			x.left(c)
			taken++
			s.take(a.slot, a.procs, a.limit)
			left := classes & x.present & (2<<(x.class(int32(free))&63) - 1) & uint64((s.above-free)>>63)
			if left == 0 {
				break sweep
			}
			if left != classes {
				classes = left
				m &= l.marks(at>>6, left) | m&-m
			}
			m, gone = fit(m&(m-1), asks, free, window, extra)
			l.gone[at>>6] |= gone
		}
	}
	s.free, s.extra = free, extra
	return taken
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
			x.n -= in.leaves[i].sweep(s)
		} else {
			x.sweep(in.kids[i], s)
		}
		if x.n == before {
			x.tighten(in, i, s)
			i++
			continue
		}
		if in.bottom {
			in.lost(i)
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
func (in *inner) lost(i int) {
	l := in.leaves[i]
	for m := l.loose; m != 0; m &= m - 1 {
		c := bits.TrailingZeros64(m)
		l.least(c)
		in.renew(i, c, l.shortest)
	}
}
