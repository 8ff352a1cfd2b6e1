package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A namespace and the platform's parts cannot be deleted while pools are there. A layer that leaves (Flux prunes all of it) takes
// its pools first: the job that runs ends by itself, the platform stays until then, and goes after it. Claims stay.
func TestLayerLeaves(t *testing.T) {
	r := begin(t, 25*time.Minute)
	for _, object := range []string{"namespace/" + workers, "namespace/" + platform, "customresourcedefinition/workerpools.berth-hpc.github.io",
		"deployment/slurm-autoscaler", "statefulset/slurm-controller"} {
		// The server judges as it would, and deletes nothing.
		out, err := r.box.Kubectl(r.ctx, "delete", "-n", platform, object, "--dry-run=server")
		if err == nil || !strings.Contains(err.Error(), "is still there") {
			t.Fatalf("delete %s: %v %s; want a refusal that names a pool", object, err, out)
		}
	}
	if out, err := r.box.Kubectl(r.ctx, "delete", "-n", platform, "statefulset/slurm-controller", "--cascade=orphan", "--dry-run=server"); err != nil {
		t.Errorf("made anew without its pods: %v %s", err, out)
	}
	claims := r.kubectl("get", "persistentvolumeclaims", "-A", "-o", "jsonpath={.items[*].metadata.uid}")
	j := r.runningJob(student, "--partition=cpu")

	r.kubectl("patch", "kustomization", "-n", flux, "berth", "--type=merge", "--patch", `{"spec":{"suspend":true}}`)
	t.Cleanup(r.deliveredAgain)
	r.kubectl("delete", "kustomization", "-n", flux, "berth-slurm", "--wait=false")
	r.poolWaitsFor(j)
	time.Sleep(20 * time.Second) // Flux tries again and again meanwhile
	if now, err := r.lookJob(j.id); err != nil || now.state != "RUNNING" {
		t.Errorf("while its layer leaves: %v %v; want it RUNNING", now, err)
	}
	for _, role := range []string{"controller", "autoscaler", "rest", "database", "accounting"} {
		if pods := r.pods(platform, labelRole+"="+role); len(pods) != 1 || !pods[0].serving() {
			t.Errorf("while a job runs, %s: %s", role, names(pods))
		}
	}
	r.endOutside(j)
	r.eventually(16*time.Minute, "the layer is gone", func() (bool, string) {
		pods := append(r.pods(platform, ""), r.pods(workers, "")...)
		left, err := r.box.Kubectl(r.ctx, "get", "kustomization", "-n", flux, "berth-slurm", "--ignore-not-found", "-o", "name")
		return err == nil && len(pods) == 0 && strings.TrimSpace(left) == "", fmt.Sprint(strings.TrimSpace(left), " ", names(pods), " ", err)
	})
	if out := r.written(j); out != "began\nended" {
		t.Errorf("job %s did not run exactly once; its output:\n%s", j.id, out)
	}
	if now := r.kubectl("get", "persistentvolumeclaims", "-A", "-o", "jsonpath={.items[*].metadata.uid}"); now != claims {
		t.Errorf("claims changed: %s; were %s", now, claims)
	}
}

// A9: the workers' namespace is deleted once its pools have gone, and Flux makes it anew: the autoscaler that was there all the time
// serves it without a restart, and the claims are back over the same data.
func TestNamespaceAnew(t *testing.T) {
	r := begin(t, 25*time.Minute)
	r.waitNoWorkers("")
	start := func() string {
		pods := r.pods(platform, labelRole+"=autoscaler")
		if len(pods) != 1 || len(pods[0].Status.ContainerStatuses) != 1 {
			t.Fatalf("the autoscaler: %s", names(pods))
		}
		return fmt.Sprint(pods[0].Metadata.UID, " restarted ", pods[0].Status.ContainerStatuses[0].RestartCount)
	}
	before := start()
	r.mustAs(student, "echo kept > $HOME/e2e-kept")
	t.Cleanup(func() { _, _ = r.as(student, "rm -f $HOME/e2e-kept") })

	r.suspendLayers(true)
	t.Cleanup(func() {
		ctx, cancel := longAftermath()
		defer cancel()
		r.ctx = ctx
		r.suspendLayers(false)
		r.waitPutBack()
	})
	r.kubectl("delete", "workerpools", "-n", workers, "--all", "--timeout=2m")
	r.kubectl("delete", "namespace", workers, "--timeout=5m")
	// Their claims have gone with it. What they hold stays where it is.
	r.kubectl("delete", "persistentvolumes", workers+"-slurm-home", workers+"-slurm-shared", "--timeout=1m")
	r.suspendLayers(false)
	r.waitPutBack()

	id := r.submit(student, "--partition=cpu", "cat $HOME/e2e-kept")
	r.waitJob(id, "COMPLETED", workerStarts)
	if out := r.output(id); out != "kept" {
		t.Errorf("in the namespace made anew the job wrote %q", out)
	}
	if after := start(); after != before {
		t.Errorf("the autoscaler was %s, and is %s", before, after)
	}
}

// suspendLayers has Flux leave the layers alone, or take them up again at once.
func (r *run) suspendLayers(suspend bool) {
	r.Helper()
	for _, layer := range []string{"foundation", "storage", "slurm"} {
		r.kubectl("patch", "kustomization", "-n", flux, "berth-"+layer, "--type=merge", "--patch", fmt.Sprintf(`{"spec":{"suspend":%v}}`, suspend))
	}
}

// poolWaitsFor waits until the pool cpu is being deleted and says that it waits for the job.
func (r *run) poolWaitsFor(j job) {
	r.Helper()
	r.eventually(2*time.Minute, "the pool waits for job "+j.id, func() (bool, string) {
		out, err := r.box.Kubectl(r.ctx, "get", "workerpool", "-n", workers, "cpu", "-o",
			`jsonpath={.metadata.deletionTimestamp} {.status.conditions[?(@.type=="Ready")].message}`)
		return err == nil && strings.Contains(out, "waits for job "+j.id+" ") && !strings.HasPrefix(out, " "), fmt.Sprint(out, err)
	})
}

// stored is the path of a job's file as the machine sees it, whatever is left of the platform.
func (r *run) stored(j job, ending string) string {
	return filepath.Join(r.box.Dir, "storage", outputDir, "e2e-"+j.id+ending)
}

// endOutside lets a job of runningJob end without asking anything of the platform.
func (r *run) endOutside(j job) {
	r.Helper()
	if err := os.WriteFile(r.stored(j, ".end"), nil, 0o666); err != nil {
		r.Fatal(err)
	}
}

// written is what the job wrote, read in the same way.
func (r *run) written(j job) string {
	r.Helper()
	out, err := os.ReadFile(r.stored(j, ".out"))
	if err != nil {
		r.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// deliveredAgain lets Flux put everything back, and waits until it has.
func (r *run) deliveredAgain() {
	r.Helper()
	ctx, cancel := longAftermath()
	defer cancel()
	r.ctx = ctx
	r.kubectl("patch", "kustomization", "-n", flux, "berth", "--type=merge", "--patch", `{"spec":{"suspend":false}}`)
	r.waitPutBack()
}

// waitPutBack waits until Flux has put the whole platform back and slurmctld serves.
func (r *run) waitPutBack() {
	r.Helper()
	r.eventually(converges, "Flux has put everything back", func() (bool, string) {
		if err := settled(r.ctx, r.box); err != nil {
			return false, err.Error()
		}
		for _, p := range r.pods(platform, labelRole+"=controller") {
			return p.serving(), names([]pod{p})
		}
		return false, "no controller"
	})
}
