package slurmconf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
	"github.com/berth-hpc/berth/renderer/site"
)

// The hooks on a real slurmd that has its configuration from slurmctld, as a worker has.
func TestRealHooks(t *testing.T) {
	m := slurmtest.Start(t, "slurm-worker-cpu-0")
	seen := filepath.Join(m.Dir, "seen")
	sick := filepath.Join(m.Dir, "sick")
	h := site.Hooks{
		Interval: "2s",
		Prolog: map[string]string{
			"10-first":  "#!/bin/sh\n# it's a prolog\necho \"prolog $SLURM_JOB_ID $(wc -c)\" >> " + seen + "\n",
			"20-second": "#!/usr/bin/env bash\n[[ -e " + seen + " ]] && echo second >> " + seen,
		},
		Epilog:      map[string]string{"end": "#!/bin/bash -e\necho epilog >> " + seen + "\n"},
		HealthCheck: map[string]string{"disk": "#!/bin/sh\n[ ! -e " + sick + " ] || { echo 'all is well'; echo 'disk \"sda\" is broken'; exit 1; }\n"},
	}
	text, err := hooks(h)
	if err != nil {
		t.Fatal(err)
	}
	parameters, err := hookParameters(h)
	if err != nil {
		t.Fatal(err)
	}
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
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("slurm.conf", conf)
	put("cgroup.conf", "CgroupPlugin=disabled\n")
	put("plugstack.conf", "# none\n")
	put(hooksFile, text)
	m.Run("sh", "-c", "rm -f /etc/slurm/slurm.*; mkdir -p /usr/libexec/berth /run/slurm && printf '#!/bin/sh\\necho home >> "+seen+"\\n' > /usr/libexec/berth/prolog && chmod 755 /usr/libexec/berth/prolog")
	slurm := func(name string, args ...string) string {
		return m.Run("env", append([]string{"SLURM_CONF=" + etc + "/slurm.conf", name}, args...)...)
	}
	m.Daemon("slurmctld.log", "slurmctld", "-D", "-f", etc+"/slurm.conf")
	slurmtest.Eventually(t, time.Minute, "slurmctld is up", func() (bool, string) {
		out, _ := m.Command("env", "SLURM_CONF="+etc+"/slurm.conf", "scontrol", "ping").CombinedOutput()
		return strings.Contains(string(out), " is UP"), string(out) + m.Log("slurmctld.log")
	})
	m.Daemon("slurmd.log", "env", "-u", "SLURM_CONF", "slurmd", "-D", "-N", "slurm-worker-cpu-0", "--conf-server", "ctl:6817")
	// A slurmctld that is reconfigured may not answer for a moment; what it says then is no state.
	node := func() string {
		out, _ := m.Command("env", "SLURM_CONF="+etc+"/slurm.conf", "sinfo", "-h", "-N", "-o", "%t %E").CombinedOutput()
		return strings.TrimSpace(string(out))
	}
	becomes := func(what, want string) {
		t.Helper()
		slurmtest.Eventually(t, 3*time.Minute, what, func() (bool, string) {
			got := node()
			return strings.HasPrefix(got, want), got + "\n" + m.Log("slurmd.log") + m.Log("slurmctld.log")
		})
	}
	becomes("the node is idle", "idle none")

	run := func(want string) {
		t.Helper()
		_ = os.Remove(seen)
		job := strings.TrimSpace(slurm("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--wrap", "true"))
		want = strings.ReplaceAll(want, "JOB", job)
		slurmtest.Eventually(t, 3*time.Minute, "the hooks ran in order", func() (bool, string) {
			got, _ := os.ReadFile(seen)
			return string(got) == want, string(got) + m.Log("slurmd.log")
		})
		becomes("the job has ended", "idle")
	}
	run("home\nprolog JOB 0\nsecond\nepilog\n")

	if err := os.WriteFile(sick, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	becomes("the sick node is drained with what the check said last", "drain health: disk: disk sda is broken")
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	becomes("the node that is well again takes jobs", "idle")
	slurm("scontrol", "update", "nodename=slurm-worker-cpu-0", "state=drain", "reason=by hand")
	time.Sleep(5 * time.Second) // two health checks
	if got := node(); got != "drain by hand" {
		t.Errorf("a person's drain became %q", got)
	}
	slurm("scontrol", "update", "nodename=slurm-worker-cpu-0", "state=resume")

	// A push changes a hook: the worker has it without a restart. One that fails drains the node.
	h.Epilog["end"] = "#!/bin/sh\necho other >> " + seen + "\n"
	if text, err = hooks(h); err != nil {
		t.Fatal(err)
	}
	put(hooksFile, text)
	slurm("scontrol", "reconfigure")
	becomes("the node is idle", "idle")
	run("home\nprolog JOB 0\nsecond\nother\n")
	h.Prolog["20-second"] = "#!/bin/sh\nexit 3\n"
	if text, err = hooks(h); err != nil {
		t.Fatal(err)
	}
	put(hooksFile, text)
	slurm("scontrol", "reconfigure")
	slurm("sbatch", "--chdir=/tmp", "--output=/dev/null", "--wrap", "true")
	becomes("a failed prolog drains the node", "drain")
}
