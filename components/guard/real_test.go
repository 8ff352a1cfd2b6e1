package guard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard"
	"github.com/berth-hpc/berth/components/guard/reservation"
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
		Slurm: c.live().Programs(),
		Store: c.store, Scratch: c.scratch, Log: slog.New(slog.DiscardHandler),
		Reservations: &reservation.Keeper{Programs: c.live().Programs(), Zone: time.UTC},
	}
}

// files is a small configuration with changes: each is "old → new" text, or text to append.
func (c *cluster) files(changes ...string) map[string]string {
	conf := c.machine.Conf(`SlurmctldPort=6817
SlurmdPort=6818
SlurmctldParameters=enable_configless
DefMemPerCPU=100
MaxJobCount=5000
GresTypes=gpu
NodeName=slurm-worker-cpu-0 NodeHostname=ctl Port=7000 CPUs=2 RealMemory=1000 Gres=gpu:2
NodeName=slurm-worker-cpu-1 NodeHostname=ctl Port=7001 CPUs=2 RealMemory=1000 State=CLOUD
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=600
PartitionName=cpu Nodes=slurm-worker-cpu-[0-1] Default=YES State=UP
`)
	files := map[string]string{"cgroup.conf": "CgroupPlugin=disabled\n", "plugstack.conf": "# none\n", "gres.conf": "NodeName=slurm-worker-cpu-0 Name=gpu File=/dev/null\nNodeName=slurm-worker-cpu-0 Name=gpu File=/dev/zero\n"}
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
	return c.live().Client(name, args...)
}

// live is the Slurm that the guard has given its configuration.
func (c *cluster) live() *slurmtest.Slurm {
	return &slurmtest.Slurm{Machine: c.machine, File: c.store.Conf()}
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
	c.live().Slurmd("slurm-worker-cpu-0")
}

func (c *cluster) submit(args ...string) string {
	c.t.Helper()
	return c.slurm("sbatch", append([]string{"--parsable", "--chdir=/tmp", "--output=/dev/null", "--job-name=train"}, args...)...)
}

func (c *cluster) state(job string) string {
	return c.slurm("squeue", "-h", "-j", job, "-o", "%T")
}

// drained lists the nodes that are drained or drain.
func (c *cluster) drained() string {
	c.t.Helper()
	return strings.Join(strings.Fields(c.slurm("sinfo", "-h", "-N", "-t", "drain", "-o", "%N")), " ")
}

func (c *cluster) partition(name string) string {
	c.t.Helper()
	return c.slurm("sinfo", "-h", "-s", "-p", name, "-o", "%a")
}

// A change that would kill a job is applied at once where the site acknowledges it by the name in the message.
func TestRealOverride(t *testing.T) {
	c := newCluster(t)
	c.boot()
	job := c.submit("-w", "slurm-worker-cpu-0", "--no-requeue", "--wrap", "sleep 600")
	slurmtest.Eventually(t, time.Minute, "the job runs", func() (bool, string) { s := c.state(job); return s == "RUNNING", s })
	change := c.files("7000 CPUs=2 → 7000 CPUs=1")
	config := &v1alpha1.SlurmConfig{Spec: v1alpha1.SlurmConfigSpec{ClusterName: "berth", Files: change}}
	waiting := c.reconcile(change)
	_, rest, _ := strings.Cut(waiting.Message, "add \"")
	name, _, found := strings.Cut(rest, "\"")
	if waiting.State != v1alpha1.ConfigWaitingForJobs || !found {
		t.Fatalf("%s %q names no way to override", waiting.State, waiting.Message)
	}
	config.Spec.Acknowledge = []string{"kill-jobs/000000000000"}
	if outcome, err := c.guard.Reconcile(t.Context(), config); err != nil || outcome.State != v1alpha1.ConfigWaitingForJobs {
		t.Fatalf("another change's acknowledgement: %s %q %v", outcome.State, outcome.Message, err)
	}
	config.Spec.Acknowledge = []string{name}
	if outcome, err := c.guard.Reconcile(t.Context(), config); err != nil || outcome.State != v1alpha1.ConfigApplied {
		t.Fatalf("acknowledged: %s %q %v", outcome.State, outcome.Message, err)
	}
	slurmtest.Eventually(t, 30*time.Second, "nothing is held", func() (bool, string) {
		state := c.slurm("sinfo", "-h", "-N", "-n", "slurm-worker-cpu-0", "-o", "%t %E")
		return !strings.Contains(state, "guard:"), state
	})
}

// A guard that dies between the swap of the files and slurmctld's reading leaves a change of topology.conf alone, which slurmctld's
// hash of slurm.conf does not show, for the next guard to bring to its end.
func TestRealInterruptedTopology(t *testing.T) {
	c := newCluster(t)
	c.boot()
	switched := func(name string) map[string]string {
		files := c.files("TopologyPlugin=topology/tree")
		files["topology.conf"] = "SwitchName=" + name + " Nodes=slurm-worker-cpu-[0-1]\n"
		return files
	}
	c.want(switched("before"), v1alpha1.ConfigApplied, "")
	if got := c.slurm("scontrol", "show", "topology"); !strings.Contains(got, "SwitchName=before") {
		t.Fatalf("slurmctld does not run with the first topology:\n%s", got)
	}
	job := c.submit("--wrap", "sleep 120")
	slurmtest.Eventually(t, time.Minute, "the job runs", func() (bool, string) { return c.state(job) == "RUNNING", c.state(job) })

	next := &v1alpha1.SlurmConfigSpec{ClusterName: "berth", Files: switched("after")}
	if err := errors.Join(c.store.Write(next.Hash(), next.Files), c.store.Use(next.Hash())); err != nil {
		t.Fatal(err)
	}
	c.restartGuard()
	c.want(next.Files, v1alpha1.ConfigApplied, "")
	if got := c.slurm("scontrol", "show", "topology"); !strings.Contains(got, "SwitchName=after") {
		t.Errorf("the guard calls it applied, and slurmctld still has\n%s", got)
	}
	if accepted, err := c.store.Accepted(); err != nil || accepted != next.Hash() {
		t.Errorf("accepted is %s, %v; want %s", accepted, err, next.Hash())
	}
	if got := c.state(job); got != "RUNNING" {
		t.Errorf("the job is %s", got)
	}
}

// The whole life of a configuration on a real slurmctld. L3: a node whose size changes is drained first, and its worker is made anew once
// slurmctld has the new size.
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
	// Meanwhile no other job starts where it would be killed, and nowhere else is anything drained.
	c.want(c.files("7000 CPUs=2 → 7000 CPUs=1"), v1alpha1.ConfigWaitingForJobs, fmt.Sprintf("would kill or lose job %s (root, train)", job))
	if got := c.drained(); got != "slurm-worker-cpu-0" {
		t.Errorf("while the change of a node waits, drained are %q", got)
	}
	late := c.submit("-w", "slurm-worker-cpu-0", "--wrap", "true")
	c.want(c.files("7000 CPUs=2 → 7000 CPUs=1"), v1alpha1.ConfigWaitingForJobs, "job "+job)
	if state := c.state(late); state != "PENDING" {
		t.Errorf("a job on a node that is drained for a change is %s", state)
	}
	c.slurm("scancel", late)
	c.restartGuard() // what is held is known to the next guard
	c.want(c.files("Gres=gpu:2 → Gres=gpu:1"), v1alpha1.ConfigWaitingForJobs, `gres changes from "gpu:2" to "gpu:1": would kill or lose job `+job)
	c.want(c.files("Gres=gpu:2 → Gres=gpu:tesla:2"), v1alpha1.ConfigWaitingForJobs, "job "+job)
	c.want(c.files("Nodes=slurm-worker-cpu-[0-1] → Nodes=slurm-worker-cpu-1"), v1alpha1.ConfigWaitingForJobs, "partition cpu loses nodes: would kill or lose job "+job)
	c.want(c.files("CR_Core_Memory → CR_CPU_Memory"), v1alpha1.ConfigWaitingForJobs, "job "+job)
	if got := c.partition("cpu"); got != "down" {
		t.Errorf("while a change that kills every job waits, the partition is %s", got)
	}
	c.want(c.files("PartitionName=cpu → PartitionName=batch"), v1alpha1.ConfigWaitingForJobs, "partition cpu is removed or renamed: would kill or lose job "+job)
	if got := c.partition("cpu"); got != "drain" {
		t.Errorf("while a partition is to be removed, it is %s", got)
	}
	if out, err := c.machine.Command("env", "SLURM_CONF="+c.store.Conf(), "sbatch", "--chdir=/tmp", "--wrap", "true").CombinedOutput(); err == nil {
		t.Errorf("a partition that is to be removed takes new jobs: %s", out)
	}
	c.want(c.files("NodeName=slurm-worker-cpu-1 NodeHostname=ctl Port=7001 CPUs=2 RealMemory=1000 State=CLOUD → ", "cpu-[0-1] → cpu-0"),
		v1alpha1.ConfigWaitingForJobs, "nodes leave the cluster: would kill or lose job "+held)

	// What no waiting makes possible is refused.
	c.want(c.files("ClusterName=berth → ClusterName=other"), v1alpha1.ConfigRefused, "state of another cluster")

	// A reservation that somebody made would go with its node; ours would be made anew.
	c.slurm("scontrol", "create", "reservation", "ReservationName=byhand", "Users=root", "StartTime=now+2hours", "Duration=60", "Nodes=slurm-worker-cpu-1")
	c.slurm("scontrol", "update", "jobid="+held, "ReqNodeList=slurm-worker-cpu-0")
	c.want(c.files("NodeName=slurm-worker-cpu-1 NodeHostname=ctl Port=7001 CPUs=2 RealMemory=1000 State=CLOUD → ", "cpu-[0-1] → cpu-0"),
		v1alpha1.ConfigWaitingForJobs, "would delete reservation byhand")
	c.slurm("scontrol", "delete", "ReservationName=byhand")

	// gres.conf alone: the card of a running job would be another's.
	swapped := c.files()
	swapped["gres.conf"] = "NodeName=slurm-worker-cpu-0 Name=gpu File=/dev/zero\nNodeName=slurm-worker-cpu-0 Name=gpu File=/dev/null\n"
	c.want(swapped, v1alpha1.ConfigWaitingForJobs, "gres.conf describes the cards of nodes otherwise: would kill or lose job "+job)

	// A topology that comes hurts nobody.
	racks := c.files("TopologyPlugin=topology/tree")
	racks["topology.conf"] = "SwitchName=rack Nodes=slurm-worker-cpu-[0-1]\nSwitchName=site Switches=rack\n"
	c.want(racks, v1alpha1.ConfigApplied, "")
	if state := c.state(job); state != "RUNNING" {
		t.Fatalf("the job is %s under a new topology", state)
	}

	// What hurts nobody is applied under the running job, and what was held for the changes before is free again.
	grown := []string{"MaxJobCount=5000 → MaxJobCount=6000"}
	c.want(c.files(grown...), v1alpha1.ConfigApplied, "")
	if !strings.Contains(c.slurm("scontrol", "show", "config"), "MaxJobCount             = 6000") {
		t.Error("the applied configuration is not in force")
	}
	if state := c.state(job); state != "RUNNING" {
		t.Fatalf("the job is %s after the change", state)
	}

	if drained, partition := c.drained(), c.partition("cpu"); drained != "" || partition != "up" {
		t.Errorf("after all changes that wait are withdrawn, drained are %q, and the partition is %s", drained, partition)
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

	// Once the jobs have ended, the change that waited is applied; the node's worker is made anew.
	c.want(c.files(append(grown, "7000 CPUs=2 → 7000 CPUs=1")...), v1alpha1.ConfigWaitingForJobs, "job "+job)
	c.slurm("scancel", job, held)
	slurmtest.Eventually(t, time.Minute, "the change is applied", func() (bool, string) {
		outcome := c.reconcile(c.files(append(grown, "7000 CPUs=2 → 7000 CPUs=1")...))
		return outcome.State == v1alpha1.ConfigApplied, outcome.Message
	})
	slurmtest.Eventually(t, 30*time.Second, "the changed node powers down", func() (bool, string) {
		state := c.slurm("sinfo", "-h", "-N", "-n", "slurm-worker-cpu-0", "-o", "%t %E")
		return strings.ContainsAny(state, "~%!"), state
	})
	if strings.Contains(c.machine.Log("slurmctld.log"), "fatal") {
		t.Error(c.machine.Log("slurmctld.log"))
	}
}
