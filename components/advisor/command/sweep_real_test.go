package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/advisor/rl"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// A sweep on a real Slurm: a job array trains, a task that is requeued in the middle goes on from its checkpoint, and every training
// ends with the bytes that it ends with here, uninterrupted. Then a training whose actors are steps of its allocation.
func TestSweepOnSlurm(t *testing.T) {
	m := slurmtest.Start(t, "w-0")
	exe := filepath.Join(m.Dir, "advisor")
	if out, err := exec.Command("go", "build", "-o", exe, "github.com/berth-hpc/berth/components/advisor/cmd/advisor").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	write(t, m.Dir, "pair.json", `{"name": "pair", "pools": [
  {"name": "fast", "nodes": 1, "cpus": 16, "gpus": 1, "gpuType": "a", "speed": 2},
  {"name": "slow", "nodes": 1, "cpus": 16, "gpus": 1, "gpuType": "b", "speed": 1}]}`)
	s := m.Configure(`NodeName=w-0 CPUs=4 RealMemory=4000
PartitionName=cpu Nodes=w-0 Default=YES
`, nil)
	s.Slurmctld()
	s.Slurmd("w-0")
	flags := []string{"--cluster", m.Dir + "/pair.json", "--steps", "1500", "--warmup", "50", "--save-every", "50", "--jobs-from", "10", "--jobs-to", "20", "--hidden", "8,8", "--batch", "8"}
	sweep := filepath.Join(m.Dir, "sweep")
	said := s.Client(exe, append([]string{"sweep", "--arms", "sac,rdsac_cvar", "--seeds", "1..1", "--out", sweep, "--engine", "slurm", "--cpus", "1", "--partition", "cpu", "--time", "10"}, flags...)...)
	job := regexp.MustCompile(`submitted job (\d+)`).FindStringSubmatch(said)
	if job == nil {
		t.Fatal(said)
	}
	step := func(arm string) int64 {
		l, err := rl.ReadLatest(filepath.Join(sweep, arm+"-1"))
		if err != nil {
			return 0
		}
		return l.Step
	}
	log := func(dir string) string {
		var b strings.Builder
		for _, f := range glob(t, filepath.Join(dir, "slurm-*.log")) {
			text, _ := os.ReadFile(f)
			fmt.Fprintf(&b, "%s:\n%s", f, text)
		}
		return b.String()
	}
	slurmtest.Eventually(t, time.Minute, "the second task has saved", func() (bool, string) { return step("rdsac_cvar") > 0, log(sweep) + s.Log("slurmctld.log") })
	second := job[1] + "_1"
	s.Client("scontrol", "requeue", second)
	at := step("rdsac_cvar")
	s.Want(second, "PENDING")
	s.Client("scontrol", "update", "jobid="+second, "StartTime=now") // Slurm would wait for two minutes
	for k := range 2 {
		s.Want(fmt.Sprintf("%s_%d", job[1], k), "COMPLETED")
	}
	if text := log(sweep); at >= 1500 || !regexp.MustCompile(`resumed at step [1-9]\d* of 1500`).MatchString(text) {
		t.Errorf("requeued at step %d, the task did not go on from a checkpoint:\n%s", at, text)
	}
	for _, arm := range []string{"sac", "rdsac_cvar"} {
		here := filepath.Join(t.TempDir(), arm)
		if code := Run(context.Background(), io.Discard, os.Stderr, append([]string{"train", "--quiet", "--arm", arm, "--seed", "1", "--out", here}, flags...)); code != ExitOK {
			t.Fatalf("training here ends with %d", code)
		}
		a, err := os.ReadFile(filepath.Join(here, "latest.json"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(sweep, arm+"-1", "latest.json"))
		// The revision is in the checkpoint; a test's binary has another than a command's.
		if err != nil || !bytes.Equal(a, b) && !sameWeights(t, filepath.Join(here), filepath.Join(sweep, arm+"-1")) {
			t.Errorf("%s on Slurm ends with\n%s\nhere with\n%s (%v)", arm, b, a, err)
		}
	}
	if out := s.Client(exe, "sweep", "gather", sweep); !regexp.MustCompile(`(?m)^rdsac_cvar-1 +1500 `).MatchString(out) || !strings.Contains(out, "over 1 seeds") {
		t.Error(out)
	}

	spread := filepath.Join(m.Dir, "spread")
	said = s.Client(exe, append([]string{"sweep", "--arms", "sac", "--seeds", "7", "--out", spread, "--engine", "slurm", "--cpus", "1", "--actors", "2", "--time", "10"}, flags...)...)
	if job = regexp.MustCompile(`submitted job (\d+)`).FindStringSubmatch(said); job == nil {
		t.Fatal(said)
	}
	slurmtest.Eventually(t, 2*time.Minute, "the training with actors ends", func() (bool, string) {
		out := s.Client("scontrol", "show", "job", job[1])
		return strings.Contains(out, "JobState=COMPLETED"), out + log(spread) + s.Log("w-0.log")
	})
	text := log(spread)
	t.Log(text[max(len(text)-600, 0):])
	if n := len(regexp.MustCompile(`acted [1-9]\d* steps`).FindAllString(text, -1)); n != 2 || !regexp.MustCompile(`2 actors  \d+ steps/s  staleness`).MatchString(text) {
		t.Errorf("%d actors took part:\n%s", n, text)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	fs, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// sameWeights compares what two trainings have learned.
func sameWeights(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := loadCheckpoint(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := loadCheckpoint(b)
	if err != nil {
		t.Fatal(err)
	}
	same := slices.Equal(x.Actor.P, y.Actor.P) && x.Header.Steps == y.Header.Steps
	for i := range x.Critics {
		same = same && slices.Equal(x.Critics[i].P, y.Critics[i].P)
	}
	return same
}
