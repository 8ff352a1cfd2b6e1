// Package rerank gives waiting jobs ranks among each other: at submission nobody knows what will queue behind a job. On changes of
// the queue it asks the policy about all waiting jobs together and rewrites their site factors, within the site's bound and
// only where the order changes. It knows the policy only through what the service says; what it has written holds by a lease
// (package lease), which the guard ends when the ranker does not renew it.
package rerank

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-hpc/berth/components/advisor/rerank/lease"
	"github.com/berth-hpc/berth/components/advisor/service"
	"github.com/berth-hpc/berth/components/advisor/snapshot"
	"github.com/berth-hpc/berth/components/slurmrest"
)

const (
	// pace is the least time between two rounds.
	pace = 3 * time.Second
	// fresh is how long a priority counts as known: slurmctld computes ages anew every PriorityCalcPeriod, five minutes unless
	// the site says otherwise.
	fresh = time.Minute
	// candidates bounds the jobs that are ranked, from the head of the queue; the rest waits behind them anyway.
	candidates = 256
	// refreshed bounds the jobs that are asked for in a round, 8 KB each.
	refreshed = 32
)

// Slurm is what the ranker asks and changes; slurmrest.Client is one.
type Slurm interface {
	JobRecords(ctx context.Context, id int64) ([]slurmrest.JobRecord, error)
	UpdateJob(ctx context.Context, id int64, update slurmrest.JobUpdate) error
}

// Advisor says what the policy thinks of the jobs that wait; service.Service is one.
type Advisor interface {
	Ranking() service.Ranking
	Reranked(order, written int)
}

// Ranker is the loop. Observe may be called from another goroutine than Run.
type Ranker struct {
	Slurm   Slurm
	Advisor Advisor
	// Ledger is the path of the ranks in force.
	Ledger string
	Log    *slog.Logger

	mu      sync.Mutex
	known   map[int64]known
	changed chan struct{}

	untouchable map[int64]bool // jobs whose priority does not follow their site factor
	spent       []time.Time    // when the last changes were made, within a minute
	shown       string         // the order that was logged last
}

// known is a waiting job's record as slurmctld last told it.
type known struct {
	priority int64
	comment  string
	at       time.Time
}

// New makes a ranker.
func New(slurm Slurm, advisor Advisor, ledger string, log *slog.Logger) *Ranker {
	return &Ranker{
		Slurm: slurm, Advisor: advisor, Ledger: ledger, Log: log,
		known: map[int64]known{}, changed: make(chan struct{}, 1), untouchable: map[int64]bool{},
	}
}

// Observe takes a change of the snapshot: the records in it are fresh.
func (r *Ranker) Observe(d *snapshot.Delta) {
	r.mu.Lock()
	for i := range d.Jobs {
		if j := &d.Jobs[i]; j.Pending() && !j.Held {
			r.known[j.ID] = known{j.Priority, j.Note, d.TakenAt}
		} else {
			delete(r.known, j.ID)
		}
	}
	for _, id := range d.Gone {
		delete(r.known, id)
	}
	r.mu.Unlock()
	if len(d.Jobs)+len(d.Gone) > 0 {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
}

// Run ranks on every change of the queue, and often enough for the lease, until the context ends. What stands then runs out.
func (r *Ranker) Run(ctx context.Context) {
	told := ""
	for {
		err := r.Round(ctx, time.Now())
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			told = ""
		case err.Error() != told:
			told = err.Error()
			r.Log.Warn("jobs could not be ranked", "why", told)
		}
		if !sleep(ctx, pace) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		case <-time.After(pace): // ages and fair shares change without a change of the queue
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Round ranks once.
func (r *Ranker) Round(ctx context.Context, now time.Time) error {
	ranking := r.Advisor.Ranking()
	if ranking.Mode == service.Off || ranking.Abstain != "" {
		// Nothing is renewed: what stands runs out.
		return nil
	}
	ledger, err := lease.Read(r.Ledger)
	if err != nil {
		return err
	}
	if len(ledger.Jobs) > 0 && !now.Before(ledger.Until) {
		// The lease ran out, and the guard may be ending it at this moment.
		return errors.New("the lease of the ranks ran out; they are ranked again when they have been taken back")
	}
	jobs := r.waiting(&ranking, ledger)
	if err := r.refresh(ctx, jobs, now); err != nil {
		return err
	}
	jobs = r.waiting(&ranking, ledger)
	queue := make([]Waiting, len(jobs))
	for i := range jobs {
		queue[i] = jobs[i].Waiting
	}
	changes := plan(queue, int64(ranking.Bound))
	r.show(&ranking, queue, changes)
	if ranking.Mode != service.Live {
		r.Advisor.Reranked(len(changes), 0)
		return nil
	}
	if err := r.renew(ledger, &ranking, now); err != nil {
		return err
	}
	written := 0
	for _, c := range changes {
		if !r.mayWrite(now, ranking.PerMinute) {
			break
		}
		did, err := r.write(ctx, ledger, &ranking, c)
		if err != nil {
			return err
		}
		if did {
			written++
			r.spent = append(r.spent, now)
		}
	}
	r.Advisor.Reranked(len(changes), written)
	return nil
}

// job is a job that may be ranked, and when its priority was known.
type job struct {
	Waiting
	at time.Time
}

// waiting are the jobs at the head of the queue that may be ranked.
func (r *Ranker) waiting(ranking *service.Ranking, ledger *lease.Ledger) []job {
	r.mu.Lock()
	defer r.mu.Unlock()
	var jobs []job
	for _, ranked := range ranking.Jobs {
		k, has := r.known[ranked.Job.ID]
		if !has || r.untouchable[ranked.Job.ID] || leftAlone(k.comment) || ranked.Job.Nice != 0 || k.priority == 0 {
			continue
		}
		w := Waiting{ID: ranked.Job.ID, Priority: k.priority, Boost: int64(ranked.Points)}
		if rank, has := ledger.Jobs[w.ID]; has {
			w.Factor = int64(rank.Factor)
		} else {
			w.Factor = submitted(k.comment)
		}
		jobs = append(jobs, job{w, k.at})
	}
	slices.SortFunc(jobs, func(a, b job) int { return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID)) })
	return jobs[:min(len(jobs), candidates)]
}

// refresh asks for the records of jobs whose priorities are old, the oldest first.
func (r *Ranker) refresh(ctx context.Context, jobs []job, now time.Time) error {
	old := slices.DeleteFunc(slices.Clone(jobs), func(j job) bool { return now.Sub(j.at) < fresh })
	slices.SortFunc(old, func(a, b job) int { return a.at.Compare(b.at) })
	for _, j := range old[:min(len(old), refreshed)] {
		if _, err := r.look(ctx, j.ID); err != nil {
			return err
		}
	}
	return nil
}

// look asks for a job's record as it is now, and forgets the job if it does not wait any more.
func (r *Ranker) look(ctx context.Context, id int64) (known, error) {
	at := time.Now()
	records, err := r.Slurm.JobRecords(ctx, id)
	if err != nil {
		return known{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range records {
		if j := &records[i]; j.ID == id && len(j.States) > 0 && j.States[0] == "PENDING" && !j.Held {
			k := known{j.Priority, j.AdminComment, at}
			r.known[id] = k
			return k, nil
		}
	}
	delete(r.known, id)
	return known{}, nil
}

// show logs the order when it is another than before.
func (r *Ranker) show(ranking *service.Ranking, queue []Waiting, changes []Change) {
	if len(changes) == 0 {
		return
	}
	factors := map[int64]int64{}
	for _, c := range changes {
		factors[c.ID] = c.Factor
	}
	after := slices.Clone(queue)
	for i := range after {
		if f, is := factors[after[i].ID]; is {
			after[i].Priority = after[i].natural() + f
		}
	}
	slices.SortStableFunc(after, func(a, b Waiting) int { return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID)) })
	order := func(of []Waiting) string {
		var ids []string
		for i := range of[:min(len(of), 20)] {
			ids = append(ids, strconv.FormatInt(of[i].ID, 10))
		}
		return strings.Join(ids, " ")
	}
	text := order(after)
	if text == r.shown {
		return
	}
	r.shown = text
	r.Log.Info("ranked", "mode", string(ranking.Mode), "from", order(queue), "to", text, "changes", len(changes))
}

// renew writes down that the ranks go on to hold, for the jobs that still wait. Half a lease that is left is enough.
func (r *Ranker) renew(ledger *lease.Ledger, ranking *service.Ranking, now time.Time) error {
	r.mu.Lock()
	gone := 0
	for id := range ledger.Jobs {
		if _, waits := r.known[id]; !waits {
			delete(ledger.Jobs, id)
			gone++
		}
	}
	r.mu.Unlock()
	if gone == 0 && (len(ledger.Jobs) == 0 || ledger.Until.Sub(now) > ranking.Lease/2) {
		return nil
	}
	ledger.Until = now.Add(ranking.Lease)
	return ledger.Write(r.Ledger)
}

// mayWrite says whether one more change is within the site's number of changes a minute.
func (r *Ranker) mayWrite(now time.Time, perMinute int) bool {
	r.spent = slices.DeleteFunc(r.spent, func(t time.Time) bool { return now.Sub(t) >= time.Minute })
	return len(r.spent) < perMinute
}

// write gives a job another site factor: first in the ledger, then in slurmctld, and looks whether its priority follows.
func (r *Ranker) write(ctx context.Context, ledger *lease.Ledger, ranking *service.Ranking, c Change) (did bool, err error) {
	before, err := r.look(ctx, c.ID)
	if err != nil {
		return false, err
	}
	if before.at.IsZero() || leftAlone(before.comment) || before.priority == 0 {
		return false, nil
	}
	was := submitted(before.comment)
	if rank, has := ledger.Jobs[c.ID]; has {
		was = int64(rank.Factor)
	}
	base := without(before.comment)
	if ledger.Jobs == nil {
		ledger.Jobs = map[int64]lease.Rank{}
	}
	ledger.Jobs[c.ID] = lease.Rank{Factor: int(c.Factor), Comment: base}
	ledger.Until = time.Now().Add(ranking.Lease)
	if err := ledger.Write(r.Ledger); err != nil {
		return false, err
	}
	if err := r.set(ctx, c.ID, int(c.Factor), join(base, fmt.Sprintf("%s%d checkpoint=%s", rankWord, c.Factor, ranking.Checkpoint))); err != nil {
		return false, r.refused(c.ID, err)
	}
	after, err := r.look(ctx, c.ID)
	if err != nil || after.at.IsZero() || c.Factor == was {
		return true, err
	}
	if after.priority == before.priority {
		// A priority that somebody has set does not move: the job is theirs.
		r.untouchable[c.ID] = true
		delete(ledger.Jobs, c.ID)
		err = errors.Join(r.set(ctx, c.ID, 0, join(base, aloneWord+"(priority set)")), ledger.Write(r.Ledger))
	}
	return true, err
}

func (r *Ranker) set(ctx context.Context, id int64, factor int, comment string) error {
	return r.Slurm.UpdateJob(ctx, id, slurmrest.JobUpdate{SiteFactor: &factor, AdminComment: &comment})
}

// refused leaves a job alone whose change slurmctld refuses; other errors are the round's. The lease takes back what may
// have been written all the same.
func (r *Ranker) refused(id int64, err error) error {
	var why *slurmrest.APIError
	if !errors.As(err, &why) {
		return err
	}
	r.untouchable[id] = true
	r.Log.Warn("slurmctld refuses to rank a job; it is left alone", "job", id, "why", err.Error())
	return nil
}

// What the advisor writes into an administrator's comment; other parts, between "; ", are other people's. job_submit.lua writes
// the first and the last.
const (
	boostWord = "advisor: boost="
	rankWord  = "advisor: rank="
	aloneWord = "advisor: left alone "
)

// submitted is the site factor that the job got when it was submitted.
func submitted(comment string) int64 {
	if m := boostIn.FindStringSubmatch(comment); m != nil {
		if n, err := strconv.ParseInt(m[1], 10, 32); err == nil {
			return n
		}
	}
	return 0
}

var boostIn = regexp.MustCompile(`(?:^|; )` + regexp.QuoteMeta(boostWord) + `(\d+)`)

// leftAlone says that a person has set the job's priority, by job_submit.lua's word or the ranker's.
func leftAlone(comment string) bool { return strings.Contains(comment, aloneWord) }

// without is the comment without what the advisor said of boosts and ranks.
func without(comment string) string {
	parts := slices.DeleteFunc(strings.Split(comment, "; "), func(part string) bool {
		return part == "" || strings.HasPrefix(part, boostWord) || strings.HasPrefix(part, rankWord)
	})
	return strings.Join(parts, "; ")
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}
