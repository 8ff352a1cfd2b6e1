package lost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// What Slurm itself writes: the reason of the drain of a node that was given a job which it runs already, and that of the job.
const (
	duplicate = "Duplicate jobid"
	held      = "launch failed requeued held"
)

// Reconfigurer is slurmctld under a guard.
type Reconfigurer interface {
	Programs
	Reconfigure(ctx context.Context) error
}

// Strays ends jobs that a worker runs while slurmctld has them waiting, the other way round from Finder's.
//
// A slurmctld that is killed has not written down what it started in its last seconds. The next one starts the same jobs, on the same
// nodes; each node says that it runs the job already, and Slurm drains it and holds the job, both until a person comes. A worker
// that registers is told to end what slurmctld has waiting, but a healthy one registers twice an hour. A reconfigure makes all of them
// register at once; then the nodes and the jobs are free to begin again.
type Strays struct {
	Slurm Reconfigurer
	Log   *slog.Logger

	asked   time.Time       // when the workers were last made to register; zero: not for what is seen now
	jobs    map[string]bool // held meanwhile; Slurm forgets the reason at its next start
	failing bool
}

// Run looks until ctx ends.
func (s *Strays) Run(ctx context.Context) {
	for {
		err := s.Round(ctx, time.Now())
		if ctx.Err() != nil {
			return
		}
		if failing := err != nil; failing != s.failing {
			s.failing = failing
			if failing {
				s.Log.Warn("cannot look for nodes that run what slurmctld has waiting", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(glance):
		}
	}
}

const (
	// glance is how often the drained nodes are looked at: Slurm gives the jobs' reason until it starts again.
	glance = 5 * time.Second
	// patience is how long the workers may take to register before they are asked again.
	patience = 2 * time.Minute
)

// Round looks once.
func (s *Strays) Round(ctx context.Context, now time.Time) error {
	nodes, off, err := s.drained(ctx)
	if err != nil {
		return err
	}
	// Where no worker is, nothing runs.
	if err := s.resume(ctx, off); err != nil {
		return err
	}
	if len(nodes) == 0 {
		s.asked, s.jobs = time.Time{}, nil
		return nil
	}
	if err := s.remember(ctx); err != nil {
		return err
	}
	if s.asked.IsZero() || now.After(s.asked.Add(patience)) {
		s.Log.Warn("nodes run jobs that a slurmctld before this one started and did not write down; their workers are made to register, which ends these jobs' first starts",
			"nodes", strings.Join(nodes, ","))
		if err := s.Slurm.Reconfigure(ctx); err != nil {
			return err
		}
		s.asked = now
		return nil
	}
	// The worker's start is when it read its configuration anew. What it was then told to end has a pace to end in.
	for _, node := range nodes {
		started, err := s.started(ctx, node)
		if err != nil {
			return err
		}
		if started.Before(s.asked.Truncate(time.Second)) || now.Before(s.asked.Add(pace)) {
			return nil
		}
	}
	if err := s.resume(ctx, nodes); err != nil {
		return err
	}
	jobs := slices.Sorted(maps.Keys(s.jobs))
	s.asked, s.jobs = time.Time{}, nil
	s.Log.Warn("nodes and jobs are free again", "nodes", strings.Join(nodes, ","), "jobs", strings.Join(jobs, ","))
	var failed error // one that its user cancelled meanwhile is no reason to leave the others
	for _, job := range jobs {
		if _, err := s.Slurm.Run(ctx, askTimeout, "scontrol", "release", job); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		_, err := s.Slurm.Run(ctx, askTimeout, "scontrol", "update", "JobId="+job, "StartTime=now")
		failed = errors.Join(failed, err)
	}
	return failed
}

func (s *Strays) resume(ctx context.Context, nodes []string) error {
	for _, node := range nodes {
		if _, err := s.Slurm.Run(ctx, askTimeout, "scontrol", "update", "NodeName="+node, "State=RESUME"); err != nil {
			return err
		}
	}
	return nil
}

// drained lists the nodes that Slurm has drained for a second start, and those of them that are powered down. One that does not answer is
// in neither list: what runs there nobody knows.
func (s *Strays) drained(ctx context.Context) (up, off []string, err error) {
	out, err := s.Slurm.Run(ctx, askTimeout, "sinfo", "--all", "--noheader", "--Node", "--states=DRAIN", "--format=%N|%T|%E")
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(out) {
		fields := strings.SplitN(strings.TrimSpace(line), "|", 3)
		if len(fields) < 3 {
			return nil, nil, fmt.Errorf("sinfo printed %q, which is no node", line)
		}
		node, state := fields[0], fields[1]
		// Once for each partition of the node.
		if fields[2] != duplicate || slices.Contains(up, node) || slices.Contains(off, node) {
			continue
		}
		switch {
		case strings.HasSuffix(state, "~"):
			off = append(off, node)
		case !strings.HasSuffix(state, "*") && !strings.HasPrefix(state, "down"):
			up = append(up, node)
		}
	}
	return up, off, nil
}

// started is when the node's slurmd began.
func (s *Strays) started(ctx context.Context, node string) (time.Time, error) {
	out, err := s.Slurm.Run(ctx, askTimeout, "scontrol", "--oneliner", "show", "node", node)
	if err != nil {
		return time.Time{}, err
	}
	for _, field := range strings.Fields(out) {
		if text, ok := strings.CutPrefix(field, "SlurmdStartTime="); ok && text != "None" {
			started, err := time.Parse(slurmTime, text)
			if err != nil {
				return time.Time{}, fmt.Errorf("scontrol show node %s: %w", node, err)
			}
			return started, nil
		}
	}
	return time.Time{}, nil // down
}

// remember notes the jobs that Slurm holds because they could not be launched.
func (s *Strays) remember(ctx context.Context) error {
	out, err := s.Slurm.Run(ctx, askTimeout, "squeue", "--all", "--array", "--noheader", "--states=PENDING", "--format=%i|%r")
	if err != nil {
		return err
	}
	if s.jobs == nil {
		s.jobs = map[string]bool{}
	}
	for line := range strings.Lines(out) {
		if job, reason, _ := strings.Cut(strings.TrimSpace(line), "|"); reason == held {
			s.jobs[job] = true
		}
	}
	return nil
}
