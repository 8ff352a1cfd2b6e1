package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Ranker gives waiting jobs their keys; the smallest goes first.
type Ranker interface {
	Name() string
	// Rank sets Key of every job given.
	Rank(v *View, jobs []*Job)
}

type orderRanker struct{ policy.Order }

func (o orderRanker) Rank(v *View, jobs []*Job) {
	for _, j := range jobs {
		j.Key = o.Key(&j.Request, v.Now())
	}
}

// ordered schedules without preemption: jobs start in order, and behind one that does not fit as backfill allows.
type ordered struct {
	rank     Ranker
	backfill policy.Backfill
	second   Ranker
	queue    []*Job
	byEnd    []*Job
	failed   map[int32]bool
}

// Ordered makes a scheduler of an order and a kind of backfill; second is the order of backfill candidates, nil for the same (it
// has no meaning under conservative backfill, where everybody has a reservation).
func Ordered(rank Ranker, b policy.Backfill, second Ranker) (Scheduler, error) {
	if b == policy.Conservative {
		if second != nil {
			return nil, fmt.Errorf("conservative backfill gives every job a reservation, in one order; leave out the second order")
		}
		return &conservative{rank: rank}, nil
	}
	return &ordered{rank: rank, backfill: b, second: second, failed: map[int32]bool{}}, nil
}

// FromDiscipline makes the scheduler of a discipline.
func FromDiscipline(d policy.Discipline) (Scheduler, error) {
	var second Ranker
	if d.BackfillOrder != nil {
		second = orderRanker{d.BackfillOrder}
	}
	return Ordered(orderRanker{d.Order}, d.Backfill, second)
}

// Name is the order and its backfill.
func (o *ordered) Name() string {
	if o.backfill == policy.None {
		return o.rank.Name()
	}
	return o.rank.Name() + "+" + o.backfill.String()
}

// Stopped passes on to the ranker what it may want to charge.
func (o *ordered) Stopped(v *View, j *Job) {
	if r, ok := o.rank.(Observer); ok {
		r.Stopped(v, j)
	}
}

func sortJobs(jobs []*Job) {
	slices.SortFunc(jobs, func(a, b *Job) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Seq, b.Seq)) })
}

// Pass starts what may start.
func (o *ordered) Pass(v *View) workload.Time {
	o.queue = append(o.queue[:0], v.e.waiting...)
	o.rank.Rank(v, o.queue)
	sortJobs(o.queue)
	i := 0
	for i < len(o.queue) && v.Start(o.queue[i]) {
		i++
	}
	if i == len(o.queue) || o.backfill == policy.None {
		return workload.Never
	}
	head := o.queue[i]
	rest := o.queue[i+1:]
	if len(rest) == 0 {
		return workload.Never
	}
	res := reservation{}
	if o.backfill == policy.EASY {
		o.byEnd = append(o.byEnd[:0], v.e.running...)
		now := v.Now()
		slices.SortFunc(o.byEnd, func(a, b *Job) int {
			return cmp.Or(cmp.Compare(a.EndsBy(now), b.EndsBy(now)), cmp.Compare(a.Seq, b.Seq))
		})
		res = v.Reserve(head, o.byEnd)
	}
	if o.second != nil {
		o.second.Rank(v, rest)
		sortJobs(rest)
	}
	clear(o.failed)
	// Ahead of maintenance a job's length decides with its shape, and nothing can be remembered.
	remember := len(v.e.cfg.Spec.Maintenance) == 0
	o.failed[head.shape] = remember
	for _, j := range rest {
		// What did not fit once does not fit again in this pass. Under EASY a shape may fail for its length alone, so that only
		// a lack of room is remembered.
		if o.failed[j.shape] {
			continue
		}
		if !v.Borrow(j, res) && !v.roomFor(j) {
			o.failed[j.shape] = remember
		}
	}
	return workload.Never
}

// roomFor repeats the test for room that a failed Borrow made.
func (v *View) roomFor(j *Job) bool { return !j.Running && v.e.fit(j) }
