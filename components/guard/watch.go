package guard

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

const (
	// usual is the pace at which the guard looks whether slurmctld still runs with the accepted configuration.
	usual = time.Minute
	// retry is the pace after an error of the guard's own.
	retry = 5 * time.Second
	// roundTimeout bounds one look, trial and reconfigure included.
	roundTimeout = 5 * time.Minute
)

// Watcher runs a Guard on one SlurmConfig of a Kubernetes cluster.
type Watcher struct {
	Guard      *Guard
	Kubernetes client.WithWatch
	Events     events.EventRecorder
	Key        client.ObjectKey
}

// Run looks at the SlurmConfig whenever it changes, and at its own pace, until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	go w.watch(ctx, changed)
	for {
		again, err := w.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			w.Guard.Log.Error("round failed", "error", err)
		}
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// watch signals every change of the SlurmConfig. A watch that ends is begun again.
func (w *Watcher) watch(ctx context.Context, changed chan<- struct{}) {
	for ctx.Err() == nil {
		watching, err := w.Kubernetes.Watch(ctx, &v1alpha1.SlurmConfigList{}, client.InNamespace(w.Key.Namespace),
			client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", w.Key.Name)})
		if err != nil {
			w.Guard.Log.Warn("cannot watch the SlurmConfig; looking at it every now and then", "error", err)
		} else {
			var generation int64
			for event := range watching.ResultChan() {
				config, ok := event.Object.(*v1alpha1.SlurmConfig)
				if !ok || config.Generation == generation { // a status that we wrote ourselves
					continue
				}
				generation = config.Generation
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}

// round is one look. It returns when the next is due.
func (w *Watcher) round(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	config := new(v1alpha1.SlurmConfig)
	if err := w.Kubernetes.Get(ctx, w.Key, config); err != nil {
		if apierrors.IsNotFound(err) { // slurmctld keeps what it has
			return retry, nil
		}
		return retry, fmt.Errorf("read the SlurmConfig: %w", err)
	}
	if config.Status.ObservedGeneration != config.Generation {
		// Say at once that this generation is looked at: a trial and a reconfigure take seconds.
		before := config.DeepCopy()
		WriteStatus(config, Outcome{State: v1alpha1.ConfigPending, Message: "a scratch slurmctld tries it"}, metav1.Now())
		if err := w.patch(ctx, before, config); err != nil {
			return retry, err
		}
	}
	outcome, err := w.Guard.Reconcile(ctx, config)
	if err != nil {
		outcome = Outcome{State: v1alpha1.ConfigPending, Message: err.Error(), Again: retry}
	}
	before := config.DeepCopy()
	WriteStatus(config, outcome, metav1.Now())
	if patchErr := w.patch(ctx, before, config); patchErr != nil {
		return retry, patchErr
	}
	w.record(before, config)
	w.recordDeeds(config, outcome.Did)
	if outcome.Again > 0 {
		return outcome.Again, err
	}
	return usual, err
}

// patch writes a changed status. The optimistic lock keeps it from speaking about a generation that is not the newest.
func (w *Watcher) patch(ctx context.Context, before, after *v1alpha1.SlurmConfig) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := w.Kubernetes.Status().Patch(ctx, after, patch); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// recordDeeds leaves an event about what was brought in line with the SlurmConfig: after a push, or because somebody
// changed it by hand.
func (w *Watcher) recordDeeds(config *v1alpha1.SlurmConfig, did []string) {
	if w.Events == nil || len(did) == 0 {
		return
	}
	w.Events.Eventf(config, nil, corev1.EventTypeNormal, "BroughtInLine", "Configure", "%s", note(strings.Join(did, "; ")))
}

// note fits the API server's limit for an event's note, 1 KiB.
func note(message string) string {
	if len(message) > 1000 {
		return message[:997] + "…"
	}
	return message
}

// record leaves an event where the state or its reason changed.
func (w *Watcher) record(before, after *v1alpha1.SlurmConfig) {
	state := after.Status.State
	if w.Events == nil || before.Status.State == state && before.Status.Message == after.Status.Message || state == v1alpha1.ConfigPending {
		return
	}
	kind := corev1.EventTypeNormal
	if state == v1alpha1.ConfigRefused {
		kind = corev1.EventTypeWarning
	}
	message := after.Status.Message
	if message == "" {
		message = fmt.Sprintf("generation %d", after.Generation)
	}
	w.Events.Eventf(after, nil, kind, string(state), "Configure", "%s", note(message))
}
