// Package lost brings slurmctld and the workers to one mind after a slurmctld that was killed. Finder finds batch jobs that slurmctld
// believes to run and that no worker knows, and queues them again; Strays ends those that a worker runs and slurmctld has waiting.
//
// slurmctld notes a batch job as started before the worker has been told. A reconfigure or a restart in that moment drops the
// message: the job is RUNNING and nothing runs. The same is left when a job ends and slurmctld is killed before it has
// written that down. Slurm notices when the worker registers again, which a healthy one does about every twenty pings
// (SlurmdTimeout/3 apart; half an hour with Slurm's default); until then the job holds its CPUs and may run into its
// time limit without having begun. The rule here is Slurm's own (BatchStartTimeout and MessageTimeout after the start,
// "Batch job missing from batch node"), applied at once.
package lost

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// pace is how often slurmctld is asked since when it runs, and how far apart the two looks are that a job must miss.
	pace = 10 * time.Second
	// margin is added to Slurm's own two waits, so that a slow worker is not taken for an ignorant one.
	margin = 5 * time.Second
	// askTimeout bounds a question; sstat waits MessageTimeout for a worker, and not for one after the other.
	askTimeout = time.Minute
	// atOnce is how many jobs one sstat asks about.
	atOnce = 100
)

// Programs runs Slurm's programs.
type Programs interface {
	Run(ctx context.Context, timeout time.Duration, name string, args ...string) (string, error)
	// Quiet is Run where a word on the standard error is an error too.
	Quiet(ctx context.Context, timeout time.Duration, name string, args ...string) (string, error)
}

// Finder looks once after each start and each reconfigure of slurmctld.
type Finder struct {
	Slurm Programs
	Log   *slog.Logger

	start   time.Time       // of the slurmctld that was looked at last; a reconfigure is a start
	open    bool            // the look after that start is not over
	missing map[string]bool // jobs that no worker knew at the last look
	told    map[string]bool // jobs that stay to Slurm, and whose line in the log is written
	queued  []string        // jobs to start as soon as they can
	failing bool
}

// Run looks until ctx ends.
func (f *Finder) Run(ctx context.Context) {
	for {
		err := f.Round(ctx, time.Now())
		if ctx.Err() != nil {
			return
		}
		if failing := err != nil; failing != f.failing {
			f.failing = failing
			if failing {
				f.Log.Warn("cannot look for jobs that no worker knows", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace):
		}
	}
}

// Round looks if a look is due.
func (f *Finder) Round(ctx context.Context, now time.Time) error {
	if err := f.startQueued(ctx); err != nil {
		return err
	}
	daemon, err := f.daemon(ctx)
	if err != nil {
		return err
	}
	if !daemon.start.Equal(f.start) {
		f.start, f.open, f.missing, f.told = daemon.start, true, nil, map[string]bool{}
	}
	if !f.open || now.Before(f.start.Add(daemon.patience+margin)) {
		return nil
	}
	jobs, err := f.before(ctx)
	if err != nil {
		return err
	}
	missing, unsure, err := f.unknown(ctx, jobs)
	if err != nil {
		return err
	}
	seenTwice := f.missing
	f.missing = map[string]bool{}
	again := unsure
	for _, job := range missing {
		if !seenTwice[job.id] {
			f.missing[job.id] = true
			again = true
			continue
		}
		if err := f.requeue(ctx, job); err != nil {
			return err
		}
	}
	f.open = again
	return nil
}

// job is a batch job that slurmctld says is running.
type job struct {
	id, host  string
	requeue   bool
	startedAt string
}

func (f *Finder) requeue(ctx context.Context, job job) error {
	if !job.requeue {
		if !f.told[job.id] {
			f.told[job.id] = true
			f.Log.Warn("a job is RUNNING and its worker does not know it; it was submitted with --no-requeue, so it stays until the worker registers again",
				"job", job.id, "node", job.host)
		}
		return nil
	}
	f.Log.Warn("a job is RUNNING and its worker does not know it: queued again", "job", job.id, "node", job.host, "started", job.startedAt, "slurmctld", f.start.Format(time.RFC3339))
	if _, err := f.Slurm.Run(ctx, askTimeout, "scontrol", "requeue", job.id); err != nil {
		return err
	}
	f.queued = append(f.queued, job.id)
	return nil
}

// startQueued takes off the two minutes for which Slurm keeps a requeued job from starting, once its node is free of it.
func (f *Finder) startQueued(ctx context.Context) error {
	if len(f.queued) == 0 {
		return nil
	}
	out, err := f.Slurm.Run(ctx, askTimeout, "squeue", "--all", "--noheader", "--states=all", "--jobs="+strings.Join(f.queued, ","), "--Format=JobID:|,State:|")
	if err != nil {
		f.queued = nil // a job that slurmctld has forgotten: the rest start after their two minutes
		return err
	}
	var left []string
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimRight(line, "\n"), "|")
		if len(fields) < 2 {
			return fmt.Errorf("squeue printed %q, which is no job", line)
		}
		switch {
		case fields[1] == "PENDING":
			if _, err := f.Slurm.Run(ctx, askTimeout, "scontrol", "update", "JobId="+fields[0], "StartTime=now"); err != nil {
				f.queued = nil
				return err
			}
		case fields[1] == "COMPLETING" || fields[1] == "RUNNING" || strings.HasPrefix(fields[1], "REQUEUE"):
			left = append(left, fields[0])
		}
	}
	f.queued = left
	return nil
}

// daemon is what slurmctld says of itself.
type daemon struct {
	start    time.Time
	patience time.Duration // for which a worker may take to begin a batch job
}

func (f *Finder) daemon(ctx context.Context) (daemon, error) {
	out, err := f.Slurm.Run(ctx, askTimeout, "scontrol", "show", "config")
	if err != nil {
		return daemon{}, err
	}
	var d daemon
	for line := range strings.Lines(out) {
		key, value, found := strings.Cut(line, "=")
		if !found {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "BOOT_TIME":
			if d.start, err = time.Parse(slurmTime, value); err != nil {
				return daemon{}, fmt.Errorf("scontrol show config: BOOT_TIME: %w", err)
			}
		case "BatchStartTimeout", "MessageTimeout":
			seconds, err := strconv.Atoi(strings.TrimSuffix(value, " sec"))
			if err != nil {
				return daemon{}, fmt.Errorf("scontrol show config: %s = %q is no time in seconds", strings.TrimSpace(key), value)
			}
			d.patience += time.Duration(seconds) * time.Second
		}
	}
	if d.start.IsZero() || d.patience == 0 {
		return daemon{}, fmt.Errorf("scontrol show config says no BOOT_TIME, BatchStartTimeout or MessageTimeout")
	}
	return d, nil
}

// slurmTime is how Slurm's programs write a time, in UTC as package slurm runs them.
const slurmTime = "2006-01-02T15:04:05"

// before lists the batch jobs that run since before slurmctld started. Of a heterogeneous job the first component has the
// batch script.
func (f *Finder) before(ctx context.Context) ([]job, error) {
	out, err := f.Slurm.Run(ctx, askTimeout, "squeue", "--all", "--noheader", "--states=RUNNING",
		"--Format=JobID:|,State:|,BatchFlag:|,HetJobOffset:|,BatchHost:|,Requeue:|,StartTime:|")
	if err != nil {
		return nil, err
	}
	var jobs []job
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimRight(line, "\n"), "|")
		if len(fields) < 7 {
			return nil, fmt.Errorf("squeue printed %q, which is no job", line)
		}
		offset := fields[3]
		if fields[1] != "RUNNING" || fields[2] != "1" || offset != "0" && offset != "N/A" && offset != "" {
			continue
		}
		started, err := time.Parse(slurmTime, fields[6])
		if err != nil {
			return nil, fmt.Errorf("squeue: start of job %s: %w", fields[0], err)
		}
		if !started.After(f.start) {
			jobs = append(jobs, job{id: fields[0], host: fields[4], requeue: fields[5] == "1", startedAt: fields[6]})
		}
	}
	return jobs, nil
}

// unknown returns the jobs of whose batch step the worker says that it has none. A worker that says nothing makes the answer
// about its jobs unsure.
func (f *Finder) unknown(ctx context.Context, jobs []job) (missing []job, unsure bool, err error) {
	for chunk := range slices.Chunk(jobs, atOnce) {
		if known, err := f.known(ctx, chunk); err == nil {
			missing = append(missing, without(chunk, known)...)
			continue
		}
		// Somebody did not answer: one worker after the other, so that the others' jobs do not wait.
		byHost := map[string][]job{}
		for _, job := range chunk {
			byHost[job.host] = append(byHost[job.host], job)
		}
		for _, host := range slices.Sorted(maps.Keys(byHost)) {
			known, err := f.known(ctx, byHost[host])
			if ctx.Err() != nil {
				return nil, false, ctx.Err()
			}
			if err != nil {
				unsure = true
				continue
			}
			missing = append(missing, without(byHost[host], known)...)
		}
	}
	return missing, unsure, nil
}

func without(jobs []job, known map[string]bool) []job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j job) bool { return known[j.id] })
}

// known asks the workers for the jobs' batch steps.
func (f *Finder) known(ctx context.Context, jobs []job) (map[string]bool, error) {
	steps := make([]string, len(jobs))
	for i, job := range jobs {
		steps[i] = job.id + ".batch"
	}
	out, err := f.Slurm.Quiet(ctx, askTimeout, "sstat", "--noheader", "--parsable2", "--format=JobID", "--jobs="+strings.Join(steps, ","))
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for line := range strings.Lines(out) {
		id, _, _ := strings.Cut(strings.TrimSpace(line), ".")
		known[id] = true
	}
	return known, nil
}
