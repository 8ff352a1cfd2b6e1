package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// shareScript says what share of the card the job was given and holds it.
const shareScript = "echo share $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE on $(hostname)\nsleep 600"

// A quarter of a card each: four jobs share one card of one pod, the fifth waits for one of them, and a job that asks for
// either pool goes to the other card.
func TestShares(t *testing.T) {
	r := begin(t, 8*time.Minute)
	const fast, slow = "slurm-worker-gpu-rtx4070-0", "slurm-worker-gpu-rtx3080-0"
	var four []string
	for range 4 {
		four = append(four, r.submit(student, "--partition=gpu-rtx4070 --gres=mps:25", shareScript))
	}
	fifth := r.submit(student, "--partition=gpu-rtx4070 --gres=mps:25", shareScript)
	for _, id := range four {
		if j := r.waitJob(id, "RUNNING", workerStarts); j.nodes != fast {
			t.Errorf("%s; want it on %s", j, fast)
		}
	}
	if pods := r.workerPods("gpu-rtx4070"); len(pods) != 1 {
		t.Errorf("four quarters of a card have %s, want one pod", names(pods))
	}
	for _, id := range four {
		r.eventually(20*time.Second, "job "+id+" says its share", func() (bool, string) {
			out := r.outputOrWhy(id)
			return strings.TrimSpace(out) == "share 25 on "+fast, out
		})
	}
	if j, err := r.lookJob(fifth); err != nil || j.state != "PENDING" || j.reason != "Resources" {
		t.Errorf("%v %v; want it PENDING for Resources", j, err)
	}
	either := r.submit(student, "--partition=gpu --gres=mps:25", shareScript)
	if j := r.waitJob(either, "RUNNING", workerStarts); j.nodes != slow {
		t.Errorf("%s; want it on the free card, %s", j, slow)
	}
	r.mustAs(student, "scancel "+four[0])
	if j := r.waitJob(fifth, "RUNNING", workerStarts); j.nodes != fast {
		t.Errorf("%s; want it on the freed share of %s", j, fast)
	}
}

// `users: "one"` keeps a second user's job in the queue, where it is seen; "trusted" lets it in beside the first.
func TestCardUsers(t *testing.T) {
	r := begin(t, 10*time.Minute)
	const partition = "--partition=gpu-rtx4070 --gres=mps:25"
	s := r.clone()
	s.edit(`"gpu-rtx4070":`, `"trusted"`, `"one"`)
	s.deliver("One user a card")

	first := r.waitJob(r.submit(student, partition, shareScript), "RUNNING", workerStarts)
	same := r.waitJob(r.submit(student, partition, shareScript), "RUNNING", workerStarts)
	if same.nodes != first.nodes {
		t.Errorf("%s; want it beside the same user's job on %s", same, first.nodes)
	}
	// After it: behind another user's waiting job the user's own would wait too, by priority.
	second := r.submit(researcher, partition, shareScript)
	// Long enough for the scheduler to have looked at it, also by backfill.
	var seen job
	r.eventually(60*time.Second, "the second user's job has a reason to wait", func() (bool, string) {
		j, err := r.lookJob(second)
		if err != nil {
			return false, err.Error()
		}
		seen = j
		return j.state != "PENDING" || j.reason != "None", j.String()
	})
	if seen.state != "PENDING" {
		t.Fatalf("%s; want it PENDING while %s runs", seen, first.id)
	}
	queue := r.mustAs(researcher, "squeue --noheader --format='%i %T %r' --jobs="+second)
	t.Logf("the queue shows: %s", queue)

	s.edit(`"gpu-rtx4070":`, `"one"`, `"trusted"`)
	s.deliver("Trusted users share a card")
	if j := r.waitJob(second, "RUNNING", workerStarts); j.nodes != first.nodes {
		t.Errorf("%s; want it beside the other user's job on %s", j, first.nodes)
	}
	if j, err := r.lookJob(first.id); err != nil || j.state != "RUNNING" {
		t.Errorf("%v %v; want the first user's job RUNNING still", j, err)
	}
	r.eventually(20*time.Second, "the second user's job says its share", func() (bool, string) {
		out := r.outputOrWhy(second)
		return strings.TrimSpace(out) == fmt.Sprintf("share 25 on %s", first.nodes), out
	})
}
