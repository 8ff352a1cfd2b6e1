// Package custodian keeps what placement promised of held jobs when the placement controller does not: it has ended, hangs, or the
// site has ended it. Jobs that it should have placed go back to Slurm's own rules in time.
package custodian

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/advisor/placement/custody"
	"github.com/berth-hpc/berth/components/advisor/snapshot"
	"github.com/berth-hpc/berth/components/slurmrest"
)

const (
	// pace is how often the promise is looked at: one small file while it is renewed, a list of the waiting jobs while it is not.
	pace = 15 * time.Second
	// askTimeout bounds one of Slurm's programs.
	askTimeout = 30 * time.Second
	// atOnce bounds the jobs that are asked for whole at once, 8 KB each.
	atOnce = 500
)

// Programs runs Slurm's programs.
type Programs interface {
	Run(ctx context.Context, timeout time.Duration, name string, args ...string) (string, error)
}

// Keeper keeps a promise that is not renewed.
type Keeper struct {
	Slurm Programs
	// Promise is the path of the promise.
	Promise string
	Log     *slog.Logger
}

// Run looks until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	told := ""
	for {
		given, err := custody.Keep(k.Promise, time.Now(), jobs{ctx, k.Slurm})
		if ctx.Err() != nil {
			return
		}
		if given > 0 {
			k.Log.Warn("nobody places held jobs any more; those whose time is over go back to Slurm's own rules", "jobs", given)
		}
		switch {
		case err == nil:
			told = ""
		case err.Error() != told:
			told = err.Error()
			k.Log.Error("held jobs could not be given back", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace):
		}
	}
}

// jobs are slurmctld's, by its programs: slurmrestd may be what is away.
type jobs struct {
	ctx   context.Context
	slurm Programs
}

// Pending lists the waiting jobs that are held by their users or name nodes; others are none of placement's.
func (j jobs) Pending() ([]snapshot.Job, error) {
	out, err := j.slurm.Run(j.ctx, askTimeout, "squeue", "--all", "--noheader", "--states=PENDING", "--format=%i|%r|%n")
	if err != nil {
		return nil, err
	}
	var ids []string
	for line := range strings.Lines(out) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), "|")
		reason, nodes, _ := strings.Cut(rest, "|")
		if _, err := strconv.ParseInt(id, 10, 64); err == nil && (reason == "JobHeldUser" || nodes != "") { // tasks of arrays have no plain number
			ids = append(ids, id)
		}
	}
	var all []snapshot.Job
	for some := range slices.Chunk(ids, atOnce) {
		out, err := j.slurm.Run(j.ctx, askTimeout, "squeue", "--all", "--states=PENDING", "--json="+strings.TrimPrefix(slurmrest.DataParser, "data_parser/"), "--jobs="+strings.Join(some, ","))
		if err != nil {
			return nil, err
		}
		records, err := slurmrest.DecodeJobRecords(200, []byte(out))
		if err != nil {
			return nil, fmt.Errorf("read squeue's list of jobs: %w", err)
		}
		for i := range records {
			all = append(all, snapshot.JobOf(&records[i]))
		}
	}
	return all, nil
}

// Give releases the job before it says why: words without a release would keep it held for good.
func (j jobs) Give(job *snapshot.Job, how custody.Return) error {
	id := strconv.FormatInt(job.ID, 10)
	var failed []error
	run := func(args ...string) {
		if _, err := j.slurm.Run(j.ctx, askTimeout, "scontrol", args...); err != nil && !gone(err) {
			failed = append(failed, fmt.Errorf("give job %s back: %w", id, err))
		}
	}
	if how.AnyNode {
		run("update", "JobId="+id, "ReqNodeList=")
	}
	if how.Release {
		run("release", id)
	}
	if len(failed) == 0 {
		run("update", "JobId="+id, "AdminComment="+how.Comment)
	}
	return errors.Join(failed...)
}

// gone are Slurm's words for a job that waits no more.
func gone(err error) bool {
	for _, words := range []string{"Invalid job id specified", "Job is no longer pending execution", "Job/step already completing or completed"} {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}
