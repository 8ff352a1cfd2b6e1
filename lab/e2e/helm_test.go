package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// The chart stands alone: `helm install` with the values that berth renders makes a cluster that runs jobs beside the
// claims and secrets that its README asks for, and `helm uninstall` waits for the jobs, takes it away and leaves those.
func TestHelmInstall(t *testing.T) {
	r := begin(t, 20*time.Minute)
	helm := filepath.Join(r.box.Source, "bin", "helm")
	if _, err := os.Stat(helm); err != nil {
		t.Fatalf("%v; make bin/helm", err)
	}
	r.waitNoWorkers("")
	s := r.clone()
	values := s.helmValues()
	chart := filepath.Join(s.dir, "components/chart/slurm-platform")
	install := func(options ...string) {
		t.Helper()
		began := time.Now()
		s.must(append([]string{helm, "install", "slurm", chart, "--namespace", platform, "--values", values, "--wait",
			"--timeout", "5m"}, options...)...)
		t.Logf("%6.1f s  helm install", time.Since(began).Seconds())
	}
	gone := func() {
		t.Helper()
		s.must(helm, "uninstall", "slurm", "--namespace", platform, "--wait", "--timeout", "5m")
		r.eventually(workersLeave, "all pods leave", func() (bool, string) {
			pods := append(r.pods(platform, ""), r.pods(workers, "")...)
			return len(pods) == 0, names(pods)
		})
	}

	claims := r.kubectl("get", "persistentvolumeclaims", "-A", "-o", "jsonpath={.items[*].metadata.uid}")
	suspend := func(ctx context.Context, yes string) error {
		_, err := r.box.Kubectl(ctx, "patch", "kustomization", "-n", flux, "berth-slurm", "--type=merge", "--patch",
			`{"spec":{"suspend":`+yes+`}}`)
		return err
	}
	if err := suspend(r.ctx, "true"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		r.ctx = ctx
		if _, err := s.command(helm, "uninstall", "slurm", "--namespace", platform, "--ignore-not-found", "--wait"); err != nil {
			t.Error(err)
		}
		if err := suspend(ctx, "false"); err != nil {
			t.Error(err)
		}
		r.waitPutBack()
	})
	// What Flux made becomes the release's, so that one uninstall takes all of it and nothing else.
	install("--take-ownership")
	gone()

	install()
	j := r.waitJob(r.submit(student, "--partition=cpu", "id --user --name"), "COMPLETED", workerStarts)
	if out := r.output(j.id); out != student {
		t.Errorf("%s wrote %q, want %q", j, out, student)
	}
	running := r.runningJob(student, "--partition=cpu")
	uninstalled := make(chan error, 1)
	go func() {
		_, err := s.command(helm, "uninstall", "slurm", "--namespace", platform, "--wait", "--timeout", "5m")
		uninstalled <- err
	}()
	r.poolWaitsFor(running)
	select {
	case err := <-uninstalled:
		t.Fatalf("uninstalled while %s: %v", running, err)
	default:
	}
	r.endOutside(running)
	if err := <-uninstalled; err != nil {
		t.Fatal(err)
	}
	if out := r.written(running); out != "began\nended" {
		t.Errorf("%s did not run exactly once; its output:\n%s", running, out)
	}
	r.eventually(workersLeave, "all pods leave", func() (bool, string) {
		pods := append(r.pods(platform, ""), r.pods(workers, "")...)
		return len(pods) == 0, names(pods)
	})
	if now := r.kubectl("get", "persistentvolumeclaims", "-A", "-o", "jsonpath={.items[*].metadata.uid}"); now != claims {
		t.Errorf("claims changed: %s; were %s", now, claims)
	}
}

// helmValues renders the site for a helm-controller, writes the values of its HelmRelease to a file and returns its path.
func (s *site) helmValues() string {
	s.r.Helper()
	variant := filepath.Join(s.dir, "cue/box.cue")
	schema, err := os.ReadFile(variant)
	if err != nil {
		s.r.Fatal(err)
	}
	helm := strings.Replace(string(schema), `mode: "manifests"`, `mode: "helm"`, 1)
	if err := os.WriteFile(variant, []byte(helm), 0o644); err != nil {
		s.r.Fatal(err)
	}
	s.render()
	found, err := filepath.Glob(filepath.Join(s.dir, "overlays", siteName, "slurm", "configmap-slurm-values-*.yaml"))
	if err != nil || len(found) != 1 {
		s.r.Fatalf("the rendered values: %v %v, want one file", found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		s.r.Fatal(err)
	}
	var m struct{ Data map[string]string }
	if err := yaml.Unmarshal(text, &m); err != nil {
		s.r.Fatal(err)
	}
	path := filepath.Join(s.r.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(strings.TrimSpace(m.Data["values.yaml"])+"\n"), 0o600); err != nil {
		s.r.Fatal(err)
	}
	return path
}
