package e2e

import (
	"strings"
	"testing"
	"time"
)

// A push gives people and jobs the command `module`, without a new login pod: in login shells, in a job that was submitted with
// nothing of its shell's, and in its steps on another node.
func TestModules(t *testing.T) {
	r := begin(t, 12*time.Minute)
	const directory = outputDir + "/e2e-modules"
	r.waitNoWorkers("cpu")
	s := r.clone()
	s.declare(`lab: modules: {enabled: true, paths: ["e2e-modules"]}`)
	login := names(r.pods(workers, labelRole+"=login"))
	s.deliver("Switch modules on")
	defer func() {
		ctx, cancel := aftermath()
		defer cancel()
		r.ctx = ctx
		if out, err := r.inLogin("rm -rf " + directory); err != nil {
			t.Errorf("remove the module files: %v: %s", err, out)
		}
	}()

	// A worker that starts makes the directory, before anybody who may write in /shared does.
	first := r.submit(student, "--partition=cpu", "stat --format='%U %a' "+directory)
	r.waitJob(first, "COMPLETED", workerStarts)
	if got := r.output(first); got != "root 755" {
		t.Errorf("the directory of module files is %q, want root's with mode 755", got)
	}
	if out, err := r.inLogin("mkdir " + directory + "/hello && echo 'setenv(\"HELLO\", \"from the site\") prepend_path(\"PATH\", \"/opt/hello\")' > " + directory + "/hello/1.0.lua"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := r.as(student, "touch "+directory+"/mine"); err == nil {
		t.Errorf("anybody may write into the directory of module files: %s", out)
	}

	const load = "module load hello && echo $HELLO ${PATH%%:*}"
	const want = "from the site /opt/hello"
	// The kubelet brings a changed ConfigMap to its pods within a minute or so.
	r.eventually(150*time.Second, "a login shell has modules", func() (bool, string) {
		out, err := r.as(student, "bash -lc '"+load+"'")
		return err == nil && strings.TrimSpace(out) == want, out
	})
	for what, options := range map[string]string{"as it was submitted": "", "with nothing of its shell's": "--export=NONE"} {
		id := r.submit(student, "--partition=cpu "+options, load)
		r.waitJob(id, "COMPLETED", workerStarts)
		if got := r.output(id); got != want {
			t.Errorf("a job %s: %q, want %q", what, got, want)
		}
	}
	// Within a job of --export=NONE srun gives its steps nothing either (SLURM_EXPORT_ENV), unless it is told to.
	steps := r.submit(researcher, "--partition=cpu --nodes=2 --export=NONE", "module load hello && srun --export=ALL bash -c 'module -t list 2>&1 && echo $HELLO' | sort | uniq --count")
	r.waitJob(steps, "COMPLETED", workerStarts)
	if got := strings.Join(strings.Fields(r.output(steps)), " "); got != "2 from the site 2 hello/1.0" {
		t.Errorf("steps on two nodes: %q", got)
	}
	if got := r.mustAs(student, "srun --partition=cpu --export=NONE bash -c '"+load+"'"); got != want {
		t.Errorf("srun: %q, want %q", got, want)
	}
	if now := names(r.pods(workers, labelRole+"=login")); now != login {
		t.Errorf("the push replaced the login pod: %s, now %s", login, now)
	}

	s.revertLast()
	s.converged()
	r.eventually(150*time.Second, "a job has none once the site has none", func() (bool, string) {
		id := r.submit(student, "--partition=cpu --export=NONE", "command -v module || echo none ${MODULEPATH-unset} ${BASH_ENV-unset}")
		r.waitJob(id, "COMPLETED", workerStarts)
		out := r.output(id)
		return out == "none unset unset", out
	})
}
