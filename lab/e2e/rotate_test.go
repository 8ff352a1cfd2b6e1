package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Slurm's key is replaced by one push while a job runs: the old key stays valid, every daemon signs with the new one, nothing is
// restarted that has jobs, and the job that began under the old key ends as it should.
func TestRotatedKey(t *testing.T) {
	r := begin(t, 20*time.Minute)
	j := r.runningJob(student, "--partition=cpu --time=30")
	worker := names(r.workerPods("cpu"))
	before := r.slurmctldStart()
	s := r.clone()
	began := time.Now().UTC().Format(time.RFC3339)
	out, err := s.command("berth", "secrets", "rotate", siteName, "--identity", r.box.AgeKeyFile(), "--output", "json")
	if err != nil && strings.Contains(err.Error(), "a daemon refuses messages signed with a key that it has not read") {
		r.mustComplete(j)
		t.Skipf("the box's keys are of the last half hour, and berth rotates no such key: %v", err)
	}
	var rotation struct {
		Signs, Next string
		Old         []string
	}
	if jsonErr := json.Unmarshal([]byte(out), &rotation); err != nil || jsonErr != nil || rotation.Signs == "" || rotation.Next == "" || len(rotation.Old) == 0 {
		t.Fatalf("berth secrets rotate says %q, %v %v; want a key that signs, a next one, and an old one", out, err, jsonErr)
	}
	if _, err := s.command("berth", "secrets", "rotate", siteName, "--identity", r.box.AgeKeyFile()); err == nil {
		t.Error("a second rotation at once was not refused: its key would be unknown to daemons")
	}
	s.push("Rotate Slurm's key")
	s.converged()
	for _, namespace := range []string{platform, workers} {
		var keys struct {
			Keys []struct{ Kid, Use string }
		}
		text, err := base64.StdEncoding.DecodeString(r.kubectl("get", "secret", "slurm-auth-key", "-n", namespace, "-o", `jsonpath={.data.slurm\.jwks}`))
		if err == nil {
			err = json.Unmarshal(text, &keys)
		}
		if err != nil {
			t.Fatal(err)
		}
		valid := map[string]bool{}
		for _, key := range keys.Keys {
			valid[key.Kid] = true
		}
		if !valid[rotation.Signs] || !valid[rotation.Old[len(rotation.Old)-1]] {
			t.Errorf("namespace %s has the keys %v; want both %s and %s", namespace, valid, rotation.Signs, rotation.Old)
		}
	}

	// Jobs of the minutes between: daemons read the new version one after the other.
	during := 0
	r.eventually(8*time.Minute, "the guard has made the daemons read the new keys", func() (bool, string) {
		r.waitJob(r.submit(researcher, "--partition=cpu", "true"), "COMPLETED", workerStarts)
		during++
		out, err := r.box.Kubectl(r.ctx, "logs", "-n", platform, controllerPod, "-c", "guard", "--since-time="+began)
		return err == nil && strings.Contains(out, "the daemons have read Slurm's new keys"), "not yet"
	})
	t.Logf("%d jobs ran meanwhile", during)
	if now, err := r.lookJob(j.id); err != nil || now.state != "RUNNING" || now.nodes != j.nodes {
		t.Errorf("after the rotation: %v %v; want it RUNNING on %s", now, err, j.nodes)
	}
	r.mustBeUntouched(before)
	if now := names(r.workerPods("cpu")); !strings.Contains(now, strings.Fields(worker)[0]+" Running") {
		t.Errorf("the job's worker was replaced: %s, now %s", worker, now)
	}
	// slurmdbd starts itself anew with the new set.
	r.eventually(4*time.Minute, "slurmdbd answers users and slurmctld", func() (bool, string) {
		id := r.submit(researcher, "--partition=cpu", "true")
		r.waitJob(id, "COMPLETED", workerStarts)
		time.Sleep(5 * time.Second)
		out, err := r.as(researcher, "sacct --noheader --parsable2 --allocations --format=state --jobs="+id)
		return err == nil && strings.TrimSpace(out) == "COMPLETED", fmt.Sprint(out, err)
	})
	// A worker that has the new set only, steps of its own, and a terminal from the login pod.
	if got := r.mustAs(student, "srun --quiet --partition=cpu --nodes=2 --time=5 id --user --name | sort -u"); got != student {
		t.Errorf("srun over two nodes after the rotation: %q", got)
	}
	r.mustComplete(j)
	r.eventually(90*time.Second, "one record of the job", func() (bool, string) {
		out, err := r.as(student, "sacct --noheader --parsable2 --allocations --duplicates --format=state,restarts --jobs="+j.id)
		return err == nil && strings.TrimSpace(out) == "COMPLETED|0", fmt.Sprint(out, err)
	})
}
