// Package queue holds the structures that keep a scheduling pass cheap when many jobs wait: Index, the waiting queue in
// some fixed order, searchable for the first job that may be backfilled, and Profile, the free processors over time.
package queue

import (
	"math"
	"math/bits"
)

// Entry is one waiting job in an Index, ordered by Key and then Seq. Seq is unique.
type Entry struct {
	Key   float64
	Seq   int64
	Limit int64
	Procs int32
	Slot  int32 // the owner's handle
}

func (e *Entry) before(key float64, seq int64) bool {
	return e.Key < key || e.Key == key && e.Seq < seq
}

const (
	leafCap  = 64
	fanout   = 32
	maxClass = 24 // widths up to 2^23 are told apart; wider ones share the last class
)

// class is the power of two at or above a width: 1→0, 2→1, 3..4→2 and so on.
func class(procs int32) int {
	return min(bits.Len32(uint32(procs-1)), maxClass-1)
}

// class is the class of a width in this index: the last one holds all widths from there on.
func (x *Index) class(procs int32) int { return min(class(procs), x.classes-1) }

// Index is a B+ tree of waiting jobs. Every node knows, for each class of widths, the shortest time limit below it, so that
// First can skip subtrees in which nobody fits: insertion and removal cost O(log n), and so does a search, but for subtrees
// whose only short job lies in the class of the bound itself and is too wide.
//
// The summaries are lower bounds: a removal leaves them alone, and a search that finds nothing in a node tightens them.
type Index struct {
	root    *node
	n       int
	classes int
	spare   []*node // leaves to use again
}

type node struct {
	n        int32
	off      int32 // a leaf's entries are ents[off : off+n]
	stale    uint8 // removals since the summary: 0 none, 1 some, 2 some, and a search has failed here
	minProcs int32
	shortest [maxClass]int64 // shortest[c]: the shortest limit among jobs of class c or lower
	ents     []Entry         // a leaf has entries,
	kids     []*node         // an inner node children,
	low      []bound         // and a bound below which child i holds nothing (low[0] is not used)
}

type bound struct {
	key float64
	seq int64
}

// NewIndex makes an index for a machine of so many processors; wider jobs are allowed and found more slowly.
func NewIndex(procs int32) *Index {
	x := &Index{classes: min(class(max(procs, 1))+2, maxClass)}
	x.root = x.leaf()
	return x
}

func (x *Index) leaf() *node {
	if k := len(x.spare); k > 0 {
		l := x.spare[k-1]
		x.spare = x.spare[:k-1]
		l.reset()
		return l
	}
	l := &node{ents: make([]Entry, leafCap)}
	l.reset()
	return l
}

func (nd *node) reset() {
	nd.n, nd.off, nd.stale, nd.minProcs = 0, 0, 0, math.MaxInt32
	for c := range nd.shortest {
		nd.shortest[c] = math.MaxInt64
	}
}

// Len is the number of jobs in the index.
func (x *Index) Len() int { return x.n }

// Min gives the first job in order.
func (x *Index) Min() (*Entry, bool) {
	if x.n == 0 {
		return nil, false
	}
	nd := x.root
	for nd.kids != nil {
		nd = nd.kids[0]
	}
	return &nd.ents[nd.off], true
}

// Insert adds a job. Its (Key, Seq) must not be in the index yet.
func (x *Index) Insert(e Entry) {
	x.n++
	right, at := x.insert(x.root, &e)
	if right == nil {
		return
	}
	top := &node{kids: make([]*node, fanout), low: make([]bound, fanout)}
	top.reset()
	top.kids[0], top.kids[1], top.low[1], top.n = x.root, right, at, 2
	x.summarise(top)
	x.root = top
}

func (x *Index) widen(nd *node, e *Entry) {
	nd.minProcs = min(nd.minProcs, e.Procs)
	for c := x.class(e.Procs); c < x.classes; c++ {
		if e.Limit >= nd.shortest[c] {
			break // shortest is non-increasing in c: nothing further changes
		}
		nd.shortest[c] = e.Limit
	}
}

func (x *Index) insert(nd *node, e *Entry) (*node, bound) {
	x.widen(nd, e)
	if nd.kids == nil {
		return x.insertLeaf(nd, e)
	}
	i := nd.child(e.Key, e.Seq)
	right, at := x.insert(nd.kids[i], e)
	if right == nil {
		return nil, bound{}
	}
	var split *node
	var splitAt bound
	if nd.n == fanout {
		split = &node{kids: make([]*node, fanout), low: make([]bound, fanout)}
		const half = fanout / 2
		copy(split.kids, nd.kids[half:])
		copy(split.low, nd.low[half:])
		clear(nd.kids[half:])
		splitAt = nd.low[half]
		split.n, nd.n = fanout-half, half
		if i >= half {
			split.addKid(i-half+1, right, at)
		} else {
			nd.addKid(i+1, right, at)
		}
		x.summarise(split)
		x.summarise(nd)
		return split, splitAt
	}
	nd.addKid(i+1, right, at)
	return nil, bound{}
}

func (nd *node) addKid(i int, kid *node, at bound) {
	copy(nd.kids[i+1:nd.n+1], nd.kids[i:nd.n])
	copy(nd.low[i+1:nd.n+1], nd.low[i:nd.n])
	nd.kids[i], nd.low[i] = kid, at
	nd.n++
}

// child is the last child whose bound is not after (key, seq).
func (nd *node) child(key float64, seq int64) int {
	lo, hi := 1, int(nd.n)
	for lo < hi {
		m := (lo + hi) / 2
		if b := &nd.low[m]; b.key < key || b.key == key && b.seq <= seq {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo - 1
}

// live is what a leaf holds.
func (nd *node) live() []Entry { return nd.ents[nd.off : nd.off+nd.n] }

// at is the first entry of a leaf that is not before (key, seq), counted from its first.
func (nd *node) at(key float64, seq int64) int {
	es := nd.live()
	lo, hi := 0, len(es)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if es[m].before(key, seq) {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// put makes room at position i of a leaf that is not full, moving the shorter side, and writes the entry there.
func (nd *node) put(i int, e *Entry) {
	room := int(nd.off+nd.n) < len(nd.ents)
	if nd.off > 0 && (!room || i < int(nd.n)/2) {
		copy(nd.ents[nd.off-1:], nd.ents[nd.off:int(nd.off)+i])
		nd.off--
	} else {
		es := nd.ents[nd.off : nd.off+nd.n+1]
		copy(es[i+1:], es[i:])
	}
	nd.n++
	nd.ents[int(nd.off)+i] = *e
}

// cut takes the entry at position i out of a leaf, moving the shorter side.
func (nd *node) cut(i int) {
	es := nd.live()
	if i < len(es)/2 {
		copy(es[1:i+1], es[:i])
		nd.off++
	} else {
		copy(es[i:], es[i+1:])
	}
	if nd.n--; nd.n == 0 {
		nd.off = 0
	}
}

func (x *Index) insertLeaf(nd *node, e *Entry) (*node, bound) {
	i := nd.at(e.Key, e.Seq)
	if nd.n < leafCap {
		nd.put(i, e)
		return nil, bound{}
	}
	// An append at the end leaves the full leaf as it is: queues in order of arrival stay dense.
	half := leafCap / 2
	if i == leafCap {
		half = leafCap
	}
	right := x.leaf()
	right.n = int32(copy(right.ents, nd.ents[half:]))
	nd.n = int32(half)
	if i >= half {
		right.put(i-half, e)
	} else {
		nd.put(i, e)
	}
	x.summarise(nd)
	x.summarise(right)
	return right, bound{right.ents[0].Key, right.ents[0].Seq}
}

// summarise computes a node's summary from what is directly below it.
func (x *Index) summarise(nd *node) {
	n, off := nd.n, nd.off
	nd.reset()
	nd.n, nd.off = n, off
	if nd.kids == nil {
		es := nd.live()
		for i := range es {
			e := &es[i]
			nd.minProcs = min(nd.minProcs, e.Procs)
			c := x.class(e.Procs)
			nd.shortest[c] = min(nd.shortest[c], e.Limit)
		}
		for c := 1; c < x.classes; c++ {
			nd.shortest[c] = min(nd.shortest[c], nd.shortest[c-1])
		}
		return
	}
	for _, k := range nd.kids[:n] {
		nd.minProcs = min(nd.minProcs, k.minProcs)
		for c := 0; c < x.classes; c++ {
			nd.shortest[c] = min(nd.shortest[c], k.shortest[c])
		}
	}
}

// Remove takes a job out and says whether it was there.
func (x *Index) Remove(key float64, seq int64) bool {
	if !x.remove(x.root, key, seq) {
		return false
	}
	x.n--
	x.settle()
	return true
}

func (x *Index) remove(nd *node, key float64, seq int64) bool {
	if nd.kids == nil {
		es, i := nd.live(), 0
		if len(es) > 0 && es[0].Seq != seq {
			i = nd.at(key, seq)
		}
		if i >= len(es) || es[i].Seq != seq || es[i].Key != key {
			return false
		}
		nd.cut(i)
		nd.stale = max(nd.stale, 1)
		return true
	}
	i := nd.child(key, seq)
	if !x.remove(nd.kids[i], key, seq) {
		return false
	}
	nd.stale = max(nd.stale, 1)
	if nd.kids[i].n == 0 {
		x.dropKid(nd, i)
	} else if nd.kids[i].kids == nil && nd.kids[i].n < leafCap/4 {
		x.join(nd, i)
	}
	return true
}

func (x *Index) dropKid(nd *node, i int) {
	if k := nd.kids[i]; k.kids == nil {
		x.spare = append(x.spare, k)
	}
	copy(nd.kids[i:nd.n-1], nd.kids[i+1:nd.n])
	copy(nd.low[i:nd.n-1], nd.low[i+1:nd.n])
	nd.n--
	nd.kids[nd.n] = nil
}

// join empties leaf i+1 (or i into i−1) into its neighbour where both are nearly empty, so that leaves stay filled.
func (x *Index) join(nd *node, i int) bool {
	if i+1 >= int(nd.n) {
		i--
	}
	if i < 0 {
		return false
	}
	a, b := nd.kids[i], nd.kids[i+1]
	if a.n+b.n > leafCap/2 {
		return false
	}
	copy(a.ents, a.live())
	copy(a.ents[a.n:], b.live())
	a.n, a.off = a.n+b.n, 0
	x.summarise(a)
	x.dropKid(nd, i+1)
	return true
}

// Fit says which jobs a search is looking for: those of at most Free processors that end within Window or need at most
// Extra processors.
type Fit struct {
	Free, Extra int32
	Window      int64
}

// First finds the first job in order that fits.
func (x *Index) First(f Fit) (Entry, bool) {
	return x.After(math.Inf(-1), math.MinInt64, f)
}

// After finds the first job after (key, seq) in order that fits.
func (x *Index) After(key float64, seq int64, f Fit) (Entry, bool) {
	if f.Extra > f.Free {
		f.Extra = f.Free
	}
	if f.Free <= 0 || x.n == 0 {
		return Entry{}, false
	}
	if e := x.search(x.root, key, seq, &f, x.class(f.Free)); e != nil {
		return *e, true
	}
	return Entry{}, false
}

func (nd *node) mayHold(f *Fit, c int) bool {
	return nd.shortest[c] <= f.Window && nd.minProcs <= f.Free || nd.minProcs <= f.Extra
}

func (x *Index) search(nd *node, key float64, seq int64, f *Fit, c int) *Entry {
	if !nd.mayHold(f, c) {
		return nil
	}
	if nd.kids == nil {
		es, i := nd.live(), 0
		if len(es) > 0 && es[0].before(key, seq+1) {
			i = nd.at(key, seq+1)
		}
		// One branch an entry, and a predictable one: the sign bit is set if the job is too wide, or both too long and too wide
		// for the extra processors.
		free, window, extra := int64(f.Free), f.Window, int64(f.Extra)
		for k := i; k < len(es); k++ {
			e := &es[k]
			w := int64(e.Procs)
			if (free-w)|((window-e.Limit)&(extra-w)) >= 0 {
				return e
			}
		}
	} else {
		i := 0
		if nd.n > 1 && seq != math.MinInt64 {
			i = nd.child(key, seq)
		}
		for ; i < int(nd.n); i++ {
			if e := x.search(nd.kids[i], key, seq, f, c); e != nil {
				return e
			}
		}
	}
	x.tighten(nd)
	return nil
}

// settle shrinks the tree after removals.
func (x *Index) settle() {
	for x.root.kids != nil && x.root.n == 1 {
		x.root = x.root.kids[0]
	}
	if x.n == 0 {
		if x.root.kids != nil {
			x.root = x.leaf()
		}
		x.root.reset()
	}
}

// Each visits all jobs in order until visit returns false.
func (x *Index) Each(visit func(*Entry) bool) { x.root.each(visit) }

func (nd *node) each(visit func(*Entry) bool) bool {
	if nd.kids == nil {
		es := nd.live()
		for i := range es {
			if !visit(&es[i]) {
				return false
			}
		}
		return true
	}
	for _, k := range nd.kids[:nd.n] {
		if !k.each(visit) {
			return false
		}
	}
	return true
}
