package slurmconf

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// L9: a job that takes more memory than it asked for ends, also where it is a child that has left the job's session that takes it; its
// neighbour and its node go on.
func TestRealMemoryHog(t *testing.T) {
	m := slurmtest.Start(t, "slurm-worker-cpu-0")
	all, err := processes(lab())
	if err != nil {
		t.Fatal(err)
	}
	parameters := []parameter{{"DefMemPerCPU", "100"}}
	for _, p := range all.parameters {
		if strings.HasPrefix(p.key, "JobAcctGather") {
			parameters = append(parameters, p)
		}
	}
	slurm, _ := startWorker(t, m, parameters, nil)
	submit := func(script string) string {
		return slurm("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--mem=100", "--wrap", script)
	}
	state := func(job string) string {
		return slurm("squeue", "--noheader", "--states=all", "--format=%T", "--jobs="+job)
	}
	const hog = `perl -e '$x = "x" x 300e6; sleep 300'`
	neighbour := submit("sleep 300")
	slurmtest.Eventually(t, time.Minute, "the neighbour runs", func() (bool, string) { s := state(neighbour); return s == "RUNNING", s + m.Log("slurmd.log") })
	for what, script := range map[string]string{"itself": hog, "a child of its own session": "setsid " + hog + " & wait; sleep 300"} {
		job := submit(script)
		slurmtest.Eventually(t, 90*time.Second, "a job that is too large "+what+" ends", func() (bool, string) {
			s := state(job)
			return s == "OUT_OF_MEMORY" || s == "FAILED" || s == "CANCELLED", s + m.Log("slurmd.log")
		})
		t.Logf("%s: %s", what, state(job))
		if got := state(neighbour); got != "RUNNING" {
			t.Errorf("the neighbour is %s", got)
		}
	}
	if node := slurm("sinfo", "-h", "-N", "-o", "%t %E"); node != "mix none" {
		t.Errorf("the node is %s", node)
	}
	slurmtest.Eventually(t, 30*time.Second, "nothing of the jobs is left", func() (bool, string) {
		out, _ := m.Command("pgrep", "-a", "perl").CombinedOutput()
		return len(out) == 0, string(out)
	})
}
