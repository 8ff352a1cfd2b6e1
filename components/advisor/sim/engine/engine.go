// Package engine simulates a heterogeneous cluster of cards under Slurm-like scheduling: gangs, shares of cards, neighbours that
// slow each other down, preemption with its costs, failures, maintenance, and pools that grow and shrink. It is fed jobs in order
// of submission and streams out their fates. A scheduler sees requests, never true run times.
package engine

import (
	"fmt"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/placement"
	"github.com/berth-hpc/berth/components/advisor/sim/random"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Scheduler decides what runs. Pass is called once after all events of a moment; it may start and preempt jobs through the
// view, and asks to be called again at a time (workload.Never: at the next event).
type Scheduler interface {
	Name() string
	Pass(v *View) (wake workload.Time)
}

// Observer is a scheduler that wants to know of every job that stops holding resources, before the next Pass.
type Observer interface {
	Stopped(v *View, j *Job)
}

// Config describes a simulation.
type Config struct {
	Spec      *cluster.Spec
	Scheduler Scheduler
	// Placement chooses nodes and cards; see placement.ByName. Typical is the mix fgd expects.
	Placement string
	Typical   []placement.Typical
	Seed      uint64
	// NoInterference makes sharing a card free.
	NoInterference bool
	// EnforceLimits ends jobs at their limit.
	EnforceLimits bool
	// RestartCost is what a job that was preempted or lost its node pays before it goes on. Nil is HeliosRestart.
	RestartCost func(*Job) workload.Time
	// CheckpointEvery bounds the work lost to a failed node; 0 loses all of it. Preemption loses nothing: jobs checkpoint when
	// asked to.
	CheckpointEvery workload.Time
	// Trace, if set, is told of every stretch of time a job holds cards, for Gantt charts.
	Trace func(Stretch)
}

// HeliosRestart is the cost of saving and loading a job that Helios (SC'21) measured: 7, 30 or 60 s for 1, up to 8, and more
// cards.
func HeliosRestart(j *Job) workload.Time {
	switch {
	case j.GPUs <= 1:
		return 7 * workload.Second
	case j.GPUs <= 8:
		return 30 * workload.Second
	}
	return 60 * workload.Second
}

// Engine simulates one cluster. Submit jobs in order, then Drain.
type Engine struct {
	cfg     Config
	sink    func(*Result)
	nodes   []*cluster.Node
	host    []host
	tenants [][][]*Job // by node and card
	matrix  *cluster.Matrix
	noise   cluster.Interference
	chooser *placement.Chooser
	mirror  mirror
	maxCard int32

	now     workload.Time
	origin  workload.Time // the first submission: windows count from here
	began   bool
	due     bool
	events  eventHeap
	seq     uint64
	jobSeq  int64
	pending [kinds]int // events of a kind in the heap
	wakeAt  workload.Time

	waiting []*Job
	running []*Job
	held    map[int64]*Job        // by id, waiting for others
	after   map[int64][]dependant // by the id they wait for
	ids     map[int64]struct{}    // of live jobs
	arrays  map[int64]*array      // with tasks in the system
	broken  map[int64]struct{}    // ids of jobs that ended without completing, the latest of them:
	// these, the oldest at brokenNext once there are as many as are remembered.
	brokenRing []int64
	brokenNext int
	spare      []*Job
	live       int
	busy       int // cards of which anybody holds a share
	view       View
	shapes     map[shape]int32
	never      map[int32]bool
	stats      Stats
	buf        []cluster.Tenant
	observe    Observer
	result     Result
	demand     cluster.Demand
}

// host is what the engine knows of a node beside its resources.
type host struct {
	pool    *cluster.Pool
	state   hostState
	upAt    workload.Time
	upSince workload.Time
	idle    uint32 // version of the idle event in force
	failure random.Stream
	repair  random.Stream
	window  int // maintenance windows it is in
}

// dependant is a job that waits for another; seq tells it from a later one in the same record.
type dependant struct {
	job *Job
	seq int64
}

type hostState uint8

const (
	on hostState = iota
	off
	starting
	failed
)

// Stats counts what the engine did.
type Stats struct {
	Events, Passes                  int64
	Jobs, Starts, Preempts, Failed  int64
	NodeFailures, NodeStarts        int64
	Cost                            float64 // price of the time nodes were up
	UpHours                         float64
	CardArea                        float64 // card-seconds held by jobs: a share of a card counts as its share of the SMs
	BusyArea                        float64 // card-seconds during which anybody held any share of a card
	First, Last                     workload.Time
	MaxWaiting                      int
	SystemArea, WaitingArea, Length float64
}

// New builds the cluster.
func New(cfg Config, sink func(*Result)) (*Engine, error) {
	if err := cfg.Spec.Validate(); err != nil {
		return nil, err
	}
	if cfg.Scheduler == nil {
		return nil, fmt.Errorf("a simulation needs a scheduler")
	}
	if cfg.RestartCost == nil {
		cfg.RestartCost = HeliosRestart
	}
	if cfg.Placement == "" {
		cfg.Placement = "first-fit"
	}
	p, err := placement.ByName(cfg.Placement, cfg.Typical, cfg.Seed)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, sink: sink, nodes: cfg.Spec.Build(), matrix: cluster.NewMatrix(cfg.Spec),
		noise: cluster.NewInterference(cfg.Seed, cfg.NoInterference), wakeAt: workload.Never,
		held: map[int64]*Job{}, after: map[int64][]dependant{}, ids: map[int64]struct{}{}, arrays: map[int64]*array{}, broken: map[int64]struct{}{}, shapes: map[shape]int32{}, never: map[int32]bool{}}
	e.chooser = placement.NewChooser(p, e.nodes)
	e.mirror.build(cfg.Spec, p)
	e.view.e = e
	e.observe, _ = cfg.Scheduler.(Observer)
	i := 0
	for k := range cfg.Spec.Pools {
		pool := &cfg.Spec.Pools[k]
		e.maxCard = max(e.maxCard, int32(pool.GPUs))
		for n := range pool.Nodes {
			h := host{pool: pool, failure: random.Keyed(cfg.Seed, random.Failures, uint64(i), 0), repair: random.Keyed(cfg.Seed, random.Repairs, uint64(i), 0)}
			if pool.Elastic && n >= pool.Min {
				h.state = off
				e.nodes[i].Set(false, false)
			}
			e.host = append(e.host, h)
			e.tenants = append(e.tenants, make([][]*Job, pool.GPUs))
			i++
		}
	}
	return e, nil
}

// Stats gives the counts so far.
func (e *Engine) Stats() *Stats { return &e.stats }

// Advance runs up to a time, before which nothing more is submitted.
func (e *Engine) Advance(t workload.Time) {
	if e.began && t > e.now {
		e.advance(t)
	}
}

// Has says that a job of this id is in the system.
func (e *Engine) Has(id int64) bool {
	_, live := e.ids[id]
	return live
}

// Now is the time of the simulation.
func (e *Engine) Now() workload.Time { return e.now }

// Submit runs up to a job's submission and puts the job in the queue.
func (e *Engine) Submit(w *workload.Job) error {
	if err := w.Validate(); err != nil {
		return err
	}
	if w.Limit <= 0 {
		return fmt.Errorf("job %d: the limit is %d µs; it must be at least 1", w.ID, w.Limit)
	}
	if !e.began {
		e.begin(w.Submit)
	}
	if w.Submit < e.now {
		return fmt.Errorf("job %d is submitted at %d µs, before the job ahead of it (%d µs); sort the trace by submission", w.ID, w.Submit, e.now)
	}
	e.advance(w.Submit)
	if e.Has(w.ID) {
		return fmt.Errorf("job id %d is submitted again while a job of that id is in the system; ids must differ", w.ID)
	}
	e.stats.Jobs++
	e.stats.Events++
	j := e.take()
	pieces := j.pieces[:0]
	*j = Job{Request: w.Request, truth: w.Run, left: w.Run, kept: w.Run, first: -1, Seq: e.jobSeq, cancelAt: w.CancelAt, pieces: pieces, since: e.now}
	if j.GPUs > 0 && j.GPUMilli == 0 {
		j.GPUMilli = cluster.WholeCard
	}
	if j.GPUs == 0 && j.CPUMilli == 0 {
		j.CPUMilli = int64(max(j.Procs, 1)) * 1000
	}
	e.jobSeq++
	e.live++
	e.ids[j.ID] = struct{}{}
	e.join(j)
	e.due = true
	j.shape = e.shapeOf(j)
	if e.impossible(j) {
		e.finish(j, Impossible)
		return nil
	}
	if w.CancelAt > e.now {
		e.push(event{at: w.CancelAt, kind: cancel, job: j, jobSeq: j.Seq})
	}
	e.admit(j)
	return nil
}

// admit queues a job, or holds it back until those it waits for have ended.
func (e *Engine) admit(j *Job) {
	for _, id := range j.After {
		if _, bad := e.broken[id]; bad {
			e.finish(j, Cancelled)
			return
		}
		// An id that is not live has completed, or is not known, which Slurm takes for the same.
		if a := e.arrays[id]; a != nil && id != j.Array {
			j.waitsFor++
			a.after = append(a.after, dependant{j, j.Seq})
		} else if _, live := e.ids[id]; live && id != j.ID {
			j.waitsFor++
			e.after[id] = append(e.after[id], dependant{j, j.Seq})
		}
	}
	if j.waitsFor > 0 {
		e.held[j.ID] = j
		return
	}
	e.enter(j)
}

func (e *Engine) enqueue(j *Job) {
	e.waiting = append(e.waiting, j)
	e.stats.MaxWaiting = max(e.stats.MaxWaiting, len(e.waiting))
}

func (e *Engine) begin(at workload.Time) {
	e.began, e.now, e.origin = true, at, at
	e.stats.First = at
	for i := range e.host {
		e.host[i].upSince = at
		if m := e.host[i].pool.MTBF; m > 0 {
			e.push(event{at: at + workload.Time(e.host[i].failure.Exp(float64(m))), kind: failure, node: i})
		}
	}
	for i, w := range e.cfg.Spec.Maintenance {
		e.push(event{at: at + workload.Time(w.Start), kind: windowStart, node: i})
		e.push(event{at: at + workload.Time(w.End), kind: windowEnd, node: i})
	}
}

// Drain runs until the last job has ended, or nothing can happen any more.
func (e *Engine) Drain() {
	if !e.began {
		return
	}
	e.advance(workload.Never)
	for _, j := range slices.Clone(e.waiting) {
		e.leaveQueue(j)
		e.finish(j, Starved)
	}
	for _, id := range sortedKeys(e.held) {
		if j := e.held[id]; j != nil {
			delete(e.held, id)
			e.finish(j, Starved)
		}
	}
	for i := range e.host {
		e.account(i)
	}
	e.stats.Length = workload.InSeconds(e.now - e.stats.First)
}

func sortedKeys(m map[int64]*Job) []int64 {
	ids := make([]int64, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// advance handles all events before t, and those at t that come before arrivals.
func (e *Engine) advance(t workload.Time) {
	if t > e.now && e.due {
		e.schedule()
	}
	for len(e.events) > 0 && e.events[0].at <= t {
		if t == workload.Never && !e.hope() {
			return
		}
		at := e.events[0].at
		if e.events[0].stale() {
			e.pop()
			continue
		}
		e.tick(at)
		for len(e.events) > 0 && e.events[0].at == at {
			ev := e.pop()
			if !ev.stale() {
				e.handle(&ev)
			}
		}
		e.due = true
		if at == t {
			return
		}
		e.schedule()
	}
	if t != workload.Never {
		e.tick(t)
	}
}

// hope says that what is still waiting may yet run: something runs or will change.
func (e *Engine) hope() bool {
	if e.live == 0 {
		return false
	}
	return len(e.running) > 0 || e.pending[repair]+e.pending[nodeUp]+e.pending[windowEnd]+e.pending[wake]+e.pending[cancel] > 0
}

func (e *Engine) tick(t workload.Time) {
	dt := workload.InSeconds(t - e.now)
	e.stats.SystemArea += float64(dt * float64(e.live))
	e.stats.WaitingArea += float64(dt * float64(e.live-len(e.running)))
	e.stats.BusyArea += float64(dt * float64(e.busy))
	e.now = t
}

// schedule lets the scheduler work.
func (e *Engine) schedule() {
	e.due = false
	e.stats.Passes++
	for _, j := range e.running {
		e.progress(j)
	}
	w := e.cfg.Scheduler.Pass(&e.view)
	if w != workload.Never && w > e.now && w != e.wakeAt {
		e.wakeAt = w
		e.push(event{at: w, kind: wake})
	}
}

func (e *Engine) take() *Job {
	if n := len(e.spare); n > 0 {
		j := e.spare[n-1]
		e.spare = e.spare[:n-1]
		return j
	}
	return &Job{}
}

// finish reports a job that holds nothing and is in no list.
func (e *Engine) finish(j *Job, o Outcome) {
	e.live--
	if o != Completed {
		e.stats.Failed++
	}
	e.stats.Last = e.now
	j.dead = true
	if e.sink != nil {
		r := &e.result
		*r = Result{Request: &j.Request, Outcome: o, Start: j.first, End: e.now, Service: j.service, Preempts: j.Preempts, Requeues: j.requeues}
		if len(j.pieces) > 0 {
			r.Node = e.nodes[j.pieces[0].node].Name
		}
		e.sink(r)
	}
	delete(e.ids, j.ID)
	if o != Completed {
		e.breakID(j.ID)
	}
	if deps := e.after[j.ID]; deps != nil {
		delete(e.after, j.ID)
		for _, d := range deps {
			e.release(d, o == Completed)
		}
	}
	if j.Array != 0 {
		e.leaveArray(j, o == Completed)
	}
	e.spare = append(e.spare, j)
}

// release tells a held job that one it waits for has ended.
func (e *Engine) release(dep dependant, completed bool) {
	d := dep.job
	if d.dead || d.Seq != dep.seq {
		return
	}
	if !completed {
		if e.held[d.ID] == d {
			delete(e.held, d.ID)
			e.finish(d, Cancelled)
		}
		return
	}
	if d.waitsFor--; d.waitsFor == 0 && e.held[d.ID] == d {
		delete(e.held, d.ID)
		e.enter(d)
		e.due = true
	}
}

// Run simulates a whole source.
func Run(cfg Config, src workload.Source, sink func(*Result)) (*Stats, error) {
	e, err := New(cfg, sink)
	if err != nil {
		return nil, err
	}
	for j, err := range src {
		if err != nil {
			return nil, err
		}
		if err := e.Submit(&j); err != nil {
			return nil, err
		}
	}
	e.Drain()
	return &e.stats, nil
}
