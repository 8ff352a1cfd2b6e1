package rerank

import (
	"cmp"
	"math"
	"slices"
)

// Waiting is a job that waits, with what its place is decided by. All numbers are points of priority.
type Waiting struct {
	ID int64
	// Priority is slurmctld's, Factor the part of it that is the job's site factor.
	Priority, Factor int64
	// Boost is the site factor that the policy would give it.
	Boost int64
}

// natural is the job's priority without a site factor.
func (w *Waiting) natural() int64 { return w.Priority - w.Factor }

// Change is a site factor to write.
type Change struct {
	ID     int64
	Factor int64
}

// plan says which site factors to write so that the jobs are in the order of their natural priorities plus their boosts, the
// head of that order first. As many jobs as possible keep theirs; a job that moves gets one between its new neighbours', as
// near to its boost as they leave room, within 0 and bound. Of equal priorities the earlier job goes first, as in slurmctld.
// jobs is sorted by where they stand now.
func plan(jobs []Waiting, bound int64) []Change {
	slices.SortFunc(jobs, func(a, b Waiting) int { return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID)) })
	goal := func(j *Waiting) int64 { return j.natural() + min(max(j.Boost, 0), bound) }
	wanted := make([]*Waiting, len(jobs))
	for i := range jobs {
		wanted[i] = &jobs[i]
	}
	slices.SortFunc(wanted, func(a, b *Waiting) int { return cmp.Or(cmp.Compare(goal(b), goal(a)), cmp.Compare(a.ID, b.ID)) })

	stays := keep(wanted, bound)
	floor := make([]int64, len(wanted)) // the least priority that leaves room for all behind
	for at := len(wanted) - 1; at >= 0; at-- {
		if floor[at] = wanted[at].Priority; !stays[at] {
			floor[at] = wanted[at].natural()
			if at+1 < len(wanted) {
				floor[at] = max(floor[at], floor[at+1]+gap(wanted[at], wanted[at+1]))
			}
		}
	}
	var changes []Change
	var ahead int64
	for at, j := range wanted {
		to := j.Priority
		if !stays[at] {
			if to = goal(j); at > 0 {
				to = min(to, ahead-gap(wanted[at-1], j))
			}
			to = max(to, floor[at])
			if factor := to - j.natural(); factor != j.Factor {
				changes = append(changes, Change{j.ID, factor})
			}
		}
		ahead = to
	}
	return changes
}

// gap is how much more priority a needs to go before b.
func gap(a, b *Waiting) int64 {
	if a.ID < b.ID {
		return 0
	}
	return 1
}

// keep marks the jobs of the order, as many as possible, that can keep their priorities while each of the others gets one within its
// bound. (All others at their goals are in order, so that there is always an answer.) It is the longest chain of jobs of which each
// leaves room for those between it and the next, found from the head to the tail: n² steps.
func keep(order []*Waiting, bound int64) []bool {
	n := len(order)
	length, before := make([]int, n+1), make([]int, n+1) // of the longest chain that ends here; n is the end of the order
	for b := range n + 1 {
		length[b], before[b] = math.MinInt, -1
		if b < n && (order[b].Factor < 0 || order[b].Factor > bound) {
			continue
		}
		// From b to the head: floor is the least priority that at+1 can have.
		floor := int64(math.MinInt64 / 2)
		if b < n {
			floor = order[b].Priority
		}
		at := b - 1
		for ; at >= 0; at-- {
			j, above := order[at], floor
			if at+1 < n {
				above += gap(j, order[at+1])
			}
			if j.Priority >= above && length[at]+1 > length[b] && length[at] > 0 {
				length[b], before[b] = length[at]+1, at
			}
			if floor = max(j.natural(), above); floor > j.natural()+bound {
				break
			}
		}
		if at < 0 && length[b] < 1 { // all before it move
			length[b] = 1
		}
	}
	stays := make([]bool, n)
	for at := before[n]; at >= 0; at = before[at] {
		stays[at] = true
	}
	return stays
}
