package e2e

import (
	"strings"
	"testing"
	"time"
)

// One push upgrades Slurm, while a job runs and others wait: the running one does not notice, and what starts later runs on a worker of the
// new release. There is no way back, so the box stays there: `make e2e SLURM=26.05` begins with this and ends the box.
func TestUpgradeSlurm(t *testing.T) {
	const from = "24.11"
	to := upgradeTo()
	if to == "" {
		t.Skip("there is no way back from an upgrade: make e2e SLURM=26.05 runs this first")
	}
	r := begin(t, 40*time.Minute)
	t.Cleanup(func() { r.site = nil }) // nothing is put back
	if is := r.mustController("scontrol --version"); !strings.Contains(is, " "+from+".") {
		t.Fatalf("the box has %s, want %s", is, from)
	}

	running := r.runningJob(student, onFirst)
	worker := r.workerUID(running.nodes)
	waiting := r.submit(student, "--partition=cpu --dependency=afterok:"+running.id, "echo waited")
	held := r.submit(researcher, "--partition=cpu --hold", "echo held")

	s := r.clone()
	s.declare(`lab: slurm: version: "` + to + `"`)
	t.Logf("announced:\n%s", strings.Join(s.announced().lines(), "\n"))
	s.render()
	s.push("Upgrade Slurm to " + to)
	r.eventually(converges, "slurmctld and slurmdbd are of the new release", func() (bool, string) {
		ctld, err := r.inController("scontrol --version && sacctmgr --version && sacctmgr --noheader show cluster format=cluster,controlhost,rpc")
		if err != nil {
			return false, err.Error()
		}
		return strings.Count(ctld, " "+to+".") == 2, ctld
	})
	if now, err := r.lookJob(running.id); err != nil || now.state != "RUNNING" {
		t.Errorf("after the push: %v %v; want it RUNNING", now, err)
	}
	if now := r.workerUID(running.nodes); now != worker {
		t.Errorf("the pod of the running job was replaced: %q, was %q", now, worker)
	}
	r.mustComplete(running)
	s.converged()
	r.waitJob(waiting, "COMPLETED", 2*workerStarts)
	r.mustController("scontrol release " + held)
	r.waitJob(held, "COMPLETED", 2*workerStarts)
	for _, id := range []string{running.id, waiting, held} {
		r.eventually(time.Minute, "job "+id+" has one record", func() (bool, string) {
			out, err := r.inController("sacct --noheader --parsable2 --duplicates --allocations --format=state --jobs=" + id)
			if err != nil {
				return false, err.Error()
			}
			return strings.TrimSpace(out) == "COMPLETED", out
		})
	}
	j, err := r.lookJob(held)
	if err != nil {
		t.Fatal(err)
	}
	if out := r.mustController("scontrol show node " + j.nodes); !strings.Contains(out, "Version="+to+".") {
		t.Errorf("job %s ran on a worker that is not of %s:\n%s", held, to, out)
	}
}
