package pool

import "slices"

// end is a completion, ordered by time and then by the job's sequence.
type end struct {
	at, seq int64
	slot    int32
}

// endHeap is a binary heap of completions.
type endHeap []end

func (a *end) before(b *end) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func (h *endHeap) push(e end) {
	s := append(*h, e)
	i := len(s) - 1
	for i > 0 {
		p := (i - 1) / 2
		if !e.before(&s[p]) {
			break
		}
		s[i] = s[p]
		i = p
	}
	s[i] = e
	*h = s
}

func (h *endHeap) pop() end {
	s := *h
	top, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	n, i := len(s), 0
	if n == 0 {
		return top
	}
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && s[c+1].before(&s[c]) {
			c++
		}
		if !s[c].before(&last) {
			break
		}
		s[i] = s[c]
		i = c
	}
	s[i] = last
	return top
}

// planned is a running job and when it ends at the latest: 16 bytes, because starts move them about.
type planned struct {
	end   int64
	procs int32
	owner int32
}

// exact says that the job ends then and not before.
func (p *planned) exact() bool { return p.owner >= 0 }

// runningList holds the running jobs by planned end, the soonest last, so that the usual removal is a pop; of those that end together
// the first submitted is last. It is as long as jobs run at once, never as long as the queue.
type runningList []planned

// at is the first position whose end is not after t.
func (r runningList) at(t int64) int {
	lo, hi := 0, len(r)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if r[m].end > t {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// occupy puts a job that starts among the running ones.
func (e *Engine) occupy(end int64, procs, owner int32) {
	n := len(e.running)
	if n == cap(e.running) {
		e.running = slices.Grow(e.running, 1)
	}
	r := e.running[:n+1]
	e.running = r
	i := n
	if n > shortList {
		i = r[:n].at(end)
		copy(r[i+1:], r[i:n])
	} else {
		for ; i > 0 && r[i-1].end <= end; i-- {
			r[i] = r[i-1]
		}
	}
	for ; i < n && r[i+1].end == end && e.jobs[slotOf(r[i+1].owner)].seq > e.jobs[slotOf(owner)].seq; i++ {
		r[i] = r[i+1]
	}
	p := &r[i]
	p.end, p.procs, p.owner = end, procs, owner
}

// shortList is up to which length moving one by one from the end is faster than searching first.
const shortList = 32

// cut takes out the entry at a position.
func (r *runningList) cut(i int) {
	s := *r
	if i < len(s)-1 {
		copy(s[i:], s[i+1:])
	}
	*r = s[:len(s)-1]
}

func (r *runningList) remove(t int64, slot int32) {
	s := *r
	i := len(s) - 1
	if slotOf(s[i].owner) != slot {
		for i = s.at(t); slotOf(s[i].owner) != slot; i++ {
		}
	}
	r.cut(i)
}
