// Package experiment runs one workload under one policy, on a pool of processors or on a cluster, and gathers what came out. The
// command line and the learner share it.
package experiment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/engine"
	"github.com/berth-hpc/berth/components/advisor/sim/metrics"
	"github.com/berth-hpc/berth/components/advisor/sim/placement"
	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/pool"
	"github.com/berth-hpc/berth/components/advisor/sim/random"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Setup describes a run.
type Setup struct {
	// Procs simulates a pool of identical processors; Spec a cluster. One of them is set.
	Procs int32
	Spec  *cluster.Spec
	// Policy is a discipline (see policy.ParseDiscipline) or, on a cluster, one of ClusterPolicies.
	Policy    string
	Placement string
	Typical   []placement.Typical
	Seed      uint64
	// Limits ends jobs at their limits.
	Limits         bool
	NoInterference bool
	// Gittins is the sample of job sizes, in card-seconds, the gittins policy knows.
	Gittins []float64
	// Multifactor makes the priorities that multifactor ranks by, anew for each run; nil has the chart's weights and gives everybody
	// one share.
	Multifactor func() (*engine.Multifactor, error)
	// Job is told of every job that ended.
	Job func(*JobResult)
	// Stretch is told of every stretch of time on cards.
	Stretch func(engine.Stretch)
}

// JobResult is the fate of one job; times are microseconds.
type JobResult struct {
	ID                 int64
	User, Account      string
	Model              string
	Width              float64
	Submit, Start, End workload.Time
	Service, Limit     workload.Time
	Deadline           workload.Time
	Outcome            string
	Preempts, Requeues int
	Node               string
}

// Outcome is what a run gave.
type Outcome struct {
	Policy  string
	Summary metrics.Summary
	Jobs    *metrics.Collector
	// Renamed counts jobs whose id another job in the system had, and which got a new one, below zero.
	Renamed int
	// Impossible counts jobs that ask for more than the machine has; they never ran.
	Impossible int
	// GivenUp counts jobs that ended because node after node failed under them.
	GivenUp int
	// Ignored counts what jobs said that a pool of processors does not know.
	Ignored Ignored
	// CardsHeld is the part of the cards' time during which anybody held a share of the card, on clusters; Summary's utilisation
	// counts a share as its share of the SMs.
	CardsHeld float64
	// Engine is set for clusters, Pool for pools.
	Engine *engine.Stats
	Pool   *pool.Stats
}

// Ignored counts jobs that wait for others, that are tasks of an array of which so many may run at once, and that their users
// withdrew. A pool runs them like any other job; a cluster heeds all three.
type Ignored struct {
	Dependent, Bounded, Withdrawn int
}

func (i *Ignored) count(j *workload.Job) {
	if len(j.After) > 0 {
		i.Dependent++
	}
	if j.ArrayLimit > 0 {
		i.Bounded++
	}
	if j.CancelAt > 0 {
		i.Withdrawn++
	}
}

// ClusterPolicies are the policies beyond disciplines.
var ClusterPolicies = []string{"srtf", "srsf", "tiresias", "gittins", "multifactor", "multifactor+easy", "multifactor-classic", "multifactor-classic+easy"}

// Run simulates a source.
func Run(s Setup, src workload.Source) (*Outcome, error) {
	if s.Spec == nil {
		return runPool(s, src)
	}
	return runCluster(s, src)
}

// Check says, before anything is read, whether the policy is one of the machine's.
func (s *Setup) Check() error {
	var err error
	if s.Spec == nil {
		_, err = poolDiscipline(s.Policy)
	} else {
		_, err = scheduler(*s)
	}
	return err
}

func poolDiscipline(name string) (policy.Discipline, error) {
	if slices.Contains(ClusterPolicies, name) {
		return policy.Discipline{}, fmt.Errorf("policy %s needs a cluster; describe one with --cluster", name)
	}
	return policy.ParseDiscipline(name)
}

func runPool(s Setup, src workload.Source) (*Outcome, error) {
	d, err := poolDiscipline(s.Policy)
	if err != nil {
		return nil, err
	}
	c := &metrics.Collector{}
	// The pool engine streams narrow results; what a report wants beside them waits here while a job is in the system.
	live := map[int64]*workload.Request{}
	e, err := pool.New(pool.Config{Procs: s.Procs, Discipline: d, EnforceLimits: s.Limits}, func(r *pool.Result) {
		q := live[r.ID]
		delete(live, r.ID)
		c.Add(&metrics.Job{ID: r.ID, Submit: r.Submit, Start: r.Start, End: r.End, Service: r.End - r.Start, Width: float64(r.Procs), User: q.User, Deadline: q.Deadline, Failed: false})
		if s.Job != nil {
			outcome := "completed"
			if r.Killed {
				outcome = "timeout"
			}
			s.Job(&JobResult{ID: r.ID, User: q.User, Account: q.Account, Model: q.Model, Width: float64(r.Procs), Submit: r.Submit, Start: r.Start, End: r.End,
				Service: r.End - r.Start, Limit: q.Limit, Deadline: q.Deadline, Outcome: outcome})
		}
	})
	if err != nil {
		return nil, err
	}
	renamed, impossible, ignored := 0, 0, Ignored{}
	for j, err := range src {
		if err != nil {
			return nil, err
		}
		ignored.count(&j)
		if j.Procs > s.Procs {
			impossible++
			c.Add(&metrics.Job{ID: j.ID, Submit: j.Submit, Start: j.Submit, End: j.Submit, User: j.User, Deadline: j.Deadline, Failed: true})
			if s.Job != nil {
				s.Job(&JobResult{ID: j.ID, User: j.User, Width: float64(j.Procs), Submit: j.Submit, Start: -1, End: j.Submit, Limit: j.Limit, Outcome: engine.Impossible.String()})
			}
			continue
		}
		e.Advance(j.Submit)
		if _, twice := live[j.ID]; twice {
			renamed++
			j.ID = -int64(renamed)
		}
		q := j.Request
		live[j.ID] = &q
		p := pool.FromWorkload(&j)
		if err := e.Submit(&p); err != nil {
			return nil, err
		}
	}
	e.Drain()
	return &Outcome{Policy: s.Policy, Summary: c.Summary(float64(s.Procs)), Jobs: c, Pool: e.Stats(), Renamed: renamed, Impossible: impossible, Ignored: ignored}, nil
}

func runCluster(s Setup, src workload.Source) (*Outcome, error) {
	sched, err := scheduler(s)
	if err != nil {
		return nil, err
	}
	c, impossible, givenUp := &metrics.Collector{}, 0, 0
	cfg := engine.Config{Spec: s.Spec, Scheduler: sched, Placement: s.Placement, Typical: s.Typical, Seed: s.Seed, EnforceLimits: s.Limits,
		NoInterference: s.NoInterference, Trace: s.Stretch, CheckpointEvery: workload.Time(s.Spec.Checkpoint)}
	if r := s.Spec.Restart; r != nil {
		cfg.RestartCost = func(*engine.Job) workload.Time { return workload.Time(*r) }
	}
	e, err := engine.New(cfg, func(r *engine.Result) {
		q := r.Request
		failed := r.Outcome != engine.Completed && r.Outcome != engine.TimedOut
		switch r.Outcome {
		case engine.Impossible:
			impossible++
		case engine.NodeFail:
			givenUp++
		}
		c.Add(&metrics.Job{ID: q.ID, Submit: q.Submit, Start: r.Start, End: r.End, Service: r.Service, Width: policy.Width(q), User: q.User,
			Deadline: q.Deadline, Failed: failed, Preempts: r.Preempts})
		if s.Job != nil {
			s.Job(&JobResult{ID: q.ID, User: q.User, Account: q.Account, Model: q.Model, Width: policy.Width(q), Submit: q.Submit, Start: r.Start, End: r.End,
				Service: r.Service, Limit: q.Limit, Deadline: q.Deadline, Outcome: r.Outcome.String(), Preempts: r.Preempts, Requeues: r.Requeues, Node: r.Node})
		}
	})
	if err != nil {
		return nil, err
	}
	renamed := 0
	for j, err := range src {
		if err != nil {
			return nil, err
		}
		e.Advance(j.Submit)
		if e.Has(j.ID) {
			renamed++
			j.ID = -int64(renamed)
		}
		if err := e.Submit(&j); err != nil {
			return nil, err
		}
	}
	e.Drain()
	cards, processors := s.Spec.Cards()
	o := &Outcome{Policy: s.Policy, Summary: c.Summary(float64(cards)), Jobs: c, Engine: e.Stats(), Renamed: renamed, Impossible: impossible, GivenUp: givenUp}
	if o.Summary.Makespan > 0 && !processors {
		o.CardsHeld = o.Engine.BusyArea / (o.Summary.Makespan * float64(cards))
	}
	return o, nil
}

// scheduler makes the scheduler a policy's name stands for.
func scheduler(s Setup) (engine.Scheduler, error) {
	name, backfill, has := strings.Cut(s.Policy, "+")
	switch name {
	case "srtf", "srsf", "tiresias", "gittins":
		if has {
			return nil, fmt.Errorf("%s preempts and has no backfill; use %s alone, not %q", name, name, s.Policy)
		}
	}
	switch name {
	case "srtf":
		return engine.SRTF(), nil
	case "srsf":
		return engine.SRSF(), nil
	case "tiresias":
		return engine.Tiresias(engine.TiresiasThresholds), nil
	case "gittins":
		if len(s.Gittins) == 0 {
			return nil, fmt.Errorf("the gittins policy needs a sample of job sizes in card-seconds; give one with --gittins FILE (one number a line)")
		}
		g, err := policy.NewGittins(s.Gittins)
		if err != nil {
			return nil, err
		}
		return engine.GittinsScheduler(g, engine.TiresiasThresholds[0]), nil
	case "multifactor", "multifactor-classic":
		m := engine.DefaultMultifactor()
		if s.Multifactor != nil {
			var err error
			if m, err = s.Multifactor(); err != nil {
				return nil, err
			}
		}
		m.Classic = m.Classic || name == "multifactor-classic"
		b := policy.None
		if backfill == "easy" {
			b = policy.EASY
		} else if backfill != "" {
			return nil, fmt.Errorf("multifactor goes with easy backfill or none, not %q", backfill)
		}
		return engine.Ordered(m, b, nil)
	}
	d, err := policy.ParseDiscipline(s.Policy)
	if err != nil {
		return nil, fmt.Errorf("%w; on a cluster also %s", err, strings.Join(ClusterPolicies, ", "))
	}
	return engine.FromDiscipline(d)
}

// Estimates changes what users ask for.
type Estimates struct {
	// Kind is trace (as the trace has them), exact (the run time) or factor (the run time times a factor drawn evenly from 1 to
	// Factor).
	Kind   string
	Factor float64
	Seed   uint64
}

// Apply changes the limits of a source.
func (e Estimates) Apply(src workload.Source) workload.Source {
	if e.Kind == "" || e.Kind == "trace" {
		return src
	}
	return func(yield func(workload.Job, error) bool) {
		s := random.New(e.Seed, random.Estimates)
		for j, err := range src {
			j.Limit = max(j.Run, 1)
			if e.Kind == "factor" {
				j.Limit = max(workload.Time(min(float64(j.Run)*(1+float64(s.Float64()*(e.Factor-1))), workload.MaxSeconds*float64(workload.Second))), 1)
			}
			if !yield(j, err) || err != nil {
				return
			}
		}
	}
}

// CardsForProcs makes jobs of a processor trace ask for as many cards instead, one whole card a processor.
func CardsForProcs(src workload.Source) workload.Source {
	return func(yield func(workload.Job, error) bool) {
		for j, err := range src {
			if j.GPUs == 0 && j.Procs > 0 {
				j.GPUs, j.GPUMilli = j.Procs, cluster.WholeCard
			}
			if !yield(j, err) || err != nil {
				return
			}
		}
	}
}

// TypicalOf gathers the mix of demands that fgd expects, from a sample of jobs.
func TypicalOf(jobs []workload.Job) []placement.Typical {
	ds := make([]cluster.Demand, 0, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		d := cluster.Demand{CPUMilli: j.CPUMilli, MemMiB: j.MemMiB, Cards: j.GPUs, Milli: j.GPUMilli, Types: j.GPUTypes}
		if j.GPUs == 0 {
			d.Milli = 0
		}
		ds = append(ds, d)
	}
	return placement.TypicalDemands(ds)
}
