package e2e

import (
	"fmt"
	"slices"
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

// A23: twenty times a worker is replaced by a pod with another address. slurmctld, and the workers among themselves, reach the new one as
// soon as it is registered, whatever caches names have.
func TestNewAddresses(t *testing.T) {
	r := begin(t, 25*time.Minute)
	r.waitNoWorkers("cpu")
	nodes := r.nodeNames("cpu")
	last := map[string]string{}
	for replaced := 0; replaced < 20; replaced += len(nodes) {
		id := r.submit(student, fmt.Sprintf("--partition=cpu --nodes=%d --ntasks-per-node=1", len(nodes)), "date +%s.%N\nsrun hostname | sort\ndate +%s.%N")
		r.waitJob(id, "COMPLETED", workerStarts)
		lines := strings.Split(r.output(id), "\n")
		if len(lines) != len(nodes)+2 || !slices.Equal(lines[1:len(lines)-1], slices.Sorted(slices.Values(nodes))) {
			t.Fatalf("the job on all nodes wrote %q", lines)
		}
		began, ended := unixTime(r, lines[0]), unixTime(r, lines[len(lines)-1])
		controller := r.kubectl("logs", "--timestamps", "-n", platform, controllerPod, "-c", controllerContainer, "--since=10m")
		var registered time.Time
		for _, node := range nodes {
			if at := r.logged(controller, "Node "+node+" now responding"); at.After(registered) {
				registered = at
			}
		}
		t.Logf("the job began %.1f s after its last node was registered, and its step took %.1f s", began.Sub(registered).Seconds(), ended.Sub(began).Seconds())
		// Somebody who asks for an old address waits for ten seconds and more.
		if began.Sub(registered) > 5*time.Second || ended.Sub(began) > 8*time.Second {
			t.Errorf("round %d: too long", replaced/len(nodes))
		}
		pods := r.workerPods("cpu")
		if len(pods) != len(nodes) {
			t.Errorf("the job's workers are %s", names(pods))
		}
		for _, p := range pods {
			if p.Status.PodIP == "" || p.Status.PodIP == last[p.Metadata.Name] {
				t.Errorf("%s has the address %q again: nothing was tried", p.Metadata.Name, p.Status.PodIP)
			}
			last[p.Metadata.Name] = p.Status.PodIP
		}
		r.mustController("scontrol update state=POWER_DOWN_ASAP reason=e2e nodename=" + strings.Join(nodes, ","))
		r.waitNoWorkers("cpu")
	}
}
