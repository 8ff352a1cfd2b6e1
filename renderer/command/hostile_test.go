package command

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// laptopRepository is a repository with the laptop site, rendered.
func laptopRepository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, folder := range []string{"cue", "cue.mod"} {
		if err := os.CopyFS(filepath.Join(root, folder), os.DirFS(filepath.Join("../..", folder))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "clusters"), 0o755); err != nil {
		t.Fatal(err)
	}
	replicas(t, root, "1")
	berth(t, root, "render")
	return root
}

// replicas writes the laptop site with this number of login pods: two of them render differently.
func replicas(t *testing.T, root, count string) {
	t.Helper()
	text, err := os.ReadFile("../../clusters/laptop.cue")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "\nlaptop: login: replicas: "+count+"\n"...)
	if err := os.WriteFile(filepath.Join(root, "clusters/laptop.cue"), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// berth runs the command in a process of its own and demands success.
func berth(t *testing.T, root string, args ...string) {
	t.Helper()
	command := exec.Command("berth", args...)
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("berth %v: %v\n%s", args, err, out)
	}
}

// snapshot is every file below a folder, by path.
func snapshot(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, part := range []string{"overlays", "clusters/laptop"} {
		err := fs.WalkDir(os.DirFS(root), part, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(filepath.Join(root, name))
			files[name] = string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func sameFiles(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for name, text := range a {
		if other, there := b[name]; !there || other != text {
			return false
		}
	}
	return true
}

// A render that is killed at any moment leaves the old tree or the new one, or says that it was interrupted and is completed
// by the next; nothing of its own stays behind.
func TestKilledAtAnyMoment(t *testing.T) {
	root := laptopRepository(t)
	old := snapshot(t, root)
	replicas(t, root, "2")
	started := time.Now()
	berth(t, root, "render")
	takes := time.Since(started)
	fresh := snapshot(t, root)
	if sameFiles(old, fresh) {
		t.Fatal("the two sites render alike")
	}
	replicas(t, root, "1")
	berth(t, root, "render")
	replicas(t, root, "2")
	random := rand.New(rand.NewPCG(1, 2))
	for range 6 {
		command := exec.Command("berth", "render")
		command.Dir = root
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.Float64() * 1.1 * float64(takes)))
		_ = command.Process.Kill()
		_ = command.Wait()
		left := snapshot(t, root)
		clean := map[string]string{}
		for name, text := range left {
			if !strings.HasSuffix(name, ".berth-staged") && !strings.HasSuffix(name, ".berth-journal") {
				clean[name] = text
			}
		}
		_, err := os.Stat(filepath.Join(root, "overlays/laptop/.berth-journal"))
		if err != nil && !sameFiles(clean, old) && !sameFiles(clean, fresh) {
			t.Errorf("neither the old tree nor the new one, and nothing says so")
		}
		berth(t, root, "render")
		if !sameFiles(snapshot(t, root), fresh) {
			t.Errorf("the next render does not give the new tree")
		}
		replicas(t, root, "1")
		berth(t, root, "render")
		replicas(t, root, "2")
	}
}

func TestTwoRendersAtOnce(t *testing.T) {
	root := laptopRepository(t)
	replicas(t, root, "2")
	var wait sync.WaitGroup
	for range 3 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			command := exec.Command("berth", "render")
			command.Dir = root
			if out, err := command.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}()
	}
	wait.Wait()
	berth(t, root, "render", "--check")
	for name := range snapshot(t, root) {
		if strings.Contains(name, ".berth-staged") {
			t.Errorf("%s was left behind", name)
		}
	}
}

// A disk that is full or read-only: one line that says so, and the old tree.
func TestHostileDisks(t *testing.T) {
	if os.Geteuid() != 0 || exec.Command("unshare", "-m", "true").Run() != nil {
		t.Skip("mounting a small disk needs root and unshare")
	}
	root := laptopRepository(t)
	berth, err := exec.LookPath("berth")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ script, want string }{
		"full":      {`dd if=/dev/zero of=disk/fill bs=4096 2>/dev/null || true; cd disk; ! "$BERTH" render`, "no space left on device; the tree is as it was"},
		"read-only": {`mount -o remount,ro disk; cd disk; ! "$BERTH" render`, "read-only file system"},
	} {
		t.Run(name, func(t *testing.T) {
			work := t.TempDir()
			command := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-ec", `
mkdir disk; mount -t tmpfs -o size=2m tmpfs disk; cp -r "$ROOT"/. disk
before=$(find disk/overlays disk/clusters -type f | sort | xargs cat | sha256sum; find disk/overlays | sort)
printf '\nlaptop: pools: more: {max: 1, cpus: 1, memory: "1Gi"}\n' >> disk/clusters/laptop.cue
(`+c.script+`)
[ "$(find disk/overlays | sort)" = "$(echo "$before" | sed 1d)" ] || { echo "another tree is left"; exit 3; }`)
			command.Dir = work
			command.Env = append(os.Environ(), "BERTH="+berth, "ROOT="+root, "PATH="+os.Getenv("PATH"))
			out, err := command.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v\n%s\nwant %q", err, out, c.want)
			}
			if n := strings.Count(strings.TrimSpace(string(out)), "\n"); n > 0 {
				t.Errorf("more than one line:\n%s", out)
			}
		})
	}
}

// Vet looks again when a file changes, until it is interrupted.
func TestVetWatches(t *testing.T) {
	root := laptopRepository(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out lockedBuffer
	env := Environment{Out: &out, Err: &out, Directory: root, Variable: func(string) string { return "" }}
	ended := make(chan int, 1)
	go func() { ended <- Run(ctx, env, []string{"vet", "--watch"}) }()
	out.await(t, "ok laptop")
	replicas(t, root, "99")
	out.await(t, "laptop.login.replicas: must be a whole number, 1 to 20")
	stop()
	if code := <-ended; code != ExitOK {
		t.Errorf("exit code %d", code)
	}
}

// lockedBuffer is a buffer that one writes while another reads.
type lockedBuffer struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) await(t *testing.T, want string) {
	t.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		b.lock.Lock()
		found := strings.Contains(b.text.String(), want)
		b.lock.Unlock()
		if found {
			return
		}
	}
	t.Fatalf("never said %q:\n%s", want, b.text.String())
}

// An evaluation that would fill the memory is one line that says so, and no dump of goroutines.
func TestSiteThatFillsTheMemory(t *testing.T) {
	root := laptopRepository(t)
	var text strings.Builder
	text.WriteString("package clusters\n\n_s0: \"0123456789\"\n")
	for i := range 60 {
		fmt.Fprintf(&text, "_s%d: _s%d + _s%d\n", i+1, i, i)
	}
	if err := os.WriteFile(filepath.Join(root, "clusters/more.cue"), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"vet"}, {"vet", "--watch", "--output", "json"}} { // a watch does not go on beside it
		vet := exec.CommandContext(t.Context(), "berth", args...)
		vet.Dir = root
		vet.Env = append(os.Environ(), "GOMEMLIMIT=256MiB")
		out, err := vet.CombinedOutput()
		if want := "CUE took more than 256 MiB of memory to evaluate the sites and was stopped"; err == nil || !strings.Contains(string(out), want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%v: %v\n%.500s\nwant one line: %q", args, err, out, want)
		}
	}
}

// An evaluation that does not end is cut at its limit by every command that evaluates, with one line.
func TestSiteThatNeverEnds(t *testing.T) {
	root := laptopRepository(t)
	text := `package clusters

import "list"

_n: list.Range(0, 2000, 1)
laptop: login: replicas: 1 + len([for a in _n for b in _n for c in _n if a+b+c < 0 {a}])
`
	if err := os.WriteFile(filepath.Join(root, "clusters/more.cue"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, root)
	for _, args := range [][]string{
		{"vet"}, {"vet", "--watch", "--output", "json"}, {"check"}, {"render"}, {"explain", "laptop", "login.replicas"}, {"inflate", "laptop"},
	} {
		command := exec.CommandContext(t.Context(), "berth", args...)
		command.Dir = root
		command.Env = append(os.Environ(), "BERTH_CUE_TIMEOUT=500ms", "GOMEMLIMIT=4GiB")
		out, err := command.CombinedOutput()
		if want := "CUE did not finish evaluating the sites within 500ms; look for"; command.ProcessState.ExitCode() != ExitError || !strings.Contains(string(out), want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%v: %v\n%.500s\nwant one line: %q", args, err, out, want)
		}
	}
	if !sameFiles(before, snapshot(t, root)) {
		t.Error("a command that was cut changed the tree")
	}
}
