package queue

// Sweep takes out, in order, every job that fits what those before it have left, and hands its slot to take: one backfill
// pass. It updates f.
func (x *Index) Sweep(f *Fit, take func(slot int32)) {
	if f.Free <= 0 || x.n == 0 {
		return
	}
	f.Extra = min(f.Extra, f.Free)
	before := x.n
	x.sweep(x.root, f, take)
	if x.n != before {
		x.settle()
	}
}

func (x *Index) sweep(nd *node, f *Fit, take func(int32)) {
	if nd.kids != nil {
		x.sweepKids(nd, f, take)
		return
	}
	// One branch an entry, and a predictable one: the sign bit is set if the job is too wide, or both too long and too wide for
	// the extra processors.
	hit := false
	free, window, extra := int64(f.Free), f.Window, int64(f.Extra)
	for k := 0; free > 0; {
		es := nd.live()
		for ; k < len(es); k++ {
			w := int64(es[k].Procs)
			if (free-w)|((window-es[k].Limit)&(extra-w)) >= 0 {
				break
			}
		}
		if k >= len(es) {
			break
		}
		e := es[k]
		nd.cut(k)
		x.n--
		hit = true
		free -= int64(e.Procs)
		if e.Limit > window {
			extra -= int64(e.Procs)
		}
		extra = min(extra, free)
		take(e.Slot)
	}
	f.Free, f.Extra = int32(free), int32(extra)
	if hit {
		nd.stale = max(nd.stale, 1)
		return
	}
	x.tighten(nd)
}

func (x *Index) sweepKids(nd *node, f *Fit, take func(int32)) {
	before := x.n
	for i := 0; i < int(nd.n) && f.Free > 0; i++ {
		k := nd.kids[i]
		if !k.mayHold(f, x.class(f.Free)) {
			continue
		}
		had := x.n
		x.sweep(k, f, take)
		if x.n == had {
			continue
		}
		if k.n == 0 {
			x.dropKid(nd, i)
			i--
		} else if k.kids == nil && k.n < leafCap/4 && x.join(nd, i) {
			i-- // what was joined has been looked at or lies ahead: look again
		}
	}
	if x.n != before {
		nd.stale = max(nd.stale, 1)
		return
	}
	x.tighten(nd)
}

// tighten is called where a search has failed: the second time since a removal it computes the summary anew.
func (x *Index) tighten(nd *node) {
	switch {
	case nd.stale == 1:
		nd.stale = 2
	case nd.stale == 2 && nd.n > 8:
		x.summarise(nd)
	}
}

// PopMin takes out the first job in order.
func (x *Index) PopMin() (Entry, bool) {
	if x.n == 0 {
		return Entry{}, false
	}
	e := x.popMin(x.root)
	x.n--
	x.settle()
	return e, true
}

func (x *Index) popMin(nd *node) Entry {
	nd.stale = max(nd.stale, 1)
	if nd.kids == nil {
		e := nd.ents[nd.off]
		nd.cut(0)
		return e
	}
	e := x.popMin(nd.kids[0])
	if nd.kids[0].n == 0 {
		x.dropKid(nd, 0)
	}
	return e
}
