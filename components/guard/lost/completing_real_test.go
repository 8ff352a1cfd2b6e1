package lost_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// L10: slurmctld is killed while a job completes, and the worker tells of the job's end to nobody. The job leaves COMPLETING by itself once
// slurmctld is back, its node is free, and it has run once.
func TestRealCompletingJob(t *testing.T) {
	m := slurmtest.Start(t)
	s := m.Configure(`Epilog=`+m.Dir+`/epilog
PrologFlags=Alloc
ReturnToService=1
SlurmdTimeout=120
NodeName=w-0 NodeHostname=ctl CPUs=2 RealMemory=1000
PartitionName=cpu Nodes=ALL Default=YES State=UP
`, nil)
	m.Run("sh", "-c", "printf '#!/bin/sh\nwhile [ -e "+m.Dir+"/hold ]; do sleep 0.1; done\n' > "+m.Dir+"/epilog && chmod 755 "+m.Dir+"/epilog && touch "+m.Dir+"/hold")
	s.Slurmctld()
	s.Slurmd("w-0")
	job := s.Client("sbatch", "--parsable", "--chdir=/tmp", "--output="+m.Dir+"/out", "--open-mode=append", "--wrap", "echo ran")
	s.Want(job, "COMPLETING")
	// What is in the queue is written down some seconds after a change.
	slurmtest.Eventually(t, time.Minute, "the state is written", func() (bool, string) {
		return m.Command("sh", "-c", "test $(stat -c %Y "+m.Dir+"/state/job_state) -ge $(($(date +%s) - 1))").Run() == nil, ""
	})
	m.Run("pkill", "-KILL", "-x", "slurmctld")
	m.Run("rm", m.Dir+"/hold")
	slurmtest.Eventually(t, 30*time.Second, "the epilog has ended", func() (bool, string) {
		return m.Command("pgrep", "-f", m.Dir+"/epilog").Run() != nil, ""
	})
	time.Sleep(3 * time.Second) // slurmd has found nobody to tell
	s.Slurmctld()
	began := time.Now()
	slurmtest.Eventually(t, 4*time.Minute, "the job has left COMPLETING and its node is free", func() (bool, string) {
		queue := s.Client("squeue", "--noheader", "--states=all", "--format=%T", "--jobs="+job)
		node := s.Client("sinfo", "--noheader", "--Node", "--format=%t")
		return queue == "COMPLETED" && node == "idle", queue + " " + node + m.Log("slurmctld.log")
	})
	t.Logf("%.0f s after slurmctld was back", time.Since(began).Seconds())
	if out := strings.TrimSpace(m.Run("cat", m.Dir+"/out")); out != "ran" {
		t.Errorf("the job wrote %q, want one run", out)
	}
}
