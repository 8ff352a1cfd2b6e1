package pool

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

// planned is a running job and when it ends at the latest.
type planned struct {
	end, seq int64
	procs    int32
	slot     int32
	exact    bool // ends then and not before
}

// runningList holds the running jobs by planned end, the soonest last, so that the usual removal is a pop. It is as long as
// jobs run at once, never as long as the queue.
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

func (r *runningList) insert(p planned) {
	n, i := len(*r), 0
	s := append(*r, p)
	if n > shortList {
		i = (*r).at(p.end)
		for i < n && s[i].end == p.end && s[i].seq > p.seq {
			i++
		}
		copy(s[i+1:], s[i:n])
	} else {
		for i = n; i > 0 && (s[i-1].end < p.end || s[i-1].end == p.end && s[i-1].seq < p.seq); i-- {
			s[i] = s[i-1]
		}
	}
	s[i] = p
	*r = s
}

// shortList is up to which length moving one by one from the end is faster than searching first.
const shortList = 32

// cut takes out the entry at a position.
func (r *runningList) cut(i int) {
	s := *r
	copy(s[i:], s[i+1:])
	*r = s[:len(s)-1]
}

func (r *runningList) remove(t int64, slot int32) {
	s := *r
	i := len(s) - 1
	if s[i].slot != slot {
		for i = s.at(t); s[i].slot != slot; i++ {
		}
	}
	copy(s[i:], s[i+1:])
	*r = s[:len(s)-1]
}
