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

// `users: "one"` keeps a second user's job in the queue, where it is seen; "trusted" lets it in beside another's, in a worker that was made so.
func TestCardUsers(t *testing.T) {
	r := begin(t, 15*time.Minute)
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
	// The worker's MPS daemon is one user's: the second's program would wait in it unseen. So the worker takes no new jobs, and the next
	// one, once the first user's jobs have ended, is for both.
	for _, id := range []string{first.id, same.id} {
		if j, err := r.lookJob(id); err != nil || j.state != "RUNNING" {
			t.Errorf("%v %v; want the first user's job RUNNING still", j, err)
		}
	}
	if j, err := r.lookJob(second); err != nil || j.state != "PENDING" {
		t.Errorf("%v %v; want it PENDING while the worker is the first user's", j, err)
	}
	r.mustAs(student, "scancel "+first.id+" "+same.id)
	if j := r.waitJob(second, "RUNNING", 2*workerStarts); j.nodes != first.nodes {
		t.Errorf("%s; want it on %s", j, first.nodes)
	}
	beside := r.waitJob(r.submit(student, partition, shareScript), "RUNNING", workerStarts)
	if beside.nodes != first.nodes {
		t.Errorf("%s; want it beside the other user's job on %s", beside, first.nodes)
	}
	r.eventually(20*time.Second, "the second user's job says its share", func() (bool, string) {
		out := r.outputOrWhy(second)
		return strings.TrimSpace(out) == fmt.Sprintf("share 25 on %s", first.nodes), out
	})
}

// clientScript is a program on the card: it says what environment it has, attaches to the card's MPS server, and holds on.
const clientScript = "env | grep ^CUDA_ | sort\nsleep 600 | nvidia-cuda-mps-control client"

// daemons are the process ids of the MPS control daemons in a worker's pod.
func (r *run) daemons(node string) []string {
	r.Helper()
	// pgrep ends with 1 where it finds none.
	out, err := r.box.Kubectl(r.ctx, "exec", "-n", workers, node, "-c", "slurmd", "--", "sh", "-c", "pgrep -f '^nvidia-cuda-mps-control -f' || true")
	if err != nil {
		r.Fatal(err)
	}
	return strings.Fields(out)
}

// Two users share a card of trusted users by one MPS daemon: what each job finds in its environment, the fifth quarter and the whole card
// that wait, a cancelled job's neighbours that work on, and a whole-card job that meets no daemon.
func TestSharedCard(t *testing.T) {
	r := begin(t, 12*time.Minute)
	const node = "slurm-worker-gpu-rtx4070-0"
	const quarter = "--partition=gpu-rtx4070 --gres=mps:25"
	users := []string{student, researcher, student, researcher}
	var four []string
	for _, user := range users {
		four = append(four, r.submit(user, quarter, clientScript))
	}
	var daemon string
	for i, id := range four {
		if j := r.waitJob(id, "RUNNING", workerStarts); j.nodes != node || j.user != users[i] {
			t.Errorf("%s; want it on %s", j, node)
		}
		r.eventually(40*time.Second, "job "+id+" is attached to the MPS server", func() (bool, string) {
			out := r.outputOrWhy(id)
			return strings.HasSuffix(out, "attached\n"), out
		})
		// The card is the site's 12Gi, of which half a GiB is nobody's.
		for _, want := range []string{
			"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25\n", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2944M\n",
			"CUDA_MPS_PIPE_DIRECTORY=/run/berth/mps/GPU-", "CUDA_VISIBLE_DEVICES=0\n",
		} {
			if out := r.outputOrWhy(id); !strings.Contains(out, want) {
				t.Errorf("job %s has no %q in its environment:\n%s", id, want, out)
			}
		}
		got := r.daemons(node)
		if len(got) != 1 || daemon != "" && got[0] != daemon {
			t.Fatalf("%d shares have the daemons %v; want one, the first (%s)", i+1, got, daemon)
		}
		daemon = got[0]
	}
	r.eventually(20*time.Second, "a job among trusted users says so in its comment", func() (bool, string) {
		out := r.mustAs(researcher, "squeue --noheader --format=%k --jobs="+four[1])
		return strings.Contains(out, "mps: the card is shared with other users"), out
	})

	fifth := r.submit(researcher, quarter, clientScript)
	whole := r.submit(student, "--partition=gpu-rtx4070 --gres=gpu:1", "env | grep ^CUDA_ | sort; pgrep -f '^nvidia-cuda-mps-control -f' || echo no daemon")
	plain := r.submit(student, "--partition=cpu", "env | grep -c ^CUDA_")
	r.waitJob(plain, "FAILED", workerStarts) // grep counts none
	if out := r.outputOrWhy(plain); out != "0\n" {
		t.Errorf("a job without a card finds in its environment:\n%s", out)
	}
	for _, id := range []string{fifth, whole} {
		if j, err := r.lookJob(id); err != nil || j.state != "PENDING" {
			t.Errorf("%v %v; want it PENDING beside four quarters", j, err)
		}
	}

	r.mustAs(student, "scancel "+four[0])
	if j := r.waitJob(fifth, "RUNNING", workerStarts); j.nodes != node {
		t.Errorf("%s; want it on the freed share", j)
	}
	for _, id := range four[1:] {
		if out := r.outputOrWhy(id); !strings.HasSuffix(out, "attached\n") {
			t.Errorf("job %s did not outlive its cancelled neighbour on the card:\n%s", id, out)
		}
	}
	if got := r.daemons(node); len(got) != 1 || got[0] != daemon {
		t.Errorf("daemons %v, want %s still", got, daemon)
	}

	r.mustAs(student, "scancel "+four[2])
	r.mustAs(researcher, "scancel "+four[1]+" "+four[3]+" "+fifth)
	r.waitJob(whole, "COMPLETED", workerStarts)
	if out := r.outputOrWhy(whole); out != "CUDA_VISIBLE_DEVICES=0\nno daemon\n" {
		t.Errorf("the job with the whole card finds:\n%s", out)
	}
}
