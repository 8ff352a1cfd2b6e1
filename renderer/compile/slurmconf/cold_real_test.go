package slurmconf

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
	"github.com/berth-hpc/berth/renderer/site"
)

// onMachine is a site's configuration for a machine: what it says of nodes, cards, partitions, topology and power saving, with
// programs that do nothing and cards that are files of the machine.
func onMachine(t *testing.T, m *slurmtest.Machine, s *site.Site) (lines string, files map[string]string) {
	t.Helper()
	files = build(t, s)
	for line := range strings.Lines(files["slurm.conf"]) {
		key, _, _ := strings.Cut(line, "=")
		switch key {
		case "NodeName", "PartitionName", "GresTypes", "TopologyPlugin", "SelectType", "SelectTypeParameters", "DefMemPerCPU", "ReturnToService",
			"SuspendTime", "SuspendTimeout", "ResumeTimeout", "SuspendRate", "ResumeRate", "SuspendExcStates":
			lines += line
		}
	}
	for _, file := range []string{"slurm.conf", "cgroup.conf", "plugstack.conf", hooksFile} {
		delete(files, file)
	}
	files["gres.conf"] = strings.ReplaceAll(files["gres.conf"], "/run/berth/cards/nvidia", filepath.Join(m.Dir, "nvidia"))
	return lines + "SlurmctldParameters=enable_configless\nSuspendProgram=/bin/true\nResumeProgram=/bin/true\n", files
}

// L1, L4, L5: a cluster whose first slurmctld starts while no worker is up, with each topology that a site can have. It knows every
// node's cards before their first registration, takes a job for one, and the job runs there as soon as its worker is up. A pool that is
// added becomes a partition by a reconfigure.
func TestRealColdCluster(t *testing.T) {
	racks := lab()
	racks.Hosts = map[string]site.Host{"ada": {Rack: "a"}, "ampere": {Rack: "b"}}
	for name, pool := range racks.Pools {
		pool.Hosts = []string{"ada", "ampere"}[:min(2, pool.Max)]
		racks.Pools[name] = pool
	}
	for name, s := range map[string]*site.Site{"without racks": lab(), "with racks": racks} {
		t.Run(name, func(t *testing.T) {
			hosts := append(PoolNodeNames("slow", 2), PoolNodeNames("fast", 2)...)
			m := slurmtest.Start(t, append(append(hosts, PoolNodeNames("cpu", 4)...), PoolNodeNames("added", 1)...)...)
			m.Run("sh", "-c", "rm -f /etc/slurm/slurm.*; mkdir -p /run/slurm; mknod -m 666 "+m.Dir+"/nvidia0 c 1 3")
			lines, files := onMachine(t, m, s)
			slurm := m.Configure(lines, files)
			slurm.Slurmctld()
			const worker, card = "slurm-worker-slow-0", "Gres=gpu:rtx3080:1,mps:rtx3080:100"
			node := func() string { return slurm.Client("scontrol", "show", "node", worker, "--oneliner") }
			if got := node(); !strings.Contains(got, card) || !strings.Contains(got, "POWERED_DOWN") {
				t.Errorf("before its first registration slurmctld has of the node\n%s\nwant %s", got, card)
			}
			if got := slurm.Client("scontrol", "show", "topology"); strings.Contains(got, "SwitchName=rack-b") != (name == "with racks") {
				t.Errorf("slurmctld has the topology\n%s", got)
			}
			job := slurm.Client("sbatch", "--parsable", "--chdir=/tmp", "--output="+m.Dir+"/out", "--partition=gpu", "--gres=gpu:rtx3080:1", "--nodelist="+worker, "--wrap", "echo card $CUDA_VISIBLE_DEVICES")
			slurmtest.Eventually(t, 20*time.Second, "the job has its node, which is not up", func() (bool, string) {
				out := slurm.Client("squeue", "--noheader", "--format=%T %N", "--jobs="+job)
				return out == "CONFIGURING "+worker, out + m.Log("slurmctld.log")
			})
			m.Daemon("slurmd.log", "env", "-u", "SLURM_CONF", "slurmd", "-D", "-b", "-N", worker, "--conf-server", "ctl:6817")
			slurm.Want(job, "COMPLETED")
			if got := strings.TrimSpace(m.Run("cat", m.Dir+"/out")); got != "card 0" {
				t.Errorf("the job says %q", got)
			}
			if got := node(); !strings.Contains(got, card) || strings.Contains(got, "DRAIN") || strings.Contains(got, "INVAL") {
				t.Errorf("after its registration slurmctld has of the node\n%s\nwant %s", got, card)
			}

			if name == "with racks" {
				grown := *s
				grown.Pools = maps.Clone(s.Pools)
				grown.Pools["added"] = site.Pool{Max: 1, CPUs: 2, Memory: "4Gi", Idle: "5m", Hosts: []string{"ada"}, Partition: site.Partition{State: "UP", PriorityTier: 1}}
				lines, files := onMachine(t, m, &grown)
				slurm.Write("slurm.conf", m.Conf(lines))
				for _, file := range slices.Sorted(maps.Keys(files)) {
					slurm.Write(file, files[file])
				}
				slurm.Client("scontrol", "reconfigure")
				if got := slurm.Client("sinfo", "--noheader", "--partition=added", "--format=%R %N %a"); got != "added slurm-worker-added-0 up" {
					t.Errorf("the pool that was added is %q", got)
				}
				late := slurm.Client("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--partition=added", "--wrap", "true")
				slurm.Want(late, "CONFIGURING")
			}
		})
	}
}

// L2: workers that share a host each see the whole of it, its processors and its memory. Slurm has of each what its pool gives it, and no
// more jobs fit.
func TestRealPartOfAHost(t *testing.T) {
	s := lab()
	s.Pools = map[string]site.Pool{"half": {Max: 2, CPUs: 1, Memory: "1Gi", Idle: "5m", Partition: site.Partition{State: "UP", Default: true, PriorityTier: 1}}}
	s.Slurm.Partitions = nil
	nodes := PoolNodeNames("half", 2)
	m := slurmtest.Start(t, nodes...)
	lines, files := onMachine(t, m, s)
	for i, node := range nodes { // each has an address of its own in a cluster, here a port
		lines += fmt.Sprintf("NodeName=%s NodeHostname=ctl Port=%d CPUs=1 RealMemory=%%s State=CLOUD\n", node, 7000+i)
	}
	var rendered string
	for line := range strings.Lines(lines) {
		if strings.HasPrefix(line, "NodeName=slurm-worker-half-[0-1]") {
			rendered = line
		}
	}
	_, memory, _ := strings.Cut(rendered, "RealMemory=")
	memory, _, _ = strings.Cut(memory, " ")
	if rendered == "" || memory == "" || !strings.Contains(rendered, " CPUs=1 ") {
		t.Fatalf("the pool's nodes are %q", rendered)
	}
	// Unlike other tests' and the box's, slurmctld does not believe slurm.conf where the machine has less.
	lines = strings.ReplaceAll(strings.Replace(lines, rendered, "", 1), "%s", memory) + "SlurmdParameters=shutdown_on_reboot\n"
	slurm := m.Configure(lines, files)
	slurm.Slurmctld()
	job := func() string {
		return slurm.Client("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--mem=100", "--wrap", "sleep 120")
	}
	first, second, third := job(), job(), job()
	for _, node := range nodes {
		m.Daemon(node+".log", "env", "SLURM_CONF="+slurm.File, "slurmd", "-D", "-b", "-N", node)
		slurmtest.Eventually(t, time.Minute, "slurmd of "+node+" listens", func() (bool, string) {
			return strings.Contains(m.Log(node+".log"), "slurmd started on"), m.Log(node + ".log")
		})
	}
	slurm.Want(first, "RUNNING")
	slurm.Want(second, "RUNNING")
	for _, node := range nodes {
		out := slurm.Client("scontrol", "show", "node", "--oneliner", node)
		for _, want := range []string{" CPUTot=1 ", " RealMemory=" + memory + " ", "State=ALLOCATED"} {
			if !strings.Contains(out, want) {
				t.Errorf("slurmctld has of the node, without %q:\n%s", want, out)
			}
		}
	}
	if out := slurm.Client("squeue", "--noheader", "--jobs="+third, "--format=%T"); out != "PENDING" {
		t.Errorf("a third job on two workers of one CPU is %s", out)
	}
}
