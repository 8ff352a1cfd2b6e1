package scaler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/autoscaler/floor"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// floor is how many of the pool's nodes stay up now. What it must remember is in the pool's status. Nodes in a maintenance window
// serve nobody, so those that are up stay beside the others: slurmctld, which keeps as many up as it is told, counts them.
func (l *Loop) floor(view *view, pool *poolView) (v1alpha1.Floor, error) {
	spec := &pool.object.Spec
	if !pool.object.DeletionTimestamp.IsZero() {
		return v1alpha1.Floor{}, nil
	}
	var load floor.Load
	usable, maintained := int(spec.Max), 0
	for _, name := range pool.names() {
		node := view.nodes[name]
		if node == nil {
			continue
		}
		if node.State.Has(slurmrest.Maintenance) {
			usable--
			if decision.InService(node) {
				maintained++
			}
			continue
		}
		all, used, err := floor.Shares(node, int(spec.SharePercent))
		if err != nil {
			return v1alpha1.Floor{}, err
		}
		load.NodeShares = max(load.NodeShares, all)
		phase := decision.PhaseOf(node)
		if (phase == decision.Up || phase == decision.Starting) && decision.Busy(node) {
			load.Busy++
			if decision.InService(node) {
				load.FreeShares += all - used
			}
		}
	}
	wanted, because, err := floor.Want(spec, load, l.now())
	if err != nil {
		return v1alpha1.Floor{}, err
	}
	wanted = min(wanted, usable) // the rest is not there before the window ends
	if wanted > 0 && maintained > 0 {
		wanted, because = wanted+maintained, fmt.Sprintf("%s, beside %d in a maintenance window", because, maintained)
	}
	before := pool.object.Status.Floor
	if before != nil && before.Nodes > spec.Max {
		before = nil
	}
	return floor.Damp(before, wanted, because, l.now(), time.Duration(spec.DampSeconds)*time.Second), nil
}

// renewal says whether the accepted template is known to work, whether busy workers of older ones take no new jobs now,
// and how much of the pool may be away for it.
func (p *poolView) renewal(now time.Time) (proven, busy bool, percent int) {
	renew := v1alpha1.Renew{}
	if p.object.Spec.Renew != nil {
		renew = *p.object.Spec.Renew
	}
	busy = renew.BusyAfterSeconds == 0
	if p.revision != nil {
		proven = p.revision.Annotations[v1alpha1.AnnotationProvenAt] != ""
		if accepted, err := time.Parse(time.RFC3339, p.revision.Annotations[v1alpha1.AnnotationAcceptedAt]); err == nil {
			busy = now.Sub(accepted) >= time.Duration(renew.BusyAfterSeconds)*time.Second
		}
	}
	return proven, busy, int(renew.Percent)
}

// provenTemplate notes on the accepted template's revision that a node came up with it.
func (l *Loop) provenTemplate(ctx context.Context, pool *poolView, pods map[string]*decision.Pod) error {
	if pool.revision == nil || pool.revision.Annotations[v1alpha1.AnnotationProvenAt] != "" {
		return nil
	}
	for _, pod := range pods {
		if pod.Template != pool.templateHash || !pod.SeenUp {
			continue
		}
		proven := pool.revision.DeepCopy()
		if proven.Annotations == nil {
			proven.Annotations = map[string]string{}
		}
		proven.Annotations[v1alpha1.AnnotationProvenAt] = l.now().UTC().Format(time.RFC3339)
		if err := l.Kubernetes.Patch(ctx, proven, client.MergeFrom(pool.revision)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("note that template %s works: %w", pool.templateHash, err)
		}
		pool.revision = proven
		l.Log.Info("template works", "pool", pool.object.Name, "template", pool.templateHash, "node", pod.Name)
		return nil
	}
	return nil
}

// idleCards adds up the time that cards of nodes in service were used by nobody.
type idleCards struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// account writes the pool's shares and idle cards into the metrics.
func (l *Loop) account(view *view, pool *poolView) {
	all, used, idle := 0, 0, 0.0
	for _, name := range pool.names() {
		node := view.nodes[name]
		if node == nil || decision.PhaseOf(node) != decision.Up {
			continue
		}
		if a, u, err := floor.Shares(node, int(pool.object.Spec.SharePercent)); err == nil {
			all, used = all+a, used+u
		}
		has, err := slurmrest.ParseGRES(node.Gres)
		taken, takenErr := slurmrest.ParseGRES(node.GresUsed)
		if err != nil || takenErr != nil {
			continue
		}
		if cards := slurmrest.CountGRES(has, "gpu"); cards > 0 {
			free := float64(cards - slurmrest.CountGRES(taken, "gpu"))
			if slurmrest.CountGRES(taken, "mps")+slurmrest.CountGRES(taken, "shard") > 0 {
				free = max(0, free-1) // a shared card is one card
			}
			idle += free
		}
	}
	name := pool.object.Name
	l.Metrics.Shares.WithLabelValues(name, "used").Set(float64(used))
	l.Metrics.Shares.WithLabelValues(name, "free").Set(float64(all - used))
	l.idle.mu.Lock()
	defer l.idle.mu.Unlock()
	if l.idle.last == nil {
		l.idle.last = map[string]time.Time{}
	}
	now := l.now()
	if last, ok := l.idle.last[name]; ok && now.After(last) {
		// A gap longer than the slowest rounds was no round: nothing is known of it.
		l.Metrics.IdleCards.WithLabelValues(name).Add(idle * min(now.Sub(last), 2*slowest).Seconds())
	}
	l.idle.last[name] = now
}
