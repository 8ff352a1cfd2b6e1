package rl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-hpc/berth/components/advisor/sim/engine"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

const fullDisk = "BERTH_TEST_FULL_DISK"

// A disk that fills up, wherever in a save it does, costs nothing that was saved before: latest.json names a whole checkpoint and a
// whole state, and with room again the training ends with the bytes of one that never met a full disk.
func TestDiskFull(t *testing.T) {
	if dir := os.Getenv(fullDisk); dir != "" {
		fillDisk(t, dir)
		return
	}
	// A small file system of its own, for a process of its own: nobody else sees the mount.
	c := exec.Command(os.Args[0], "-test.run=^TestDiskFull$", "-test.v")
	c.Env = append(os.Environ(), fullDisk+"="+t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	out, err := c.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || bytes.Contains(out, []byte("cannot mount")) {
		t.Skipf("no file system of its own can be mounted here: %v %s", err, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !bytes.Contains(out, []byte("--- PASS: TestDiskFull")) {
		t.Fatalf("it did not run:\n%s", out)
	}
}

func fillDisk(t *testing.T, dir string) {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatalf("cannot mount: %v", err)
	}
	run, ballast := filepath.Join(dir, "run"), filepath.Join(dir, "ballast")
	if err := small(t, run, 100).Run(nil); err != nil {
		t.Fatal(err)
	}
	failed := map[string]int{}
	for _, free := range []int{0, 1, 2, 5, 9, 12, 16, 24, 32, 48, 64, 80, 96, 128} {
		before, err := os.ReadFile(filepath.Join(run, "latest.json"))
		if err != nil {
			t.Fatal(err)
		}
		fill(t, ballast, free*4096)
		tr := small(t, run, 400)
		if err := tr.Resume(); err != nil {
			t.Fatalf("%d pages free: %v", free, err)
		}
		err = tr.Run(nil)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%d pages free: %v", free, err)
		}
		failed[regexp.MustCompile(`(checkpoints|states|latest|progress)`).FindString(strings.ReplaceAll(err.Error(), "(the last checkpoint", ""))]++
		after, err := os.ReadFile(filepath.Join(run, "latest.json"))
		if err != nil {
			t.Fatal(err)
		}
		latest, err := ReadLatest(run)
		if err != nil {
			t.Fatalf("%d pages free: %v (before: %s, after: %s)", free, err, before, after)
		}
		if _, err := LoadCheckpoint(filepath.Join(run, "checkpoints", latest.Checkpoint+".safetensors")); err != nil {
			t.Fatalf("%d pages free: %v", free, err)
		}
		if _, err := LoadReplay(run); err != nil {
			t.Fatalf("%d pages free: %v", free, err)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("where the disk was full: %v", failed)
	if failed["checkpoints"] == 0 || failed["states"] == 0 {
		t.Errorf("the disk was full at %v only; a checkpoint and a state must be among them", failed)
	}
	_ = os.Remove(ballast)
	tr := small(t, run, 400)
	if err := tr.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := tr.Run(nil); err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(dir, "whole")
	if err := small(t, whole, 400).Run(nil); err != nil {
		t.Fatal(err)
	}
	sameRun(t, whole, run)
}

// fill leaves so many bytes free on the file system of a file.
func fill(t *testing.T, path string, free int) {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(path), &s); err != nil {
		t.Fatal(err)
	}
	if n := int(s.Bavail)*int(s.Bsize) - free; n > 0 {
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// sameRun compares two trainings' folders: latest.json holds the digests of policy and state.
func sameRun(t *testing.T, a, b string) {
	t.Helper()
	for _, f := range []string{"latest.json", "progress.csv"} {
		x, err := os.ReadFile(filepath.Join(a, f))
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(filepath.Join(b, f))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x, y) {
			t.Errorf("%s differs:\n%s\n%s", f, x, y)
		}
	}
	es, err := os.ReadDir(filepath.Join(b, "states"))
	if err != nil || len(es) != 1 {
		t.Errorf("%d files among the states (%v), want the one in force", len(es), err)
	}
}

// A training that was killed after its last save and before it had tidied up leaves, once it is resumed, what any other leaves.
func TestResumeTidiesUp(t *testing.T) {
	whole, cut := t.TempDir(), t.TempDir()
	for _, dir := range []string{whole, cut} {
		if err := small(t, dir, 100).Run(nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(cut, "states", ".half1234"), []byte("half a state"), 0o600); err != nil {
		t.Fatal(err)
	}
	tr := small(t, cut, 100)
	if err := tr.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := tr.Run(nil); err != nil {
		t.Fatal(err)
	}
	sameRun(t, whole, cut)
}

// spoiled gives one reward that float32 can hold and a loss cannot.
type spoiled struct {
	Environment
	at, step int
}

func (s *spoiled) Step(a int) (Outcome, error) {
	o, err := s.Environment.Step(a)
	if s.step++; s.step == s.at {
		o.Reward = -math.MaxFloat32
	}
	return o, err
}

// A loss that is not a number ends the run, names the batch and what stands out in it, and leaves the last good checkpoint in force.
func TestDivergenceKeepsTheLastCheckpoint(t *testing.T) {
	dir := t.TempDir()
	tr := small(t, dir, 400)
	tr.Learner.Config.NormalizeReward, tr.Learner.Scale.On = false, false
	tr.Env = &spoiled{Environment: tr.Env, at: 130}
	err := tr.Run(nil)
	var d *DivergenceError
	if !errors.As(err, &d) {
		t.Fatalf("the run ends with %v", err)
	}
	if len(d.Transitions) != 16 || !slices.Contains(d.Transitions, 129) || !strings.Contains(err.Error(), "on the batch of transitions [") {
		t.Errorf("the batch is told as %v: %v", d.Transitions, err)
	}
	latest, err := ReadLatest(dir)
	if err != nil {
		t.Fatal(err)
	}
	if tr.Step < 130 || tr.Step >= 400 || latest.Step != (tr.Step-1)/50*50 {
		t.Errorf("the checkpoint is of step %d, the run ended at %d", latest.Step, tr.Step)
	}
	if _, err := LoadCheckpoint(filepath.Join(dir, "checkpoints", latest.Checkpoint+".safetensors")); err != nil {
		t.Error(err)
	}
}

// The batch of a fine-tuning is told apart: what is old experience and what is new, and which target is not finite.
func TestDivergenceOfFineTuning(t *testing.T) {
	offline, online := arms(t, 20, map[float64]float64{1: 1}), arms(t, 30, map[float64]float64{2: 1})
	c := quick().RLPD(1)
	c.Hidden, c.Batch = []int{8, 8}, 8
	l, err := NewLearner(c, Encoding{Row: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range offline.reward {
		offline.reward[i] = math.Inf(1)
	}
	_, err = l.Update(online, offline)
	var d *DivergenceError
	if !errors.As(err, &d) || d.Offline != 4 || !slices.Equal(d.Suspects, []int{0, 1, 2, 3}) {
		t.Fatalf("%+v: %v", d, err)
	}
	if !regexp.MustCompile(`update 0: critic \d: .*transitions \[.*\] of the old experience and \[.*\] of the new \(not finite is the target of \[`).MatchString(err.Error()) {
		t.Error(err)
	}
}

// A temperature that has come to its bound (D4) is told of, once.
func TestBoundIsTold(t *testing.T) {
	tr := small(t, "", 90)
	c := &tr.Learner.Config
	c.EntropyTarget, c.AlphaRate, c.ActorRate = .99, .5, 1e-12
	for i := range tr.Learner.Actor.P { // an actor with a mind of its own
		tr.Learner.Actor.P[i] *= 30
	}
	tr.Learner.Actor.Repack()
	var said []string
	tr.Warn = func(s string) { said = append(said, s) }
	if err := tr.Run(nil); err != nil {
		t.Fatal(err)
	}
	if len(said) != 1 || !strings.Contains(said[0], "the temperature is at its upper bound") {
		t.Errorf("told: %q; log α is %g", said, tr.Learner.LogAlpha)
	}
}

// Files that share bytes between tensors, leave holes, or claim a network that no memory has room for are refused.
func TestMalformedTensors(t *testing.T) {
	file := func(header string, data int) []byte {
		b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		return append(append(b, header...), make([]byte, data)...)
	}
	for name, b := range map[string][]byte{
		"shared":    file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8),
		"a hole":    file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}}`, 8),
		"no end":    file(`{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,8]}}`, 8),
		"a product": file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0),
	} {
		if _, _, err := DecodeTensors(b); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	tr := small(t, "", 20)
	b, err := tr.Learner.Checkpoint(tr.Header).Encode()
	if err != nil {
		t.Fatal(err)
	}
	big := bytes.Replace(b, []byte(`\"hidden\":[16,16]`), []byte(`\"hidden\":[65536,65536]`), 1)
	binary.LittleEndian.PutUint64(big, binary.LittleEndian.Uint64(b)+6)
	n := testing.AllocsPerRun(1, func() {
		if _, err := DecodeCheckpoint(big); err == nil || !strings.Contains(err.Error(), "its network needs") {
			t.Errorf("widths that the file has not: %v", err)
		}
	})
	if n > 1e6 {
		t.Errorf("%g allocations", n)
	}
}

// No state that an agent sees depends on true run times (D5): jobs whose run times are exchanged, and whatever is chosen, look the
// same until the first of them ends, which everybody may see.
func TestStatesDoNotDependOnTruth(t *testing.T) {
	compared := 0
	wide := pair()
	for i := range wide.Pools {
		wide.Pools[i].Nodes, wide.Pools[i].GPUs = 3, 4
	}
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64Range(0, 1<<30).Draw(t, "episode")
		jobs, err := pairConfig().Episodes(seed)
		if err != nil {
			t.Fatal(err)
		}
		for i := range jobs { // close together, so that there is much to see before the first end
			jobs[i].Submit = workload.Time(i/3) * workload.Second
		}
		other := slices.Clone(jobs)
		order := rapid.Permutation(indices(len(jobs))).Draw(t, "order")
		for i, k := range order {
			other[i].Run = jobs[k].Run
		}
		envs, ended := make([]*Cluster, 2), false
		for i, js := range [][]workload.Job{jobs, other} {
			cfg := pairConfig()
			cfg.Spec = wide
			cfg.Episodes = func(uint64) ([]workload.Job, error) { return js, nil }
			cfg.Ended = func(*engine.Result) { ended = true }
			if envs[i], err = NewCluster(cfg); err != nil {
				t.Fatal(err)
			}
			if err := envs[i].Reset(0); err != nil {
				t.Fatal(err)
			}
		}
		for {
			a, b := envs[0].Observe(), envs[1].Observe()
			if ended || envs[0].Done() {
				return
			}
			compared++
			if a.N != b.N || !slices.Equal(a.X, b.X) || !slices.Equal(a.Global, b.Global) {
				t.Fatalf("the states differ:\n%v %v\n%v %v", a.X, a.Global, b.X, b.Global)
			}
			choice := rapid.IntRange(0, a.N-1).Draw(t, "action")
			for _, e := range envs {
				if _, err := e.Step(choice); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	if compared < 2000 {
		t.Errorf("%d states were compared only", compared)
	}
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
