package guard_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard"
	"github.com/berth-hpc/berth/components/guard/slurm"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// cluster is a real slurmctld under a guard, as in the controller pod: the guard writes, slurmctld waits for the first
// accepted configuration and then runs with it.
type cluster struct {
	t       *testing.T
	machine *slurmtest.Machine
	guard   *guard.Guard
	store   *guard.Store
	scratch string
}

func newCluster(t *testing.T) *cluster {
	machine := slurmtest.Start(t, "slurm-worker-cpu-0", "slurm-worker-cpu-1")
	c := &cluster{t: t, machine: machine, store: &guard.Store{Dir: filepath.Join(machine.Dir, "conf")}, scratch: machine.Dir}
	c.restartGuard()
	return c
}

// restartGuard forgets all that a guard remembers outside of the volume.
func (c *cluster) restartGuard() {
	c.guard = &guard.Guard{
		Slurm: &slurm.Programs{Prefix: c.machine.Prefix(), Conf: c.store.Conf()},
		Store: c.store, Scratch: c.scratch, Log: slog.New(slog.DiscardHandler),
	}
}

// files is a small configuration with changes: each is "old → new" text, or text to append.
func (c *cluster) files(changes ...string) map[string]string {
	conf := fmt.Sprintf(`ClusterName=berth
SlurmctldHost=ctl
SlurmctldPort=6817
SlurmdPort=6818
SlurmUser=root
AuthType=auth/slurm
CredType=cred/slurm
AuthInfo=use_client_ids
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool/%%n
SlurmctldPidFile=%[1]s/run/slurmctld.pid
SlurmdPidFile=%[1]s/run/slurmd-%%n.pid
SlurmctldParameters=enable_configless
ReturnToService=1
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SlurmdParameters=config_overrides
MpiDefault=none
MailProg=/bin/true
MaxJobCount=5000
NodeName=slurm-worker-cpu-0 NodeHostname=ctl Port=7000 CPUs=2 RealMemory=1000
NodeName=slurm-worker-cpu-1 NodeHostname=ctl Port=7001 CPUs=2 RealMemory=1000 State=CLOUD
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=600
PartitionName=cpu Nodes=slurm-worker-cpu-[0-1] Default=YES State=UP
`, c.machine.Dir)
	files := map[string]string{"cgroup.conf": "CgroupPlugin=disabled\n", "plugstack.conf": "# none\n"}
	for _, change := range changes {
		if old, text, replaces := strings.Cut(change, " → "); replaces {
			if !strings.Contains(conf, old) {
				c.t.Fatalf("nothing to replace: %s", old)
			}
			conf = strings.ReplaceAll(conf, old, text)
		} else {
			conf += change + "\n"
		}
	}
	files["slurm.conf"] = conf
	return files
}

func (c *cluster) reconcile(files map[string]string) guard.Outcome {
	c.t.Helper()
	config := &v1alpha1.SlurmConfig{Spec: v1alpha1.SlurmConfigSpec{ClusterName: "berth", Files: files}}
	outcome, err := c.guard.Reconcile(context.Background(), config)
	if err != nil {
		c.t.Fatal(err)
	}
	return outcome
}

func (c *cluster) want(files map[string]string, state v1alpha1.ConfigState, message string) {
	c.t.Helper()
	outcome := c.reconcile(files)
	if outcome.State != state || !strings.Contains(outcome.Message, message) {
		c.t.Fatalf("%s %q, want %s with %q", outcome.State, outcome.Message, state, message)
	}
	c.t.Logf("%s: %s", outcome.State, outcome.Message)
}

func (c *cluster) slurm(name string, args ...string) string {
	c.t.Helper()
	return c.machine.Run("env", append([]string{"SLURM_CONF=" + c.store.Conf(), name}, args...)...)
}

// boot applies the first configuration and starts slurmctld and the first node's slurmd.
func (c *cluster) boot() {
	c.t.Helper()
	c.want(c.files(), v1alpha1.ConfigPending, "first configuration")
	c.machine.Daemon("slurmctld.log", "slurmctld", "-D", "-f", c.store.Conf())
	slurmtest.Eventually(c.t, time.Minute, "the first configuration is applied", func() (bool, string) {
		outcome := c.reconcile(c.files())
		return outcome.State == v1alpha1.ConfigApplied, outcome.Message + c.machine.Log("slurmctld.log")
	})
	c.machine.Daemon("slurmd.log", "env", "SLURM_CONF="+c.store.Conf(), "slurmd", "-D", "-N", "slurm-worker-cpu-0")
	slurmtest.Eventually(c.t, time.Minute, "the node is idle", func() (bool, string) {
		state := c.slurm("sinfo", "-h", "-n", "slurm-worker-cpu-0", "-o", "%t")
		return strings.TrimSpace(state) == "idle", state + c.machine.Log("slurmd.log")
	})
}

func (c *cluster) submit(args ...string) string {
	c.t.Helper()
	return strings.TrimSpace(c.slurm("sbatch", append([]string{"--parsable", "--chdir=/tmp", "--output=/dev/null", "--job-name=train"}, args...)...))
}

func (c *cluster) state(job string) string {
	return strings.TrimSpace(c.slurm("squeue", "-h", "-j", job, "-o", "%T"))
}

// The whole life of a configuration on a real slurmctld.
func TestRealSlurmctld(t *testing.T) {
	c := newCluster(t)
	c.boot()
	job := c.submit("-w", "slurm-worker-cpu-0", "--wrap", "sleep 600")
	held := c.submit("-H", "-w", "slurm-worker-cpu-1", "--wrap", "true")
	slurmtest.Eventually(t, time.Minute, "the job runs", func() (bool, string) { s := c.state(job); return s == "RUNNING", s })

	// What Slurm refuses is refused in its words, and nothing has changed.
	c.want(c.files("Nonsense=1"), v1alpha1.ConfigRefused, "unrecognized key: Nonsense")
	c.want(c.files("PartitionName=x Nodes=nonesuch-0"), v1alpha1.ConfigRefused, "Invalid node names in partition x")
	lua := c.files("JobSubmitPlugins=lua")
	lua["job_submit.lua"] = "function slurm_job_submit("
	c.want(lua, v1alpha1.ConfigRefused, "job_submit.lua:1:")
	if strings.Contains(c.slurm("scontrol", "show", "config"), "job_submit/lua") {
		t.Error("a refused configuration is in force")
	}

	// What would kill the job waits, and names it; what would lose the held one too.
	c.want(c.files("7000 CPUs=2 → 7000 CPUs=1"), v1alpha1.ConfigWaitingForJobs, fmt.Sprintf("would kill or lose job %s (root, train)", job))
	c.want(c.files("CR_Core_Memory → CR_CPU_Memory"), v1alpha1.ConfigWaitingForJobs, "job "+job)
	c.want(c.files("PartitionName=cpu → PartitionName=batch"), v1alpha1.ConfigWaitingForJobs, "partition cpu is removed or renamed: would kill or lose job "+job)
	c.want(c.files("NodeName=slurm-worker-cpu-1 NodeHostname=ctl Port=7001 CPUs=2 RealMemory=1000 State=CLOUD → ", "cpu-[0-1] → cpu-0"),
		v1alpha1.ConfigWaitingForJobs, "nodes leave the cluster: would kill or lose job "+held)

	// What no waiting makes possible is refused.
	c.want(c.files("ClusterName=berth → ClusterName=other"), v1alpha1.ConfigRefused, "state of another cluster")

	// What hurts nobody is applied under the running job.
	grown := []string{"MaxJobCount=5000 → MaxJobCount=6000"}
	c.want(c.files(grown...), v1alpha1.ConfigApplied, "")
	if !strings.Contains(c.slurm("scontrol", "show", "config"), "MaxJobCount             = 6000") {
		t.Error("the applied configuration is not in force")
	}
	if state := c.state(job); state != "RUNNING" {
		t.Fatalf("the job is %s after the change", state)
	}

	// A guard that starts anew finds what is accepted, and repeats nothing.
	c.restartGuard()
	c.want(c.files(grown...), v1alpha1.ConfigApplied, "")

	// A crash after the swap and before the reconfigure: the accepted configuration is put back and tried again.
	next := c.files(append(grown, "MaxArraySize=2000")...)
	spec := v1alpha1.SlurmConfigSpec{Files: next}
	if err := c.store.Write(spec.Hash(), next); err != nil {
		t.Fatal(err)
	}
	if err := c.store.Use(spec.Hash()); err != nil {
		t.Fatal(err)
	}
	c.restartGuard()
	c.want(next, v1alpha1.ConfigApplied, "")

	// Once the jobs have ended, the change that waited is applied.
	c.slurm("scancel", job, held)
	slurmtest.Eventually(t, time.Minute, "the change is applied", func() (bool, string) {
		outcome := c.reconcile(c.files(append(grown, "7000 CPUs=2 → 7000 CPUs=1")...))
		return outcome.State == v1alpha1.ConfigApplied, outcome.Message
	})
	if strings.Contains(c.machine.Log("slurmctld.log"), "fatal") {
		t.Error(c.machine.Log("slurmctld.log"))
	}
}
