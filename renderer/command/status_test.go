package command

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/renderer/status"
)

// Watching prints a report when it differs from the one before, says once that the cluster does not answer, and goes on.
func TestWatchPrintsWhatChanged(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	s := &settings{output: "json", env: Environment{Out: &out, Err: &errs, Variable: func(string) string { return "" }}}
	looks := 0
	err := s.watchStatus(ctx, time.Millisecond, func() (*status.Report, error) {
		looks++
		switch looks {
		case 1, 2:
			return &status.Report{Site: "lab"}, nil
		case 3, 4:
			return nil, errors.New("connection refused")
		case 6:
			cancel()
		}
		return &status.Report{Site: "lab", Ready: true}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[1], `"ready":true`) {
		t.Errorf("printed %q", lines)
	}
	if strings.Count(errs.String(), "connection refused") != 1 {
		t.Errorf("said %q", errs.String())
	}
	if err := s.watchStatus(ctx, 0, nil); err == nil || !strings.Contains(err.Error(), "--interval") {
		t.Errorf("an interval of 0: %v", err)
	}
}

// What a person reads: the phase of a layer, the advisor's own mode, why jobs wait and what would help.
func TestStatusTable(t *testing.T) {
	var out bytes.Buffer
	s := &settings{output: "table", env: Environment{Out: &out, Variable: func(string) string { return "" }}}
	const commit = "main@sha1:0123456789abcdef0123456789abcdef01234567"
	r := &status.Report{
		Site: "lab", Desired: commit, Source: status.Part{Name: "url", State: status.Ready, Revision: commit},
		Layers:  []status.Part{{Name: "slurm", State: status.Working, Phase: status.First, Reason: "Running health checks", Objects: []status.Owned{{Object: "WorkerPool slurm-workers/cpu", Made: []string{"Pod slurm-workers/slurm-worker-cpu-0 (Running)"}}}}},
		Slurm:   &status.Config{State: "Applied"},
		Advisor: &status.Advisor{Wanted: "live", Effective: "shadow", Why: "it made itself shadow: p95"},
		Away:    []status.Away{{Nodes: "slurm-worker-cpu-0", State: "drained", Reason: "health: disk: broken", By: "root", Since: "2026-11-02T10:00:00", Help: "mend the node"}},
		Waiting: []status.Waiting{{Partition: "cpu", Reason: "JobHeldUser", Jobs: 1, First: []string{"7"}, Means: "their users hold them", Help: "scontrol release 7"}},
	}
	if err := s.statusTable(&out, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"desired main@01234567\n", "first attempt: Running health checks\n", "\n  WorkerPool slurm-workers/cpu\n    Pod slurm-workers/slurm-worker-cpu-0 (Running)\n",
		"\nadvisor: shadow (the site says live): it made itself shadow: p95\n",
		"\nslurm-worker-cpu-0 drained since 2026-11-02T10:00:00, by root: health: disk: broken\n  to bring back: mend the node\n",
		"\n1 job waits in cpu (7): JobHeldUser: their users hold them\n  would help: scontrol release 7\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("does not say %q:\n%s", want, out.String())
		}
	}
}
