// Package queue holds the structures that keep a scheduling pass cheap when many jobs wait: Index, the waiting queue in
// some fixed order, which can be swept for the jobs that may be backfilled, and Profile, the free processors over time.
package queue

import (
	"math"
	"math/bits"
	"slices"
)

// Entry is one waiting job in an Index, ordered by Key and then Seq. Seq is unique.
type Entry struct {
	Key   float64
	Seq   int64
	Limit int64
	Procs int32
	Slot  int32 // the owner's handle
}

// Index is a B+ tree of waiting jobs. An inner node knows, for each of its children and each class of widths, the shortest time
// limit there, so that Sweep can skip subtrees in which nobody fits: insertion and removal cost O(log n), and so does finding the
// next job that fits, but for subtrees whose only short job lies in the class of the bound itself and is too wide.
//
// The summaries are lower bounds: a removal leaves them alone, and a search that finds nothing in a child tightens them.
// A short queue is one larger leaf, without summaries.
type Index struct {
	n       int
	classes int
	root    *inner // nil while all jobs are in one leaf,
	only    *leaf  // which is this one
	spare   *leaf  // to use again as the only one
	leaves  []*leaf
	inners  []*inner // to use again, as leaves are
	visits  int64
	widths  [maxClasses]int32 // jobs of each class
	present uint64            // classes that have any
	search  search            // the sweep under way
	round   int64             // of sweeps with one promise
}

const fanout = 32

// inner is a node of the tree with n children: leaves at the bottom, else inner nodes.
type inner struct {
	n      int
	bottom bool
	// low bounds what child i holds from below (child 0's is not used).
	low    [fanout]uint64
	lowSeq [fanout]int64
	leaves [fanout]*leaf
	kids   [fanout]*inner
	summary
}

// NewIndex makes an index for a machine of so many processors; wider jobs are allowed and found more slowly.
func NewIndex(procs int32) *Index {
	x := &Index{classes: min(class(max(procs, 1))+2, maxClasses)}
	x.only = newLeaf(onlyCap, x.classes)
	x.search.x, x.round = x, 1
	return x
}

// Len is the number of jobs in the index.
func (x *Index) Len() int { return x.n }

// left counts a job of a class out.
func (x *Index) left(c int) {
	x.widths[c]--
	x.present &^= (uint64(x.widths[c]) - 1) >> 63 << (c & 63) // if it was the last
}

// Visits counts the nodes that insertions, removals and sweeps have looked into so far: what they cost, on any machine.
func (x *Index) Visits() int64 { return x.visits }

// ordered turns a float into a whole number of the same order.
func ordered(key float64) uint64 {
	b := math.Float64bits(key + 0) // the sum makes −0 a 0
	return b ^ (uint64(int64(b)>>63) | 1<<63)
}

// unordered is the inverse of ordered.
func unordered(k uint64) float64 {
	return math.Float64frombits(k ^ (^uint64(int64(k)>>63) | 1<<63))
}

func (x *Index) newLeaf() *leaf {
	if k := len(x.leaves); k > 0 {
		l := x.leaves[k-1]
		x.leaves = x.leaves[:k-1]
		l.clear()
		return l
	}
	return newLeaf(leafCap, x.classes)
}

func (x *Index) newInner(bottom bool) *inner {
	var in *inner
	if k := len(x.inners); k > 0 {
		in = x.inners[k-1]
		x.inners = x.inners[:k-1]
	} else {
		in = &inner{summary: summary{shortest: make([]uint32, x.classes*fanout)}}
	}
	in.n, in.bottom = 0, bottom
	return in
}

// Min gives the first job in order.
func (x *Index) Min() (Entry, bool) {
	if x.n == 0 {
		return Entry{}, false
	}
	l := x.only
	if x.root != nil {
		in := x.root
		for !in.bottom {
			in = in.kids[0]
		}
		l = in.leaves[0]
	}
	return l.entry(int(l.off)), true
}

// child is the last child whose bound is not after (key, seq).
func (in *inner) child(key uint64, seq int64) int {
	n := in.n
	i := n - 1
	if in.low[i] >= key {
		i = 0
		for _, k := range in.low[1:n] {
			_, less := bits.Sub64(k, key, 0) // without a branch, which would be mispredicted
			i += int(less)
		}
	}
	for i+1 < n && in.low[i+1] == key && in.lowSeq[i+1] <= seq {
		i++
	}
	return i
}

// Insert adds a job. Its (Key, Seq) must not be in the index yet.
func (x *Index) Insert(e Entry) {
	x.n++
	c := x.class(e.Procs)
	x.widths[c]++
	x.present |= 1 << c
	key := ordered(e.Key)
	if x.root == nil {
		x.visits++
		if x.only.room() {
			x.only.put(x.only.at(key, e.Seq), key, &e, c)
			return
		}
		x.grow()
	}
	if x.root.n == fanout {
		top := x.newInner(false)
		top.n, top.kids[0] = 1, x.root
		x.root = top
		x.splitInner(top, 0)
	}
	short := squeeze(e.Limit)
	for in := x.root; ; {
		x.visits++
		i := in.child(key, e.Seq)
		if in.bottom {
			l := in.leaves[i]
			if !l.room() {
				x.splitLeaf(in, i, l.at(key, e.Seq) == int(l.n))
				i = in.child(key, e.Seq)
				l = in.leaves[i]
			}
			x.visits++
			in.widen(i, short, c, x.classes)
			l.put(l.at(key, e.Seq), key, &e, c)
			return
		}
		if in.kids[i].n == fanout {
			x.splitInner(in, i)
			i = in.child(key, e.Seq)
		}
		in.widen(i, short, c, x.classes)
		in = in.kids[i]
	}
}

// grow puts the jobs of the only leaf into ordinary ones below a root, each half full.
func (x *Index) grow() {
	o := x.only
	o.close()
	in := x.newInner(true)
	for o.n > 0 {
		const half = leafCap / 2
		l, i := x.newLeaf(), in.n
		l.take(o, max(int(o.n)-half, 0))
		in.leaves[i] = l
		in.n++
	}
	slices.Reverse(in.leaves[:in.n]) // they were taken from the end
	for i := range in.n {
		in.low[i], in.lowSeq[i] = in.leaves[i].key[0], in.leaves[i].seq[0]
		x.summariseLeaf(in, i)
	}
	x.spare, x.only, x.root = o, nil, in
}

// gather puts all jobs, which are few, back into one leaf.
func (x *Index) gather() {
	x.only, x.spare = x.spare, nil
	x.only.clear()
	x.collect(x.root)
	x.root = nil
}

// collect moves the jobs below a node to the end of the only leaf and keeps the nodes to use them again.
func (x *Index) collect(in *inner) {
	for i := range in.n {
		if in.bottom {
			x.only.append(in.leaves[i])
			x.leaves = append(x.leaves, in.leaves[i])
		} else {
			x.collect(in.kids[i])
		}
	}
	clear(in.leaves[:])
	clear(in.kids[:])
	x.inners = append(x.inners, in)
}

// open makes room for a child at i.
func (x *Index) open(in *inner, i int) {
	n := in.n
	copy(in.low[i+1:n+1], in.low[i:n])
	copy(in.lowSeq[i+1:n+1], in.lowSeq[i:n])
	copy(in.leaves[i+1:n+1], in.leaves[i:n])
	copy(in.kids[i+1:n+1], in.kids[i:n])
	in.summary.open(i, n, x.classes)
	in.n++
}

// drop takes child i out, which is empty.
func (x *Index) drop(in *inner, i int) {
	if in.bottom {
		x.leaves = append(x.leaves, in.leaves[i])
	} else {
		x.inners = append(x.inners, in.kids[i])
	}
	n := in.n
	copy(in.low[i:n-1], in.low[i+1:n])
	copy(in.lowSeq[i:n-1], in.lowSeq[i+1:n])
	copy(in.leaves[i:n-1], in.leaves[i+1:n])
	copy(in.kids[i:n-1], in.kids[i+1:n])
	in.summary.drop(i, n, x.classes)
	in.n--
	in.leaves[in.n], in.kids[in.n] = nil, nil
}

// splitLeaf divides a full leaf in two. Before an append it stays whole and a new one begins: queues in order of arrival stay dense.
// The node has room for another child.
func (x *Index) splitLeaf(in *inner, i int, atEnd bool) {
	l, r := in.leaves[i], x.newLeaf()
	half := int(l.n) / 2
	if atEnd {
		half = int(l.n) - 1 // a leaf is never empty: the last one goes along
	}
	r.take(l, half)
	x.open(in, i+1)
	in.leaves[i+1], in.kids[i+1] = r, nil
	in.low[i+1], in.lowSeq[i+1] = r.key[0], r.seq[0]
	x.summariseLeaf(in, i)
	x.summariseLeaf(in, i+1)
}

// splitInner divides the full child i of a node that has room for another.
func (x *Index) splitInner(in *inner, i int) {
	const half = fanout / 2
	l, r := in.kids[i], x.newInner(in.kids[i].bottom)
	copy(r.low[:], l.low[half:])
	copy(r.lowSeq[:], l.lowSeq[half:])
	copy(r.leaves[:], l.leaves[half:])
	copy(r.kids[:], l.kids[half:])
	clear(l.leaves[half:])
	clear(l.kids[half:])
	r.summary.take(&l.summary, half, x.classes)
	l.n, r.n = half, fanout-half
	x.open(in, i+1)
	in.kids[i+1], in.leaves[i+1] = r, nil
	in.low[i+1], in.lowSeq[i+1] = r.low[0], r.lowSeq[0]
	x.summariseInner(in, i)
	x.summariseInner(in, i+1)
}

// Remove takes a job out and says whether it was there.
func (x *Index) Remove(key float64, seq int64) bool {
	k := ordered(key)
	if x.root == nil {
		x.visits++
		c := x.only.remove(k, seq)
		if c < 0 {
			return false
		}
		x.left(c)
		x.n--
		return true
	}
	if !x.remove(x.root, k, seq) {
		return false
	}
	x.n--
	x.settle()
	return true
}

func (x *Index) remove(in *inner, key uint64, seq int64) bool {
	x.visits++
	i := in.child(key, seq)
	if in.bottom {
		x.visits++
		c := in.leaves[i].remove(key, seq)
		if c < 0 {
			return false
		}
		x.left(c)
	} else if !x.remove(in.kids[i], key, seq) {
		return false
	}
	in.stale[i] = true
	x.thinned(in, i)
	return true
}

// thinned is called when something has been taken out of child i, which may be empty or small now. It says whether the children
// from i on have moved down by one.
func (x *Index) thinned(in *inner, i int) (moved bool) {
	if !in.bottom {
		if in.kids[i].n > 0 {
			return false
		}
	} else if live := in.leaves[i].live; live >= leafCap/4 {
		return false
	} else if live > 0 {
		return x.join(in, i)
	}
	x.drop(in, i)
	return true
}

// join empties leaf i+1 (or i into i−1) into its neighbour where both are nearly empty, so that leaves stay filled.
func (x *Index) join(in *inner, i int) bool {
	if i+1 >= in.n {
		i--
	}
	if i < 0 {
		return false
	}
	a, b := in.leaves[i], in.leaves[i+1]
	if a.live+b.live > leafCap/2 {
		return false
	}
	a.append(b)
	x.summariseLeaf(in, i)
	x.drop(in, i+1)
	return true
}

// PopMin takes out the first job in order.
func (x *Index) PopMin() (Entry, bool) {
	if x.n == 0 {
		return Entry{}, false
	}
	x.n--
	if x.root == nil {
		x.visits++
		e, c := x.only.pop()
		x.left(c)
		return e, true
	}
	e := x.popMin(x.root)
	x.settle()
	return e, true
}

func (x *Index) popMin(in *inner) (e Entry) {
	x.visits++
	if in.bottom {
		x.visits++
		var c int
		e, c = in.leaves[0].pop()
		x.left(c)
	} else {
		e = x.popMin(in.kids[0])
	}
	in.stale[0] = true
	x.thinned(in, 0)
	return e
}

// settle shrinks the tree after removals.
func (x *Index) settle() {
	if x.n <= onlyCap/4 {
		x.gather()
		return
	}
	for x.root.n == 1 && !x.root.bottom {
		top := x.root
		x.root = top.kids[0]
		clear(top.kids[:])
		x.inners = append(x.inners, top)
	}
}

// Each visits all jobs in order until visit returns false.
func (x *Index) Each(visit func(Entry) bool) {
	if x.root == nil {
		x.only.each(visit)
		return
	}
	x.root.each(visit)
}

func (in *inner) each(visit func(Entry) bool) bool {
	for i := range in.n {
		if in.bottom && !in.leaves[i].each(visit) || !in.bottom && !in.kids[i].each(visit) {
			return false
		}
	}
	return true
}
