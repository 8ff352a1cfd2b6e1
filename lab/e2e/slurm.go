package e2e

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	controllerPod       = "slurm-controller-0"
	controllerContainer = "slurmctld"
	loginDeployment     = "deployment/slurm-login"
	loginContainer      = "sshd"
	// outputDir is on the shared volume, which login and workers see alike.
	outputDir = "/shared"
	// asSlurmClient makes Slurm's commands in the controller's container find its configuration.
	asSlurmClient = "export SLURM_CONF=/var/spool/slurm/conf/current/slurm.conf; "
)

// Users of the site, each in an account of its own (clusters/lab.cue).
const (
	student    = "student"
	researcher = "researcher"
)

// Bounds on what a box on two cores may take.
const (
	workerStarts = 240 * time.Second // from allocation to a registered node and a running job
	workersLeave = 240 * time.Second // idle time, Slurm's suspension, the pod's grace
	converges    = 240 * time.Second // from push to every layer Ready
)

// inLogin runs a shell command as root in a login pod.
func (r *run) inLogin(command string) (string, error) {
	return r.box.Kubectl(r.ctx, "exec", "-n", workers, loginDeployment, "-c", loginContainer, "--", "bash", "-c", command)
}

// inController runs a shell command beside slurmctld, as SlurmUser.
func (r *run) inController(command string) (string, error) {
	return r.box.Kubectl(r.ctx, "exec", "-n", platform, controllerPod, "-c", controllerContainer, "--", "sh", "-c", asSlurmClient+command)
}

// as runs a shell command in a login pod as a user of the site, with the environment that a login gives: nothing of
// the container's own.
func (r *run) as(user, command string) (string, error) {
	const become = `exec setpriv --reuid="$1" --regid="$(id -g "$1")" --init-groups --reset-env bash -c "cd ` + outputDir + ` && $2"`
	return r.box.Kubectl(r.ctx, "exec", "-n", workers, loginDeployment, "-c", loginContainer, "--",
		"bash", "-c", become, "as", user, command)
}

// mustAs is as for commands that must succeed.
func (r *run) mustAs(user, command string) string {
	r.Helper()
	out, err := r.as(user, command)
	if err != nil {
		r.Fatalf("as %s: %v", user, err)
	}
	return strings.TrimSpace(out)
}

// submit has a user submit a batch script with sbatch's options and returns the job's id.
func (r *run) submit(user, options, script string) string {
	r.Helper()
	id, err := r.trySubmit(user, options, script)
	if err != nil {
		r.Fatal(err)
	}
	return id
}

// trySubmit is submit for jobs that Slurm may refuse.
func (r *run) trySubmit(user, options, script string) (string, error) {
	command := fmt.Sprintf("sbatch --parsable --job-name=e2e --output=%s/e2e-%%j.out %s <<'SCRIPT'\n#!/bin/bash\n%s\nSCRIPT", outputDir, options, script)
	out, err := r.as(user, command)
	if err != nil {
		return "", fmt.Errorf("sbatch %s as %s: %w", options, user, err)
	}
	id, _, _ := strings.Cut(strings.TrimSpace(out), ";")
	r.submitted = append(r.submitted, id)
	return id, nil
}

// job is a line of squeue.
type job struct {
	id, state, reason, nodes, user string
}

var errNoJob = errors.New("slurmctld knows no such job")

// lookJob asks slurmctld for a job, ended ones included as long as it keeps them.
func (r *run) lookJob(id string) (job, error) {
	out, err := r.inController("squeue --noheader --states=all --format='%i|%T|%r|%N|%u' --jobs=" + id)
	if err != nil {
		if strings.Contains(err.Error(), "Invalid job id") {
			return job{}, errNoJob
		}
		return job{}, err
	}
	fields := strings.Split(strings.TrimSpace(out), "|")
	if len(fields) != 5 {
		return job{}, errNoJob
	}
	return job{id: fields[0], state: fields[1], reason: fields[2], nodes: fields[3], user: fields[4]}, nil
}

func (j job) String() string {
	return strings.TrimSpace(fmt.Sprintf("job %s of %s: %s (%s) %s", j.id, j.user, j.state, j.reason, j.nodes))
}

// ended tells whether the state is one that a job does not leave.
func ended(state string) bool {
	switch state {
	case "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED":
		return false
	}
	return true
}

// waitJob waits until the job is in the state; a job that ends in another one fails the test at once.
func (r *run) waitJob(id, state string, bound time.Duration) job {
	r.Helper()
	var found job
	r.eventually(bound, "job "+id+" is "+state, func() (bool, string) {
		j, err := r.lookJob(id)
		if err != nil {
			return false, err.Error()
		}
		found = j
		if j.state != state && ended(j.state) {
			r.Fatalf("%s; want %s; its output:\n%s", j, state, r.outputOrWhy(id))
		}
		return j.state == state, j.String()
	})
	return found
}

// output is what the job wrote.
func (r *run) output(id string) string {
	r.Helper()
	out, err := r.inLogin(fmt.Sprintf("cat %s/e2e-%s.out", outputDir, id))
	if err != nil {
		r.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func (r *run) outputOrWhy(id string) string {
	out, err := r.inLogin(fmt.Sprintf("cat %s/e2e-%s.out", outputDir, id))
	if err != nil {
		return err.Error()
	}
	return out
}

// runningJob submits a job that runs until mustComplete lets it end, and waits until it runs.
func (r *run) runningJob(user, options string) job {
	r.Helper()
	id := r.submit(user, options, `echo began
for second in $(seq 1800); do
  if [ -e `+outputDir+`/e2e-$SLURM_JOB_ID.end ]; then break; fi
  sleep 1
done
echo ended`)
	return r.waitJob(id, "RUNNING", workerStarts)
}

// mustComplete lets a job of runningJob end, and waits for that: COMPLETED, and run once from its first line to its last.
func (r *run) mustComplete(j job) {
	r.Helper()
	if out, err := r.inLogin("touch " + outputDir + "/e2e-" + j.id + ".end"); err != nil {
		r.Fatalf("%v: %s", err, out)
	}
	r.waitJob(j.id, "COMPLETED", 60*time.Second)
	if out := r.output(j.id); out != "began\nended" {
		r.Errorf("job %s did not run exactly once; its output:\n%s", j.id, out)
	}
}

// queueWritten waits until slurmctld has written down what is in its queue now. It does so a few seconds after a change; a
// job younger than that does not outlive a SIGKILL.
func (r *run) queueWritten() {
	r.Helper()
	newer := fmt.Sprintf("test $(stat --format=%%Y /var/spool/slurm/state/job_state) -gt %d", time.Now().Unix())
	r.eventually(60*time.Second, "slurmctld has written the queue down", func() (bool, string) {
		_, err := r.inController(newer)
		return err == nil, "not yet"
	})
}

// configValue reads one value of slurmctld's configuration in force.
func (r *run) configValue(key string) string {
	r.Helper()
	out, err := r.inController("scontrol show config")
	if err != nil {
		r.Fatal(err)
	}
	for _, line := range strings.Split(out, "\n") {
		name, value, ok := strings.Cut(line, "=")
		if ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	r.Fatalf("scontrol show config names no %s", key)
	return ""
}

// nodeNames lists the nodes of a partition that slurmctld knows.
func (r *run) nodeNames(partition string) []string {
	r.Helper()
	out, err := r.inController("sinfo --noheader --Node --format=%N --partition=" + partition)
	if err != nil {
		r.Fatal(err)
	}
	return strings.Fields(out)
}

// mustController is inController for commands that must succeed.
func (r *run) mustController(command string) string {
	r.Helper()
	out, err := r.inController(command)
	if err != nil {
		r.Fatalf("beside slurmctld: %s: %v", command, err)
	}
	return strings.TrimRight(out, "\n")
}
