package e2e

import (
	"strings"
	"testing"
	"time"
)

// The whole path once, thin: a push is followed, a job gets its worker, and the worker leaves after it.
func TestSmoke(t *testing.T) {
	r := begin(t, 8*time.Minute)

	s := r.clone()
	s.edit("vision:", "2", "3")
	t.Logf("git push to converged: %.1f s", s.deliver("Give vision a larger share").Seconds())

	id := r.submit(student, "--partition=cpu", "hostname; id --user --name")
	j := r.waitJob(id, "COMPLETED", workerStarts)
	if out := r.output(id); out != j.nodes+"\n"+student {
		t.Errorf("%s wrote %q, want its node's name and its user", j, out)
	}
	if !strings.HasPrefix(j.nodes, "slurm-worker-cpu-") {
		t.Errorf("%s ran on %s, want a worker of pool cpu", j, j.nodes)
	}
	r.waitNoWorkers("cpu")
}

// From no pods to two and back, for a job over two pools and for one inside a pool, at once. A job that waits for nodes
// is accepted although no pod exists: slurmctld knows the nodes before their pods do.
func TestScaleToZero(t *testing.T) {
	r := begin(t, 8*time.Minute)
	r.waitNoWorkers("")

	script := "srun --nodes=2 --ntasks=2 hostname | sort"
	gpu := r.submit(student, "--partition=gpu --nodes=2 --gres=gpu:1", script)
	cpu := r.submit(researcher, "--partition=cpu --nodes=2", script)

	r.eventually(30*time.Second, "pods for both jobs", func() (bool, string) {
		pods := r.workerPods("")
		return len(pods) >= 4, names(pods)
	})
	r.waitJob(gpu, "COMPLETED", workerStarts)
	r.waitJob(cpu, "COMPLETED", workerStarts)
	if got, want := r.output(gpu), "slurm-worker-gpu-rtx3080-0\nslurm-worker-gpu-rtx4070-0"; got != want {
		t.Errorf("the job over two pools ran on %q, want %q", got, want)
	}
	if nodes := strings.Fields(r.output(cpu)); len(nodes) != 2 || nodes[0] == nodes[1] {
		t.Errorf("the two-node job in cpu ran on %q, want two nodes", nodes)
	}
	if pods := r.workerPods(""); len(pods) > 4 {
		t.Errorf("four nodes were asked for; there are %s", names(pods))
	}
	r.waitNoWorkers("")
}
