package rl

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/generate"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// pair is a fast and a slow node with one card each.
func pair() *cluster.Spec {
	return &cluster.Spec{Name: "pair", Pools: []cluster.Pool{
		{Name: "fast", Nodes: 1, CPUs: 16, GPUs: 1, GPUType: "a", Speed: 2},
		{Name: "slow", Nodes: 1, CPUs: 16, GPUs: 1, GPUType: "b", Speed: 1},
	}}
}

func pairConfig() ClusterConfig {
	mix := generate.Mix{Kinds: generate.AIMix, Cards: 3, Estimate: 2, MaxCards: 1}
	return ClusterConfig{Spec: pair(), Weights: Weights{Completion: 1, Miss: .1, Utilisation: .1, Balance: .1}, Gamma: .99, Boosts: 4, Seed: 1,
		Episodes: FromMix(mix, Curriculum{JobsFrom: 10, JobsTo: 40, LoadFrom: .5, LoadTo: .9, Episodes: 20}, 100)}
}

// small is a training of seconds.
func small(t testing.TB, dir string, steps int64) *Trainer {
	t.Helper()
	e, err := NewCluster(pairConfig())
	if err != nil {
		t.Fatal(err)
	}
	c := Defaults()
	c.Hidden, c.Batch, c.Cosines, c.Risk, c.AnnealSteps = []int{16, 16}, 16, 16, RiskCVaR, 50
	l, err := NewLearner(c, e.Encoding())
	if err != nil {
		t.Fatal(err)
	}
	tr, err := NewTrainer(Plan{Steps: steps, Warmup: 60, Every: 2, Save: 50, Replay: 150}, l, e)
	if err != nil {
		t.Fatal(err)
	}
	tr.Dir = dir
	tr.Header = Header{Topology: Topology(pair()), Data: Data{Source: "mix", First: 100, Last: 200}}
	return tr
}

const killed = "BERTH_TEST_TRAIN_AND_BE_KILLED"

// TestMain lets the test binary train in a folder until somebody kills it.
func TestMain(m *testing.M) {
	if dir := os.Getenv(killed); dir != "" {
		tr := small(&testing.T{}, dir, 400)
		if err := tr.Resume(); err != nil && !errors.Is(err, ErrFresh) {
			os.Stderr.WriteString(err.Error())
			os.Exit(3)
		}
		if err := tr.Run(nil); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A training that is killed again and again, and resumed, ends with the bytes of one that never was.
func TestKilledAndResumed(t *testing.T) {
	whole, cut := t.TempDir(), t.TempDir()
	if err := small(t, whole, 400).Run(nil); err != nil {
		t.Fatal(err)
	}
	kills := 0
	for wait := 30 * time.Millisecond; ; wait += 25 * time.Millisecond {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), killed+"="+cut)
		var said bytes.Buffer
		c.Stderr = &said
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(wait, func() { _ = c.Process.Kill() })
		err := c.Wait()
		timer.Stop()
		if err == nil {
			break
		}
		if c.ProcessState.ExitCode() == 3 {
			t.Fatal(said.String())
		}
		kills++
	}
	if kills < 2 {
		t.Errorf("killed %d times only", kills)
	}
	sameRun(t, whole, cut)
}

// A resumed training refuses other settings, and other data.
func TestResumeRefusesOtherSettings(t *testing.T) {
	dir := t.TempDir()
	if err := small(t, dir, 100).Run(nil); err != nil {
		t.Fatal(err)
	}
	tr := small(t, dir, 100)
	tr.Learner.Config.Gamma = .9
	if err := tr.Resume(); err == nil || !strings.Contains(err.Error(), "other settings") {
		t.Errorf("another gamma: %v", err)
	}
	tr = small(t, dir, 100)
	tr.Header.Data.First = 3
	if err := tr.Resume(); err == nil || !strings.Contains(err.Error(), "other settings") {
		t.Errorf("other data: %v", err)
	}
	if err := small(t, t.TempDir(), 100).Resume(); !errors.Is(err, ErrFresh) {
		t.Errorf("an empty folder: %v", err)
	}
}

// Damaged checkpoints are refused with the reason; whole ones come back as they were.
func TestCheckpointRefusals(t *testing.T) {
	tr := small(t, "", 80)
	if err := tr.Run(nil); err != nil {
		t.Fatal(err)
	}
	c := tr.Learner.Checkpoint(tr.Header)
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeCheckpoint(b)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(back.Actor.P, c.Actor.P) || back.Digest != c.Digest || !slices.Equal(back.Critics[1].P, c.Critics[1].P) {
		t.Error("the checkpoint came back changed")
	}
	if again, err := back.Encode(); err != nil || !bytes.Equal(again, b) {
		t.Errorf("written again, it differs (%v)", err)
	}
	refused := func(what, want string, b []byte) {
		t.Helper()
		if _, err := DecodeCheckpoint(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := 0; n < len(b); n += 1 + len(b)/37 {
		refused("truncated", "", b[:n])
	}
	refused("one byte short", "truncated", b[:len(b)-1])
	refused("one byte long", "the file has", append(slices.Clone(b), 0))
	poison := slices.Clone(b)
	copy(poison[len(poison)-4:], []byte{0, 0, 0xc0, 0x7f})
	refused("NaN", "NaN", poison)
	refused("another format", "format 9", bytes.Replace(b, []byte(`{\"format\":1,`), []byte(`{\"format\":9,`), 1))
	refused("another shape", "shape", bytes.Replace(b, []byte(`\"hidden\":[16,16]`), []byte(`\"hidden\":[16,17]`), 1))
	dir := t.TempDir()
	path := filepath.Join(dir, c.Digest+".safetensors")
	poison = slices.Clone(b)
	poison[len(poison)-5] ^= 1
	if err := os.WriteFile(path, poison, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadCheckpoint(path); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a changed bit: %v", err)
	}
	for _, types := range [][]string{{"b", "a"}, {"a"}, {"a", "c"}} {
		if _, err := c.Header.CheckTopology(types); err == nil {
			t.Errorf("nodes of %v are taken by a checkpoint for %v", types, c.Header.Topology)
		}
	}
	if note, err := c.Header.CheckTopology([]string{"a", "a", "b"}); err != nil || note == "" {
		t.Errorf("more nodes of the same types: %q, %v", note, err)
	}
}

// FuzzDecodeCheckpoint: whatever the bytes, there is an error or a checkpoint, and never a panic.
func FuzzDecodeCheckpoint(f *testing.F) {
	tr := small(f, "", 20)
	b, err := tr.Learner.Checkpoint(tr.Header).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:100])
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := DecodeCheckpoint(b); err == nil && c.Actor == nil {
			t.Error("a checkpoint without an actor")
		}
	})
}

// What the agent sees does not depend on true run times (D5): permuting them leaves the first state of a full queue as it is.
func TestTruthDoesNotLeakIntoStates(t *testing.T) {
	jobs, err := pairConfig().Episodes(19)
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		jobs[i].Submit, jobs[i].Deadline = 0, 0
	}
	see := func() []float32 {
		cfg := pairConfig()
		cfg.Episodes = func(uint64) ([]workload.Job, error) { return jobs, nil }
		e, err := NewCluster(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Reset(0); err != nil {
			t.Fatal(err)
		}
		enc := e.Encoding()
		return enc.Encode(nil, e.Observe())
	}
	a := see()
	for i := range jobs {
		k := (i*7 + 3) % len(jobs)
		jobs[i].Run, jobs[k].Run = jobs[k].Run, jobs[i].Run
	}
	if b := see(); !slices.Equal(a, b) || len(a) == 0 {
		t.Error("the state depends on run times")
	}
}

// Splits share no job and no moment, and data that overlap are found (D6).
func TestSplitsDoNotOverlap(t *testing.T) {
	var jobs []workload.Job
	for i := range 1000 {
		j := workload.Job{}
		j.ID, j.Submit, j.Account = int64(i), workload.Time(i/7)*workload.Second, string(rune('a'+i%11))
		jobs = append(jobs, j)
	}
	seen, last := map[int64]string{}, workload.Time(-1)
	for _, s := range []string{Train, Validation, Test} {
		part, err := SplitJobs(jobs, s)
		if err != nil {
			t.Fatal(err)
		}
		if len(part) < 50 || part[0].Submit <= last {
			t.Errorf("%s has %d jobs, the first at %d, after %d", s, len(part), part[0].Submit, last)
		}
		last = part[len(part)-1].Submit
		for _, j := range part {
			if seen[j.ID] != "" {
				t.Errorf("job %d is in %s and %s", j.ID, seen[j.ID], s)
			}
			seen[j.ID] = s
			if s != Test && heldOut(j.Account) {
				t.Errorf("%s has a job of the account %s, which is kept for the test", s, j.Account)
			}
		}
	}
	a := Data{Source: "x", Digest: "d", From: 0, To: 10}
	if a.Overlap(Data{Digest: "d", From: 9, To: 20}) == nil || a.Overlap(Data{Digest: "d", From: 10, To: 20}) != nil || a.Overlap(Data{Digest: "e", From: 0, To: 20}) != nil {
		t.Error("overlaps of traces are told wrongly")
	}
	g := Data{Source: "mix", First: 0, Last: 10}
	if g.Overlap(Data{Source: "mix", First: 9, Last: 12}) == nil || g.Overlap(Data{Source: "mix", First: 10, Last: 12}) != nil {
		t.Error("overlaps of generated data are told wrongly")
	}
}

// The undiscounted rewards of an episode sum to minus the hours jobs spent in the system, whatever the policy does.
func TestRewardIsCompletionTime(t *testing.T) {
	cfg := pairConfig()
	cfg.Weights, cfg.Gamma = Weights{Completion: 1}, 1
	e, err := NewCluster(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Reset(19); err != nil {
		t.Fatal(err)
	}
	rng, sum, kinds := NewSource(2, 2), 0.0, map[int]int{}
	for !e.Done() {
		a := rng.IntN(e.Observe().N)
		kinds[min(e.kind[a], 0)]++
		o, err := e.Step(a)
		if err != nil {
			t.Fatal(err)
		}
		sum += o.Reward
	}
	near(t, "the return", sum, -e.Jobs().SystemArea/3600, 1e-6)
	if kinds[-1] == 0 || kinds[0] == 0 {
		t.Errorf("actions taken: %v", kinds)
	}
}

// Serving a state allocates nothing.
func TestChooserAllocatesNothing(t *testing.T) {
	tr := small(t, "", 20)
	c := Chooser{Encoding: tr.Learner.Encoding, Actor: tr.Learner.Actor.Net}
	s := tr.Env.Observe()
	c.Best(s)
	if n := testing.AllocsPerRun(50, func() { c.Best(s) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

// Evaluate and the baselines run the same jobs.
func TestEvaluate(t *testing.T) {
	tr := small(t, "", 100)
	if err := tr.Run(nil); err != nil {
		t.Fatal(err)
	}
	cfg := pairConfig()
	var ours Fates
	var err error
	for _, act := range []string{ActSample, ActValue, ActGreedy} {
		if ours, err = Evaluate(tr.Learner.Checkpoint(tr.Header), cfg, act, 500); err != nil || ours.All.Jobs != 40 {
			t.Fatalf("%s: %d jobs, %v", act, ours.All.Jobs, err)
		}
	}
	if _, err := Evaluate(tr.Learner.Checkpoint(tr.Header), cfg, "dice", 500); err == nil {
		t.Error("a policy acts by dice")
	}
	fcfs, err := EvaluateBaseline("fcfs+easy", cfg, 500)
	if err != nil {
		t.Fatal(err)
	}
	if ours.All.Jobs != 40 || fcfs.All.Jobs != 40 || ours.Latency.Jobs != fcfs.Latency.Jobs || ours.Starved != 0 || ours.All.MeanJCT <= 0 {
		t.Errorf("%+v\n%+v", ours, fcfs)
	}
}
