// Package slurm is what the MPS supervisor asks of Slurm, by its commands as root on the worker.
package slurm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Commands runs Slurm's own programs.
type Commands struct {
	// Node is this worker's name in Slurm.
	Node string
	// Conf is the configuration that slurmd has from slurmctld, for KillWait.
	Conf string
	// Timeout bounds each command.
	Timeout time.Duration
}

func (c Commands) run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// States tells the state of those of the jobs that have not ended: RUNNING, COMPLETING and so on. The question is the cheap one
// of Slurm (--only-job-state): it takes no lock on slurmctld's jobs and answers with the named ones only.
func (c Commands) States(ctx context.Context, jobs []string) (map[string]string, error) {
	out, err := c.run(ctx, "squeue", "--only-job-state", "--noheader", "--format=%A %T", "--jobs="+strings.Join(jobs, ","))
	if err != nil {
		// Where it knows none of them.
		if strings.Contains(err.Error(), "Invalid job id") {
			return map[string]string{}, nil
		}
		return nil, err
	}
	states := map[string]string{}
	for _, line := range strings.Split(out, "\n") {
		if job, state, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			states[job] = state
		}
	}
	return states, nil
}

// Drain lets the node take no further jobs. A drain that stands keeps its reason.
func (c Commands) Drain(ctx context.Context, reason string) error {
	now, err := c.state(ctx)
	if err != nil || strings.Contains(now, "DRAIN") {
		return err
	}
	_, err = c.run(ctx, "scontrol", "update", "nodename="+c.Node, "state=drain", "reason="+reason)
	return err
}

// Undrain ends a drain whose reason begins with prefix; anybody else's stays.
func (c Commands) Undrain(ctx context.Context, prefix string) error {
	now, err := c.state(ctx)
	if err != nil || !strings.Contains(now, "DRAIN") || !strings.Contains(now, " Reason="+prefix) {
		return err
	}
	_, err = c.run(ctx, "scontrol", "update", "nodename="+c.Node, "state=resume")
	return err
}

var stateAndReason = regexp.MustCompile(` State=\S*| Reason=.*`)

func (c Commands) state(ctx context.Context) (string, error) {
	out, err := c.run(ctx, "scontrol", "--oneliner", "show", "node", c.Node)
	return strings.Join(stateAndReason.FindAllString(out, -1), ""), err
}

// Comment adds a sentence to the job's comment, behind what its user wrote; once.
func (c Commands) Comment(ctx context.Context, job, text string) error {
	old, err := c.run(ctx, "squeue", "--noheader", "--states=all", "--format=%k", "--jobs="+job)
	if err != nil {
		return err
	}
	if strings.Contains(old, text) {
		return nil
	}
	if old = strings.TrimSpace(old); old != "" && old != "(null)" {
		text = old + "; " + text
	}
	_, err = c.run(ctx, "scontrol", "update", "jobid="+job, "comment="+text)
	return err
}

var killWait = regexp.MustCompile(`(?im)^\s*KillWait\s*=\s*([0-9]+)`)

// KillWait is the time between SIGTERM and SIGKILL; Slurm's default of 30 s where the configuration says nothing.
func (c Commands) KillWait() time.Duration {
	text, err := os.ReadFile(c.Conf)
	if err == nil {
		if m := killWait.FindSubmatch(text); m != nil {
			if seconds, err := strconv.Atoi(string(m[1])); err == nil {
				return time.Duration(seconds) * time.Second
			}
		}
	}
	return 30 * time.Second
}

var stepDaemon = regexp.MustCompile(`^slurmstepd: \[([0-9]+)\.`)

// JobOf tells whose process it is: that of the slurmstepd among its ancestors. Root without further capabilities may not read another
// user's environment, but everybody's parents and slurmstepd's title.
func JobOf(proc string, pid int) (job string, ok bool) {
	for range 64 { // deeper is no process of a job
		title, err := os.ReadFile(fmt.Sprintf("%s/%d/cmdline", proc, pid))
		if err != nil {
			return "", false
		}
		if m := stepDaemon.FindSubmatch(title); m != nil {
			return string(m[1]), true
		}
		stat, err := os.ReadFile(fmt.Sprintf("%s/%d/stat", proc, pid))
		if err != nil {
			return "", false
		}
		// The name, field 2, is in parentheses and may hold anything; behind it the state and the parent.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 {
			return "", false
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil || pid <= 1 {
			return "", false
		}
	}
	return "", false
}
