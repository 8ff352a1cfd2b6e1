package slurmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurm"
)

// base is the slurm.conf of a test, but for nodes and partitions. Several slurmds live on the one host, as user root, without
// cgroups, and register with whatever sizes slurm.conf gives them.
const base = `ClusterName=berth
SlurmctldHost=ctl
SlurmUser=root
AuthType=auth/slurm
CredType=cred/slurm
AuthInfo=use_client_ids
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool/%%n
SlurmctldPidFile=%[1]s/run/slurmctld.pid
SlurmdPidFile=%[1]s/run/slurmd-%%n.pid
ReturnToService=1
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=10
SlurmdParameters=config_overrides
MpiDefault=none
MailProg=/bin/true
`

// Accounting are the lines of a slurm.conf with slurmdbd (Database).
const Accounting = `AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
`

// Conf is a slurm.conf with the lines, which go before what a test has otherwise.
func (m *Machine) Conf(lines string) string {
	var conf strings.Builder
	for line := range strings.Lines(fmt.Sprintf(base, m.Dir)) {
		key, _, _ := strings.Cut(line, "=")
		if !strings.Contains("\n"+lines, "\n"+key+"=") {
			conf.WriteString(line)
		}
	}
	return conf.String() + lines
}

// Slurm is a configuration on a machine, and what runs with it.
type Slurm struct {
	*Machine
	// File is its slurm.conf.
	File string
}

// Configure writes a slurm.conf of the lines (Conf), and further files beside it, into the machine's directory.
func (m *Machine) Configure(lines string, files map[string]string) *Slurm {
	m.t.Helper()
	s := &Slurm{Machine: m, File: filepath.Join(m.Dir, "slurm.conf")}
	s.Write("slurm.conf", m.Conf(lines))
	s.Write("cgroup.conf", "CgroupPlugin=disabled\n")
	s.Write("plugstack.conf", "# none\n")
	for name, text := range files {
		s.Write(name, text)
	}
	return s
}

// Write writes a file of the configuration.
func (s *Slurm) Write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(s.File), name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// Programs runs clients of the configuration.
func (s *Slurm) Programs() *slurm.Programs {
	return &slurm.Programs{Prefix: s.Prefix(), Conf: s.File}
}

// Client runs a client and returns what it printed, without blanks around; its failure fails the test. Times are in UTC.
func (s *Slurm) Client(name string, args ...string) string {
	s.t.Helper()
	return strings.TrimSpace(s.Run("env", append([]string{"SLURM_CONF=" + s.File, "TZ=UTC", name}, args...)...))
}

// Slurmctld starts it as the controller's pod does, with its log in slurmctld.log, and waits until it answers.
func (s *Slurm) Slurmctld() {
	s.t.Helper()
	_, here, _, _ := runtime.Caller(0)
	start, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../../images/slurm-controller/start-slurmctld"))
	if err != nil {
		s.t.Fatal(err)
	}
	conf, err := os.ReadFile(s.File)
	if err != nil {
		s.t.Fatal(err)
	}
	_, state, _ := strings.Cut(string(conf), "StateSaveLocation=")
	state, _, _ = strings.Cut(state, "\n")
	s.Daemon("slurmctld.log", "env", "BERTH_CONF="+s.File, "BERTH_STATE="+state, "sh", "-c", string(start))
	Eventually(s.t, time.Minute, "slurmctld answers", func() (bool, string) {
		return s.Programs().Ping(s.t.Context()) == nil, s.Log("slurmctld.log")
	})
}

// Slurmd starts the nodes' slurmds, with their logs in NODE.log, and waits until slurmctld can give them jobs.
func (s *Slurm) Slurmd(nodes ...string) {
	s.t.Helper()
	for _, node := range nodes {
		s.Daemon(node+".log", "env", "SLURM_CONF="+s.File, "slurmd", "-D", "-N", node)
		// One after the other: each takes the place of the one before at the host's one socket for credentials.
		Eventually(s.t, time.Minute, "slurmd of "+node+" listens", func() (bool, string) {
			return strings.Contains(s.Log(node+".log"), "slurmd started on"), s.Log(node + ".log")
		})
	}
	list := strings.Join(nodes, ",")
	Eventually(s.t, time.Minute, list+" can have jobs", func() (bool, string) {
		out := s.Client("sinfo", "--noheader", "--Node", "--nodes="+list, "--format=%N %t")
		for line := range strings.Lines(out) {
			if _, state, _ := strings.Cut(strings.TrimSpace(line), " "); state != "idle" && state != "mix" && state != "alloc" {
				return false, out + "\n" + s.Log(nodes[0]+".log")
			}
		}
		return true, out
	})
}

// Slurmrestd starts it as nobody in particular, and without any key, as in its own pod: it passes callers' tokens on (auth/jwt with
// Key("jwt_hs256.key") must be in slurm.conf). It answers at the returned socket a moment later; its log is slurmrestd.log.
func (m *Machine) Slurmrestd() (socket string) {
	m.t.Helper()
	m.Run("sh", "-ec", `install -d -o 64031 -g 64031 "$1/rest"; mkdir "$1/restconf"; : > "$1/restconf/plugstack.conf"
printf 'ClusterName=berth\nSlurmctldHost=ctl\nAuthType=auth/slurm\nCredType=cred/slurm\nAuthAltTypes=auth/jwt\n' > "$1/restconf/slurm.conf"`, "slurmrestd", m.Dir)
	socket = filepath.Join(m.Dir, "rest", "s")
	m.Daemon("slurmrestd.log", "setpriv", "--reuid=64031", "--regid=64031", "--clear-groups", "env", "-u", "SLURM_SACK_KEY",
		"SLURM_JWT=daemon", "SLURM_CONF="+m.Dir+"/restconf/slurm.conf", "slurmrestd", "-a", "rest_auth/jwt", "-s", "openapi/slurmctld", "unix:"+socket)
	return socket
}

// Stop ends a daemon by the process number in its file in the run directory, such as slurmctld.pid, and waits until it has ended.
func (m *Machine) Stop(pidFile string) {
	m.t.Helper()
	m.Run("sh", "-c", `pid=$(cat "$1") && kill "$pid" && for n in $(seq 300); do [ -d "/proc/$pid" ] || exit 0; sleep 0.1; done; exit 1`, "stop", filepath.Join(m.Dir, "run", pidFile))
}

// Want waits until a job is in a state.
func (s *Slurm) Want(job, state string) {
	s.t.Helper()
	Eventually(s.t, time.Minute, "job "+job+" is "+state, func() (bool, string) {
		out := s.Client("scontrol", "show", "job", job)
		return strings.Contains(out, "JobState="+state), out + s.Log("slurmctld.log")
	})
}
