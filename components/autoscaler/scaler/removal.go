package scaler

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// JobSource names the jobs of nodes. It is asked only for a pool that is being removed: it costs slurmctld a list of all
// jobs' states.
type JobSource interface {
	JobStates(ctx context.Context) ([]slurmrest.JobState, error)
	Job(ctx context.Context, id string) (*slurmrest.Job, error)
}

// jobsEvery is how often the jobs that a removal waits for are asked for, and maxJobs how many are looked at.
const (
	jobsEvery = 30 * time.Second
	maxJobs   = 50
)

// removalJobs remembers what a removal waits for, for messages only.
type removalJobs struct {
	mu    sync.Mutex
	asked time.Time
	nodes map[string][]string // node to its jobs
}

// removing says what the removal of a pool waits for, and what forces it.
func (l *Loop) removing(ctx context.Context, view *view, pool *poolView) string {
	var busy []string
	for _, name := range pool.names() {
		if node := view.nodes[name]; node != nil && decision.PhaseOf(node) == decision.Up && decision.Busy(node) {
			busy = append(busy, name)
		}
	}
	if len(busy) == 0 {
		return fmt.Sprintf("waits for %d pods to end; none has a job", len(pool.pods))
	}
	jobs := l.jobsOn(ctx, busy)
	if jobs == "" {
		jobs = "the jobs of " + strings.Join(busy, ", ")
	}
	return fmt.Sprintf("waits for %s; its nodes take no new ones. To force it: scancel them", jobs)
}

// forced is how a removal goes on without slurmctld, which alone knows whether a job runs: a person says so. Without the
// finalizer Kubernetes takes the pool's pods with it, and their jobs.
func forced(pool *v1alpha1.WorkerPool) string {
	return fmt.Sprintf(`to end what runs on its pods: kubectl patch workerpool %s --namespace %s --type=merge --patch '{"metadata":{"finalizers":null}}'`, pool.Name, pool.Namespace)
}

// jobsOn names the jobs on the nodes: "job 42 (student, train) on slurm-worker-cpu-0"; "" where slurmctld does not say.
func (l *Loop) jobsOn(ctx context.Context, nodes []string) string {
	source, ok := l.Slurm.(JobSource)
	if !ok {
		return ""
	}
	l.removal.mu.Lock()
	defer l.removal.mu.Unlock()
	if l.removal.nodes == nil || l.now().Sub(l.removal.asked) >= jobsEvery {
		found, err := jobsByNode(ctx, source)
		if err != nil {
			l.Log.Warn("cannot name the jobs that a removal waits for", "error", err)
			return ""
		}
		l.removal.nodes, l.removal.asked = found, l.now()
	}
	seen := map[string]bool{}
	var lines []string
	for _, node := range nodes {
		for _, job := range l.removal.nodes[node] {
			if !seen[job] {
				seen[job] = true
				lines = append(lines, job+" on "+node)
			}
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, ", ")
}

func jobsByNode(ctx context.Context, source JobSource) (map[string][]string, error) {
	states, err := source.JobStates(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	looked := 0
	for _, state := range states {
		if !state.OnNodes() {
			continue
		}
		if looked++; looked > maxJobs {
			break
		}
		job, err := source.Job(ctx, state.ID)
		if err != nil {
			return nil, err
		}
		for _, node := range job.Nodes {
			found[node] = append(found[node], fmt.Sprintf("job %s (%s, %s)", job.ID, job.User, job.Name))
		}
	}
	return found, nil
}
