package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A push arrives in Slurm's own database, and its revert undoes it.
func TestPush(t *testing.T) {
	r := begin(t, 8*time.Minute)
	shares := func() string {
		t.Helper()
		out, err := r.inController("sacctmgr --noheader --parsable2 show association account=vision user= format=share")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(out), " ")
	}
	if got := shares(); got != "2" {
		t.Fatalf("account vision has %s shares before the push, want the site's 2", got)
	}
	s := r.clone()
	s.edit("vision:", "2", "5")
	t.Logf("git push to converged: %.1f s", s.deliver("Give vision the larger share").Seconds())
	if got := shares(); got != "5" {
		t.Errorf("account vision has %s shares after the push, want 5", got)
	}
	s.revertLast()
	t.Logf("git revert to converged: %.1f s", s.converged().Seconds())
	if got := shares(); got != "2" {
		t.Errorf("account vision has %s shares after the revert, want 2", got)
	}
}

// A pool and its partition come by a push and go by its revert.
func TestRevert(t *testing.T) {
	r := begin(t, 8*time.Minute)
	before := r.slurmctldStart()
	exists := func() (pool, partition bool) {
		t.Helper()
		pool = strings.Contains(r.kubectl("get", "workerpools", "-n", workers, "-o", "name"), "/extra\n")
		out, err := r.inController("sinfo --noheader --format=%R")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range strings.Fields(out) {
			partition = partition || p == "extra"
		}
		return pool, partition
	}
	s := r.clone()
	s.declare(`lab: pools: extra: {max: 1, cpus: 1, memory: "1Gi"}`)
	s.deliver("Add a pool")
	if pool, partition := exists(); !pool || !partition {
		t.Errorf("after the push: pool %t, partition %t; want both", pool, partition)
	}
	r.waitJob(r.submit(student, "--partition=extra", "hostname"), "COMPLETED", workerStarts)
	r.waitNoWorkers("extra")
	s.revertLast()
	s.converged()
	r.eventually(60*time.Second, "the pool is gone", func() (bool, string) {
		pool, partition := exists()
		return !pool && !partition, fmt.Sprintf("pool %t, partition %t", pool, partition)
	})
	r.mustBeUntouched(before)
}

// A pool grows and shrinks while a job runs in it: the job and its pod do not notice.
func TestResizePool(t *testing.T) {
	r := begin(t, 10*time.Minute)
	// Named, because a node that is up from before is preferred, and a shrunk pool keeps its first nodes.
	j := r.runningJob(student, "--partition=cpu --nodelist=slurm-worker-cpu-0")
	started := r.slurmctldStart()
	podOf := func() string {
		t.Helper()
		var p pod
		if err := r.get(&p, "pod", "-n", workers, j.nodes); err != nil {
			t.Fatal(err)
		}
		return p.Metadata.UID
	}
	worker := podOf()
	mustRunOn := func(when string) {
		t.Helper()
		if now, err := r.lookJob(j.id); err != nil || now.state != "RUNNING" {
			t.Errorf("%s: %v %v, want it RUNNING", when, now, err)
		}
		if now := podOf(); now != worker {
			t.Errorf("%s: the pod of the running job was replaced: %s, was %s", when, now, worker)
		}
		r.mustBeUntouched(started)
	}

	s := r.clone()
	s.edit("cpu:", "max: 4", "max: 6")
	s.deliver("Grow the pool")
	mustRunOn("grown")
	if nodes := r.nodeNames("cpu"); len(nodes) != 6 {
		t.Errorf("after max: 6 slurmctld knows %d nodes: %v", len(nodes), nodes)
	}
	r.waitJob(r.submit(researcher, "--partition=cpu --nodelist=slurm-worker-cpu-5", "hostname"), "COMPLETED", workerStarts)

	s.edit("cpu:", "max: 6", "max: 2")
	s.deliver("Shrink the pool")
	mustRunOn("shrunk")
	if nodes := r.nodeNames("cpu"); len(nodes) != 2 {
		t.Errorf("after max: 2 slurmctld knows %d nodes: %v", len(nodes), nodes)
	}
	r.eventually(workersLeave, "the removed node's pod leaves", func() (bool, string) {
		pods := r.workerPods("cpu")
		for _, p := range pods {
			if p.Metadata.Name == "slurm-worker-cpu-5" {
				return false, names(pods)
			}
		}
		return true, ""
	})
	r.mustComplete(j)
}

// A change that Slurm can take while it runs is taken by a reconfigure: the new value holds, the old slurmctld serves, and
// the job that ran meanwhile ends well.
func TestReconfigure(t *testing.T) {
	r := begin(t, 8*time.Minute)
	j := r.runningJob(student, "--partition=cpu")
	started := r.slurmctldStart()
	before := r.configValue("UnkillableStepTimeout")
	s := r.clone()
	s.declare(`lab: slurm: extraLines: ["UnkillableStepTimeout=123"]`)
	s.deliver("Wait longer for a step that cannot be killed")
	if got := r.configValue("UnkillableStepTimeout"); !strings.HasPrefix(got, "123 ") {
		t.Errorf("UnkillableStepTimeout is %q after the push, was %q before, want 123 sec", got, before)
	}
	r.mustBeUntouched(started)
	r.mustComplete(j)
}
