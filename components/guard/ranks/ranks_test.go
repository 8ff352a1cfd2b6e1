package ranks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-hpc/berth/components/advisor/rerank/lease"
)

// programs is scontrol as the test plays it: it notes the commands, and says of some jobs that they are gone or cannot be changed now.
type programs struct {
	ran   []string
	fails map[string]error
}

func (p *programs) Run(_ context.Context, _ time.Duration, name string, args ...string) (string, error) {
	p.ran = append(p.ran, name+" "+strings.Join(args, " "))
	return "", p.fails[args[1]]
}

// A lease that runs out is ended: the job that waits gets its site factor back, the one that has started is forgotten, and the one
// that slurmctld had no answer for is tried again.
func TestLeaseEnds(t *testing.T) {
	ledger := filepath.Join(t.TempDir(), lease.File)
	synctest.Test(t, func(t *testing.T) {
		l := lease.Ledger{Until: time.Now().Add(20 * time.Second), Jobs: map[int64]lease.Rank{
			1: {Factor: 5, Comment: "ticket 12"}, 2: {Factor: 6}, 3: {Factor: 7},
		}}
		if err := l.Write(ledger); err != nil {
			t.Fatal(err)
		}
		slurm := &programs{fails: map[string]error{
			"JobId=2": errors.New("slurm_update error: Job is no longer pending execution"),
			"JobId=3": errors.New("slurm_update error: Unable to contact slurm controller (connect failure)"),
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			(&Keeper{Slurm: slurm, Ledger: ledger, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}).Run(ctx)
			close(done)
		}()
		time.Sleep(19 * time.Second)
		synctest.Wait()
		if len(slurm.ran) > 0 {
			t.Fatalf("before the lease ran out it ran %q", slurm.ran)
		}
		time.Sleep(2 * pace)
		synctest.Wait()
		delete(slurm.fails, "JobId=3")
		time.Sleep(2 * pace)
		cancel()
		<-done

		const change = "scontrol update JobId=%d SiteFactor=0 AdminComment=%s"
		want := []string{fmt.Sprintf(change, 1, "ticket 12; "+lease.Ended), fmt.Sprintf(change, 2, lease.Ended)}
		if len(slurm.ran) < 4 || slurm.ran[0] != want[0] || slurm.ran[1] != want[1] {
			t.Fatalf("it ran %q, want first %q", slurm.ran, want)
		}
		for _, ran := range slurm.ran[2:] {
			if ran != fmt.Sprintf(change, 3, lease.Ended) {
				t.Errorf("it ran %q, want only job 3 again", ran)
			}
		}
		if left, err := lease.Read(ledger); err != nil || len(left.Jobs) > 0 {
			t.Errorf("left in the ledger: %+v %v", left, err)
		}
	})
}
