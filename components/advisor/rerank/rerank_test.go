package rerank

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/advisor/rerank/lease"
	"github.com/berth-hpc/berth/components/advisor/service"
	"github.com/berth-hpc/berth/components/advisor/snapshot"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// queue stands for slurmctld: its jobs' priorities are a natural part and a site factor.
type queue struct {
	jobs    map[int64]*queued
	updates int
	fail    error
	ledger  string // must have a change before it comes
	t       *testing.T
}

type queued struct {
	natural, factor int64
	comment         string
	frozen, held    bool
}

func (q *queue) JobRecords(_ context.Context, id int64) ([]slurmrest.JobRecord, error) {
	j := q.jobs[id]
	if j == nil {
		return nil, nil
	}
	r := slurmrest.JobRecord{ID: id, States: []string{"PENDING"}, Priority: j.natural + j.factor, AdminComment: j.comment, Held: j.held}
	if j.frozen {
		r.Priority = j.natural
	}
	return []slurmrest.JobRecord{r}, nil
}

func (q *queue) UpdateJob(_ context.Context, id int64, u slurmrest.JobUpdate) error {
	if q.fail != nil {
		return q.fail
	}
	ledger, err := lease.Read(q.ledger)
	if err != nil {
		q.t.Error(err)
	}
	if rank, has := ledger.Jobs[id]; *u.SiteFactor != 0 && (!has || rank.Factor != *u.SiteFactor) {
		q.t.Errorf("job %d gets %d before the ledger says so: %+v", id, *u.SiteFactor, ledger)
	}
	q.updates++
	q.jobs[id].factor, q.jobs[id].comment = int64(*u.SiteFactor), *u.AdminComment
	return nil
}

// advice stands for the service: fixed points for each job.
type advice struct {
	ranking        service.Ranking
	order, written int
}

func (a *advice) Ranking() service.Ranking  { return a.ranking }
func (a *advice) Reranked(order, wrote int) { a.order, a.written = order, a.written+wrote }

// ranker makes one that has seen the queue's jobs; points are the policy's by job.
func ranker(t *testing.T, mode service.Mode, jobs map[int64]*queued, points map[int64]int) (*Ranker, *queue, *advice) {
	t.Helper()
	path := filepath.Join(t.TempDir(), lease.File)
	q := &queue{jobs: jobs, ledger: path, t: t}
	a := &advice{ranking: service.Ranking{Mode: mode, Checkpoint: "sha256:abc", Bound: 100, PerMinute: 100, Lease: time.Minute}}
	r := New(q, a, path, slog.New(slog.DiscardHandler))
	d := &snapshot.Delta{TakenAt: time.Now()}
	for id, j := range jobs {
		record := snapshot.Job{ID: id, State: "PENDING", Priority: j.natural + j.factor, Note: j.comment, Held: j.held}
		d.Jobs = append(d.Jobs, record)
		a.ranking.Jobs = append(a.ranking.Jobs, service.Ranked{Job: &record, Points: points[id]})
	}
	r.Observe(d)
	return r, q, a
}

func round(t *testing.T, r *Ranker, now time.Time) {
	t.Helper()
	if err := r.Round(t.Context(), now); err != nil {
		t.Fatal(err)
	}
}

// The job that the policy wants first passes the others by one change, and says why.
func TestRoundRanks(t *testing.T) {
	r, q, a := ranker(t, service.Live, map[int64]*queued{
		1: {natural: 30, comment: "by a person"}, 2: {natural: 20}, 3: {natural: 10, factor: 5, comment: "a word; advisor: boost=5 value=1 checkpoint=x took=1ms"},
	}, map[int64]int{3: 90})
	round(t, r, time.Now())
	if q.updates != 1 || q.jobs[3].factor != 90 || q.jobs[3].comment != "a word; advisor: rank=90 checkpoint=sha256:abc" {
		t.Errorf("%d updates, %+v", q.updates, q.jobs[3])
	}
	round(t, r, time.Now())
	if q.updates != 1 || a.order != 0 || a.written != 1 {
		t.Errorf("a second round made it %d updates, %+v", q.updates, a)
	}
	// The policy changes its mind: the rank goes with it.
	for i := range a.ranking.Jobs {
		a.ranking.Jobs[i].Points = 0
	}
	round(t, r, time.Now())
	if q.jobs[3].factor != 0 {
		t.Errorf("%+v", q.jobs[3])
	}
}

// Shadow, off and abstaining write nothing; nor is a job touched that is a person's.
func TestRoundHoldsBack(t *testing.T) {
	for name, change := range map[string]func(*advice, map[int64]*queued){
		"shadow":    func(a *advice, _ map[int64]*queued) { a.ranking.Mode = service.Shadow },
		"off":       func(a *advice, _ map[int64]*queued) { a.ranking.Mode = service.Off },
		"stale":     func(a *advice, _ map[int64]*queued) { a.ranking.Abstain = service.ReasonStale },
		"no budget": func(a *advice, _ map[int64]*queued) { a.ranking.PerMinute = 0 },
		"held since": func(_ *advice, jobs map[int64]*queued) {
			jobs[2].held = true
		},
		"marked since": func(_ *advice, jobs map[int64]*queued) { jobs[2].comment = "advisor: left alone (priority set)" },
		"nice": func(a *advice, _ map[int64]*queued) {
			for i := range a.ranking.Jobs {
				a.ranking.Jobs[i].Job.Nice = 3
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			jobs := map[int64]*queued{1: {natural: 20}, 2: {natural: 10}}
			r, q, a := ranker(t, service.Live, jobs, map[int64]int{2: 90})
			change(a, jobs)
			round(t, r, time.Now())
			if _, err := os.Stat(r.Ledger); q.updates != 0 || !os.IsNotExist(err) {
				t.Errorf("%d updates, ledger %v", q.updates, err)
			}
		})
	}
}

// A job whose priority does not follow its site factor is somebody's: it is left as it was, and marked.
func TestFrozenPriority(t *testing.T) {
	r, q, _ := ranker(t, service.Live, map[int64]*queued{1: {natural: 20}, 2: {natural: 10, frozen: true}}, map[int64]int{2: 90})
	round(t, r, time.Now())
	round(t, r, time.Now())
	if q.updates != 2 || q.jobs[2].factor != 0 || q.jobs[2].comment != "advisor: left alone (priority set)" {
		t.Errorf("%d updates, %+v", q.updates, q.jobs[2])
	}
	if ledger, err := lease.Read(r.Ledger); err != nil || len(ledger.Jobs) != 0 {
		t.Errorf("%+v %v", ledger, err)
	}
}

// No more changes a minute than the site allows, the head of the order first.
func TestBudget(t *testing.T) {
	r, q, a := ranker(t, service.Live, map[int64]*queued{1: {natural: 50}, 2: {natural: 40}, 3: {natural: 30}}, map[int64]int{2: 80, 3: 100})
	a.ranking.PerMinute = 1
	now := time.Now()
	round(t, r, now)
	if q.updates != 1 || q.jobs[3].factor == 0 {
		t.Errorf("%d updates, %+v", q.updates, q.jobs[3])
	}
	round(t, r, now.Add(30*time.Second))
	if q.updates != 1 {
		t.Errorf("%d updates within a minute", q.updates)
	}
}

// Ranks are renewed as long as the policy stands by them, and by nobody when it abstains or the lease has run out. A ranker that
// starts anew goes on from the ledger.
func TestLease(t *testing.T) {
	r, q, a := ranker(t, service.Live, map[int64]*queued{1: {natural: 20}, 2: {natural: 10}}, map[int64]int{2: 90})
	now := time.Now()
	round(t, r, now)
	until := func() time.Time {
		t.Helper()
		ledger, err := lease.Read(r.Ledger)
		if err != nil || len(ledger.Jobs) != 1 {
			t.Fatalf("%+v %v", ledger, err)
		}
		return ledger.Until
	}
	first := until()
	again := New(q, a, r.Ledger, slog.New(slog.DiscardHandler))
	again.Observe(&snapshot.Delta{TakenAt: now, Jobs: []snapshot.Job{{ID: 1, State: "PENDING", Priority: 20}, {ID: 2, State: "PENDING", Priority: 100, Note: q.jobs[2].comment}}})
	round(t, again, now.Add(40*time.Second))
	if second := until(); q.updates != 1 || second.Sub(first) < 35*time.Second {
		t.Errorf("%d updates; held until %s, then until %s", q.updates, first, second)
	}
	a.ranking.Abstain = service.ReasonStale
	second := until()
	round(t, again, now.Add(80*time.Second))
	if until() != second {
		t.Error("renewed though the advisor abstains")
	}
	a.ranking.Abstain = ""
	if err := again.Round(t.Context(), second.Add(time.Second)); err == nil || !strings.Contains(err.Error(), "ran out") {
		t.Errorf("a round after the lease: %v", err)
	}
	// A job that waits no more is nobody's to take back.
	again.Observe(&snapshot.Delta{TakenAt: now, Gone: []int64{2}})
	a.ranking.Jobs = a.ranking.Jobs[:0]
	round(t, again, second.Add(-time.Second))
	if _, err := os.Stat(r.Ledger); !os.IsNotExist(err) {
		t.Errorf("the ledger is still there: %v", err)
	}
}

// slurmctld that does not answer ends the round; the ledger has what may have been written.
func TestUpdateFails(t *testing.T) {
	r, q, _ := ranker(t, service.Live, map[int64]*queued{1: {natural: 20}, 2: {natural: 10}}, map[int64]int{2: 90})
	q.fail = errors.New("connection refused")
	if err := r.Round(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
	if ledger, err := lease.Read(r.Ledger); err != nil || ledger.Jobs[2].Factor != 90 {
		t.Errorf("%+v %v", ledger, err)
	}
}
