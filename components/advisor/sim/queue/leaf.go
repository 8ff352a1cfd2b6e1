package queue

import (
	"math"
	"math/bits"
)

// Leaves of a tree are small, so that few jobs are looked at in vain; a leaf that is alone may be larger than that. Both are whole
// words of 64 positions.
const (
	leafCap = 64
	onlyCap = 256
)

// gap is the width of a job that has been taken out: it fits nowhere.
const gap = math.MaxInt32

// never is the shortest limit where there is no job.
const never = math.MaxInt64

// leaf holds jobs in order in the positions from off to n. A job that is taken out leaves a gap, which is closed when room is
// needed; the first and the last position are never gaps. What orders jobs lies apart from what they ask for.
type leaf struct {
	off, n, live int32
	key          []uint64
	seq          []int64
	ask          []ask
	// member marks, for each 64 positions and each class of widths, which of them hold a job of the class: word w·classes+c is of class
	// c and the positions from 64·w on. A sweep looks at the classes in which somebody may fit, and at nobody else.
	member [][classWords]uint64
	// gone marks those that sweeps of a round have found too long; they need no other look in it.
	gone  []uint64
	round int64
	// shortest holds the shortest limit of each class, never if there is none. It is a lower bound for the classes in loose, else exact.
	shortest []int64
	loose    uint64
}

func newLeaf(size, classes int) *leaf {
	l := &leaf{key: make([]uint64, size), seq: make([]int64, size), ask: make([]ask, size),
		member: make([][classWords]uint64, size/64), shortest: make([]int64, classes), gone: make([]uint64, size/64)}
	l.clear()
	return l
}

type ask struct {
	limit int64
	procs int32
	slot  int32
}

// clear empties a leaf.
func (l *leaf) clear() {
	l.off, l.n, l.live, l.loose, l.round = 0, 0, 0, 0, 0
	clear(l.member)
	for c := range l.shortest {
		l.shortest[c] = never
	}
}

func (l *leaf) class(procs int32) int { return min(class(procs), len(l.shortest)-1) }

func (l *leaf) entry(i int) Entry {
	a := &l.ask[i]
	return Entry{Key: unordered(l.key[i]), Seq: l.seq[i], Limit: a.limit, Procs: a.procs, Slot: a.slot}
}

// at is the first position that is not before (key, seq).
func (l *leaf) at(key uint64, seq int64) int {
	off, n := int(l.off), int(l.n)
	if n == off || l.key[n-1] < key {
		return n
	}
	i := off
	for i+stride <= n && l.key[i+stride-1] < key {
		i += stride
	}
	for _, k := range l.key[i:min(i+stride, n)] {
		_, less := bits.Sub64(k, key, 0) // without a branch, which would be mispredicted
		i += int(less)
	}
	for i < n && l.key[i] == key && l.seq[i] < seq {
		i++
	}
	return i
}

// stride is how far a search in a leaf jumps before it looks at every key.
const stride = 16

// room says whether there is a free position, after closing gaps where that gives enough of them.
func (l *leaf) room() bool {
	if int(l.n) < len(l.ask) {
		return true
	}
	if int(l.live) > len(l.ask)*3/4 {
		return false
	}
	l.close()
	return true
}

// close closes gaps.
func (l *leaf) close() {
	if l.off > 0 || l.n > l.live {
		l.pack()
	}
}

// pack moves jobs over gaps, to position 0, and counts and marks them anew.
func (l *leaf) pack() {
	k := 0
	for i := int(l.off); i < int(l.n); i++ {
		if l.ask[i].procs != gap {
			l.key[k], l.seq[k], l.ask[k] = l.key[i], l.seq[i], l.ask[i]
			k++
		}
	}
	l.off, l.n, l.live = 0, int32(k), int32(k)
	clear(l.member)
	l.enter(0)
}

// enter marks the jobs from a position on, of which there are no gaps, as members of their classes.
func (l *leaf) enter(from int) {
	l.round = 0 // positions have changed
	for i := from; i < int(l.n); i++ {
		l.member[i>>6][l.class(l.ask[i].procs)] |= 1 << (i & 63)
	}
}

// put writes a job of class c at position i of a leaf that has room, moving the shorter side or using a gap beside it.
func (l *leaf) put(i int, key uint64, e *Entry, c int) {
	off, n := int(l.off), int(l.n)
	switch {
	case i == n:
		l.n++
	case i > off && l.ask[i-1].procs == gap:
		i--
	case l.ask[i].procs == gap:
	case off > 0 && i-off < n-i:
		copy(l.key[off-1:], l.key[off:i])
		copy(l.seq[off-1:], l.seq[off:i])
		copy(l.ask[off-1:], l.ask[off:i])
		l.off--
		i--
		l.down(i)
		l.round = 0
	default:
		copy(l.key[i+1:], l.key[i:n])
		copy(l.seq[i+1:], l.seq[i:n])
		copy(l.ask[i+1:], l.ask[i:n])
		l.n++
		l.up(i)
		l.round = 0
	}
	l.key[i], l.seq[i] = key, e.Seq
	a := &l.ask[i]
	a.limit, a.procs, a.slot = e.Limit, e.Procs, e.Slot
	l.member[i>>6][c&(classWords-1)] |= 1 << (i & 63)
	l.gone[i>>6] &^= 1 << (i & 63)
	if e.Limit <= l.shortest[c] {
		l.shortest[c] = min(e.Limit, never-1)
		l.loose &^= 1 << c
	}
	l.live++
}

// up moves the marks of the positions from i on to the next ones.
func (l *leaf) up(i int) {
	below := uint64(1)<<(i&63) - 1
	for c := range l.shortest {
		m := l.member[i>>6][c]
		l.member[i>>6][c] = m&below | m&^below<<1
		for w := i>>6 + 1; w < len(l.member); w++ {
			v := &l.member[w][c]
			m, *v = *v, *v<<1|m>>63
		}
	}
}

// down moves the marks of the positions up to i to the ones before; position 0 has none.
func (l *leaf) down(i int) {
	upTo := uint64(2)<<(i&63) - 1
	for c := range l.shortest {
		m := l.member[i>>6][c]
		l.member[i>>6][c] = m&upTo>>1 | m&^upTo
		for w := i>>6 - 1; w >= 0; w-- {
			v := &l.member[w][c]
			m, *v = *v, *v>>1|m<<63
		}
	}
}

// cut takes out the job at position i, of class c.
func (l *leaf) cut(i, c int) {
	a := &l.ask[i]
	l.loose |= uint64(a.limit-l.shortest[c]-1) >> 63 << (c & 63) // if it was the shortest
	a.procs = gap
	l.member[i>>6][c&(classWords-1)] &^= 1 << (i & 63)
	l.live--
	if i == int(l.off) || i == int(l.n)-1 {
		l.trim()
	}
}

// trim drops gaps at the ends.
func (l *leaf) trim() {
	if l.live == 0 {
		l.off, l.n = 0, 0
		return
	}
	for ; l.ask[l.off].procs == gap; l.off++ {
	}
	for ; l.ask[l.n-1].procs == gap; l.n-- {
	}
}

// remove takes out a job and gives its class, or −1 if it is not there.
func (l *leaf) remove(key uint64, seq int64) int {
	i := int(l.off)
	if i < int(l.n) && l.seq[i] != seq {
		i = l.at(key, seq)
	}
	if i >= int(l.n) || l.seq[i] != seq || l.key[i] != key || l.ask[i].procs == gap {
		return -1
	}
	c := l.class(l.ask[i].procs)
	l.cut(i, c)
	return c
}

// pop takes out the first job and gives it with its class.
func (l *leaf) pop() (Entry, int) {
	i := int(l.off)
	e := l.entry(i)
	c := l.class(e.Procs)
	l.cut(i, c)
	return e, c
}

// take moves the jobs from position half on out of another leaf into this one, which is empty, and closes the gaps of both.
func (l *leaf) take(o *leaf, half int) {
	n := int(o.n)
	copy(l.key, o.key[half:n])
	copy(l.seq, o.seq[half:n])
	copy(l.ask, o.ask[half:n])
	l.n, o.n = int32(n-half), int32(half)
	l.pack()
	l.loosen()
	o.pack()
	o.loosen()
}

// loosen makes every shortest limit a lower bound.
func (l *leaf) loosen() {
	clear(l.shortest)
	l.loose = 1<<len(l.shortest) - 1
}

// append moves all jobs of the next leaf behind those of this one; there is room.
func (l *leaf) append(o *leaf) {
	l.close()
	o.close()
	n := int(l.n)
	copy(l.key[n:], o.key[:o.n])
	copy(l.seq[n:], o.seq[:o.n])
	copy(l.ask[n:], o.ask[:o.n])
	l.n += o.n
	l.live = l.n
	l.enter(n)
	l.loosen()
}

// least is the shortest limit in a class, made exact if it was a lower bound.
func (l *leaf) least(c int) int64 {
	if l.loose>>c&1 == 0 {
		return l.shortest[c]
	}
	v := int64(never)
	for w := int(l.off) >> 6; w<<6 < int(l.n); w++ {
		for m := l.member[w][c]; m != 0; m &= m - 1 {
			v = min(v, l.ask[w<<6+bits.TrailingZeros64(m)].limit, never-1)
		}
	}
	l.shortest[c] = v
	l.loose &^= 1 << c
	return v
}

func (l *leaf) each(visit func(Entry) bool) bool {
	for i := int(l.off); i < int(l.n); i++ {
		if l.ask[i].procs != gap && !visit(l.entry(i)) {
			return false
		}
	}
	return true
}
