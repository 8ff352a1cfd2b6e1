package lost

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// played answers Slurm's questions and writes down what is done.
type played struct {
	answers map[string]string // by the program's name, or "scontrol show"
	fails   string            // an order that Slurm refuses
	done    []string
}

func (p *played) Run(_ context.Context, _ time.Duration, name string, args ...string) (string, error) {
	if name == "scontrol" && args[0] == "--oneliner" {
		return p.answers["node"], nil
	}
	if name != "scontrol" {
		return p.answers[name], nil
	}
	order := strings.Join(args, " ")
	p.done = append(p.done, order)
	if order == p.fails {
		return "", errors.New("Job/step already completing or completed")
	}
	return "", nil
}

func (p *played) Quiet(ctx context.Context, timeout time.Duration, name string, args ...string) (string, error) {
	return p.Run(ctx, timeout, name, args...)
}

func (p *played) Reconfigure(context.Context) error {
	p.done = append(p.done, "reconfigure")
	return nil
}

func TestStrays(t *testing.T) {
	now := time.Date(2026, 12, 3, 7, 0, 0, 500, time.UTC)
	p := &played{answers: map[string]string{}, fails: "release 8"}
	s := &Strays{Slurm: p, Log: slog.New(slog.DiscardHandler)}
	round := func(after time.Duration, fails bool, want ...string) {
		t.Helper()
		p.done = nil
		now = now.Add(after)
		if err := s.Round(t.Context(), now); (err != nil) != fails {
			t.Errorf("error %v", err)
		}
		if !slices.Equal(p.done, want) {
			t.Errorf("did %q, want %q", p.done, want)
		}
	}
	// A person's drain, a worker that does not answer, and one that is off.
	p.answers["sinfo"] = "w-0|drained|fan 2 is broken\nw-1|drained*|Duplicate jobid\nw-2|drained~|Duplicate jobid\n"
	round(0, false, "update NodeName=w-2 State=RESUME")

	p.answers["sinfo"] = "w-0|drained|fan 2 is broken\nw-3|draining|Duplicate jobid\nw-3|draining|Duplicate jobid\n"
	p.answers["squeue"] = "7|launch failed requeued held\n8|launch failed requeued held\n9|JobHeldUser\n10_2|Priority\n"
	p.answers["node"] = "NodeName=w-3 SlurmdStartTime=2026-12-03T06:00:00 Reason=Duplicate jobid"
	round(time.Second, false, "reconfigure")
	round(5*time.Second, false)
	// Registered anew, and what it was told to end has had its time. The reason of a job may be forgotten by then.
	p.answers["node"] = "NodeName=w-3 SlurmdStartTime=2026-12-03T07:00:02 Reason=Duplicate jobid"
	p.answers["squeue"] = "7|JobHeldAdmin\n8|launch failed requeued held\n"
	round(time.Second, false)
	round(5*time.Second, true, "update NodeName=w-3 State=RESUME", "release 7", "update JobId=7 StartTime=now", "release 8")
	p.answers["sinfo"] = "w-0|drained|fan 2 is broken\n"
	round(5*time.Second, false)

	// Another time, with a worker that does not register: it is asked again, and not without a pause.
	p.answers["sinfo"], p.answers["node"] = "w-4|drained|Duplicate jobid\n", "NodeName=w-4 SlurmdStartTime=None"
	round(time.Minute, false, "reconfigure")
	round(time.Minute, false)
	round(61*time.Second, false, "reconfigure")
}
