package scaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/autoscaler/record"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// parallel bounds how many actions of one pool run at a time, so that a gang's pods start together and a thousand do not
// crush the API server.
const parallel = 16

// errStale ends a round whose node states have become too old to act on.
var errStale = errors.New("the answer of Slurm became old before everything was done; the rest waits for the next round")

// execute does the actions, several at a time, and returns what a person must know (a pod that Kubernetes refuses)
// beside errors that the next round may get over, and what became of each action.
func (l *Loop) execute(ctx context.Context, view *view, pool *poolView, actions []decision.Action) (problems []string, done []record.Done, err error) {
	var (
		mu       sync.Mutex
		failures []error
		group    sync.WaitGroup
		slots    = make(chan struct{}, parallel)
	)
	done = make([]record.Done, len(actions))
	for i, action := range actions {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			problem, ok, err := l.one(ctx, view, pool, action)
			mu.Lock()
			defer mu.Unlock()
			done[i] = record.Done{Action: action, Failed: failed(problem, ok, err)}
			if problem != "" {
				problems = append(problems, problem)
			}
			if err != nil {
				failures = append(failures, fmt.Errorf("%s %s: %w", action.Kind, action.Node, err))
			}
		})
	}
	group.Wait()
	return problems, done, errors.Join(failures...)
}

// failed says why an action was not done; "": it was.
func failed(problem string, done bool, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case problem != "":
		return problem
	case !done:
		return "not yet: Kubernetes still has the pod"
	}
	return ""
}

// one does one action and leaves the record of it. done says whether it was done.
func (l *Loop) one(ctx context.Context, view *view, pool *poolView, action decision.Action) (problem string, done bool, err error) {
	if l.now().Sub(view.fetched) > freshFor {
		return "", false, errStale
	}
	done = true
	switch action.Kind {
	case decision.CreatePod:
		problem, done, err = l.create(ctx, view, pool, action)
	case decision.DeletePod:
		err = l.delete(ctx, action)
	case decision.MarkSeenUp:
		err = l.patch(ctx, action, map[string]any{"annotations": map[string]any{v1alpha1.AnnotationSeenUp: l.now().UTC().Format(time.RFC3339)}})
	case decision.MarkBusy:
		err = l.patch(ctx, action, map[string]any{"labels": map[string]any{v1alpha1.LabelBusy: "true"}})
	case decision.MarkIdle:
		err = l.patch(ctx, action, map[string]any{"labels": map[string]any{v1alpha1.LabelBusy: nil}})
	case decision.SetDown:
		if done, err = l.reallyGone(ctx, action); done && err == nil {
			err = l.Slurm.UpdateNode(ctx, action.Node, slurmrest.Down, decision.ReasonPrefix+" "+action.Why)
		}
	case decision.PowerDown:
		err = l.Slurm.UpdateNode(ctx, action.Node, slurmrest.PowerDown, "")
	case decision.PowerDownASAP:
		err = l.Slurm.UpdateNode(ctx, action.Node, slurmrest.PowerDown|slurmrest.PowerDrain, decision.ReasonPrefix+" "+action.Why)
	case decision.PowerUp:
		err = l.Slurm.UpdateNode(ctx, action.Node, slurmrest.PowerUp, "")
	case decision.Drain:
		err = l.Slurm.UpdateNode(ctx, action.Node, slurmrest.Drain, decision.ReasonPrefix+" "+action.Why)
	case decision.Resume:
		err = l.Slurm.UpdateNode(ctx, action.Node, slurmrest.Resume, "")
	default:
		err = fmt.Errorf("unknown action %q", action.Kind)
	}
	if err != nil || !done {
		return problem, false, err
	}
	l.Metrics.Actions.WithLabelValues(pool.object.Name, string(action.Kind)).Inc()
	l.Log.Info(string(action.Kind), "node", action.Node, "pool", pool.object.Name, "why", action.Why)
	if action.Kind != decision.MarkBusy && action.Kind != decision.MarkIdle && action.Kind != decision.MarkSeenUp {
		l.Events.Eventf(pool.object, nil, corev1.EventTypeNormal, string(action.Kind), "Scale", "%s: %s", action.Node, action.Why)
	}
	return problem, true, nil
}

// create makes the node's pod. A refusal is a problem that a person must see; a name that is still taken is none.
func (l *Loop) create(ctx context.Context, view *view, pool *poolView, action decision.Action) (problem string, done bool, err error) {
	node := view.nodes[action.Node]
	pod, err := buildPod(pool, action.Node, node != nil && decision.Busy(node), l.Kubernetes.Scheme())
	if err != nil {
		return "", false, err
	}
	err = l.Kubernetes.Create(ctx, pod)
	switch {
	case err == nil:
		return "", true, nil
	case apierrors.IsAlreadyExists(err):
		// The old pod of the name has not gone yet, or the cache is behind. If it is not ours, only a person can help.
		existing := new(corev1.Pod)
		if getErr := l.Live.Get(ctx, client.ObjectKeyFromObject(pod), existing); getErr == nil && existing.Labels[v1alpha1.LabelNode] == "" {
			return fmt.Sprintf("%s: a pod of that name exists that Berth did not make; delete it", action.Node), false, nil
		}
		return "", false, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		problem = fmt.Sprintf("%s: Kubernetes refuses its pod: %s", action.Node, message(err))
		l.Metrics.Refused.WithLabelValues(pool.object.Name).Inc()
		l.Events.Eventf(pool.object, nil, corev1.EventTypeWarning, "PodRefused", "Scale", "%s", clip(problem))
		return problem, false, nil
	}
	return "", false, err
}

// delete deletes exactly the pod that the decision was about, with its own grace.
func (l *Loop) delete(ctx context.Context, action decision.Action) error {
	uid := types.UID(action.UID)
	err := l.Kubernetes.Delete(ctx, objectMeta(l.WorkersNamespace, action.Node), client.Preconditions{UID: &uid})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it has gone, or another has its name
		return nil
	}
	return err
}

// patch changes a pod's metadata, of exactly the pod that the decision was about.
func (l *Loop) patch(ctx context.Context, action decision.Action, metadata map[string]any) error {
	metadata["uid"] = action.UID
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	err = l.Kubernetes.Patch(ctx, objectMeta(l.WorkersNamespace, action.Node), client.RawPatch(types.MergePatchType, body))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

// reallyGone asks the API server itself whether the node's pod is gone or has ended: the cache may be behind, and DOWN
// kills jobs.
func (l *Loop) reallyGone(ctx context.Context, action decision.Action) (bool, error) {
	pod := new(corev1.Pod)
	err := l.Live.Get(ctx, client.ObjectKey{Namespace: l.WorkersNamespace, Name: action.Node}, pod)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return podOf(pod).Ended, nil
}

// message is what the API server says, without the prefix that client-go puts before it.
func message(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		return status.Status().Message
	}
	return err.Error()
}

// clip keeps a message under the API server's limit for an event's note (1,024 bytes).
func clip(message string) string {
	if len(message) > 1000 {
		return message[:997] + "…"
	}
	return message
}
