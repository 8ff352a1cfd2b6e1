package backup

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-hpc/berth/components/api"
	"github.com/berth-hpc/berth/components/chart"
	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/status"
)

// platform is an API server with a site's workloads as they are rendered, and the controllers that matter played: a workload that
// is scaled has its pod and is ready, or has none; a pod that is made runs. The one named broken is never ready.
func platform(t *testing.T, broken string, more ...client.Object) (*Kubernetes, *[]string) {
	t.Helper()
	sites, err := load.Load("../../clusters", "laptop")
	if err != nil {
		t.Fatal(err)
	}
	s := sites[0]
	s.Delivery.Mode = "manifests"
	rendered, err := emit.Render(t.TempDir(), s, compile.Parts{Chart: chart.Files, ChartDir: chart.Dir, CRDs: api.CRDs()})
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := status.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	k := &Kubernetes{Site: s, Pace: time.Millisecond, Say: t.Logf}
	wanted := map[string]bool{}
	for _, w := range k.workloads() {
		wanted[w.object.GetName()] = true
	}
	var objects []client.Object
	for _, layer := range rendered.Inflated {
		for _, o := range layer.Objects {
			if !wanted[o.Name()] || o.Kind() != "StatefulSet" && o.Kind() != "Deployment" {
				continue
			}
			var typed client.Object = &appsv1.StatefulSet{}
			if o.Kind() == "Deployment" {
				typed = &appsv1.Deployment{}
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Content(), typed); err != nil {
				t.Fatal(err)
			}
			objects = append(objects, typed)
		}
	}
	if len(objects) != 3 {
		t.Fatalf("the site has %d of the three workloads", len(objects))
	}
	var did []string
	play := func(ctx context.Context, c client.WithWatch, o client.Object) error {
		replicas := int32(0)
		var template corev1.PodTemplateSpec
		switch o := o.(type) {
		case *appsv1.StatefulSet:
			replicas, template = *o.Spec.Replicas, o.Spec.Template
			o.Status.ReadyReplicas = replicas
		case *appsv1.Deployment:
			replicas, template = *o.Spec.Replicas, o.Spec.Template
			o.Status.ReadyReplicas = replicas
			if o.Name == broken {
				o.Status.ReadyReplicas = 0
			}
		case *kustomizev1.Kustomization:
			did = append(did, fmt.Sprintf("suspend %s %v", o.Name, o.Spec.Suspend))
			return nil
		case *helmv2.HelmRelease:
			did = append(did, fmt.Sprintf("suspend %s %v", o.Name, o.Spec.Suspend))
			return nil
		}
		did = append(did, fmt.Sprintf("%s %d", o.GetName(), replicas))
		if err := c.Status().Update(ctx, o); err != nil {
			return err
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName() + "-0", Labels: template.Labels}, Spec: template.Spec}
		if replicas == 0 {
			return client.IgnoreNotFound(c.Delete(ctx, p))
		}
		return client.IgnoreAlreadyExists(c.Create(ctx, p))
	}
	k.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, more...)...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
			if err := c.Patch(ctx, o, patch); err != nil {
				return err
			}
			return play(ctx, c, o)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if p, ok := o.(*corev1.Pod); ok && strings.HasPrefix(p.Name, "slurm-restore") {
				defer func() { p.Status.Phase = corev1.PodRunning; _ = k.Client.Status().Update(ctx, p) }()
				did = append(did, "make "+p.Name)
			}
			return c.Create(ctx, o, options...)
		},
	}).Build()
	return k, &did
}

func layer(suspended bool) *kustomizev1.Kustomization {
	return &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "berth-slurm"}, Spec: kustomizev1.KustomizationSpec{Suspend: suspended}}
}

// From all at work to all at work, with the volumes open in between.
func TestStopOpenStart(t *testing.T) {
	release := &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "slurm-platform"}}
	k, did := platform(t, "", layer(false), release)
	ctx := t.Context()
	if err := k.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := k.Stopped(ctx); err != nil {
		t.Error(err)
	}
	state, database, err := k.Open(ctx)
	if err != nil || state != (Container{"slurm-restore-state", "slurmctld"}) || database != (Container{"slurm-restore-database", "mariadb"}) {
		t.Fatalf("%v %v %v", state, database, err)
	}
	for name, claim := range map[string]string{"slurm-restore-state": "slurm-state", "slurm-restore-database": "slurm-database"} {
		var p corev1.Pod
		if err := k.Client.Get(ctx, client.ObjectKey{Namespace: "slurm", Name: name}, &p); err != nil {
			t.Fatal(err)
		}
		claims, c := "", p.Spec.Containers[0]
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				claims += v.PersistentVolumeClaim.ClaimName
			}
		}
		// Where the namespace takes restricted pods only, this one is; and no role's policies or Service are for it.
		if len(p.Spec.Containers) != 1 || claims != claim || c.ReadinessProbe != nil || c.Command[2] != "sleep" || p.Labels[component] != "" ||
			p.Spec.SecurityContext.RunAsNonRoot == nil || *c.SecurityContext.AllowPrivilegeEscalation || p.Spec.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("%s: claims %s, %+v", name, claims, p.Spec)
		}
	}
	if err := k.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := k.Start(ctx); err != nil {
		t.Fatal(err)
	}
	want := "suspend berth-slurm true, suspend slurm-platform true, slurm-controller 0, slurm-accounting 0, slurm-database 0, make slurm-restore-state, make slurm-restore-database, " +
		"slurm-database 1, slurm-accounting 1, slurm-controller 1, suspend berth-slurm false, suspend slurm-platform false"
	if got := strings.Join(*did, ", "); got != want {
		t.Errorf("did %s", got)
	}
	if err := k.Stopped(ctx); err == nil || !strings.Contains(err.Error(), "somebody started slurm-database again") {
		t.Errorf("while all runs: %v", err)
	}
}

// What a person suspended stays so; what a run of ours left suspended when it was killed does not.
func TestWhoSuspended(t *testing.T) {
	theirs, ours := layer(true), layer(true)
	ours.Annotations = map[string]string{suspendedBy: "2026-11-02T10:00:00Z"}
	for _, test := range []struct {
		before *kustomizev1.Kustomization
		after  bool
	}{{theirs, true}, {ours, false}} {
		k, _ := platform(t, "", test.before)
		if err := k.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var after kustomizev1.Kustomization
		if err := k.Client.Get(t.Context(), client.ObjectKeyFromObject(test.before), &after); err != nil {
			t.Fatal(err)
		}
		if _, left := after.Annotations[suspendedBy]; after.Spec.Suspend != test.after || left {
			t.Errorf("suspended %v, with %v", after.Spec.Suspend, after.Annotations)
		}
	}
}

// One that does not come up is named when the time is over, and Flux has the layer all the same.
func TestStartTakesTooLong(t *testing.T) {
	k, did := platform(t, "slurm-accounting", layer(false))
	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := k.Start(ctx); err == nil || err.Error() != "it took too long until slurm-accounting works: not ready" {
		t.Error(err)
	}
	if last := (*did)[len(*did)-1]; last != "suspend berth-slurm false" {
		t.Errorf("did %v", *did)
	}
}
