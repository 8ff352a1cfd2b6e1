package box

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPidFileNamesOneProcess(t *testing.T) {
	start, zombie, err := processStart(os.Getpid())
	if err != nil || zombie {
		t.Fatal(err, zombie)
	}
	if pid, ok := running(fmt.Sprintf("%d %s\n", os.Getpid(), start)); !ok || pid != os.Getpid() {
		t.Errorf("this process was not found: %d %v", pid, ok)
	}
	for _, other := range []string{
		fmt.Sprintf("%d %s9\n", os.Getpid(), start), // the pid of an earlier process
		"", "12", "x 1", "-1 5", "0 5", "4194305 77",
	} {
		if _, ok := running(other); ok {
			t.Errorf("%q was taken for a process that runs", other)
		}
	}
}

func TestZombieDoesNotRun(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() //nolint:errcheck // it is the zombie that matters
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		start, zombie, err := processStart(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if zombie {
			if _, ok := running(fmt.Sprintf("%d %s", cmd.Process.Pid, start)); ok {
				t.Error("a zombie was taken for a process that runs")
			}
			return
		}
	}
	t.Fatal("no zombie in 5 s")
}

func TestParseMounts(t *testing.T) {
	got, err := parseMounts(strings.NewReader(
		"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n" +
			`35 22 0:30 / /mnt/a\040b rw - cgroup2 cgroup2 rw` + "\n"))
	if err != nil || len(got) != 2 || got[0] != (mountPoint{"/", "ext4"}) || got[1] != (mountPoint{"/mnt/a b", "cgroup2"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseMounts(strings.NewReader("nonsense\n")); err == nil {
		t.Error("nonsense was understood")
	}
}

func TestWaitingFor(t *testing.T) {
	text := `{"items": [
		{"metadata": {"name": "berth-slurm", "generation": 2}, "status": {"observedGeneration": 2, "lastAppliedRevision": "main@sha1:abc",
			"conditions": [{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded"}]}},
		{"metadata": {"name": "berth-storage", "generation": 1}, "status": {"observedGeneration": 1, "lastAppliedRevision": "main@sha1:old",
			"conditions": [{"type": "Ready", "status": "True"}]}},
		{"metadata": {"name": "berth-gpu", "generation": 3}, "status": {"observedGeneration": 2, "lastAppliedRevision": "main@sha1:abc",
			"conditions": [{"type": "Ready", "status": "True"}]}},
		{"metadata": {"name": "berth-advisor", "generation": 1}, "status": {"observedGeneration": 1, "lastAppliedRevision": "main@sha1:old",
			"conditions": [{"type": "Ready", "status": "False", "reason": "BuildFailed", "message": "no such file"}]}},
		{"metadata": {"name": "berth-later", "generation": 1}, "spec": {"suspend": true}}]}`
	layers, err := parseLayers(text)
	if err != nil {
		t.Fatal(err)
	}
	got := waitingFor(layers, "abc")
	want := []string{
		"berth-advisor: BuildFailed no such file",
		"berth-gpu: not looked at since its last change ",
		"berth-storage: still at main@sha1:old",
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(waitingFor(nil, "abc")) == 0 {
		t.Error("no layer at all was taken for ready")
	}
}

func TestPollSaysWhatWasMissing(t *testing.T) {
	err := Poll(t.Context(), 50*time.Millisecond, "the moon", func(context.Context) (bool, string, error) { return false, "clouds", nil })
	if err == nil || !strings.Contains(err.Error(), "the moon") || !strings.Contains(err.Error(), "clouds") || !strings.Contains(err.Error(), "50ms") {
		t.Errorf("got %v", err)
	}
	boom := errors.New("boom")
	if err := Poll(t.Context(), time.Minute, "x", func(context.Context) (bool, string, error) { return false, "", boom }); !errors.Is(err, boom) {
		t.Errorf("an error did not end the wait: %v", err)
	}
}

// A user's own shell or kubectl that has the box's paths in its command line is
// no leftover; the daemons are.
func TestOursKnowsDaemonsFromVisitors(t *testing.T) {
	b := &Box{Config: Config{Dir: "/var/lib/berth-lab"}}
	for _, c := range []struct {
		exe  string
		cmd  string
		ours bool
	}{
		{"/var/lib/berth-lab/bin/box", "/var/lib/berth-lab/bin/box init /var/lib/berth-lab/run/init.json", true},
		{"/home/lab/.cache/berth-lab/hyperkube-1/hyperkube", "/x/hyperkube kubelet --config=/var/lib/berth-lab/conf/kubelet.json", true},
		{"/home/lab/.cache/berth-lab/hyperkube-1/hyperkube", "/var/lib/berth-lab/bin/kubectl get pods --kubeconfig /var/lib/berth-lab/kubeconfig", false},
		{"/usr/bin/containerd-shim-runc-v2", "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -address /var/lib/berth-lab/run/containerd.sock", true},
		{"/usr/bin/containerd-shim-runc-v2", "/usr/bin/containerd-shim-runc-v2 -namespace moby -address /run/containerd/containerd.sock", false},
		{"/usr/bin/containerd", "/usr/bin/containerd", false},
		{"/usr/bin/less", "less /var/lib/berth-lab/log/etcd.log", false},
	} {
		if got := b.ours(c.exe, strings.Fields(c.cmd)); got != c.ours {
			t.Errorf("%s: ours = %v, want %v", c.cmd, got, c.ours)
		}
	}
}

// The checkout gets a commit, the clone another: both are in the clone after.
// Where they meet in a generated file nobody is asked; elsewhere the user is.
func TestCheckoutIsMergedIntoTheClone(t *testing.T) {
	dir := t.TempDir()
	b := &Box{Config: Config{Dir: filepath.Join(dir, "lab"), Source: filepath.Join(dir, "checkout"), Site: "lab-box", GitPort: "1"}}
	write := func(repository, name, text string) {
		t.Helper()
		path := filepath.Join(repository, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"add", "--all"}, {"commit", "--quiet", "-m", "Change " + name}} {
			if _, err := b.gitIn(t.Context(), repository, args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.MkdirAll(b.Source, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := b.gitIn(t.Context(), b.Source, "init", "--quiet", "--initial-branch=trunk"); err != nil {
		t.Fatal(err)
	}
	write(b.Source, "clusters/lab.cue", "one\n")
	if err := os.MkdirAll(b.path("git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.syncRepository(t.Context()); err != nil {
		t.Fatal(err)
	}
	if branch, err := b.Git(t.Context(), "rev-parse", "--abbrev-ref", "HEAD"); err != nil || strings.TrimSpace(branch) != "main" {
		t.Fatalf("the clone is on %q, %v", branch, err)
	}

	write(b.Source, "README", "new\n")
	write(b.Source, "overlays/lab-box/slurm/values.yaml", "checkout\n")
	write(b.Clone(), "overlays/lab-box/slurm/values.yaml", "clone\n")
	if err := b.syncRepository(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(b.Clone(), "README")); err != nil || string(text) != "new\n" {
		t.Errorf("README in the clone: %q, %v", text, err)
	}

	// A render that was cut off left a generated file changed: it is rendered again.
	if err := os.WriteFile(filepath.Join(b.Clone(), "overlays/lab-box/slurm/values.yaml"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	write(b.Source, "README", "newer\n")
	if err := b.syncRepository(t.Context()); err != nil {
		t.Fatal(err)
	}

	write(b.Source, "clusters/lab.cue", "theirs\n")
	write(b.Clone(), "clusters/lab.cue", "mine\n")
	err := b.syncRepository(t.Context())
	if err == nil || !strings.Contains(err.Error(), "clusters/lab.cue") {
		t.Errorf("a conflict in the user's file: %v", err)
	}
	if text, _ := os.ReadFile(filepath.Join(b.Clone(), "clusters/lab.cue")); string(text) != "mine\n" {
		t.Errorf("the user's file is now %q", text)
	}
}

func TestAgeKeyIsMadeOnce(t *testing.T) {
	b := &Box{Config: Config{Dir: t.TempDir()}}
	first, err := b.ageKey()
	if err != nil || !strings.HasPrefix(first, "age1") {
		t.Fatal(first, err)
	}
	if again, err := b.ageKey(); err != nil || again != first {
		t.Errorf("second call: %s, %v", again, err)
	}
	if info, err := os.Stat(b.AgeKeyFile()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}
