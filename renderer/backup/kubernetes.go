package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/renderer/compile/flux"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/site"
)

// suspendedBy is on what Flux was told by us to leave alone, and says since when. What a person suspended has none, and stays so.
const suspendedBy = "berth-hpc.github.io/restore"

// component is the label with a pod's role.
const component = "app.kubernetes.io/component"

// Kubernetes are the services of a site in its cluster.
type Kubernetes struct {
	Client client.Client
	Site   *site.Site
	// Pace is how often it looks.
	Pace time.Duration
	// Say tells a person what it waits for.
	Say func(format string, args ...any)
}

// workload is a StatefulSet or Deployment with one pod.
type workload struct {
	object client.Object
	role   string
}

// workloads are those of the services, in the order in which they start.
func (k *Kubernetes) workloads() []workload {
	at := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: k.Site.Namespaces.Slurm, Name: name}
	}
	return []workload{
		{&appsv1.StatefulSet{ObjectMeta: at("slurm-database")}, "database"},
		{&appsv1.Deployment{ObjectMeta: at("slurm-accounting")}, "accounting"},
		{&appsv1.StatefulSet{ObjectMeta: at("slurm-controller")}, "controller"},
	}
}

// get reads a workload's wanted pods, and whether they work.
func (k *Kubernetes) get(ctx context.Context, w workload) (replicas int32, ready bool, err error) {
	if err := k.Client.Get(ctx, client.ObjectKeyFromObject(w.object), w.object); err != nil {
		return 0, false, fmt.Errorf("%s: %w", w.object.GetName(), err)
	}
	replicas = 1
	switch o := w.object.(type) {
	case *appsv1.StatefulSet:
		if o.Spec.Replicas != nil {
			replicas = *o.Spec.Replicas
		}
		return replicas, o.Status.ObservedGeneration >= o.Generation && o.Status.ReadyReplicas >= 1, nil
	case *appsv1.Deployment:
		if o.Spec.Replicas != nil {
			replicas = *o.Spec.Replicas
		}
		return replicas, o.Status.ObservedGeneration >= o.Generation && o.Status.ReadyReplicas >= 1, nil
	}
	return 0, false, fmt.Errorf("%T has no pods", w.object)
}

func (k *Kubernetes) scale(ctx context.Context, w workload, replicas int) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := k.Client.Patch(ctx, w.object, patch, client.FieldOwner(naming.PartOf)); err != nil {
		return fmt.Errorf("scale %s to %d: %w", w.object.GetName(), replicas, err)
	}
	return nil
}

// Stop suspends what Flux makes them with, and takes their pods away.
func (k *Kubernetes) Stop(ctx context.Context) error {
	for _, w := range k.workloads() { // before anything changes: are they all there?
		if _, _, err := k.get(ctx, w); err != nil {
			return err
		}
	}
	if err := k.suspend(ctx, true); err != nil {
		return err
	}
	// What asks the others first, so that none of them waits for an answer in vain.
	list := k.workloads()
	slices.Reverse(list)
	for _, w := range list {
		if err := k.scale(ctx, w, 0); err != nil {
			return err
		}
	}
	return k.until(ctx, "they have stopped", func() (string, error) {
		left, err := k.pods(ctx)
		return strings.Join(left, ", "), err
	})
}

// pods are those of the services that are there.
func (k *Kubernetes) pods(ctx context.Context) ([]string, error) {
	var list corev1.PodList
	if err := k.Client.List(ctx, &list, client.InNamespace(k.Site.Namespaces.Slurm), client.MatchingLabels{"app.kubernetes.io/part-of": naming.PartOf}); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		if slices.ContainsFunc(k.workloads(), func(w workload) bool { return w.role == list.Items[i].Labels[component] }) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

// Stopped looks whether any of them has a pod, or is about to have one.
func (k *Kubernetes) Stopped(ctx context.Context) error {
	for _, w := range k.workloads() {
		replicas, _, err := k.get(ctx, w)
		if err != nil {
			return err
		}
		if replicas != 0 {
			return fmt.Errorf("somebody started %s again meanwhile", w.object.GetName())
		}
	}
	left, err := k.pods(ctx)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("somebody started %s again meanwhile", strings.Join(left, ", "))
	}
	return err
}

// suspend tells Flux to leave the services alone, or to see to them again. Not every site is delivered by both kinds.
func (k *Kubernetes) suspend(ctx context.Context, suspended bool) error {
	at := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: k.Site.Namespaces.Flux, Name: name}
	}
	for _, o := range []client.Object{
		&kustomizev1.Kustomization{ObjectMeta: at(flux.KustomizationName("slurm"))},
		&helmv2.HelmRelease{ObjectMeta: at(naming.ReleaseName)},
	} {
		err := k.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", o.GetName(), err)
		}
		now := false
		switch o := o.(type) {
		case *kustomizev1.Kustomization:
			now = o.Spec.Suspend
		case *helmv2.HelmRelease:
			now = o.Spec.Suspend
		}
		_, ours := o.GetAnnotations()[suspendedBy]
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"suspend":true}}`, suspendedBy, time.Now().UTC().Format(time.RFC3339))
		if !suspended {
			patch = fmt.Sprintf(`{"metadata":{"annotations":{%q:null}},"spec":{"suspend":false}}`, suspendedBy)
		}
		if suspended && now || !suspended && !ours {
			continue
		}
		if err := k.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(naming.PartOf)); err != nil {
			return fmt.Errorf("suspend %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// openers are the pods that have the volumes while the services are stopped.
func (k *Kubernetes) openers() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, name := range []string{"slurm-restore-state", "slurm-restore-database"} {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: k.Site.Namespaces.Slurm, Name: name, Labels: naming.Labels("slurm-restore")}})
	}
	return pods
}

// Open makes a pod beside each StatefulSet, from its template: the same image, user, host and volumes, with nothing running.
func (k *Kubernetes) Open(ctx context.Context) (state, database Container, err error) {
	if err := k.Close(ctx); err != nil { // those of a run that was killed
		return state, database, err
	}
	list := k.workloads()
	pods := k.openers()
	for i, w := range []workload{list[2], list[0]} {
		if _, _, err := k.get(ctx, w); err != nil {
			return state, database, err
		}
		pods[i].Spec = idle(w.object.(*appsv1.StatefulSet).Spec.Template.Spec)
		if err := k.Client.Create(ctx, pods[i], client.FieldOwner(naming.PartOf)); err != nil {
			return state, database, fmt.Errorf("make pod %s: %w", pods[i].Name, err)
		}
	}
	err = k.until(ctx, "the volumes are there", func() (string, error) {
		var waits []string
		for _, pod := range pods {
			if err := k.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return "", err
			}
			if pod.Status.Phase != corev1.PodRunning {
				waits = append(waits, "pod "+pod.Name+" "+why(pod))
			}
		}
		return strings.Join(waits, "; "), nil
	})
	at := func(pod *corev1.Pod) Container { return Container{pod.Name, pod.Spec.Containers[0].Name} }
	return at(pods[0]), at(pods[1]), err
}

// idle is a pod of a template's first container that does nothing for a day.
func idle(template corev1.PodSpec) corev1.PodSpec {
	spec := *template.DeepCopy()
	day, grace := int64(24*60*60), int64(2)
	c := spec.Containers[0]
	c.Command, c.Args = []string{"/usr/bin/tini", "--", "sleep", fmt.Sprint(day)}, nil
	c.Ports, c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = nil, nil, nil, nil
	spec.Containers, spec.InitContainers = []corev1.Container{c}, nil
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		return !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
	})
	spec.RestartPolicy, spec.ActiveDeadlineSeconds, spec.TerminationGracePeriodSeconds = corev1.RestartPolicyNever, &day, &grace
	return spec
}

// why says what a pod waits for.
func why(pod *corev1.Pod) string {
	words := string(pod.Status.Phase)
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			words += " " + c.State.Waiting.Reason + " " + c.State.Waiting.Message
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Status == corev1.ConditionFalse && c.Message != "" {
			words += " " + c.Message
		}
	}
	return strings.TrimSpace(words)
}

// Close deletes those pods and waits until they are gone: a volume may be for one host alone.
func (k *Kubernetes) Close(ctx context.Context) error {
	for _, pod := range k.openers() {
		if err := k.Client.Delete(ctx, pod); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete pod %s: %w", pod.Name, err)
		}
	}
	return k.until(ctx, "their pods are gone", func() (string, error) {
		var left []string
		for _, pod := range k.openers() {
			err := k.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
			if err == nil {
				left = append(left, pod.Name)
			} else if !apierrors.IsNotFound(err) {
				return "", err
			}
		}
		return strings.Join(left, ", "), nil
	})
}

// Start gives each its pod when the one before works, and the services back to Flux in any case.
func (k *Kubernetes) Start(ctx context.Context) error {
	err := k.start(ctx)
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(err, k.suspend(short, false))
}

func (k *Kubernetes) start(ctx context.Context) error {
	for _, w := range k.workloads() {
		if err := k.scale(ctx, w, 1); err != nil {
			return err
		}
		err := k.until(ctx, w.object.GetName()+" works", func() (string, error) {
			_, ready, err := k.get(ctx, w)
			if err != nil || ready {
				return "", err
			}
			return "not ready", nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// until looks again and again until nothing is left to wait for. A cluster that does not answer is asked again.
func (k *Kubernetes) until(ctx context.Context, what string, look func() (waits string, err error)) error {
	said := false
	for {
		waits, err := look()
		if err == nil && waits == "" {
			return nil
		}
		if err != nil {
			waits = err.Error()
		}
		if !said {
			k.Say("waits until %s", what)
			said = true
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("it took too long until %s: %s", what, waits)
			}
			return ctx.Err()
		case <-time.After(k.Pace):
		}
	}
}
