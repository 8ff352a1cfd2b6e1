package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// S19: what is taken out of the site, or set to null by a patch of an object that is there already, is gone from the live object; what
// the patch took out comes back with its removal.
func TestRemovedIsAbsent(t *testing.T) {
	r := begin(t, 15*time.Minute)
	r.waitNoWorkers("cpu")
	s := r.clone()
	type podTemplate struct {
		Metadata struct{ Annotations map[string]string }
		Spec     struct {
			PriorityClassName string
			Containers        []struct {
				Env []struct{ Name, Value string }
			}
		}
	}
	type templated struct {
		Spec struct{ Template podTemplate }
	}
	live := func() (variable, priority, note string) {
		t.Helper()
		var pool, rest templated
		if err := r.get(&pool, "workerpool", "-n", workers, "cpu"); err != nil {
			t.Fatal(err)
		}
		if err := r.get(&rest, "deployment", "-n", platform, "slurm-rest"); err != nil {
			t.Fatal(err)
		}
		for _, c := range pool.Spec.Template.Spec.Containers {
			for _, e := range c.Env {
				if e.Name == "NCCL_DEBUG" {
					variable = e.Value
				}
			}
		}
		return variable, rest.Spec.Template.Spec.PriorityClassName, rest.Spec.Template.Metadata.Annotations["example.org/note"]
	}
	must := func(when, wantVariable, wantPriority, wantNote string) {
		t.Helper()
		if variable, priority, note := live(); variable != wantVariable || priority != wantPriority || note != wantNote {
			t.Errorf("%s: NCCL_DEBUG %q, priorityClassName %q, note %q; want %q, %q, %q",
				when, variable, priority, note, wantVariable, wantPriority, wantNote)
		}
	}
	patch := filepath.Join(s.dir, "overlays", siteName, "patches/slurm/rest.yaml")
	write := func(template string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(patch), 0o755); err != nil {
			t.Fatal(err)
		}
		text := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: slurm-rest, namespace: slurm}\nspec: {template: " + template + "}\n"
		if err := os.WriteFile(patch, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	must("before", "", "berth-control", "")
	s.edit("cpu:", "max: 4", `env: NCCL_DEBUG: "INFO", max: 4`)
	write(`{metadata: {annotations: {example.org/note: "here"}}}`)
	s.deliver("Set a variable and an annotation")
	must("set", "INFO", "berth-control", "here")

	s.edit("cpu:", `env: NCCL_DEBUG: "INFO", max: 4`, "max: 4")
	write(`{metadata: {annotations: {example.org/note: null}}, spec: {priorityClassName: null}}`)
	s.deliver("Take the variable out, and two fields by null")
	must("taken out", "", "", "")

	if err := os.Remove(patch); err != nil {
		t.Fatal(err)
	}
	s.deliver("Take the patch out")
	must("without the patch", "", "berth-control", "")
	r.waitJob(r.submit(student, "--partition=cpu", "hostname"), "COMPLETED", workerStarts)
}
