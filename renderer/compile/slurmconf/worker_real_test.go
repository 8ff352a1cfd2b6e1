package slurmconf

import (
	"strings"
	"testing"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// startWorker starts slurmctld with the parameters and further configuration files, and a slurmd that has them from it, as a worker
// has. It returns what runs a client of Slurm, and what replaces a file of the configuration.
func startWorker(t *testing.T, m *slurmtest.Machine, parameters []parameter, files map[string]string) (slurm func(name string, args ...string) string, put func(name, text string)) {
	t.Helper()
	var lines strings.Builder
	for _, p := range parameters {
		lines.WriteString(p.key + "=" + p.value + "\n")
	}
	s := m.Configure(lines.String()+`SlurmctldParameters=enable_configless
PrologFlags=Alloc
NodeName=slurm-worker-cpu-0 NodeHostname=ctl CPUs=2 RealMemory=1000
PartitionName=cpu Nodes=slurm-worker-cpu-0 Default=YES State=UP
`, files)
	// A worker has no configuration of its own.
	m.Run("sh", "-c", "rm -f /etc/slurm/slurm.*; mkdir -p /run/slurm")
	s.Slurmctld()
	m.Daemon("slurmd.log", "env", "-u", "SLURM_CONF", "slurmd", "-D", "-N", "slurm-worker-cpu-0", "--conf-server", "ctl:6817")
	return s.Client, s.Write
}
