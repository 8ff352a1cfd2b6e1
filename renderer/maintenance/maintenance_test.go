package maintenance

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-hpc/berth/renderer/site"
)

func host(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name + ".lab"}}}
}

func pod(namespace, name, component, host string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "berth", "app.kubernetes.io/component": component}}}
	p.Spec.NodeName = host
	return p
}

func labSite() *site.Site {
	s := &site.Site{Name: "lab"}
	s.Namespaces.Slurm, s.Namespaces.Workers = "slurm", "slurm-workers"
	return s
}

// A host that berth cordoned is given back by it; one that a person cordoned is not, and is left as it is.
func TestCordonAndBack(t *testing.T) {
	ctx := t.Context()
	theirs := host("bell")
	theirs.Spec.Unschedulable = true
	cluster := fake.NewClientBuilder().WithObjects(host("ada"), theirs).Build()
	node, err := Find(ctx, cluster, "ada.lab")
	if err != nil || node.Name != "ada" {
		t.Fatal(node, err)
	}
	if before, err := Cordon(ctx, cluster, node, time.Unix(0, 0)); before || err != nil {
		t.Fatal(before, err)
	}
	node, _ = Find(ctx, cluster, "ada")
	if !node.Spec.Unschedulable || node.Annotations[Annotation] != "1970-01-01T00:00:00Z" {
		t.Errorf("after drain: %v %v", node.Spec.Unschedulable, node.Annotations)
	}
	if before, err := Cordon(ctx, cluster, node, time.Now()); !before || err != nil || node.Annotations[Annotation] != "1970-01-01T00:00:00Z" {
		t.Errorf("a second drain: %v %v %v", before, err, node.Annotations)
	}
	if since, err := Uncordon(ctx, cluster, node); since != "1970-01-01T00:00:00Z" || err != nil {
		t.Error(since, err)
	}
	node, _ = Find(ctx, cluster, "ada")
	if _, left := node.Annotations[Annotation]; node.Spec.Unschedulable || left {
		t.Errorf("after undrain: %v %v", node.Spec.Unschedulable, node.Annotations)
	}
	if since, err := Uncordon(ctx, cluster, node); since != "" || err != nil {
		t.Error("one that serves already:", since, err)
	}

	node, _ = Find(ctx, cluster, "bell")
	if before, err := Cordon(ctx, cluster, node, time.Now()); !before || err != nil {
		t.Error(before, err)
	}
	if _, err := Uncordon(ctx, cluster, node); err == nil || !strings.Contains(err.Error(), "kubectl uncordon bell") {
		t.Errorf("a person's cordon: %v", err)
	}
	if node, _ = Find(ctx, cluster, "bell"); !node.Spec.Unschedulable {
		t.Error("a person's cordon was lifted")
	}
	if _, err := Find(ctx, cluster, "cray"); err == nil || !strings.Contains(err.Error(), "no host cray; it has ada, bell") {
		t.Error(err)
	}
}

// The lines are squeue's own, of Slurm 24.11.
func TestLook(t *testing.T) {
	ended := pod("slurm-workers", "slurm-worker-cpu-9", "worker", "ada")
	ended.Status.Phase = corev1.PodSucceeded
	objects := []client.Object{host("ada"), ended,
		pod("slurm-workers", "slurm-worker-cpu-3", "worker", "ada"), pod("slurm-workers", "slurm-worker-cpu-2", "worker", "ada"),
		pod("slurm-workers", "slurm-worker-cpu-0", "worker", "bell"), pod("slurm", "slurm-rest-1", "rest", "ada")}
	cluster := fake.NewClientBuilder().WithObjects(objects...).Build()
	answer := "228|student|slurm-worker-cpu-3|54:52|1|1|\n264|researcher|slurm-worker-cpu-[2-3]|59:19|1|0|\n265|researcher|slurm-worker-cpu-2|1:00|0|1|\n"
	var asked []string
	ask := func(_ context.Context, argv ...string) (string, error) {
		asked = argv
		return answer, nil
	}
	h, err := Look(t.Context(), cluster, ask, labSite(), "ada")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(asked, "--nodelist=slurm-worker-cpu-2,slurm-worker-cpu-3") {
		t.Errorf("asked %q", asked)
	}
	if !slices.Equal(h.Others, []string{"slurm/slurm-rest-1"}) {
		t.Errorf("others %q", h.Others)
	}
	var requeue []string
	for _, j := range h.Jobs {
		if j.Requeues {
			requeue = append(requeue, j.ID)
		}
	}
	if len(h.Jobs) != 3 || !slices.Equal(requeue, []string{"228"}) {
		t.Errorf("jobs %+v: want only the batch job that did not say --no-requeue to be one to requeue", h.Jobs)
	}
	answer = "slurm_load_jobs error\n"
	if _, err := Look(t.Context(), cluster, ask, labSite(), "ada"); err == nil {
		t.Error("an answer that is none was taken")
	}
}

func TestSignal(t *testing.T) {
	for text, want := range map[string]Signal{
		"USR1":         {Name: "USR1", Grace: time.Minute},
		"B:SIGUSR2@90": {Name: "USR2", Batch: true, Grace: 90 * time.Second},
		"10@0":         {Name: "10"},
	} {
		if got, err := ParseSignal(text); err != nil || got != want {
			t.Errorf("%q: %+v %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "B:", "@60", "USR1@", "USR1@soon", "USR1@-1", "USR1@70000", "USR 1", "C:USR1", "USR1;reboot"} {
		if got, err := ParseSignal(text); err == nil {
			t.Errorf("%q was taken as %+v", text, got)
		}
	}
	var asked []string
	ask := func(_ context.Context, argv ...string) (string, error) {
		asked = append(asked, strings.Join(argv, " "))
		return "", nil
	}
	_ = Signal{Name: "USR1", Batch: true}.Tell(t.Context(), ask, Job{ID: "7"})
	_ = Requeue(t.Context(), ask, Job{ID: "7"})
	if want := []string{"scancel --signal=USR1 --batch 7", "scontrol requeue 7"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q", asked)
	}
}
