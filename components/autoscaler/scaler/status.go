package scaler

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/autoscaler/decision"
)

// conditionPlaced says whether Kubernetes runs the pods that Slurm wants. It is apart from Ready: a full cluster is no
// reason to call a commit failed.
const conditionPlaced = "PodsPlaced"

// writeStatus says what the pool does and what it waits for.
func (l *Loop) writeStatus(ctx context.Context, view *view, pool *poolView, holds []decision.Hold, problems []string) error {
	object := pool.object.DeepCopy()
	status := &object.Status
	status.ObservedGeneration = object.Generation
	status.AcceptedTemplateHash = pool.templateHash
	counts := l.count(view, pool)
	status.Nodes = &counts
	status.Floor = &pool.floor

	var refused, unplaced []string
	if pool.refused != "" {
		refused = append(refused, fmt.Sprintf("Kubernetes refuses a pod of the new template, so the one before stays: %s", pool.refused))
	}
	for _, problem := range problems {
		if strings.Contains(problem, "refuses its pod") {
			refused = append(refused, problem)
		} else {
			unplaced = append(unplaced, problem)
		}
	}
	switch {
	case len(refused) > 0:
		setStalled(object, "PodRefused", clip(strings.Join(refused, "; ")))
	case pool.waiting != "":
		setReconciling(object, "ConfigurationPending", pool.waiting)
	case !object.DeletionTimestamp.IsZero():
		setReconciling(object, "Removing", clip(l.removing(ctx, view, pool)))
	case missing(view, pool) > 0:
		setReconciling(object, "SlurmLacksNodes", fmt.Sprintf("slurmctld does not know %d of the pool's %d nodes", missing(view, pool), object.Spec.Max))
	case counts.Up < pool.floor.Nodes:
		setReconciling(object, "BelowFloor", fmt.Sprintf("%d of at least %d nodes are up (%s), %d are starting", counts.Up, pool.floor.Nodes, pool.floor.Because, counts.PoweringUp))
	default:
		setReady(object, fmt.Sprintf("follows slurmctld: up to %d nodes", object.Spec.Max))
	}
	placed := metav1.Condition{Type: conditionPlaced, Status: metav1.ConditionTrue, Reason: "Placed", Message: "Kubernetes runs what Slurm wants", ObservedGeneration: object.Generation}
	if notes := append(unplaced, texts(holds)...); len(notes) > 0 {
		placed.Status, placed.Reason, placed.Message = metav1.ConditionFalse, "Waiting", clip(strings.Join(notes, "; "))
	}
	if meta.SetStatusCondition(&status.Conditions, placed) && placed.Status == metav1.ConditionFalse {
		l.Events.Eventf(pool.object, nil, corev1.EventTypeWarning, "NotPlaced", "Scale", "%s", placed.Message)
		l.Log.Warn("not placed", "pool", object.Name, "why", placed.Message)
	}
	l.Metrics.nodes(object.Name, counts, len(unplaced), pool.floor.Nodes)
	l.drained(view, pool)
	l.account(view, pool)
	return l.patchStatus(ctx, pool.object, object)
}

// writeUnreachable says that nothing is decided because Slurm gives no fresh answer.
func (l *Loop) writeUnreachable(ctx context.Context, pool *poolView, cause error) error {
	object := pool.object.DeepCopy()
	why := "nothing is changed until slurmctld answers: " + cause.Error()
	if !object.DeletionTimestamp.IsZero() {
		why = fmt.Sprintf("waits for %d pods, whose jobs slurmctld alone knows. Mend that it does not answer, or, %s. It says: %s", len(pool.pods), forced(object), cause)
	}
	meta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: "SlurmUnreachable",
		Message: clip(why), ObservedGeneration: object.Generation,
	})
	return l.patchStatus(ctx, pool.object, object)
}

func (l *Loop) patchStatus(ctx context.Context, before, after *v1alpha1.WorkerPool) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}
	if err := l.Kubernetes.Status().Patch(ctx, after, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

func (l *Loop) count(view *view, pool *poolView) v1alpha1.NodeCounts {
	var counts v1alpha1.NodeCounts
	for _, name := range pool.names() {
		node := view.nodes[name]
		if node == nil {
			continue
		}
		switch phase := decision.PhaseOf(node); {
		case phase == decision.Starting:
			counts.PoweringUp++
		case phase == decision.Up && decision.Busy(node):
			counts.Up++
			counts.Busy++
		case decision.InService(node):
			counts.Up++
			counts.Idle++
		}
	}
	return counts
}

func missing(view *view, pool *poolView) int {
	count := 0
	for _, name := range pool.names() {
		if view.nodes[name] == nil {
			count++
		}
	}
	return count
}

func texts(holds []decision.Hold) []string {
	var lines []string
	for _, hold := range holds {
		lines = append(lines, hold.Node+": "+hold.Why)
	}
	return lines
}

func setReady(object *v1alpha1.WorkerPool, text string) {
	meta.RemoveStatusCondition(&object.Status.Conditions, v1alpha1.ConditionReconciling)
	meta.RemoveStatusCondition(&object.Status.Conditions, v1alpha1.ConditionStalled)
	set(object, v1alpha1.ConditionReady, metav1.ConditionTrue, "Serving", text)
}

func setReconciling(object *v1alpha1.WorkerPool, reason, text string) {
	meta.RemoveStatusCondition(&object.Status.Conditions, v1alpha1.ConditionStalled)
	set(object, v1alpha1.ConditionReconciling, metav1.ConditionTrue, reason, text)
	set(object, v1alpha1.ConditionReady, metav1.ConditionFalse, reason, text)
}

func setStalled(object *v1alpha1.WorkerPool, reason, text string) {
	meta.RemoveStatusCondition(&object.Status.Conditions, v1alpha1.ConditionReconciling)
	set(object, v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, text)
	set(object, v1alpha1.ConditionReady, metav1.ConditionFalse, reason, text)
}

func set(object *v1alpha1.WorkerPool, kind string, status metav1.ConditionStatus, reason, text string) {
	meta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: text, ObservedGeneration: object.Generation,
	})
}

// finalize keeps the finalizer on a living pool, and takes it off one that is being deleted once its pods have gone.
// That needs no answer of Slurm's: without pods there is nothing that could lose a job.
func (l *Loop) finalize(ctx context.Context, pool *poolView) (removed bool, err error) {
	object := pool.object.DeepCopy()
	switch {
	case object.DeletionTimestamp.IsZero():
		if !controllerutil.AddFinalizer(object, v1alpha1.FinalizerWorkers) {
			return false, nil
		}
	case len(pool.pods) > 0:
		return false, nil
	default:
		var left corev1.PodList // the cache may be behind
		err := l.Live.List(ctx, &left, client.InNamespace(l.WorkersNamespace), client.MatchingLabels{v1alpha1.LabelPool: object.Name})
		if err != nil || len(left.Items) > 0 {
			return false, err
		}
		if !controllerutil.RemoveFinalizer(object, v1alpha1.FinalizerWorkers) {
			return true, nil
		}
		removed = true
		l.Log.Info("pool removed", "pool", object.Name)
	}
	if err := l.Kubernetes.Patch(ctx, object, client.MergeFromWithOptions(pool.object, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("change the finalizer: %w", err)
	}
	pool.object = object
	return removed, nil
}
