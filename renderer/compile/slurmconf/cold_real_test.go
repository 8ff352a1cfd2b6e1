package slurmconf

import (
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
