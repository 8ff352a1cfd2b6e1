package slurmconf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
	"github.com/berth-hpc/berth/renderer/site"
)

// L6: the site's hooks and the image's run one behind the other, on a real slurmd that has its configuration from slurmctld, as a worker
// has.
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
	m.Run("sh", "-c", "mkdir -p /usr/libexec/berth && printf '#!/bin/sh\\necho home >> "+seen+"\\n' > /usr/libexec/berth/prolog && chmod 755 /usr/libexec/berth/prolog")
	slurm, put := startWorker(t, m, parameters, map[string]string{hooksFile: text})
	// A slurmctld that is reconfigured may not answer for a moment; what it says then is no state.
	node := func() string {
		out, _ := m.Command("env", "SLURM_CONF="+m.Dir+"/slurm.conf", "sinfo", "-h", "-N", "-o", "%t %E").CombinedOutput()
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

// A cluster whose workers are up has the image's prolog alone, as berth's of before wrote it, and is told of the epilog: they have it
// from the next job on, and one whose image has none yet is not drained for it.
func TestRealImageHooks(t *testing.T) {
	m := slurmtest.Start(t, "slurm-worker-cpu-0")
	before := []parameter{{"Prolog", programs + "/prolog"}}
	seen := filepath.Join(m.Dir, "seen")
	program := func(name string) {
		m.Run("sh", "-ec", "mkdir -p /usr/libexec/berth; printf '#!/bin/sh\\necho "+name+" >> "+seen+"\\n' > /usr/libexec/berth/"+name+"; chmod 755 /usr/libexec/berth/"+name)
	}
	program("prolog")
	slurm, put := startWorker(t, m, before, nil)
	conf := filepath.Join(m.Dir, "slurm.conf")
	run := func(want string) {
		t.Helper()
		_ = os.Remove(seen)
		slurm("sbatch", "--chdir=/tmp", "--output=/dev/null", "--wrap", "true")
		slurmtest.Eventually(t, 3*time.Minute, "the hooks ran, and the node takes jobs", func() (bool, string) {
			got, _ := os.ReadFile(seen)
			state, _ := m.Command("env", "SLURM_CONF="+conf, "sinfo", "-h", "-N", "-o", "%t %E").CombinedOutput()
			return string(got) == want && strings.TrimSpace(string(state)) == "idle none", string(got) + string(state) + m.Log("slurmd.log")
		})
	}
	run("prolog\n")

	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	parameters, err := hookParameters(site.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "Prolog="+programs+"/prolog\n", "", 1)
	for _, p := range parameters {
		changed += p.key + "=" + p.value + "\n"
	}
	file, err := hooks(site.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	put(hooksFile, file)
	put("slurm.conf", changed)
	slurm("scontrol", "reconfigure")
	run("prolog\n")
	program("epilog")
	run("prolog\nepilog\n")
}
