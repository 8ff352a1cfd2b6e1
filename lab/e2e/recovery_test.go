package e2e

import (
	"strings"
	"testing"
	"time"
)

// slurmctld is killed, and then its whole pod: the queue is back each time, and a job that ran through both has run once.
func TestRecovery(t *testing.T) {
	r := begin(t, 12*time.Minute)
	j := r.runningJob(student, "--partition=cpu")
	held := r.submit(researcher, "--partition=cpu --hold", "echo began; echo ended")
	r.queueWritten()

	for _, end := range []struct {
		what string
		do   func()
	}{
		{"slurmctld is killed", func() {
			if out, err := r.inController("kill -9 $(pgrep -f '^slurmctld -D')"); ignoreKilled(err) != nil {
				t.Fatalf("kill slurmctld: %v: %s", err, out)
			}
		}},
		{"the controller's pod is deleted", func() { r.kubectl("delete", "pod", "-n", platform, controllerPod, "--wait=false") }},
	} {
		before := r.slurmctldStart()
		end.do()
		r.eventually(120*time.Second, end.what+", and another answers", func() (bool, string) {
			var p pod
			if err := r.get(&p, "pod", "-n", platform, controllerPod); err != nil {
				return false, err.Error()
			}
			if !p.serving() || r.slurmctldStartOf(p) == before {
				return false, names([]pod{p})
			}
			out, err := r.inController("scontrol ping")
			if err != nil {
				return false, err.Error()
			}
			return strings.Contains(out, "is UP"), out
		})
		if now, err := r.lookJob(j.id); err != nil || now.state != "RUNNING" || now.nodes != j.nodes {
			t.Errorf("after %s: %v %v; want it RUNNING on %s", end.what, now, err, j.nodes)
		}
		if now, err := r.lookJob(held); err != nil || now.state != "PENDING" || now.reason != "JobHeldUser" {
			t.Errorf("after %s: %v %v; want it PENDING, held by its user", end.what, now, err)
		}
	}
	r.mustAs(researcher, "scontrol release "+held)
	r.waitJob(held, "COMPLETED", workerStarts)
	r.mustComplete(j)
	r.eventually(60*time.Second, "one record of the job", func() (bool, string) {
		out, err := r.as(student, "sacct --noheader --parsable2 --allocations --duplicates --format=state,restarts --jobs="+j.id)
		if err != nil {
			return false, err.Error()
		}
		return strings.TrimSpace(out) == "COMPLETED|0", out
	})
}

// slurmctld notes that a job runs, is reconfigured before it could tell the worker, and tells nobody any more. The job begins all the
// same, without waiting for half an hour or for its time limit, and its neighbour runs on.
func TestLostJob(t *testing.T) {
	r := begin(t, 10*time.Minute)
	neighbour := r.runningJob(student, "--partition=cpu")
	undo := r.sidecar().drop("-p", "tcp", "--dport", "6818")
	lost := r.submit(researcher, "--partition=cpu --time=5 --nodelist="+neighbour.nodes, "echo began")
	r.eventually(30*time.Second, "slurmctld believes that the job runs", func() (bool, string) {
		out, err := r.inController("scontrol show job " + lost)
		return err == nil && strings.Contains(out, "JobState=RUNNING"), out
	})
	r.mustController("scontrol reconfigure")
	undo()
	r.waitJob(lost, "COMPLETED", 2*time.Minute)
	if out := r.output(lost); out != "began" {
		t.Errorf("the job printed %q", out)
	}
	log := r.kubectl("logs", "-n", platform, controllerPod, "-c", "guard", "--since=3m")
	if !strings.Contains(log, `"job":"`+lost+`"`) {
		t.Errorf("the guard's log does not tell of job %s:\n%s", lost, lastLines(log, 10))
	}
	r.mustComplete(neighbour)
}
