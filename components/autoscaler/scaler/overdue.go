package scaler

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// Bounds of the states that a node passes through on its way; Slurm's own ResumeTimeout is at most 10 minutes as rendered.
const (
	passingBound     = 15 * time.Minute // powering up or down, or down for a reason that is ours to clear
	terminatingBound = 3 * time.Minute  // beyond a pod's own grace
)

// overdueNodes remembers since when nodes are on their way, for reports only: nothing is decided by it, and a restart
// begins to count anew.
type overdueNodes struct {
	mu    sync.Mutex
	since map[string]passage
}

type passage struct {
	state    string
	since    time.Time
	reported bool
}

// overdue says which of the pool's nodes and pods are longer on their way than anything should take.
func (l *Loop) overdue(view *view, pool *poolView, pods map[string]*decision.Pod) []string {
	l.stuck.mu.Lock()
	defer l.stuck.mu.Unlock()
	if l.stuck.since == nil {
		l.stuck.since = map[string]passage{}
	}
	var lines []string
	now := l.now()
	for _, name := range pool.names() {
		state, bound := passing(view.nodes[name], pool.pods[name])
		key := pool.object.Name + "/" + name
		if state == "" {
			delete(l.stuck.since, key)
			continue
		}
		passage := l.stuck.since[key]
		if passage.state != state {
			passage.state, passage.since, passage.reported = state, now, false
		}
		if took := now.Sub(passage.since); took > bound {
			line := fmt.Sprintf("%s: %s for more than %s", name, state, bound)
			lines = append(lines, line)
			if !passage.reported {
				l.Events.Eventf(pool.object, nil, corev1.EventTypeWarning, "Overdue", "Scale", "%s", clip(line))
				l.Log.Warn("overdue", "node", name, "pool", pool.object.Name, "state", state, "took", took.Round(time.Second))
				passage.reported = true
			}
		}
		l.stuck.since[key] = passage
	}
	l.Metrics.Overdue.WithLabelValues(pool.object.Name).Set(float64(len(lines)))
	return lines
}

// passing names a state that a node should leave by itself, and how long it may take; "": it may stay as it is.
func passing(node *slurmrest.Node, pod *corev1.Pod) (state string, bound time.Duration) {
	if pod != nil && pod.DeletionTimestamp != nil {
		grace := time.Duration(0)
		if pod.DeletionGracePeriodSeconds != nil {
			grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
		}
		return "its pod is being deleted", grace + terminatingBound
	}
	if node == nil {
		return "", 0
	}
	switch phase := decision.PhaseOf(node); {
	case phase == decision.Starting:
		return "powering up", passingBound
	case phase == decision.Leaving:
		return "powering down", passingBound
	case node.State.Has(slurmrest.Down) && decision.Clearable(node.Reason):
		return "down: " + node.Reason, passingBound
	}
	return "", 0
}
