package e2e

import (
	"strings"
	"testing"
	"time"
)

// The box's one host is cordoned while a job runs: the job ends by itself, its worker goes, a job that waits starts none, and
// says why; uncordoned, the host serves it.
func TestCordonedHost(t *testing.T) {
	r := begin(t, 15*time.Minute)
	j := r.runningJob(student, "--partition=cpu")
	t.Cleanup(func() { r.kubectl("uncordon", "box") })
	r.kubectl("cordon", "box")
	r.eventually(60*time.Second, "Slurm is told", func() (bool, string) {
		out, err := r.inController("scontrol show node " + j.nodes + " --oneliner")
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(out, "DRAIN") && strings.Contains(out, "Reason=berth: host box is cordoned"), out
	})
	if now, err := r.lookJob(j.id); err != nil || now.state != "RUNNING" {
		t.Errorf("on a cordoned host: %v %v; want it RUNNING", now, err)
	}
	r.mustComplete(j)
	r.waitNoWorkers("cpu")
	r.eventually(60*time.Second, "no node of the pool is offered", func() (bool, string) {
		out, err := r.inController("sinfo --noheader --Node --format='%N %T' --partition=cpu")
		if err != nil {
			return false, err.Error()
		}
		return strings.Count(out, "drain") == strings.Count(strings.TrimSpace(out), "\n")+1, out
	})
	waits := r.submit(researcher, "--partition=cpu", "echo began; echo ended")
	time.Sleep(10 * time.Second)
	if now, err := r.lookJob(waits); err != nil || now.state != "PENDING" || len(r.workerPods("cpu")) > 0 {
		t.Errorf("%v %v with %s; want it PENDING, without a pod", now, err, names(r.workerPods("cpu")))
	}
	r.kubectl("uncordon", "box")
	r.waitJob(waits, "COMPLETED", workerStarts)
}

// A floor at run time: a push keeps one worker of the pool up without work, and taking it back lets the worker go.
func TestFloorByPush(t *testing.T) {
	r := begin(t, 15*time.Minute)
	r.waitNoWorkers("cpu")
	s := r.clone()
	s.edit("cpu: {", "max: 4", "headroom: nodes: 1, max: 4")
	s.deliver("Keep a worker free")
	r.eventually(workerStarts, "an idle worker", func() (bool, string) {
		out, err := r.inController("sinfo --noheader --Node --format='%N %T' --partition=cpu")
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(out, " idle\n") || strings.HasSuffix(out, " idle"), out
	})
	r.eventually(60*time.Second, "slurmctld keeps it", func() (bool, string) {
		value := r.configValue("SuspendExcNodes")
		return strings.Contains(value, "slurm-worker-cpu-[0-3]:1"), value
	})
	s.edit("cpu: {", "headroom: nodes: 1, max: 4", "max: 4")
	s.deliver("Keep none")
	r.waitNoWorkers("cpu")
}
