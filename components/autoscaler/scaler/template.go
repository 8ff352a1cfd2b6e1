package scaler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

// keptRevisions is how many accepted templates are kept; a rollback needs one.
const keptRevisions = 3

// acceptTemplate finds the template that the pool's pods are made from. The pool's own is it as soon as slurmctld runs
// with the configuration that it belongs to; until then the last accepted one stays, kept as a ControllerRevision. So
// the template and slurm.conf change together, also across a restart.
func (l *Loop) acceptTemplate(ctx context.Context, view *view, pool *poolView) error {
	spec := &pool.object.Spec
	pool.configAccepted = spec.ConfigHash == "" || spec.ConfigHash == view.acceptedHash
	revisions, err := l.revisions(ctx, pool)
	if err != nil {
		return err
	}
	hash, encoded, err := templateHash(spec)
	if err != nil {
		return err
	}
	var last *appsv1.ControllerRevision
	if len(revisions) > 0 {
		last = &revisions[len(revisions)-1]
	}
	removing := !pool.object.DeletionTimestamp.IsZero()
	switch {
	case !pool.configAccepted:
		pool.waiting = "the configuration that the template belongs to is not applied yet: see the SlurmConfig"
	case last != nil && last.Labels[v1alpha1.LabelTemplate] == hash:
		pool.template, pool.templateHash, pool.revision = spec.Template.DeepCopy(), hash, last
		return nil
	case removing:
		pool.template, pool.templateHash = spec.Template.DeepCopy(), hash
		return nil
	default:
		refused, err := l.tryTemplate(ctx, pool, hash)
		if err != nil {
			return err
		}
		if refused == "" {
			pool.template, pool.templateHash = spec.Template.DeepCopy(), hash
			return l.keepTemplate(ctx, pool, revisions, hash, encoded)
		}
		pool.refused = refused
	}
	if last == nil {
		return nil
	}
	template := new(corev1.PodTemplateSpec)
	if err := json.Unmarshal(last.Data.Raw, template); err != nil {
		return fmt.Errorf("read the accepted template %s: %w", last.Name, err)
	}
	pool.template, pool.templateHash, pool.revision = template, last.Labels[v1alpha1.LabelTemplate], last
	return nil
}

// tryTemplate asks the API server whether it would take a pod of the pool's newest template, and says why not. A pool
// goes on with the template before one that is refused: pod security, a webhook or a policy would refuse every pod.
func (l *Loop) tryTemplate(ctx context.Context, pool *poolView, hash string) (refused string, err error) {
	trial := *pool
	trial.template, trial.templateHash = &pool.object.Spec.Template, hash
	pod, err := buildPod(&trial, pool.object.Spec.NodeName(0), false, l.Kubernetes.Scheme())
	if err != nil {
		return "", err
	}
	// A name of its own: the first node's may be taken by a pod that runs.
	pod.Name = pool.object.Spec.NodePrefix + "-trial"
	err = l.Kubernetes.Create(ctx, pod, client.DryRunAll)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return "", nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return "", nil // room may be made: no fault of the template
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return message(err), nil
	}
	return "", fmt.Errorf("try a pod of template %s: %w", hash, err)
}

// keepTemplate writes the template as the newest revision and deletes the oldest ones.
func (l *Loop) keepTemplate(ctx context.Context, pool *poolView, revisions []appsv1.ControllerRevision, hash string, encoded []byte) error {
	number := int64(1)
	if len(revisions) > 0 {
		number = revisions[len(revisions)-1].Revision + 1
	}
	name := pool.object.Name + "-" + hash
	for i := range revisions { // a rollback: the old revision becomes the newest
		if revisions[i].Name != name {
			continue
		}
		again := revisions[i].DeepCopy()
		again.Revision = number
		again.Annotations = l.acceptedNow(again.Annotations)
		if err := l.Kubernetes.Update(ctx, again); err != nil {
			return fmt.Errorf("keep the accepted template %s: %w", name, err)
		}
		pool.revision = again
		l.Log.Info("template accepted again", "pool", pool.object.Name, "template", hash)
		return nil
	}
	revision := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: pool.object.Namespace,
			Labels:      map[string]string{v1alpha1.LabelPool: pool.object.Name, v1alpha1.LabelTemplate: hash},
			Annotations: l.acceptedNow(nil),
		},
		Data: runtime.RawExtension{Raw: encoded}, Revision: number,
	}
	if err := controllerutil.SetControllerReference(pool.object, revision, l.Kubernetes.Scheme()); err != nil {
		return err
	}
	if err := l.Kubernetes.Create(ctx, revision); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("keep the accepted template %s: %w", name, err)
	}
	pool.revision = revision
	l.Log.Info("template accepted", "pool", pool.object.Name, "template", hash, "configuration", pool.object.Spec.ConfigHash)
	for len(revisions) >= keptRevisions {
		if err := l.Kubernetes.Delete(ctx, &revisions[0]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the old template %s: %w", revisions[0].Name, err)
		}
		revisions = revisions[1:]
	}
	return nil
}

// acceptedNow are the annotations of a revision that is accepted now; whether it works was seen before, or is not yet known.
func (l *Loop) acceptedNow(annotations map[string]string) map[string]string {
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationAcceptedAt] = l.now().UTC().Format(time.RFC3339)
	return annotations
}

// templateHash identifies what a pool's pods are made from: the template and, because they are set by the autoscaler,
// the host pins and the grace.
func templateHash(spec *v1alpha1.WorkerPoolSpec) (hash string, encoded []byte, err error) {
	encoded, err = json.Marshal(spec.Template)
	if err != nil {
		return "", nil, fmt.Errorf("encode the pod template: %w", err)
	}
	sum := sha256.New()
	sum.Write(encoded)
	fmt.Fprintf(sum, "\x00%q %d", spec.Hosts, spec.DrainSeconds)
	return hex.EncodeToString(sum.Sum(nil))[:10], encoded, nil
}
