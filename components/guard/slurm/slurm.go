// Package slurm runs Slurm's own programs for the guard: it asks the live slurmctld for its state and its jobs, makes it
// read a new configuration, and tries one on a scratch slurmctld. Every call is bounded in time.
package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmconf"
	"github.com/berth-hpc/berth/components/slurmrest/hostlist"
)

const (
	// askTimeout bounds a question to slurmctld or slurmdbd; Slurm's own MessageTimeout is 10 s and is tried twice.
	askTimeout = 30 * time.Second
	// reconfigureTimeout bounds a reconfigure: slurmctld reads its configuration and its whole state again.
	reconfigureTimeout = 2 * time.Minute
)

// Programs runs Slurm's programs. The zero value runs those of the PATH.
type Programs struct {
	// Prefix goes before each command, such as a chroot.
	Prefix []string
	// Conf is the slurm.conf that clients read.
	Conf string
}

// command makes a command that ends, with all its children, when ctx does.
func (p *Programs) command(ctx context.Context, conf, name string, args ...string) *exec.Cmd {
	words := append(append([]string{}, p.Prefix...), name)
	words = append(words, args...)
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	command.Env = append(os.Environ(), "SLURM_CONF="+conf, "LC_ALL=C", "TZ=UTC")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = 5 * time.Second
	return command
}

// Run runs a Slurm client and returns what it printed. The error has Slurm's own words.
func (p *Programs) Run(ctx context.Context, timeout time.Duration, name string, args ...string) (string, error) {
	out, _, err := p.run(ctx, timeout, name, args...)
	return out, err
}

// Quiet is Run where a word on the standard error is an error too: some of Slurm's programs end with status 0 after telling
// of what they could not do.
func (p *Programs) Quiet(ctx context.Context, timeout time.Duration, name string, args ...string) (string, error) {
	out, words, err := p.run(ctx, timeout, name, args...)
	if err == nil && words != "" {
		err = fmt.Errorf("%s %s: %s", name, strings.Join(args, " "), words)
	}
	return out, err
}

// run also returns what the program wrote to its standard error.
func (p *Programs) run(ctx context.Context, timeout time.Duration, name string, args ...string) (out, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	command := p.command(ctx, p.Conf, name, args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	if ctx.Err() != nil {
		return "", "", fmt.Errorf("%s did not end within %s", name, timeout)
	}
	if err != nil {
		words := strings.TrimSpace(stderr.String() + stdout.String())
		if words == "" {
			words = err.Error()
		}
		return stdout.String(), words, fmt.Errorf("%s %s: %s", name, strings.Join(args, " "), words)
	}
	return stdout.String(), strings.TrimSpace(stderr.String()), nil
}

// ErrDown is returned where no slurmctld answers.
var ErrDown = errors.New("slurmctld does not answer")

// Ping returns nil if slurmctld answers.
func (p *Programs) Ping(ctx context.Context) error {
	out, err := p.Run(ctx, askTimeout, "scontrol", "ping")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDown, err)
	}
	if !strings.Contains(out, " is UP") { // scontrol's status is 0 also when it is DOWN
		return ErrDown
	}
	return nil
}

// InForce reports whether slurmctld runs with the slurm.conf that clients read now.
func (p *Programs) InForce(ctx context.Context) (bool, error) {
	if err := p.Ping(ctx); err != nil {
		return false, err
	}
	out, err := p.Run(ctx, askTimeout, "scontrol", "show", "config")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(out) {
		if key, value, found := strings.Cut(line, "="); found && strings.TrimSpace(key) == "HASH_VAL" {
			return strings.HasPrefix(strings.TrimSpace(value), "Match"), nil
		}
	}
	return false, errors.New("scontrol show config says no HASH_VAL: is this Slurm 23.11 or later?")
}

// Reconfigure makes slurmctld read its configuration again. When it returns nil, slurmctld runs with it; on an error
// slurmctld goes on with what it had.
func (p *Programs) Reconfigure(ctx context.Context) error {
	_, err := p.Run(ctx, reconfigureTimeout, "scontrol", "reconfigure")
	return err
}

// Jobs lists all jobs that have not ended.
func (p *Programs) Jobs(ctx context.Context) ([]slurmconf.Job, error) {
	out, err := p.Run(ctx, askTimeout, "squeue", "--all", "--noheader", "--format=%i|%T|%P|%N|%n|%u|%j")
	if err != nil {
		return nil, err
	}
	return parseJobs(out)
}

// PoweringUp returns those of the nodes that are not up yet: they power up, or are still powered or powering down. Nodes that
// slurmctld does not know are not among them.
func (p *Programs) PoweringUp(ctx context.Context, nodes []string) (map[string]bool, error) {
	out, err := p.Run(ctx, askTimeout, "sinfo", "--all", "--noheader", "--Node", "--nodes="+strings.Join(nodes, ","), "--format=%N|%t")
	if err != nil {
		return nil, err
	}
	return parsePoweringUp(out)
}

// parsePoweringUp reads sinfo's compact states, in which a sign at the end says what power saving does: # powers up, ~ is
// powered down, % powers down (sinfo's manual, "Node state codes").
func parsePoweringUp(out string) (map[string]bool, error) {
	pending := map[string]bool{}
	for line := range strings.Lines(out) {
		node, state, found := strings.Cut(strings.TrimSpace(line), "|")
		if !found || state == "" {
			return nil, fmt.Errorf("sinfo printed %q, which is no node", line)
		}
		if strings.ContainsAny(state, "#~%") && !strings.HasPrefix(state, "down") {
			pending[node] = true
		}
	}
	return pending, nil
}

// nodeState is a node's state as sinfo shows it in short, and the reason that somebody gave it.
type nodeState struct{ name, state, reason string }

// nodeStates asks for nodes; those that slurmctld does not know are left out.
func (p *Programs) nodeStates(ctx context.Context, nodes []string) ([]nodeState, error) {
	out, err := p.Run(ctx, askTimeout, "sinfo", "--all", "--noheader", "--Node", "--nodes="+strings.Join(nodes, ","), "--format=%N|%t|%E")
	if err != nil {
		return nil, err
	}
	return parseNodeStates(out)
}

func parseNodeStates(out string) ([]nodeState, error) {
	var states []nodeState
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		fields := strings.SplitN(strings.TrimRight(line, "\n"), "|", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("sinfo printed %q, which is no node", line)
		}
		if !seen[fields[0]] { // a node has a line in each of its partitions
			seen[fields[0]] = true
			states = append(states, nodeState{fields[0], fields[1], strings.TrimSpace(fields[2])})
		}
	}
	return states, nil
}

// Drain keeps new jobs off the nodes. Those that somebody has drained or set down already keep their reason.
func (p *Programs) Drain(ctx context.Context, nodes []string, reason string) error {
	if len(nodes) == 0 {
		return nil
	}
	states, err := p.nodeStates(ctx, nodes)
	if err != nil {
		return err
	}
	var open []string
	for _, node := range states {
		if node.reason == "none" || node.reason == "" {
			open = append(open, node.name)
		}
	}
	return p.updateNodes(ctx, open, "DRAIN", reason)
}

// Undrain lifts the drains that have the reason. Of the nodes, those of renew that are up are asked to power down, with a
// reason that is the autoscaler's to clear: they come up again from the template that belongs to the configuration.
func (p *Programs) Undrain(ctx context.Context, nodes, renew []string, reason string) error {
	if len(nodes) == 0 {
		return nil
	}
	states, err := p.nodeStates(ctx, nodes)
	if err != nil {
		return err
	}
	var open, down []string
	for _, node := range states {
		switch {
		case node.reason != reason:
		case slices.Contains(renew, node.name) && !strings.ContainsAny(node.state, "~%#"):
			down = append(down, node.name)
		default:
			open = append(open, node.name)
		}
	}
	if err := p.updateNodes(ctx, open, "UNDRAIN", ""); err != nil {
		return err
	}
	return p.updateNodes(ctx, down, "POWER_DOWN_ASAP", "berth: the node's configuration has changed")
}

func (p *Programs) updateNodes(ctx context.Context, nodes []string, state, reason string) error {
	if len(nodes) == 0 {
		return nil
	}
	args := []string{"update", "NodeName=" + strings.Join(nodes, ","), "State=" + state}
	if reason != "" {
		args = append(args, "Reason="+reason)
	}
	_, err := p.Run(ctx, askTimeout, "scontrol", args...)
	return err
}

// SetPartition sets a partition's state.
func (p *Programs) SetPartition(ctx context.Context, name, state string) error {
	_, err := p.Run(ctx, askTimeout, "scontrol", "update", "PartitionName="+name, "State="+state)
	return err
}

func parseJobs(out string) ([]slurmconf.Job, error) {
	var jobs []slurmconf.Job
	for line := range strings.Lines(out) {
		fields := strings.SplitN(strings.TrimRight(line, "\n"), "|", 7)
		if len(fields) != 7 {
			return nil, fmt.Errorf("squeue printed %q, which is no job", line)
		}
		pending := fields[1] == "PENDING" || strings.HasPrefix(fields[1], "REQUEUE") || fields[1] == "SPECIAL_EXIT"
		job := slurmconf.Job{ID: fields[0], Running: !pending, Partitions: strings.Split(fields[2], ","), User: fields[5], Name: fields[6]}
		list := fields[3]
		if pending {
			list = fields[4]
		}
		if list != "(null)" {
			nodes, err := hostlist.Expand(list)
			if err != nil {
				return nil, fmt.Errorf("job %s: %w", job.ID, err)
			}
			job.Nodes = nodes
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}
