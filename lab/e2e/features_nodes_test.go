package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Features of Slurm that are about nodes: gangs, cards, kinds of workers, what happens when one is lost, and people who
// work on one by hand.

// F9: two nodes and four tasks start together, from no pods at all, or not at all.
func TestF9Gang(t *testing.T) {
	r := begin(t, 10*time.Minute)
	r.waitNoWorkers("cpu")
	id := r.submit(student, "--partition=cpu --nodes=2 --ntasks-per-node=2", "srun bash -c 'echo $SLURM_PROCID $(hostname)' | sort -n")
	r.waitJob(id, "COMPLETED", workerStarts)
	hosts := map[string]int{}
	for _, line := range strings.Split(r.output(id), "\n") {
		var task int
		var host string
		if _, err := fmt.Sscan(line, &task, &host); err != nil {
			t.Fatalf("a task wrote %q", line)
		}
		hosts[host]++
	}
	if len(hosts) != 2 {
		t.Errorf("four tasks ran on %v, want two on each of two nodes", hosts)
	}
	for host, tasks := range hosts {
		if tasks != 2 {
			t.Errorf("%d tasks ran on %s, want 2", tasks, host)
		}
	}
	// All nodes but one are free: a gang of all does not begin with those.
	blocker := r.waitJob(r.submit(researcher, "--partition=cpu --ntasks=2 --nodes=1 --time=10", "sleep 900"), "RUNNING", workerStarts)
	nodes := len(r.nodeNames("cpu"))
	all := r.submit(student, fmt.Sprintf("--partition=cpu --nodes=%d --ntasks-per-node=2 --time=5", nodes), "srun hostname | sort -u | wc -l")
	r.waitReason(all, "Resources")
	r.mustAs(researcher, "scancel "+blocker.id)
	r.waitJob(all, "COMPLETED", workerStarts)
	if got := r.output(all); got != fmt.Sprint(nodes) {
		t.Errorf("the gang of %d ran on %s nodes", nodes, got)
	}
}

// F9: the ranks of a parallel program find each other by PMIx, two on each of two nodes: each publishes a number, and each adds up what the
// others did. Within a job, and by srun from the login pod.
func TestF9PMIx(t *testing.T) {
	r := begin(t, 8*time.Minute)
	const ranks = "--nodes=2 --ntasks-per-node=2 --time=5"
	check := func(how, out string) {
		t.Helper()
		hosts, seen := map[string]int{}, map[int]bool{}
		for _, line := range strings.Split(out, "\n") {
			var rank, of, sum int
			var host string
			if _, err := fmt.Sscanf(line, "rank %d of %d on %s the sum is %d", &rank, &of, &host, &sum); err != nil || of != 4 || sum != 0+1+4+9 {
				t.Errorf("%s: a rank says %q; want one of 4 with the sum 14", how, line)
				continue
			}
			hosts[host]++
			seen[rank] = true
		}
		if len(seen) != 4 || len(hosts) != 2 {
			t.Errorf("%s: ranks %v on %v, want four on two nodes", how, seen, hosts)
		}
		for host, n := range hosts {
			if n != 2 {
				t.Errorf("%s: %d ranks on %s, want 2", how, n, host)
			}
		}
	}
	id := r.submit(student, "--partition=cpu --error=/dev/null "+ranks, "srun --mpi=pmix pmix-sum")
	r.waitJob(id, "COMPLETED", workerStarts)
	check("in a job", r.output(id))
	check("srun from the login pod", r.mustAs(researcher, "srun --quiet --partition=cpu "+ranks+" --mpi=pmix pmix-sum 2> /dev/null"))
}

// F12: a job that asks for a whole card and jobs that share it keep each other out; Slurm says so.
func TestF12WholeCardOrShares(t *testing.T) {
	r := begin(t, 8*time.Minute)
	const partition = "--partition=gpu-rtx4070 --time=10 --gres="
	share := r.waitJob(r.submit(student, partition+"mps:25", shareScript), "RUNNING", workerStarts)
	whole := r.submit(researcher, partition+"gpu:1", "echo card $CUDA_VISIBLE_DEVICES ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-whole}; sleep 600")
	r.waitReason(whole, "Resources")
	r.mustAs(student, "scancel "+share.id)
	r.waitJob(whole, "RUNNING", workerStarts)
	late := r.submit(student, partition+"mps:25", "true")
	r.waitReason(late, "Resources")
	r.eventually(20*time.Second, "the job says its card", func() (bool, string) {
		out := r.outputOrWhy(whole)
		return strings.TrimSpace(out) == "card 0 whole", out
	})
	r.mustAs(researcher, "scancel "+whole)
	r.waitJob(late, "COMPLETED", workerStarts)
}

// F13: a job lands where it asks to: by feature, by partition, by kind of card, and without any of them on the CPUs.
func TestF13WhereAsked(t *testing.T) {
	r := begin(t, 8*time.Minute)
	const fast, slow = "slurm-worker-gpu-rtx4070-0", "slurm-worker-gpu-rtx3080-0"
	for _, want := range []struct{ user, options, node string }{
		{student, "", "slurm-worker-cpu-"},
		{student, "--partition=gpu-rtx4070", fast},
		{researcher, "--partition=gpu --constraint=rtx3080", slow},
		{student, "--partition=gpu --gres=gpu:rtx3080:1", slow},
		// The faster first, where both are up: Slurm prefers a node that is up to a faster one that is not.
		{student, "--partition=gpu --nodes=2 --gres=gpu:1", "slurm-worker-gpu-"},
		{researcher, "--partition=gpu --gres=gpu:1", fast},
	} {
		id := r.submit(want.user, want.options, "hostname")
		j := r.waitJob(id, "COMPLETED", workerStarts)
		if !strings.HasPrefix(j.nodes, want.node) {
			t.Errorf("%q ran on %s, want %s", want.options, j.nodes, want.node)
		}
	}
	if _, err := r.trySubmit(student, "--partition=cpu --gres=gpu:1", "true"); err == nil {
		t.Error("a job that wants a card was accepted where no node has one")
	} else if !strings.Contains(err.Error(), "Requested node configuration is not available") {
		t.Errorf("a card where there is none was refused with %v", err)
	}
	if _, err := r.trySubmit(student, "--partition=gpu --constraint=nonesuch", "true"); err == nil {
		t.Error("a job that wants a feature that no node has was accepted")
	}
}

// F14: a worker is lost in the middle of a job that keeps checkpoints: it goes on from its last one, and the result is that
// of a run without the loss.
func TestF14RequeueFromCheckpoint(t *testing.T) {
	r := begin(t, 15*time.Minute)
	script, err := os.ReadFile(filepath.Join(r.box.Source, "examples", "checkpoint", "train.sh"))
	if err != nil {
		t.Fatal(err)
	}
	train := func(options string) string {
		// A node each, so that the loss of one hits one of them.
		return r.submit(student, "--partition=cpu --ntasks=2 "+options, "export EPOCHS=40 PAUSE=0.5\n"+string(script))
	}
	whole, lost := train(""), train("--requeue")
	j := r.waitJob(lost, "RUNNING", workerStarts)
	r.eventually(90*time.Second, "the job has made checkpoints", func() (bool, string) {
		out, err := r.as(student, "cat /shared/checkpoints/"+student+"/"+lost+"/checkpoint")
		var epoch int
		_, scanErr := fmt.Sscan(out, &epoch)
		return err == nil && scanErr == nil && epoch >= 5, out
	})
	r.kubectl("delete", "pod", "-n", workers, j.nodes, "--grace-period=0", "--force")
	r.eventually(150*time.Second, "the job waits again", func() (bool, string) {
		now, err := r.lookJob(lost)
		return err == nil && now.state == "PENDING", fmt.Sprint(now, err)
	})
	if _, err := r.as(student, "scontrol update jobid="+lost+" starttime=now"); err != nil {
		t.Logf("start the requeued job at once: %v", err)
	}
	r.waitJob(lost, "COMPLETED", workerStarts+time.Minute)
	r.waitJob(whole, "COMPLETED", 2*time.Minute)
	last := func(id string) string {
		lines := strings.Split(r.output(id), "\n")
		return lines[len(lines)-1]
	}
	if !strings.Contains(r.output(lost), "resumes after epoch") {
		t.Errorf("the requeued job began anew:\n%s", r.output(lost))
	}
	if a, b := last(whole), last(lost); a != b || !strings.HasPrefix(a, "result") {
		t.Errorf("uninterrupted: %q, with a lost node: %q", a, b)
	}
	r.mustAs(student, "rm -r /shared/checkpoints/"+student+"/"+whole+" /shared/checkpoints/"+student+"/"+lost)
	out := r.mustAs(student, "sacct --noheader --parsable2 --allocations --duplicates --format=state --jobs="+lost)
	if states := strings.Fields(out); len(states) != 2 || states[1] != "COMPLETED" || !slices.Contains([]string{"NODE_FAIL", "REQUEUED"}, states[0]) {
		t.Errorf("sacct has %v, want the lost run and the completed one", states)
	}
}

// F15: people work on a worker by hand: with a terminal, in an allocation, by steps.
func TestF15Interactive(t *testing.T) {
	r := begin(t, 10*time.Minute)
	if out := r.mustAs(student, "srun --partition=cpu --quiet hostname"); !strings.HasPrefix(out, "slurm-worker-cpu-") {
		t.Errorf("srun answers %q", out)
	}
	// A terminal as SSH gives one, with a size and a user who types.
	out := r.mustAs(student, `{ sleep 20; echo 'stty size; hostname; whoami; exit'; sleep 5; } | TERM=xterm timeout 120 script --quiet --return --command 'stty rows 33 cols 99; srun --partition=cpu --quiet --pty bash --norc -i' /dev/null`)
	for _, want := range []string{"33 99", "slurm-worker-cpu-", student} {
		if !strings.Contains(out, want) {
			t.Errorf("a session with a terminal shows no %q:\n%s", want, out)
		}
	}
	out = r.mustAs(researcher, `salloc --partition=cpu --nodes=2 --ntasks=2 --quiet bash -c 'squeue --me --noheader --format="%T %D"; srun --quiet hostname | sort -u | wc -l'`)
	if out != "RUNNING 2\n2" {
		t.Errorf("in an allocation of two nodes: %q", out)
	}
	// What is typed reaches a step, and its exit status comes back.
	if out := r.mustAs(researcher, "echo typed | srun --partition=cpu --quiet cat; srun --partition=cpu --quiet bash -c 'exit 7' || echo status $?"); !strings.Contains(out, "typed") || !strings.Contains(out, "status 7") {
		t.Errorf("standard input and exit status: %q", out)
	}
}

// F19: a heterogeneous job over CPUs and a card starts as one, from no pods at all.
func TestF19Heterogeneous(t *testing.T) {
	r := begin(t, 10*time.Minute)
	r.waitNoWorkers("")
	id := r.submit(student, "--partition=cpu --ntasks=2 : --partition=gpu-rtx3080 --gres=gpu:1 --ntasks=1",
		"date +%FT%T; srun --quiet hostname : --quiet bash -c 'echo $(hostname) card $CUDA_VISIBLE_DEVICES in $TMPDIR' 2>&1 | sort")
	r.eventually(workerStarts, "both components are COMPLETED", func() (bool, string) {
		out, err := r.as(student, "squeue --noheader --states=all --format=%T --jobs="+id)
		return err == nil && strings.Join(strings.Fields(out), " ") == "COMPLETED COMPLETED", fmt.Sprint(out, err)
	})
	lines := strings.Split(r.output(id), "\n")
	leader, _ := strconv.Atoi(id)
	if want := fmt.Sprintf("slurm-worker-gpu-rtx3080-0 card 0 in /tmp/jobs/%d", leader+1); len(lines) != 4 || !strings.HasPrefix(lines[1], "slurm-worker-cpu-") ||
		lines[2] != lines[1] || lines[3] != want {
		t.Fatalf("the two components ran as %q, want the last to be %q", lines, want)
	}
	// From zero each component's start is set to when its own node was up, so that they may be a second or two apart; the
	// script, whose record has the first component's start, begins when both are.
	starts := map[string]string{}
	for _, line := range strings.Fields(r.mustAs(student, "sacct --noheader --parsable2 --format=jobid,start --jobs="+id)) {
		record, start, _ := strings.Cut(line, "|")
		starts[record] = start
	}
	script, first, second := lines[0], starts[id+"+0"], starts[id+"+1"]
	if first == "" || second == "" || script < first || script < second {
		t.Errorf("the script began at %s, before both components had: %v", script, starts)
	}
}
