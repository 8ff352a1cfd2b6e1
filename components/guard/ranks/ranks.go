// Package ranks takes back the ranks of waiting jobs when the advisor does not renew their lease: it has ended, hangs, abstains, or
// was demoted. The queue is then in Slurm's own order again.
package ranks

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/advisor/rerank/lease"
)

const (
	// pace is how often the lease is looked at: one small file.
	pace = 5 * time.Second
	// askTimeout bounds a change of a job.
	askTimeout = 30 * time.Second
)

// Programs runs Slurm's programs.
type Programs interface {
	Run(ctx context.Context, timeout time.Duration, name string, args ...string) (string, error)
}

// Keeper ends leases that have run out.
type Keeper struct {
	Slurm Programs
	// Ledger is the path of the ranks in force.
	Ledger string
	Log    *slog.Logger
}

// Run looks until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	told := ""
	for {
		ended, err := lease.End(k.Ledger, time.Now(), func(job int64, factor int, comment string) error { return k.set(ctx, job, factor, comment) })
		if ctx.Err() != nil {
			return
		}
		if ended > 0 {
			k.Log.Warn("the advisor does not renew its ranks; they are taken back", "jobs", ended)
		}
		switch {
		case err == nil:
			told = ""
		case err.Error() != told:
			told = err.Error()
			k.Log.Error("ranks could not be taken back", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace):
		}
	}
}

// set writes a job's site factor. Slurm's words for a job that waits no more are no error.
func (k *Keeper) set(ctx context.Context, job int64, factor int, comment string) error {
	id := strconv.FormatInt(job, 10)
	_, err := k.Slurm.Run(ctx, askTimeout, "scontrol", "update", "JobId="+id, "SiteFactor="+strconv.Itoa(factor), "AdminComment="+comment)
	if err == nil {
		return nil
	}
	for _, words := range []string{"Invalid job id specified", "Job is no longer pending execution", "Job/step already completing or completed"} {
		if strings.Contains(err.Error(), words) {
			return nil
		}
	}
	return fmt.Errorf("take the rank of job %s back: %w", id, err)
}
