package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// four is a contended cluster of four nodes with two cards each, of two speeds.
const four = `{"name": "four", "pools": [
  {"name": "fast", "nodes": 2, "cpus": 32, "gpus": 2, "gpuType": "a", "speed": 2},
  {"name": "slow", "nodes": 2, "cpus": 32, "gpus": 2, "gpuType": "b", "speed": 1}]}`

// TestLearnedTail trains a policy for the tail of latency jobs with three seeds, as a person would, and holds each against FCFS and
// EASY on eight held-out episodes of the AI mix: the mean of their 99th percentiles of completion time must be below both. It needs
// no box.
func TestLearnedTail(t *testing.T) {
	if os.Getenv("BERTH_E2E") != "1" {
		t.Skip("trains for minutes: set BERTH_E2E=1, or run lab/e2e.sh")
	}
	advisor, err := filepath.Abs("../../bin/advisor")
	if err == nil {
		_, err = os.Stat(advisor)
	}
	if err != nil {
		t.Fatalf("%v; run make build first", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "four.json"), []byte(four), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) []byte {
		t.Helper()
		c := exec.CommandContext(ctx, advisor, args...)
		c.Dir = dir
		out, err := c.Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				out = exit.Stderr
			}
			t.Fatalf("advisor %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	for seed := 1; seed <= 3; seed++ {
		name := fmt.Sprint("seed-", seed)
		run("train", "--cluster", "four.json", "--out", name, "--seed", fmt.Sprint(seed), "--arm", "rdsac_mean", "--gamma", "0.95", "--boosts", "0",
			"--steps", "15000", "--warmup", "1000", "--save-every", "1000", "--jobs-from", "40", "--jobs-to", "200", "--load-from", "0.8", "--load-to", "1.0",
			"--curriculum", "40", "--batch", "32", "--hidden", "32,32", "--actor-rate", "1e-3", "--critic-rate", "1e-3", "--weight-miss", "0.2",
			"--fixed-alpha", "--init-alpha", "0.03", "--threads", "1", "--quiet")
		// It acts as it did in training. The likeliest single action is often to defer, where many like starts share what is likelier.
		tail := latencyTails(t, run("checkpoint", "evaluate", name, "--cluster", "four.json", "--episodes", "8", "--jobs-each", "300", "--load", "0.95",
			"--boosts", "0", "--act", "sample", "--baselines", "fcfs,fcfs+easy"))
		t.Logf("seed %d: P99 of the latency class, mean of 8 episodes: learned %.0f s, FCFS %.0f s, EASY %.0f s", seed, tail["learned"], tail["fcfs"], tail["fcfs+easy"])
		if !(tail["learned"] > 0 && tail["learned"] < tail["fcfs"] && tail["learned"] < tail["fcfs+easy"]) {
			t.Errorf("seed %d: %v", seed, tail)
		}
	}
}

// latencyTails reads what advisor checkpoint evaluate prints: the mean over episodes of the column p99lat, by policy.
func latencyTails(t *testing.T, out []byte) map[string]float64 {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(out))
	column, sum, n := -1, map[string]float64{}, map[string]float64{}
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if column < 0 {
			column = slices.Index(f, "p99lat")
			continue
		}
		if len(f) <= column {
			t.Fatalf("a line is cut short: %q", lines.Text())
		}
		v, err := strconv.ParseFloat(f[column], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum[f[0]], n[f[0]] = sum[f[0]]+v, n[f[0]]+1
	}
	for k := range sum {
		if n[k] != 8 {
			t.Fatalf("%g episodes of %s:\n%s", n[k], k, out)
		}
		sum[k] /= n[k]
	}
	return sum
}
