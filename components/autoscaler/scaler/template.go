package scaler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

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
	if pool.configAccepted {
		pool.template, pool.templateHash = spec.Template.DeepCopy(), hash
		if !pool.object.DeletionTimestamp.IsZero() || len(revisions) > 0 && revisions[len(revisions)-1].Labels[v1alpha1.LabelTemplate] == hash {
			return nil
		}
		return l.keepTemplate(ctx, pool, revisions, hash, encoded)
	}
	pool.waiting = "the configuration that the template belongs to is not applied yet: see the SlurmConfig"
	if len(revisions) == 0 {
		return nil
	}
	accepted := revisions[len(revisions)-1]
	template := new(corev1.PodTemplateSpec)
	if err := json.Unmarshal(accepted.Data.Raw, template); err != nil {
		return fmt.Errorf("read the accepted template %s: %w", accepted.Name, err)
	}
	pool.template, pool.templateHash = template, accepted.Labels[v1alpha1.LabelTemplate]
	return nil
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
		if err := l.Kubernetes.Update(ctx, again); err != nil {
			return fmt.Errorf("keep the accepted template %s: %w", name, err)
		}
		l.Log.Info("template accepted again", "pool", pool.object.Name, "template", hash)
		return nil
	}
	revision := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: pool.object.Namespace,
			Labels: map[string]string{v1alpha1.LabelPool: pool.object.Name, v1alpha1.LabelTemplate: hash},
		},
		Data: runtime.RawExtension{Raw: encoded}, Revision: number,
	}
	if err := controllerutil.SetControllerReference(pool.object, revision, l.Kubernetes.Scheme()); err != nil {
		return err
	}
	if err := l.Kubernetes.Create(ctx, revision); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("keep the accepted template %s: %w", name, err)
	}
	l.Log.Info("template accepted", "pool", pool.object.Name, "template", hash, "configuration", pool.object.Spec.ConfigHash)
	for len(revisions) >= keptRevisions {
		if err := l.Kubernetes.Delete(ctx, &revisions[0]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the old template %s: %w", revisions[0].Name, err)
		}
		revisions = revisions[1:]
	}
	return nil
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
