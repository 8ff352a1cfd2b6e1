package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-hpc/berth/components/slurmrest"
)

// Slurm is what the agent asks; slurmrest.Client is one.
type Slurm interface {
	Nodes(ctx context.Context, since time.Time) (*slurmrest.NodeList, error)
	JobStates(ctx context.Context) ([]slurmrest.JobState, error)
	JobRecords(ctx context.Context, id int64) ([]slurmrest.JobRecord, error)
}

// Target takes what the agent found; a service does.
type Target interface {
	Snapshot(*Delta) error
}

// Agent keeps a target up to date with slurmctld. The list of all jobs' states, 60 bytes each, says which jobs changed; only
// those are asked for whole, 8 KB each, and no more than Batch in a round: the rest comes in the next. Jobs that wait are asked for
// again in turn, because a hold or another limit changes no state.
type Agent struct {
	Slurm  Slurm
	Target Target
	Log    *slog.Logger
	// Every is the time between two rounds; Batch bounds the whole jobs asked for in one (0: 10 s, 500).
	Every time.Duration
	Batch int
	// Changed, if set, is told of every delta that was delivered, in order.
	Changed func(*Delta)

	cluster string
	round   uint64
	asOf    time.Time
	version uint64 // last delivered
	nodes   map[string]Node
	jobs    map[int64]known
	backlog int

	mu    sync.Mutex
	stale map[int64]bool // jobs that are to be asked for again
}

// Bounds of the jobs that are asked for again in a round though the list of states tells of no change: quiet ones, and others that
// wait.
const (
	watched = 50
	checked = 20
)

// Refresh asks for a job again in the next round: somebody has changed it in a way that its state does not tell. It may be called
// from any goroutine.
func (a *Agent) Refresh(job int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stale == nil {
		a.stale = map[int64]bool{}
	}
	a.stale[job] = true
}

// known is a job as the agent last delivered it, and its states as the list had them then.
type known struct {
	job    []Job
	states string
	round  uint64 // in which it was read
}

// waits says that the job waits: somebody may hold it, or set its priority or its limit, and its state stays PENDING.
func (k *known) waits() bool {
	return slices.ContainsFunc(k.job, func(j Job) bool { return j.Pending() })
}

// quiet says that such a change is to be seen soon: held jobs are released, and others lose the nodes that they wait for.
func (k *known) quiet() bool {
	return slices.ContainsFunc(k.job, func(j Job) bool { return j.Pending() && (j.Held || j.Required != "") })
}

// Run makes rounds until the context ends. A round that fails is told and tried again; the target sees the age.
func (a *Agent) Run(ctx context.Context) {
	if a.Every <= 0 {
		a.Every = 10 * time.Second
	}
	if a.Batch <= 0 {
		a.Batch = 500
	}
	failing := false
	for {
		err := a.Round(ctx, time.Now())
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			a.Log.Warn("no new snapshot", "why", err.Error())
			failing = true
		case failing:
			a.Log.Info("snapshots come again", "version", a.version)
			failing = false
		}
		wait := a.Every
		if err == nil && a.backlog > 0 {
			wait = min(a.Every, time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// Round asks once and delivers what changed, be it only the time.
func (a *Agent) Round(ctx context.Context, now time.Time) error {
	d := &Delta{Schema: Schema, Base: a.version, TakenAt: now}
	nodes, err := a.changedNodes(ctx, d)
	if err != nil {
		return err
	}
	jobs, err := a.changedJobs(ctx, d)
	if err != nil {
		return err
	}
	d.Cluster = a.cluster
	// Versions are times, so that those of an agent that starts anew are larger.
	d.Version = max(a.version+1, uint64(now.UnixMilli()))
	err = a.Target.Snapshot(d)
	if errors.Is(err, ErrBase) {
		whole := &Delta{Schema: Schema, Cluster: a.cluster, Version: d.Version, TakenAt: now}
		for _, name := range slices.Sorted(maps.Keys(nodes)) {
			whole.Nodes = append(whole.Nodes, nodes[name])
		}
		for _, id := range slices.Sorted(maps.Keys(jobs)) {
			whole.Jobs = append(whole.Jobs, jobs[id].job...)
		}
		err = a.Target.Snapshot(whole)
	}
	if err != nil {
		// What was found is asked for again: nothing is kept that the target may not have.
		a.asOf = time.Time{}
		return fmt.Errorf("deliver the snapshot: %w", err)
	}
	a.version, a.nodes, a.jobs = d.Version, nodes, jobs
	if a.Changed != nil {
		a.Changed(d)
	}
	return nil
}

func (a *Agent) changedNodes(ctx context.Context, d *Delta) (map[string]Node, error) {
	list, err := a.Slurm.Nodes(ctx, a.asOf)
	if errors.Is(err, slurmrest.ErrUnchanged) {
		return a.nodes, nil
	}
	if err != nil {
		return nil, err
	}
	next := make(map[string]Node, len(list.Nodes))
	for i := range list.Nodes {
		next[list.Nodes[i].Name] = NodeOf(&list.Nodes[i])
	}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if old, had := a.nodes[name]; !had || !equalNodes(&old, ptr(next[name])) {
			d.Nodes = append(d.Nodes, next[name])
		}
	}
	for name := range a.nodes {
		if _, has := next[name]; !has {
			d.NoNodes = append(d.NoNodes, name)
		}
	}
	a.cluster, a.asOf = list.Cluster, list.AsOf
	return next, nil
}

// NodeOf is a node as Slurm tells it.
func NodeOf(n *slurmrest.Node) Node {
	return Node{
		Name: n.Name, State: append(n.State.Words(), n.UnknownWords...), Partitions: n.Partitions, CPUs: n.CPUs, AllocCPUs: n.AllocCPUs,
		MemoryMiB: n.MemoryMiB, AllocMiB: n.AllocMiB, Gres: n.Gres, GresUsed: n.GresUsed,
	}
}

func ptr[T any](v T) *T { return &v }

func equalNodes(a, b *Node) bool {
	return slices.Equal(a.State, b.State) && slices.Equal(a.Partitions, b.Partitions) && a.CPUs == b.CPUs && a.AllocCPUs == b.AllocCPUs &&
		a.MemoryMiB == b.MemoryMiB && a.AllocMiB == b.AllocMiB && a.Gres == b.Gres && a.GresUsed == b.GresUsed
}

func (a *Agent) changedJobs(ctx context.Context, d *Delta) (map[int64]known, error) {
	states, err := a.Slurm.JobStates(ctx)
	if err != nil {
		return nil, err
	}
	listed := map[int64]string{}
	for _, s := range states {
		// "42", "42_7" and "42_[8-9]" are records of job 42.
		number, _, _ := strings.Cut(s.ID, "_")
		number, _, _ = strings.Cut(number, "+")
		id, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the list of jobs names one %q", s.ID)
		}
		listed[id] += s.ID + strings.Join(s.States, "+") + " "
	}
	next := make(map[int64]known, len(listed))
	asked := 0
	a.backlog = 0
	a.round++
	again := a.again(listed)
	for _, id := range slices.Sorted(maps.Keys(listed)) {
		old, had := a.jobs[id]
		if had && old.states == listed[id] && !again[id] {
			next[id] = old
			continue
		}
		if asked >= max(a.Batch, 1) {
			a.backlog++
			if had {
				next[id] = old
			}
			continue
		}
		asked++
		records, err := a.Slurm.JobRecords(ctx, id)
		if err != nil {
			return nil, err
		}
		now := known{states: listed[id], round: a.round}
		for i := range records {
			now.job = append(now.job, JobOf(&records[i]))
		}
		next[id] = now
		if had && slices.Equal(old.job, now.job) {
			continue
		}
		d.Jobs = append(d.Jobs, now.job...)
		d.Gone = append(d.Gone, lost(old.job, now.job)...)
	}
	for id, old := range a.jobs {
		if _, has := listed[id]; !has {
			d.Gone = append(d.Gone, lost(old.job, nil)...)
		}
	}
	return next, nil
}

// again chooses the jobs to ask for though the list has them as they were: those that somebody told of, and of the quiet ones and
// the others that wait those read longest ago. These others have only what the jobs that did change leave of a batch.
func (a *Agent) again(listed map[int64]string) map[int64]bool {
	a.mu.Lock()
	again := a.stale
	a.stale = nil
	a.mu.Unlock()
	if again == nil {
		again = map[int64]bool{}
	}
	changed := 0
	for id, states := range listed {
		if k, had := a.jobs[id]; !had || k.states != states {
			changed++
		}
	}
	var quiet, waiting []int64
	for id, k := range a.jobs {
		switch {
		case listed[id] != k.states || again[id]:
		case k.quiet():
			quiet = append(quiet, id)
		case k.waits():
			waiting = append(waiting, id)
		}
	}
	oldest := func(ids []int64, n int) {
		slices.SortFunc(ids, func(x, y int64) int { return cmp.Or(cmp.Compare(a.jobs[x].round, a.jobs[y].round), cmp.Compare(x, y)) })
		for _, id := range ids[:min(len(ids), n)] {
			again[id] = true
		}
	}
	oldest(quiet, watched)
	oldest(waiting, min(checked, max(a.Batch-changed-len(again), 0)))
	return again
}

// lost are the numbers of records that were there and are no longer (tasks of an array have numbers of their own).
func lost(before, after []Job) []int64 {
	var out []int64
	for i := range before {
		if !slices.ContainsFunc(after, func(j Job) bool { return j.ID == before[i].ID }) {
			out = append(out, before[i].ID)
		}
	}
	return out
}

// JobOf is a job as Slurm tells it.
func JobOf(j *slurmrest.JobRecord) Job {
	unix := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.Unix()
	}
	state := ""
	if len(j.States) > 0 {
		state = j.States[0]
	}
	return Job{
		ID: j.ID, Tasks: j.ArrayTasks, State: state, Name: j.Name, User: j.User, Account: j.Account, Partition: j.Partition, QOS: j.QOS,
		Comment: j.Comment, Submit: unix(j.Submit), Start: unix(j.Start), End: unix(j.End), LimitMinutes: int64(j.Limit / time.Minute),
		TRES: j.TRES, Nodes: j.Nodes, Priority: j.Priority, Nice: j.Nice, Held: j.Held, Exit: j.Exit, Note: j.AdminComment,
		Reason: j.Reason, Required: j.RequiredNodes, Bound: j.Bound,
	}
}
