package mps

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

const node = "slurm-worker-gpu-0"

// worker is a real slurmd as in a worker that shares its card by MPS: the image's hooks, the supervisor, and the stand-in for NVIDIA's
// programs.
type worker struct {
	*slurmtest.Machine
	t *testing.T
}

func startWorker(t *testing.T) worker {
	t.Helper()
	w := worker{slurmtest.Start(t, node), t}
	build := exec.Command("go", "build", "-o", w.Dir+"/", "./cmd/mps", "./standin/nvidia-cuda-mps-control")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // the root file system may have an older C library
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	images, err := filepath.Abs("../../images")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-r", images, w.Dir+"/images").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// As the images' Dockerfile lays them out.
	w.Run("sh", "-ec", `umask 022; rm -f /etc/slurm/slurm.*; mkdir -p /run/slurm `+w.Dir+`/dev /usr/libexec/berth
cd `+w.Dir+`; mknod dev/nvidia3 c 1 3; install mps /usr/libexec/berth/; install nvidia-cuda-mps-control /usr/bin/
cd images/slurm-worker; cp -r prolog epilog start-mps task-prolog prolog.d task-prolog.d /usr/libexec/berth/
rm /usr/libexec/berth/prolog.d/10-home
install ../lmod/task-prolog /usr/libexec/berth/task-prolog.d/10-modules
mkdir -p /etc/berth/modules; echo /shared/modules > /etc/berth/modules/modulepath
/usr/libexec/berth/mps cards --devices=`+w.Dir+`/dev --expect=1
for name in ann bea; do getent passwd $name || useradd --no-create-home $name; done`)
	s := w.Configure(fmt.Sprintf(`SlurmctldParameters=enable_configless
SlurmdSpoolDir=%[1]s/spool
SlurmdPidFile=%[1]s/run/slurmd.pid
DefMemPerCPU=100
PrologFlags=Alloc
Prolog=/usr/libexec/berth/prolog
Epilog=/usr/libexec/berth/epilog
TaskProlog=/usr/libexec/berth/task-prolog
KillWait=15
GresTypes=gpu,mps
NodeName=%[2]s NodeHostname=ctl CPUs=16 RealMemory=4000 Gres=gpu:rtx4070:1,mps:rtx4070:100
PartitionName=gpu Nodes=%[2]s Default=YES State=UP
`, w.Dir, node), map[string]string{
		"gres.conf": fmt.Sprintf("NodeName=%[1]s Name=gpu Type=rtx4070 File=/run/berth/cards/nvidia0\nNodeName=%[1]s Name=mps Type=rtx4070 Count=100 File=/run/berth/cards/nvidia0\n", node),
	})
	s.Slurmctld()
	w.Daemon("mps.log", "env", "SLURM_CONF="+s.File, "NVIDIA_VISIBLE_DEVICES=GPU-1a", "/usr/libexec/berth/mps", "supervise", "--users=trusted",
		"--card-memory=12Gi", "--devices="+w.Dir+"/dev", "--log="+w.Dir+"/mpslog", "--node="+node, "--recover=10s", "--ask=2s")
	w.Daemon("slurmd.log", "env", "-u", "SLURM_CONF", "slurmd", "-D", "-N", node, "--conf-server", "ctl:6817")
	w.eventually("the node is idle", func() bool { return strings.HasPrefix(w.node(), "idle") })
	return w
}

func (w worker) eventually(what string, holds func() bool) {
	w.t.Helper()
	slurmtest.Eventually(w.t, 2*time.Minute, what, func() (bool, string) {
		return holds(), w.node() + "\n" + w.Log("mps.log") + w.Log("slurmd.log")
	})
}

// slurm runs a client of Slurm as a user; it returns what it printed, whatever it ended with.
func (w worker) slurm(user string, words ...string) string {
	words = append([]string{"SLURM_CONF=" + w.Dir + "/slurm.conf"}, words...)
	if user != "root" {
		words = append([]string{"-u", "SLURM_SACK_KEY"}, words...) // their commands go to slurmctld's socket
	}
	out, _ := w.Command("runuser", append([]string{"-u", user, "--", "env"}, words...)...).CombinedOutput()
	return strings.TrimSpace(string(out))
}

func (w worker) node() string { return w.slurm("root", "sinfo", "-h", "-N", "-o", "%t %E") }

func (w worker) state(job string) string {
	return w.slurm("root", "squeue", "-h", "-t", "all", "-o", "%T", "-j", job)
}

func (w worker) submit(user, gres, script string, options ...string) (job string, output func() string) {
	w.t.Helper()
	file := fmt.Sprintf("/tmp/%s-%d", user, time.Now().UnixNano())
	words := append(append([]string{"sbatch", "--parsable", "--chdir=/tmp", "--output=" + file, "--gres=" + gres}, options...), "--wrap", script)
	job = w.slurm(user, words...)
	return job, func() string { out, _ := w.Command("cat", file).CombinedOutput(); return string(out) }
}

// daemons are the control daemons that run.
func (w worker) daemons() []string {
	out, _ := w.Command("pgrep", "-f", "nvidia-cuda-mps-control -f").CombinedOutput()
	return strings.Fields(string(out))
}

// What a job with a share of the card meets, on a real slurmd whose card is the host's fourth: its environment, its neighbours of other
// users, the whole card, and the life of the daemon.
func TestRealShares(t *testing.T) {
	w := startWorker(t)
	const script = "env | grep -e ^CUDA -e ^MODULEPATH | sort; sleep 1000 | nvidia-cuda-mps-control client"
	var jobs []string
	var outputs []func() string
	for i, user := range []string{"ann", "bea", "ann", "bea"} {
		job, output := w.submit(user, "mps:25", script, "--comment=run of "+user)
		jobs, outputs = append(jobs, job), append(outputs, output)
		w.eventually(fmt.Sprintf("job %d is attached", i), func() bool { return strings.HasSuffix(output(), "attached\n") })
	}
	want := `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25
CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2944M
CUDA_MPS_PIPE_DIRECTORY=/run/berth/mps/GPU-1a
CUDA_VISIBLE_DEVICES=0
MODULEPATH=/shared/modules
attached
`
	for i, output := range outputs {
		if output() != want {
			t.Errorf("job %s has\n%s\nwant\n%s", jobs[i], output(), want)
		}
	}
	if got := w.daemons(); len(got) != 1 {
		t.Errorf("four shares have the daemons %v, want one", got)
	}
	w.eventually("a job of trusted users is told", func() bool {
		return strings.Contains(w.slurm("root", "squeue", "-h", "-o", "%k", "-j", jobs[1]), "run of bea; mps: the card is shared")
	})

	plain, plainOutput := w.submit("ann", "none", "env | grep -c ^CUDA; echo plain $MODULEPATH")
	w.eventually("a job without the card runs", func() bool { return w.state(plain) == "COMPLETED" })
	if got := plainOutput(); got != "0\nplain /shared/modules\n" {
		t.Errorf("a job without the card has %q", got)
	}
	fifth, _ := w.submit("bea", "mps:25", script)
	whole, wholeOutput := w.submit("ann", "gpu:1", "env | grep ^CUDA | sort; ls /run/berth/mps; pgrep -f 'control -f' || echo no daemon")
	for _, job := range []string{fifth, whole} {
		if got := w.state(job); got != "PENDING" {
			t.Errorf("job %s is %s beside four quarters", job, got)
		}
	}

	// scancel: the client is ended in order by MPS, before Slurm's SIGKILL, where the program does not heed SIGTERM.
	w.slurm("ann", "scancel", jobs[0])
	w.eventually("the fifth has the freed share", func() bool { return w.state(fifth) == "RUNNING" })
	if got := w.daemons(); len(got) != 1 {
		t.Errorf("daemons %v, want the one", got)
	}
	w.slurm("root", "scancel", jobs[1], jobs[2], jobs[3], fifth)
	w.eventually("the whole-card job has run", func() bool { return w.state(whole) == "COMPLETED" })
	if got := wholeOutput(); got != "CUDA_VISIBLE_DEVICES=0\nstate.json\nsupervisor\nno daemon\n" {
		t.Errorf("a whole-card job meets\n%s", got)
	}
	if got := w.node(); !strings.HasPrefix(got, "idle") {
		t.Errorf("the node is %s", got)
	}

	// An array task has another number than the one that people see; what is asked about it must find it.
	array, output := w.submit("ann", "mps:50", script, "--array=3")
	w.eventually("the task is attached", func() bool { return strings.HasSuffix(output(), "attached\n") })
	time.Sleep(6 * time.Second) // the supervisor asks Slurm meanwhile
	if got := w.daemons(); len(got) != 1 {
		t.Errorf("a running array task lost its daemon: %v\n%s", got, w.Log("mps.log"))
	}
	w.slurm("ann", "scancel", array)
	w.eventually("no daemon outlives its last job", func() bool { return len(w.daemons()) == 0 })
}

// Slurm ends a job that heeds no SIGTERM with SIGKILL after KillWait; its work on the card ends in order before. A fault that stays drains
// the node with its reason, and the drain ends with the jobs.
func TestRealCancelAndFault(t *testing.T) {
	w := startWorker(t)
	stubborn, output := w.submit("ann", "mps:25", "trap '' TERM; sleep 1000 | nvidia-cuda-mps-control client stubborn")
	neighbour, other := w.submit("bea", "mps:25", "sleep 1000 | nvidia-cuda-mps-control client")
	w.eventually("both are attached", func() bool {
		return strings.Contains(output(), "attached\n") && strings.Contains(other(), "attached\n")
	})
	w.slurm("ann", "scancel", stubborn)
	w.eventually("the job's work on the card is ended", func() bool { return strings.Contains(output(), "terminated\n") })
	if w.state(neighbour) != "RUNNING" || strings.Contains(other(), "terminated") {
		t.Errorf("the neighbour is %s and says %s", w.state(neighbour), other())
	}

	w.Run("sh", "-c", "echo standin stick | CUDA_MPS_PIPE_DIRECTORY=/run/berth/mps/GPU-1a nvidia-cuda-mps-control")
	culprit, _ := w.submit("ann", "mps:25", "nvidia-cuda-mps-control client fault; sleep 1000")
	w.eventually("the neighbour meets the fault", func() bool { return strings.HasSuffix(other(), "fault\n") })
	met := time.Now()
	w.eventually("the supervisor sees the fault", func() bool { return strings.Contains(w.Log("mps.log"), `"event":"Fault"`) })
	if took := time.Since(met); took > 2*time.Second {
		t.Errorf("the fault was seen %s after the neighbour met it, want 2 s at most", took)
	}
	w.eventually("the job is told", func() bool {
		return strings.Contains(w.slurm("root", "squeue", "-h", "-t", "all", "-o", "%k", "-j", culprit), "another job's fault")
	})
	w.eventually("the node is drained", func() bool {
		return strings.Contains(w.node(), "mps: card GPU-1a takes no clients for 10s: the server is FAULT")
	})
	w.slurm("root", "scancel", culprit, neighbour)
	w.eventually("the drain ends with the jobs", func() bool { return strings.HasPrefix(w.node(), "idle") })
	next, _ := w.submit("bea", "mps:25", "true")
	w.eventually("the next job runs", func() bool { return w.state(next) == "COMPLETED" })
}
