package status

import (
	"strings"
	"testing"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/renderer/site"
)

func labSite() *site.Site {
	s := &site.Site{Name: "lab"}
	s.Namespaces = site.Namespaces{Slurm: "slurm", Workers: "slurm-workers", Flux: "flux-system"}
	s.Secrets.Names.AgeKey = "sops-age"
	s.Delivery = site.Delivery{URL: "https://git.example.org/lab.git", Mode: "manifests"}
	return s
}

func conditions(state metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: "Ready", Status: state, Reason: reason, Message: message}}
}

func source() *sourcev1.GitRepository {
	o := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "berth"}}
	o.Status.Conditions = conditions("True", "Succeeded", "stored artifact")
	o.Status.Artifact = &meta.Artifact{Revision: "main@sha1:0123456789abcdef0123456789abcdef01234567"}
	return o
}

func layer(name string, condition []metav1.Condition) *kustomizev1.Kustomization {
	o := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "berth-" + name}}
	o.Spec.Path = "./overlays/lab/" + name
	o.Status.Conditions = condition
	o.Status.LastAppliedRevision = "main@sha1:0123456789abcdef0123456789abcdef01234567"
	return o
}

func config(state v1alpha1.ConfigState, message string) *v1alpha1.SlurmConfig {
	o := &v1alpha1.SlurmConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "slurm"}}
	o.Status.State, o.Status.Message = state, message
	return o
}

func pool(name string, up, min, max int32) *v1alpha1.WorkerPool {
	o := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm-workers", Name: name}}
	o.Spec.Min, o.Spec.Max, o.Status.Nodes = min, max, &v1alpha1.NodeCounts{Up: up}
	o.Status.Conditions = conditions("True", "Followed", "")
	return o
}

func readWith(t *testing.T, objects ...client.Object) *Report {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	report, err := Read(t.Context(), cluster, labSite())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestAllIsWell(t *testing.T) {
	ok := conditions("True", "ReconciliationSucceeded", "Applied revision")
	r := readWith(t, source(), layer("foundation", ok), layer("storage", ok), layer("slurm", ok), config(v1alpha1.ConfigApplied, ""), pool("cpu", 2, 0, 4))
	if !r.Ready || len(r.Stuck) != 0 {
		t.Fatalf("not ready: %+v", r)
	}
	if len(r.Layers) != 3 || r.Layers[0].Name != "foundation" || r.Layers[2].Name != "slurm" {
		t.Errorf("layers in the order of dependence: %+v", r.Layers)
	}
	if p := r.Pools[0]; p.Up != 2 || p.Min != 0 || p.Max != 4 {
		t.Errorf("pool %+v", p)
	}
}

func TestAnEmptyClusterIsToldApart(t *testing.T) {
	r := readWith(t)
	if r.Ready || r.Source.State != Missing || !strings.Contains(r.Stuck[0].Mend, "kubectl apply -k clusters/lab") {
		t.Fatalf("%+v", r)
	}
}

// Each trouble is one line that says why, with the command that mends it.
func TestTroubles(t *testing.T) {
	ok := conditions("True", "ReconciliationSucceeded", "Applied")
	crash := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "slurm-rest-1", Labels: map[string]string{"app.kubernetes.io/part-of": "berth"}}}
	crash.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "slurmrestd", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}}}}
	unplaced := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm-workers", Name: "slurm-worker-cpu-0", Labels: map[string]string{"app.kubernetes.io/part-of": "berth"}}}
	unplaced.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available: 1 Insufficient cpu."}}
	suspended := layer("slurm", ok)
	suspended.Spec.Suspend = true
	for name, c := range map[string]struct {
		object          client.Object
		what, why, mend string
	}{
		"a tree that does not build": {layer("slurm", conditions("False", "BuildFailed", "kustomize build failed:\n accumulating resources")),
			"layer slurm", "kustomize build failed: accumulating resources", "berth render lab --check"},
		"no key in the cluster": {layer("foundation", conditions("False", "BuildFailed", "cannot get sops data key")),
			"layer foundation", "cannot get sops data key", "create secret generic sops-age --from-file=berth.agekey="},
		"a folder that was not pushed": {layer("slurm", conditions("False", "ArtifactFailed", "path not found")),
			"layer slurm", "path not found", "push the rendered folder overlays/lab/slurm"},
		"suspended": {suspended, "layer slurm", "somebody suspended it", "flux resume kustomization berth-slurm -n flux-system"},
		"a configuration that Slurm refuses": {config(v1alpha1.ConfigRefused, "fatal: Unable to determine this slurmd's NodeName"),
			"Slurm's configuration", "refused, the accepted one stays in force: fatal", "mend the site lab"},
		"one that waits for jobs": {config(v1alpha1.ConfigWaitingForJobs, "job 17"), "Slurm's configuration", "waits for jobs that it would end: job 17", "git revert"},
		"a crashing pod":          {crash, "pod slurm/slurm-rest-1", "container slurmrestd: CrashLoopBackOff", "kubectl -n slurm logs slurm-rest-1 -c slurmrestd --previous"},
		"a pod without a node":    {unplaced, "pod slurm-workers/slurm-worker-cpu-0", "no node takes it: 0/1 nodes are available", "describe pod slurm-worker-cpu-0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := readWith(t, source(), c.object)
			if r.Ready || len(r.Stuck) != 1 {
				t.Fatalf("ready %v, stuck %+v", r.Ready, r.Stuck)
			}
			got := r.Stuck[0]
			if got.What != c.what || !strings.HasPrefix(got.Why, c.why) || !strings.Contains(got.Mend, c.mend) {
				t.Errorf("got %+v, want %q %q %q", got, c.what, c.why, c.mend)
			}
			if strings.Contains(got.Why, "\n") {
				t.Error("the reason is more than one line")
			}
		})
	}
}

// A layer that waits for another is not itself in trouble.
func TestWaitingIsNotStuck(t *testing.T) {
	r := readWith(t, source(), layer("slurm", conditions("False", "DependencyNotReady", "dependency 'flux-system/berth-storage' is not ready")))
	if r.Layers[0].State != Blocked || len(r.Stuck) != 0 || r.Ready {
		t.Fatalf("%+v", r)
	}
}

// What the controller has not looked at yet is on its way, whatever its old conditions say.
func TestOldConditionsDoNotCount(t *testing.T) {
	o := config(v1alpha1.ConfigApplied, "")
	o.Generation = 2
	o.Status.ObservedGeneration = 1
	if r := readWith(t, source(), o); r.Slurm.State != string(v1alpha1.ConfigPending) || r.Ready {
		t.Fatalf("%+v", r.Slurm)
	}
}
