package lost_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/lost"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// silent listens in slurmd's place and says nothing.
const silent = `use Socket; socket(S, PF_INET, SOCK_STREAM, 0); setsockopt(S, SOL_SOCKET, SO_REUSEADDR, 1);
bind(S, sockaddr_in(6818, INADDR_ANY)) or die; listen(S, 50); sleep 600;`

// On a real Slurm: of three jobs that slurmctld believes to run after a reconfigure, one does; the other two started while
// nobody could be told. The one that may be requeued begins, nothing else is touched, and nothing is done while the
// worker does not say what it has.
func TestRealLostJobs(t *testing.T) {
	m := slurmtest.Start(t, "slurm-worker-cpu-0")
	s := m.Configure(`SlurmctldParameters=enable_configless
JobAcctGatherType=jobacct_gather/linux
PrologFlags=Alloc
BatchStartTimeout=30
MessageTimeout=5
NodeName=slurm-worker-cpu-0 NodeHostname=ctl CPUs=8 RealMemory=1000
PartitionName=cpu Nodes=slurm-worker-cpu-0 Default=YES State=UP
`, nil)
	m.Run("sh", "-c", "rm -f /etc/slurm/slurm.*; mkdir -p /run/slurm")
	s.Slurmctld()
	programs, run := s.Programs(), s.Client
	ctx := t.Context()
	worker := func(log string) {
		t.Helper()
		m.Daemon(log, "env", "-u", "SLURM_CONF", "slurmd", "-D", "-N", "slurm-worker-cpu-0", "--conf-server", "ctl:6817")
		slurmtest.Eventually(t, time.Minute, "slurmd listens", func() (bool, string) {
			return strings.Contains(m.Log(log), "slurmd started on"), m.Log(log)
		})
	}
	worker("slurmd.log")
	submit := func(options ...string) string {
		t.Helper()
		return run("sbatch", append(options, "--parsable", "--mem=10", "--output=/dev/null", "--wrap", "sleep 600")...)
	}
	state := func(job string) string { return run("squeue", "--noheader", "--jobs="+job, "--format=%T") }
	reaches := func(job, want string) {
		t.Helper()
		slurmtest.Eventually(t, time.Minute, "job "+job+" is "+want, func() (bool, string) {
			now := state(job)
			return now == want, now + m.Log("slurmctld.log")
		})
	}
	leaves := func() { m.Run("sh", "-c", "kill -KILL $(pgrep -x slurmd); rm -f /run/slurm/sack.socket") }
	knows := func(job string) {
		t.Helper()
		slurmtest.Eventually(t, time.Minute, "slurmd knows job "+job, func() (bool, string) {
			out, err := programs.Run(ctx, time.Minute, "sstat", "--noheader", "--format=JobID", "--jobs="+job+".batch")
			return err == nil && strings.TrimSpace(out) != "", state(job) + m.Log("slurmctld.log")
		})
	}
	runs := submit()
	knows(runs)

	leaves()
	forgotten, kept := submit(), submit("--no-requeue")
	reaches(forgotten, "RUNNING")
	reaches(kept, "RUNNING")
	run("scontrol", "reconfigure")
	worker("slurmd2.log") // registers too early for Slurm to miss the two
	knows(runs)

	var log strings.Builder
	finder := &lost.Finder{Slurm: programs, Log: slog.New(slog.NewTextHandler(&log, nil))}
	round := func(after time.Duration) {
		t.Helper()
		if err := finder.Round(ctx, time.Now().Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	const later = 2 * time.Minute // than all that Slurm waits for
	round(0)
	round(later)
	if log.String() != "" || state(forgotten) != "RUNNING" {
		t.Fatalf("at the first look job %s is %s; %s", forgotten, state(forgotten), &log)
	}
	round(later)
	if text := log.String(); !strings.Contains(text, "queued again") || !strings.Contains(text, "job="+forgotten) || !strings.Contains(text, "--no-requeue") {
		t.Errorf("the log says %q", text)
	}
	slurmtest.Eventually(t, 30*time.Second, "the job starts at once", func() (bool, string) {
		round(later)
		return state(forgotten) == "RUNNING", state(forgotten) + m.Log("slurmctld.log")
	})
	knows(forgotten)
	counts := func() string {
		t.Helper()
		return run("squeue", "--noheader", "--jobs="+strings.Join([]string{runs, forgotten, kept}, ","), "--sort=i", "--Format=State:|,RestartCnt:|")
	}
	const want = "RUNNING|0|\nRUNNING|1|\nRUNNING|0|"
	if now := counts(); now != want {
		t.Errorf("the jobs are %q", now)
	}

	// A worker that says nothing may have its jobs all the same.
	run("scontrol", "reconfigure")
	leaves()
	before := log.Len()
	round(later)
	round(later)
	quiet := m.Daemon("silent.log", "perl", "-e", silent)
	slurmtest.Eventually(t, 10*time.Second, "something listens", func() (bool, string) {
		return strings.Contains(m.Run("sh", "-c", "cat /proc/net/tcp"), ":1AA2 "), m.Log("silent.log")
	})
	round(later)
	round(later)
	if now := counts(); now != want || log.Len() != before {
		t.Errorf("while no worker says anything the jobs become %q: %s", now, log.String()[before:])
	}
	m.Run("sh", "-c", "kill -KILL $(pgrep -x perl)")
	_ = quiet.Wait()
}
