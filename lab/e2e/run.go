// Package e2e tests the whole platform as people meet it: on the lab in a box, by git push, sbatch and kubectl, with
// nothing replaced but the cards. It never looks into the platform's Go code; what it knows is what a user or an
// administrator could know.
//
// The tests run with BERTH_E2E=1 on a box that is up, or bring it up. Each finds the site as committed and leaves it
// so, and every wait has a bound, so any subset in any order is a run (lab/e2e.sh makes shards of them).
package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-hpc/berth/lab/box"
)

// Where the site puts things (clusters/lab-box.cue).
const (
	platform = "slurm"         // namespace of the control plane
	workers  = "slurm-workers" // namespace of workers and login
	flux     = "flux-system"
	siteName = "lab-box"
)

// Names of labels on pods.
const (
	labelRole = "app.kubernetes.io/component"
	labelPool = "berth-hpc.github.io/pool"
)

// A run is one test on the box.
type run struct {
	*testing.T
	ctx context.Context
	box *box.Box
	// site is the test's clone of the site's repository, once it has asked for one.
	site *site
	// submitted are the test's jobs; what is left of them is cancelled at the end.
	submitted []string
}

// begin starts a test that may take as long as bound says, on a box that is up. When the test ends, what it changed is
// put back and is waited for, and if it failed the state of the box is printed first.
func begin(t *testing.T, bound time.Duration) *run {
	t.Helper()
	if os.Getenv("BERTH_E2E") != "1" {
		t.Skip("needs a box: set BERTH_E2E=1, or run lab/e2e.sh")
	}
	b, err := theBox()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), bound, fmt.Errorf("the test's bound of %s", bound))
	r := &run{T: t, ctx: ctx, box: b}
	began := time.Now()
	t.TempDir() // first, so that it goes last: what restores the site works in the test's clone
	t.Cleanup(func() {
		cancel()
		took := time.Since(began)
		if t.Failed() {
			r.printState()
		}
		r.restore()
		r.keepDecisions(began)
		t.Logf("took %.1f s, then %.1f s to put everything back", took.Seconds(), time.Since(began).Seconds()-took.Seconds())
	})
	return r
}

var opened struct {
	once sync.Once
	box  *box.Box
	err  error
	// down is true once a test has taken the box down.
	down bool
	// putBack, unless nil, gives the box the site that the tests found on it.
	putBack func(context.Context) error
}

// theBox is the box that all tests share. The first test brings it up if it is not.
func theBox() (*box.Box, error) {
	opened.once.Do(func() {
		if runtime.GOOS != "linux" || os.Geteuid() != 0 {
			opened.err = fmt.Errorf("the box needs root on Linux")
			return
		}
		b, err := box.Open(box.Config{})
		if err != nil {
			opened.err = err
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Minute)
		defer cancel()
		if settled(ctx, b) != nil {
			up := exec.CommandContext(ctx, filepath.Join(b.Source, "bin", "box"), "up")
			up.Dir = b.Source
			up.Stdout, up.Stderr = os.Stderr, os.Stderr
			if err := up.Run(); err != nil {
				opened.err = fmt.Errorf("bring the box up: %w", err)
				return
			}
		}
		// The test that ends the box edits nothing, and could put nothing back.
		if os.Getenv("BERTH_E2E_DOWN") != "1" {
			if opened.putBack, opened.err = followCheckout(ctx, b); opened.err != nil {
				opened.err = fmt.Errorf("give the box the checkout's site: %w", opened.err)
				return
			}
		}
		opened.box = b
	})
	return opened.box, opened.err
}

// settled tells whether the box is up and every layer of its site is Ready.
func settled(ctx context.Context, b *box.Box) error {
	text, err := b.Kubectl(ctx, "--request-timeout=10s", "get", "kustomizations", "-n", flux, "-o", "json")
	if err != nil {
		return err
	}
	var list struct{ Items []kustomization }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("no site is delivered to the box")
	}
	for _, k := range list.Items {
		if ready, why := k.ready(); !ready {
			return fmt.Errorf("%s: %s", k.Metadata.Name, why)
		}
	}
	return nil
}

// eventually looks again and again until look says that it is done, and ends the test when the bound of the step, or of
// the test, is over first; seen tells what was still wrong then.
func (r *run) eventually(bound time.Duration, what string, look func() (done bool, seen string)) {
	r.Helper()
	began := time.Now()
	err := box.Poll(r.ctx, bound, what, func(context.Context) (bool, string, error) {
		done, seen := look()
		return done, seen, nil
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Logf("%6.1f s  %s", time.Since(began).Seconds(), what)
}

// kubectl runs kubectl as the cluster's administrator; a failure ends the test.
func (r *run) kubectl(args ...string) string {
	r.Helper()
	out, err := r.box.Kubectl(r.ctx, args...)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// get reads objects of the API server as JSON into v.
func (r *run) get(v any, args ...string) error {
	out, err := r.box.Kubectl(r.ctx, append([]string{"get", "-o", "json"}, args...)...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), v)
}

// restore cancels the test's jobs and puts the site back as it was.
func (r *run) restore() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	r.ctx = ctx
	if len(r.submitted) > 0 {
		if _, err := r.inController("scancel " + strings.Join(r.submitted, " ")); err != nil {
			r.Errorf("cancel the test's jobs: %v", err)
		}
		if out, err := r.inLogin("rm -f " + outputDir + "/e2e-*"); err != nil {
			r.Errorf("remove the jobs' output: %v: %s", err, out)
		}
	}
	if r.site != nil {
		if err := r.site.restore(); err != nil {
			r.Errorf("put the site back: %v", err)
			r.printState()
		}
	}
}

// aftermath is the context of what a test puts back when its own time may be over.
func aftermath() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

// longAftermath is aftermath where a whole platform is put back.
func longAftermath() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Minute)
}

// keepDecisions leaves what the autoscaler saw and did during the test in the box's log directory, for a person and for the
// autoscaler's own tests. An autoscaler that restarted meanwhile remembers less; one that is away, nothing.
func (r *run) keepDecisions(began time.Time) {
	ctx, cancel := aftermath()
	defer cancel()
	log, err := r.box.Kubectl(ctx, "exec", "-n", platform, "deployment/slurm-autoscaler", "--", "/autoscaler", "decisions",
		"--since="+time.Since(began).Round(time.Second).String())
	if err != nil || log == "" {
		return
	}
	dir := filepath.Join(r.box.Dir, "log", "decisions")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.Log(err)
		return
	}
	if err := os.WriteFile(filepath.Join(dir, r.Name()+".jsonl"), []byte(log), 0o644); err != nil {
		r.Log(err)
	}
}

// printState prints what a person would look at first.
func (r *run) printState() {
	ctx, cancel := aftermath()
	defer cancel()
	kubectl := func(args ...string) string {
		out, err := r.box.Kubectl(ctx, args...)
		if err != nil {
			return err.Error()
		}
		return out
	}
	slurm := func(command string) string {
		return kubectl("exec", "-n", platform, controllerPod, "-c", controllerContainer, "--", "sh", "-c", asSlurmClient+command)
	}
	for _, look := range []struct{ what, text string }{
		{"queue", slurm("squeue --states=all --format='%.8i %.9P %.12j %.10u %.10T %.6M %.5D %R'")},
		{"nodes", slurm("sinfo --Node --long")},
		{"pods", kubectl("get", "pods", "-A", "-o", "wide")},
		{"worker pools and configuration", kubectl("get", "workerpools,slurmconfigs", "-A", "-o", "wide")},
		{"delivery", kubectl("get", "gitrepositories,kustomizations", "-A")},
		{"events", lastLines(kubectl("get", "events", "-A", "--sort-by=.lastTimestamp"), 40)},
		{"guard", kubectl("logs", "-n", platform, controllerPod, "-c", "guard", "--tail=15")},
		{"slurmctld", kubectl("logs", "-n", platform, controllerPod, "-c", controllerContainer, "--tail=40")},
		{"autoscaler", kubectl("logs", "-n", platform, "deployment/slurm-autoscaler", "--tail=25")},
	} {
		r.Logf("--- %s\n%s", look.what, lastLines(look.text, 60))
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	for i, l := range lines {
		if len(l) > 400 {
			lines[i] = l[:400] + "…"
		}
	}
	return strings.Join(lines, "\n")
}
