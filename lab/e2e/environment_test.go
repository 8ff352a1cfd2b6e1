package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// L13: a job finds what its user expects: home, language and search path as at the login also where it was submitted with nothing of a
// shell's, and a directory for its temporary files on each of its nodes, which is its user's alone and gone with the job.
func TestJobEnvironment(t *testing.T) {
	r := begin(t, 8*time.Minute)
	const show = `echo $HOME $USER $LANG $(printenv PATH | grep -c /usr/bin) $TMPDIR $(stat --format='%U %a' $TMPDIR) $(mktemp | grep -c ^$TMPDIR/)`
	want := func(id string) string {
		return fmt.Sprintf("/home/%s %[1]s C.UTF-8 1 /tmp/jobs/%[2]s %[1]s 700 1", student, id)
	}
	for _, options := range []string{"", "--export=NONE", "--export=NIL", "--export=ALL,TMPDIR=/var/tmp"} {
		id := r.submit(student, "--partition=cpu "+options, show)
		r.waitJob(id, "COMPLETED", workerStarts)
		if got := r.output(id); got != want(id) {
			t.Errorf("a job with %q finds %q, want %q", options, got, want(id))
		}
	}
	// Both nodes of a job, also for what its steps leave there that nobody may enter.
	id := r.submit(student, "--partition=cpu --nodes=2", "srun bash -c '"+`mkdir $TMPDIR/a; touch $TMPDIR/a/b; chmod 500 $TMPDIR/a; echo $(hostname) $TMPDIR`+"' | sort; sleep 2")
	j := r.waitJob(id, "COMPLETED", workerStarts)
	lines := strings.Split(r.output(id), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], " /tmp/jobs/"+id) || !strings.HasSuffix(lines[1], " /tmp/jobs/"+id) {
		t.Errorf("the steps of %s say %q", j, lines)
	}
	for _, line := range lines {
		node, _, _ := strings.Cut(line, " ")
		r.eventually(30*time.Second, "nothing of the job is left on "+node, func() (bool, string) {
			out, err := r.box.Kubectl(r.ctx, "exec", "-n", workers, node, "--", "ls", "-A", "/tmp/jobs")
			return err == nil && strings.TrimSpace(out) == "", fmt.Sprint(out, err)
		})
	}
}

// L14: the site's time zone is everybody's: in the pods, in sessions and jobs that have nothing of the pods' environment, and in what Slurm
// prints.
func TestTimeZone(t *testing.T) {
	r := begin(t, 15*time.Minute)
	s := r.clone()
	s.declare(`lab: cluster: timeZone: "Asia/Kolkata"`)
	s.deliver("Another time zone")
	const zone = "date +%Z"
	r.eventually(120*time.Second, "the login pod has it", func() (bool, string) {
		out, err := r.as(student, zone)
		return err == nil && strings.TrimSpace(out) == "IST", fmt.Sprint(out, err)
	})
	if got := r.mustController(zone); got != "IST" {
		t.Errorf("beside slurmctld: %q", got)
	}
	for _, options := range []string{"", "--export=NONE"} {
		id := r.submit(student, "--partition=cpu "+options, zone+"; squeue --noheader --format=%S --jobs=$SLURM_JOB_ID")
		r.waitJob(id, "COMPLETED", workerStarts)
		inJob := strings.Split(r.output(id), "\n")
		if len(inJob) != 2 || inJob[0] != "IST" {
			t.Errorf("a job with %q: %q", options, inJob)
			continue
		}
		start := inJob[1]
		for who, look := range map[string]func() (string, error){
			"scontrol beside slurmctld": func() (string, error) {
				return r.inController("scontrol show job " + id + " | sed -n 's/.*StartTime=\\([^ ]*\\).*/\\1/p'")
			},
			"squeue in the login pod": func() (string, error) {
				return r.as(student, "squeue --noheader --states=all --format=%S --jobs="+id)
			},
			"sacct in the login pod": func() (string, error) {
				return r.as(student, "sacct --noheader --parsable2 --allocations --format=start --jobs="+id)
			},
		} {
			r.eventually(60*time.Second, who+" says when the job began", func() (bool, string) {
				out, err := look()
				return err == nil && strings.TrimSpace(out) == start, fmt.Sprintf("%q %v, the job said %s", out, err, start)
			})
		}
	}
}
