package queue

// Fit says which jobs a sweep is looking for: those of at most Free processors that end within Window or need at most
// Extra processors.
type Fit struct {
	Free, Extra int32
	Window      int64
}

// search is a sweep under way. A job fits if it is not wider than free, and not both longer than window and wider than extra. The
// leaf's loop writes that with one branch a job, and a predictable one: the sign bit of (free−w) | (window−limit)&(extra−w) is not
// set.
type search struct {
	x                   *Index
	free, window, extra int64
	short               uint32 // the window, squeezed
	take                func(slot int32)
	// What tells a node whether the summary of a child is exact without the jobs taken out of it.
	in    *inner
	child int
	last  int // the last class
	dirty bool
}

// Sweep takes out, in order, every job that fits what those before it have left, and hands its slot to take: one backfill
// pass. It updates f.
func (x *Index) Sweep(f *Fit, take func(slot int32)) {
	if f.Free <= 0 || x.n == 0 {
		return
	}
	s := search{x: x, free: int64(f.Free), window: f.Window, extra: int64(f.Extra), take: take}
	if x.root == nil {
		x.visits++
		x.n -= x.only.sweep(&s)
	} else {
		s.short, s.last = squeeze(f.Window), x.classes-1
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
	free, window, extra := s.free, s.window, s.extra
	for k := int(l.off); free > 0; k++ {
		asks := l.ask[:l.n]
		for ; k+4 <= len(asks); k += 4 { // four at a time, while none of them fits
			a := asks[k : k+4 : k+4]
			w0, w1, w2, w3 := int64(a[0].procs), int64(a[1].procs), int64(a[2].procs), int64(a[3].procs)
			if ((free-w0)|((window-a[0].limit)&(extra-w0)))&((free-w1)|((window-a[1].limit)&(extra-w1)))&
				((free-w2)|((window-a[2].limit)&(extra-w2)))&((free-w3)|((window-a[3].limit)&(extra-w3))) >= 0 {
				break
			}
		}
		for ; k < len(asks); k++ {
			a := &asks[k]
			w := int64(a.procs)
			if (free-w)|((window-a.limit)&(extra-w)) >= 0 {
				break
			}
		}
		if k >= len(asks) {
			break
		}
		a := asks[k]
		l.cut(k)
		taken++
		free -= int64(a.procs)
		if a.limit > window {
			extra -= int64(a.procs)
		}
		c := s.x.left(a.procs)
		if s.in != nil && !s.dirty {
			s.dirty = s.in.bounds(s.child, squeeze(a.limit), c)
		}
		s.take(a.slot)
	}
	s.free, s.extra = free, extra
	if taken > 0 && l.n-l.off > l.live+l.live/4+4 {
		l.close() // the next sweep has less to look at
	}
	return taken
}

// next is the first child from i on that may hold a job that fits: one of the class of free or lower that is short enough, or one
// of the class of extra or lower.
func (in *inner) next(i int, s *search) int {
	if s.free <= 0 {
		return in.n
	}
	short := in.shortest[min(class(int32(s.free)), s.last)*fanout:][:in.n]
	window := s.short
	if s.extra > 0 {
		narrow := in.shortest[min(class(int32(min(s.extra, s.free))), s.last)*fanout:][:in.n]
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
			s.in, s.child, s.dirty = in, i, false
			x.n -= in.leaves[i].sweep(s)
		} else {
			x.sweep(in.kids[i], s)
		}
		if x.n == before {
			x.tighten(in, i)
			i++
			continue
		}
		if !in.bottom {
			in.stale[i] = true
		} else if s.dirty {
			x.summariseLeaf(in, i) // now, while the leaf is at hand
		}
		if !x.thinned(in, i) {
			i++
		}
		// What moved down to i, or was joined, has not been looked at or is looked at again, which does no harm.
	}
}
