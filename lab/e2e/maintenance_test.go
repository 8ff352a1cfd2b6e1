package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
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

// berth drain names the job that runs and lets it run; with --requeue the job gets its signal, has time for a checkpoint, and goes on
// from it once berth undrain gave the host back.
func TestDrainedHost(t *testing.T) {
	r := begin(t, 15*time.Minute)
	s := r.clone()
	script := "trap 'echo checkpoint' USR1\necho began\nwhile [ ${SLURM_RESTART_COUNT:-0} = 0 ]; do sleep 1; done\necho ended"
	id := r.submit(student, "--partition=cpu --requeue --open-mode=append", script)
	j := r.waitJob(id, "RUNNING", workerStarts)
	t.Cleanup(func() { r.kubectl("uncordon", "box") })
	var report struct {
		Host    string
		Workers []string
		Jobs    []struct {
			ID       string
			Requeues bool
		}
		Others []string
	}
	out, err := s.command("berth", "drain", "box", "--site", siteName, "--wait=false", "--output", "json")
	if jsonErr := json.Unmarshal([]byte(out), &report); err == nil || jsonErr != nil {
		t.Fatalf("drain of a busy host: %v %v:\n%s", err, jsonErr, out)
	}
	if len(report.Jobs) != 1 || report.Jobs[0].ID != id || !report.Jobs[0].Requeues || !slices.Contains(report.Workers, j.nodes) || !slices.Contains(report.Others, "slurm/slurm-controller-0") {
		t.Errorf("drain reports %s; want job %s, that may be requeued, on %s", out, id, j.nodes)
	}
	r.eventually(60*time.Second, "Slurm is told", func() (bool, string) {
		out, err := r.inController("scontrol show node " + j.nodes + " --oneliner")
		return err == nil && strings.Contains(out, "host box is cordoned"), out
	})
	if now, err := r.lookJob(id); err != nil || now.state != "RUNNING" {
		t.Errorf("after the drain: %v %v; want it RUNNING", now, err)
	}
	out = s.must("berth", "drain", "box", "--site", siteName, "--requeue", "--signal", "B:USR1@8", "--wait-timeout", "3m")
	if !strings.Contains(out, "job "+id+" is requeued") || !strings.Contains(out, "no worker is left on host box") {
		t.Errorf("drain --requeue says\n%s", out)
	}
	if now, err := r.lookJob(id); err != nil || now.state != "PENDING" {
		t.Errorf("drained with --requeue: %v %v; want it PENDING", now, err)
	}
	if out := s.must("berth", "undrain", "box"); !strings.Contains(out, "serves again") {
		t.Errorf("undrain says %q", out)
	}
	r.inController("scontrol update jobid=" + id + " starttime=now") // Slurm holds a requeued job back for two minutes
	r.waitJob(id, "COMPLETED", workerStarts+2*time.Minute)
	// Between the two lives slurmstepd says why the first one ended.
	if got := r.output(id); !strings.HasPrefix(got, "began\ncheckpoint\n") || !strings.HasSuffix(got, "\nbegan\nended") || !strings.Contains(got, "DUE TO JOB REQUEUE") {
		t.Errorf("the job wrote %q", got)
	}
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

// A node that a person drained stays as they left it, with their words, and no job comes to it: when its job ends, while the pool's other
// workers go, over a push that changes slurm.conf and one that makes new workers, and over restarts of slurmctld and the autoscaler. Resumed
// by the person, it serves again.
func TestDrainedByPerson(t *testing.T) {
	r := begin(t, 25*time.Minute)
	r.waitNoWorkers("cpu")
	j := r.runningJob(student, "--partition=cpu")
	resume := "scontrol update nodename=" + j.nodes + " state=resume"
	t.Cleanup(func() { _, _ = r.inController(resume) })
	r.mustController("scontrol update nodename=" + j.nodes + " state=drain reason='fan 2 is broken'")
	stays := func(after string) {
		t.Helper()
		out := r.mustController("scontrol show node --oneliner " + j.nodes)
		if state := fieldOf(out, "State"); !strings.Contains(state, "DRAIN") || strings.Contains(state, "POWER") || !strings.Contains(out, "Reason=fan 2 is broken [") {
			t.Errorf("after %s the node is\n%s", after, out)
		}
	}
	// Others of the pool come and go beside it.
	elsewhere := func(after string) {
		t.Helper()
		id := r.submit(researcher, "--partition=cpu", "echo began; echo ended")
		if other := r.waitJob(id, "COMPLETED", workerStarts); other.nodes == j.nodes {
			t.Errorf("after %s a job ran on the drained node", after)
		}
		stays(after)
	}
	elsewhere("a job of its pool")
	if now, err := r.lookJob(j.id); err != nil || now.state != "RUNNING" {
		t.Errorf("on the drained node: %v %v; want it RUNNING", now, err)
	}
	r.mustComplete(j)
	r.eventually(workersLeave, "the pool's other workers leave", func() (bool, string) {
		left := names(r.workerPods("cpu"))
		return strings.Count(left, "slurm-worker-") <= 1, left
	})
	stays("its job's end and the others' leaving")

	s := r.clone()
	s.edit("cpu: {", "max: 4", "max: 4, partition: maxTime: \"2-00:00:00\"")
	s.deliver("Bound the jobs of pool cpu")
	stays("a push that changes slurm.conf")
	s.edit("cpu: {", "max: 4,", `max: 4, env: NCCL_DEBUG: "INFO",`)
	s.deliver("Give the pool's workers an environment")
	elsewhere("a push that makes new workers")

	if out, err := r.inController("kill -9 $(pgrep -f '^slurmctld -D')"); ignoreKilled(err) != nil {
		t.Fatalf("kill slurmctld: %v: %s", err, out)
	}
	r.kubectl("delete", "pod", "-n", platform, "-l", labelRole+"=autoscaler", "--wait=false")
	r.eventually(60*time.Second, "slurmctld answers", func() (bool, string) {
		out, err := r.inController("scontrol ping")
		return err == nil && strings.Contains(out, "is UP"), fmt.Sprint(out, err)
	})
	elsewhere("restarts of slurmctld and the autoscaler")

	r.mustController(resume)
	r.waitJob(r.submit(student, "--partition=cpu --nodelist="+j.nodes, "echo began"), "COMPLETED", workerStarts)
	r.waitNoWorkers("cpu")
}

// fieldOf is the value of a field in a line of scontrol's.
func fieldOf(line, field string) string {
	_, rest, _ := strings.Cut(" "+line, " "+field+"=")
	value, _, _ := strings.Cut(rest, " ")
	return value
}
