package slurmconf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// startWorker starts slurmctld with the parameters and further configuration files, and a slurmd that has them from it, as a worker
// has. It returns what runs a client of Slurm, and what replaces a file of the configuration.
func startWorker(t *testing.T, m *slurmtest.Machine, parameters []parameter, files map[string]string) (slurm func(name string, args ...string) string, put func(name, text string)) {
	t.Helper()
	conf := fmt.Sprintf(`ClusterName=berth
SlurmctldHost=ctl
SlurmUser=root
AuthType=auth/slurm
CredType=cred/slurm
AuthInfo=use_client_ids
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool
SlurmctldPidFile=%[1]s/run/slurmctld.pid
SlurmdPidFile=%[1]s/run/slurmd.pid
SlurmctldParameters=enable_configless
ReturnToService=1
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
PrologFlags=Alloc
MpiDefault=none
MailProg=/bin/true
NodeName=slurm-worker-cpu-0 NodeHostname=ctl CPUs=2 RealMemory=1000
PartitionName=cpu Nodes=slurm-worker-cpu-0 Default=YES State=UP
`, m.Dir)
	for _, p := range parameters {
		conf += p.key + "=" + p.value + "\n"
	}
	etc := filepath.Join(m.Dir, "etc")
	if err := os.Mkdir(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	put = func(name, text string) {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("slurm.conf", conf)
	put("cgroup.conf", "CgroupPlugin=disabled\n")
	put("plugstack.conf", "# none\n")
	for name, text := range files {
		put(name, text)
	}
	m.Run("sh", "-c", "rm -f /etc/slurm/slurm.*; mkdir -p /run/slurm")
	m.Daemon("slurmctld.log", "slurmctld", "-D", "-f", etc+"/slurm.conf")
	slurmtest.Eventually(t, time.Minute, "slurmctld is up", func() (bool, string) {
		out, _ := m.Command("env", "SLURM_CONF="+etc+"/slurm.conf", "scontrol", "ping").CombinedOutput()
		return strings.Contains(string(out), " is UP"), string(out) + m.Log("slurmctld.log")
	})
	m.Daemon("slurmd.log", "env", "-u", "SLURM_CONF", "slurmd", "-D", "-N", "slurm-worker-cpu-0", "--conf-server", "ctl:6817")
	return func(name string, args ...string) string {
		return m.Run("env", append([]string{"SLURM_CONF=" + etc + "/slurm.conf", name}, args...)...)
	}, put
}
