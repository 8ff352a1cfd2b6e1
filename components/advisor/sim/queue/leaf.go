package queue

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Leaves of a tree are small, so that few jobs are looked at in vain; a leaf that is alone may be larger than that.
const (
	leafCap = 64
	onlyCap = 256
)

// gap is the width of a job that has been taken out: it fits nowhere. gapClass is its class of widths, above all others.
const (
	gap      = math.MaxInt32
	gapClass = 127
)

// leaf holds jobs in order in the positions from off to n. A job that is taken out leaves a gap, which is closed when room is
// needed; the first and the last position are never gaps. What orders jobs lies apart from what they ask for, and their classes
// of widths apart from both, because a sweep looks at classes first, eight at a time.
type leaf struct {
	off, n, live int32
	key          []uint64
	seq          []int64
	ask          []ask
	class        []uint8
	// shortest holds, in the leaves of a tree, the squeezed shortest limit of each class of widths, nobody if there is none. It is
	// a lower bound where the tree says that the leaf is stale, else exact. Nil in a leaf that is alone.
	shortest []uint32
}

func newLeaf(size int) *leaf {
	return &leaf{key: make([]uint64, size), seq: make([]int64, size), ask: make([]ask, size), class: make([]uint8, size)}
}

type ask struct {
	limit int64
	procs int32
	slot  int32
}

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

// close moves jobs over gaps, to position 0.
func (l *leaf) close() {
	k := 0
	for i := int(l.off); i < int(l.n); i++ {
		if l.ask[i].procs != gap {
			l.key[k], l.seq[k], l.ask[k], l.class[k] = l.key[i], l.seq[i], l.ask[i], l.class[i]
			k++
		}
	}
	l.off, l.n = 0, int32(k)
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
		copy(l.class[off-1:], l.class[off:i])
		l.off--
		i--
	default:
		copy(l.key[i+1:], l.key[i:n])
		copy(l.seq[i+1:], l.seq[i:n])
		copy(l.ask[i+1:], l.ask[i:n])
		copy(l.class[i+1:], l.class[i:n])
		l.n++
	}
	l.key[i], l.seq[i], l.ask[i], l.class[i] = key, e.Seq, ask{e.Limit, e.Procs, e.Slot}, uint8(c)
	l.live++
}

// cut takes out the job at position i.
func (l *leaf) cut(i int) {
	l.ask[i].procs, l.class[i] = gap, gapClass
	l.live--
	switch {
	case l.live == 0:
		l.off, l.n = 0, 0
	case i == int(l.off):
		for l.off++; l.ask[l.off].procs == gap; l.off++ {
		}
	case i == int(l.n)-1:
		for l.n--; l.ask[l.n-1].procs == gap; l.n-- {
		}
	}
}

// remove takes out a job and gives its width, or gap if it is not there.
func (l *leaf) remove(key uint64, seq int64) int32 {
	i := int(l.off)
	if i < int(l.n) && l.seq[i] != seq {
		i = l.at(key, seq)
	}
	if i >= int(l.n) || l.seq[i] != seq || l.key[i] != key || l.ask[i].procs == gap {
		return gap
	}
	procs := l.ask[i].procs
	l.cut(i)
	return procs
}

func (l *leaf) pop() Entry {
	i := int(l.off)
	e := l.entry(i)
	l.cut(i)
	return e
}

// take moves the jobs from position half on out of another leaf into this one, which is empty, and closes the gaps of both.
func (l *leaf) take(o *leaf, half int) {
	n := int(o.n)
	copy(l.key[:], o.key[half:n])
	copy(l.seq[:], o.seq[half:n])
	copy(l.ask[:], o.ask[half:n])
	copy(l.class[:], o.class[half:n])
	l.off, l.n = 0, int32(n-half)
	o.n = int32(half)
	l.count()
	o.count()
}

// count counts jobs anew and drops gaps at the ends.
func (l *leaf) count() {
	l.close()
	l.live = l.n
}

// append moves all jobs of the next leaf behind those of this one; there is room.
func (l *leaf) append(o *leaf) {
	l.close()
	o.close()
	copy(l.key[l.n:], o.key[:o.n])
	copy(l.seq[l.n:], o.seq[:o.n])
	copy(l.ask[l.n:], o.ask[:o.n])
	copy(l.class[l.n:], o.class[:o.n])
	l.n += o.n
	l.live = l.n
}

// lanes is a one in each of eight bytes.
const lanes = 0x0101010101010101

// between marks, by its highest bit, each of eight classes at position i and beyond that lies within lo and hi. Positions beyond the
// last job may be marked too.
func (l *leaf) between(i int, lo, hi uint64) uint64 {
	w := binary.LittleEndian.Uint64(l.class[i:])
	return (w + (128-lo)*lanes) &^ (w + (127-hi)*lanes) & (128 * lanes)
}

// least computes the squeezed shortest limit in a class anew.
func (l *leaf) least(c int) uint32 {
	v := uint32(nobody)
	for at := int(l.off) &^ 7; at < int(l.n); at += 8 {
		for m := l.between(at, uint64(c), uint64(c)); m != 0; m &= m - 1 {
			if i := at + bits.TrailingZeros64(m)/8; i < int(l.n) {
				v = min(v, squeeze(l.ask[i].limit))
			}
		}
	}
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
