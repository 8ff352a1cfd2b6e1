package scaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/autoscaler/record"
	"github.com/berth-hpc/berth/components/slurmrest"
)

const (
	// fastest and slowest bound the time between two rounds: fast while something moves, slow when nothing does.
	fastest = time.Second
	slowest = 15 * time.Second
	// freshFor is how long after slurmctld gave its node states an action may still rest on them. SuspendTimeout, during
	// which a node that powers down takes no job, must be longer.
	freshFor = 5 * time.Second
	// maxSkew is how far slurmctld's clock may be from ours before its answer counts as stale.
	maxSkew = 2 * time.Minute
)

// NodeSource is what the loop needs of Slurm.
type NodeSource interface {
	Nodes(ctx context.Context, since time.Time) (*slurmrest.NodeList, error)
	UpdateNode(ctx context.Context, name string, state slurmrest.NodeState, reason string) error
}

// Loop makes the pods of a namespace's WorkerPools follow Slurm. Make it with its exported fields set; Run runs it.
type Loop struct {
	// Slurm is slurmrestd.
	Slurm NodeSource
	// Kubernetes reads from a cache and writes; Live reads around the cache.
	Kubernetes client.Client
	Live       client.Reader
	Events     events.EventRecorder
	Metrics    *Metrics
	Log        *slog.Logger
	// Record keeps what each round saw and did; nil: nothing does.
	Record *record.Recorder
	// ConfigNamespace and ConfigName name the SlurmConfig, WorkersNamespace is where WorkerPools and pods are.
	ConfigNamespace, ConfigName, WorkersNamespace string

	// Now is the clock; nil: time.Now.
	Now func() time.Time

	hints   Hints
	stuck   overdueNodes
	idle    idleCards
	removal removalJobs

	mu       sync.Mutex
	last     *slurmrest.NodeList // the last whole answer
	fetched  time.Time           // when it was last confirmed
	interval time.Duration
	failing  time.Time // since when Slurm gives no fresh answer; zero: it does
}

func (l *Loop) now() time.Time {
	if l.Now != nil {
		return l.Now()
	}
	return time.Now()
}

// NeedLeaderElection makes the manager run the loop in one replica only.
func (l *Loop) NeedLeaderElection() bool { return true }

// Hints takes the hints of Slurm's programs.
func (l *Loop) Hints() *Hints { return &l.hints }

// Start runs rounds until ctx ends.
func (l *Loop) Start(ctx context.Context) error {
	l.hints.init()
	l.interval = fastest
	l.Log.Info("started", "workers", l.WorkersNamespace)
	for {
		start := time.Now()
		moving, err := l.round(ctx)
		l.Metrics.Round.Observe(time.Since(start).Seconds())
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			l.Metrics.Errors.Inc()
			l.Log.Error("round failed", "error", err)
		}
		l.interval = next(l.interval, moving)
		l.Metrics.Interval.Set(l.interval.Seconds())
		if !l.hints.wait(ctx, l.interval) {
			return nil
		}
	}
}

// next is the time to the next round: the shortest while something moves, else twice the last up to the longest.
func next(last time.Duration, moving bool) time.Duration {
	if moving {
		return fastest
	}
	return min(max(2*last, fastest), slowest)
}

// round is one look at everything. moving says that another is wanted soon.
func (l *Loop) round(ctx context.Context) (moving bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	view, err := l.observe(ctx)
	if err != nil {
		return false, err
	}
	if err := l.refresh(ctx, view); err != nil {
		l.unreachable(ctx, view, err)
		return false, err
	}
	var failures []error
	for _, pool := range view.pools {
		changed, err := l.pool(ctx, view, pool)
		moving = moving || changed
		if err != nil {
			failures = append(failures, fmt.Errorf("pool %s: %w", pool.object.Name, err))
		}
	}
	return moving || len(failures) > 0, errors.Join(failures...)
}

// refresh gets slurmctld's node states of now into view, or an error: then nothing may be decided.
func (l *Loop) refresh(ctx context.Context, view *view) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var since time.Time
	if l.last != nil {
		since = l.last.AsOf
	}
	asked := l.now()
	list, err := l.Slurm.Nodes(ctx, since)
	switch {
	case errors.Is(err, slurmrest.ErrUnchanged):
		list = l.last
	case err != nil:
		return err
	default:
		if skew := l.now().Sub(list.AsOf).Abs(); skew > maxSkew {
			return fmt.Errorf("slurmctld's answer is of %s, %s off this machine's clock: set the clocks right", list.AsOf.UTC().Format(time.RFC3339), skew.Round(time.Second))
		}
		if view.cluster != "" && list.Cluster != view.cluster {
			return fmt.Errorf("slurmrestd answers for cluster %q, the SlurmConfig is of %q", list.Cluster, view.cluster)
		}
		l.last = list
	}
	l.fetched = asked
	view.fetched, view.asOf = asked, list.AsOf
	view.nodes = make(map[string]*slurmrest.Node, len(list.Nodes))
	for i := range list.Nodes {
		view.nodes[list.Nodes[i].Name] = &list.Nodes[i]
	}
	if !l.failing.IsZero() {
		l.Log.Info("slurmctld answers again", "after", l.now().Sub(l.failing).Round(time.Second))
		l.failing = time.Time{}
	}
	l.Metrics.SlurmAnswers.Set(1)
	return nil
}

// unreachable says in every pool's status that nothing is decided, and why.
func (l *Loop) unreachable(ctx context.Context, view *view, cause error) {
	l.mu.Lock()
	if l.failing.IsZero() {
		l.failing = l.now()
	}
	since := l.failing
	l.mu.Unlock()
	l.Metrics.SlurmAnswers.Set(0)
	if l.now().Sub(since) < freshFor {
		return // a reconfigure or a restart takes a moment
	}
	for _, pool := range view.pools {
		removed, err := l.finalize(ctx, pool)
		if err == nil && !removed {
			err = l.writeUnreachable(ctx, pool, cause)
		}
		if err != nil {
			l.Log.Error("status not written", "pool", pool.object.Name, "error", err)
		}
	}
}

// pool does one pool's round.
func (l *Loop) pool(ctx context.Context, view *view, pool *poolView) (moving bool, err error) {
	if err := l.acceptTemplate(ctx, view, pool); err != nil {
		return true, err
	}
	pods := make(map[string]*decision.Pod, len(pool.pods))
	for name, pod := range pool.pods {
		pods[name] = podOf(pod)
		pods[name].HostProblem = hostProblem(view.hosts, pod.Spec.NodeName)
	}
	if err := l.provenTemplate(ctx, pool, pods); err != nil {
		return true, err
	}
	floored, err := l.floor(view, pool)
	if err != nil {
		return true, err
	}
	input := decision.Pool{
		Name: pool.object.Spec.Pool, Floor: int(floored.Nodes), FloorWhy: floored.Because, Max: int(pool.object.Spec.Max),
		Template: pool.templateHash, ConfigAccepted: pool.configAccepted,
		Removing: !pool.object.DeletionTimestamp.IsZero(), Blocked: blocked(view, pool), Wants: l.wants(view, pool), Now: l.now(),
	}
	input.TemplateProven, input.RenewBusy, input.RenewPercent = pool.renewal(input.Now)
	actions, holds := decision.Decide(input, pool.names(), view.nodes, pods)
	problems, done, err := l.execute(ctx, view, pool, actions)
	l.Record.Add(input.Now, pool.object.Name, record.NewState(input, pool.names(), view.nodes, pods), done)
	moving = len(actions) > 0
	for _, name := range pool.names() {
		if node := view.nodes[name]; node != nil {
			phase := decision.PhaseOf(node)
			moving = moving || phase == decision.Starting || phase == decision.Leaving || node.State.Has(slurmrest.PowerDown)
		}
	}
	problems = append(problems, podProblems(view, pool)...)
	problems = append(problems, l.overdue(view, pool, pods)...)
	if removed, finalizeErr := l.finalize(ctx, pool); finalizeErr != nil {
		err = errors.Join(err, finalizeErr)
	} else if removed {
		return moving, err
	}
	pool.floor = floored
	if statusErr := l.writeStatus(ctx, view, pool, holds, problems); statusErr != nil {
		err = errors.Join(err, statusErr)
	}
	return moving, err
}
