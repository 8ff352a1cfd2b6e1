package slurmconf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// The images' part in modules, on a real slurmd: every kind of job finds `module` and the site's module files, whatever it was
// submitted with, and what its user brings along stays.
func TestRealModules(t *testing.T) {
	m := slurmtest.Start(t, "slurm-worker-cpu-0")
	if m.Command("test", "-r", "/usr/share/lmod/lmod/init/bash").Run() != nil {
		t.Skipf("%s has no Lmod (Debian's lmod)", slurmtest.RootVariable)
	}
	modules, own := filepath.Join(m.Dir, "site"), filepath.Join(m.Dir, "own")
	for name, text := range map[string]string{
		filepath.Join(modules, "hello", "1.0.lua"): `prepend_path("PATH", "/opt/hello/bin")` + "\n" + `setenv("HELLO", "site")` + "\n",
		filepath.Join(own, "hello", "2.0.lua"):     `setenv("HELLO", "own")` + "\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, script := range []string{"modules", "task-prolog", "module-directories"} {
		text, err := os.ReadFile(filepath.Join("../../../images/lmod", script))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(m.Dir, script), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	missing := filepath.Join(m.Dir, "shared", "modules", "gpu")
	installHooks(t, m, "task-prolog", "task-prolog.d/20-environment")
	m.Run("sh", "-ec", "mkdir -p /etc/berth/modules; cd "+m.Dir+"; install modules module-directories /usr/libexec/berth/; install task-prolog /usr/libexec/berth/task-prolog.d/10-modules; "+
		"echo "+modules+":"+missing+" > /etc/berth/modules/modulepath; rm -f /etc/profile.d/lmod.sh; echo '. /usr/libexec/berth/modules' > /etc/profile.d/modules.sh; "+
		"/usr/libexec/berth/module-directories; test -d "+missing)
	slurm, _ := startWorker(t, m, []parameter{{"TaskProlog", programs + "/task-prolog"}}, nil)

	const load = "module load hello && echo $HELLO $PATH"
	job := func(script string, options ...string) string {
		t.Helper()
		file, output := filepath.Join(m.Dir, "script"), filepath.Join(m.Dir, "output")
		_ = os.Remove(output)
		if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		id := strings.TrimSpace(slurm("sbatch", append(append([]string{"--parsable", "--chdir=/tmp", "--output=" + output}, options...), file)...))
		slurmtest.Eventually(t, time.Minute, "the job ends", func() (bool, string) {
			state := strings.TrimSpace(slurm("squeue", "--noheader", "--states=all", "--format=%T", "--jobs="+id))
			return state == "COMPLETED" || state == "FAILED", state + m.Log("slurmd.log")
		})
		text, err := os.ReadFile(output)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	begins := func(what, got, want string) {
		t.Helper()
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	slurmtest.Eventually(t, time.Minute, "the node is idle", func() (bool, string) {
		out := slurm("sinfo", "-h", "-o", "%t")
		return strings.TrimSpace(out) == "idle", out + m.Log("slurmd.log")
	})
	begins("a batch script", job("#!/bin/bash\n"+load+"\n"), "site /opt/hello/bin:")
	begins("one with nothing of its shell's", job("#!/bin/bash\n"+load+"\n", "--export=NONE"), "site /opt/hello/bin:")
	begins("one that ends at the first mistake", job("#!/bin/bash -eu\nset -o pipefail\n"+load+"\nmodule load absent\necho went on\n", "--export=NONE", "--error=/dev/null"), "site /opt/hello/bin:")
	begins("a login shell's", job("#!/bin/bash -l\n"+load+"\n"), "site /opt/hello/bin:")
	begins("a script of sh", job("#!/bin/sh\n. /etc/profile.d/modules.sh\n"+load+"\n"), "site /opt/hello/bin:")
	begins("its steps", job("#!/bin/bash\nmodule load hello\nsrun bash -c 'module -t list 2>&1; echo $HELLO'\n"), "hello/1.0\nsite")
	begins("what the user added", job("#!/bin/bash\nmodule load hello/2.0 && echo $HELLO\n", "--export=ALL,MODULEPATH="+own), "own")
	begins("the user's own BASH_ENV", job("#!/bin/bash\necho $BASH_ENV\n", "--export=ALL,BASH_ENV=/dev/null"), "/dev/null")
	begins("srun from a shell without modules", slurm("timeout", "60", "srun", "--export=NONE", "--chdir=/tmp", "/bin/bash", "-c", load), "site /opt/hello/bin")

	// A site without modules has no command, and its jobs nothing of it.
	m.Run("sh", "-c", ": > /etc/berth/modules/modulepath")
	begins("without modules", job("#!/bin/bash\ncommand -v module || echo none ${MODULEPATH-unset} ${BASH_ENV-unset}\n", "--export=NONE"), "none unset unset")
	m.Run("rm", "/etc/berth/modules/modulepath")
	begins("on a worker of before", job("#!/bin/bash\ncommand -v module || echo none ${MODULEPATH-unset} ${BASH_ENV-unset}\n", "--export=NONE"), "none unset unset")
}
