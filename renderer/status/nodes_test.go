package status

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

func askNodes(t *testing.T, sinfo func(argv []string) (string, error)) *Report {
	t.Helper()
	r := readWith(t, source(), config(v1alpha1.ConfigApplied, ""))
	r.AskSlurm(t.Context(), labSite(), func(_ context.Context, _ string, argv ...string) (string, error) {
		if argv[0] != "sinfo" {
			return "", nil
		}
		return sinfo(argv)
	})
	return r
}

// Nodes that take no jobs, why, and how they come back: by themselves, or by whose hand.
func TestNodesAway(t *testing.T) {
	for line, want := range map[string]Away{
		"slurm-worker-cpu-0|drained|slurm|2026-11-02T10:00:00|health: disk: disk sda is broken": {State: "drained", Reason: "health: disk: disk sda is broken", Help: "mend the node; the drain ends by itself"},
		"slurm-worker-cpu-[1-2]|draining@|root|2026-11-02T10:00:00|fan | loud":                  {State: "draining", Reason: "fan | loud", Help: "when it is well: scontrol update nodename=slurm-worker-cpu-[1-2] state=resume"},
		"c|down*|slurm|2026-11-02T10:00:00|Not responding":                                      {State: "down", Reason: "Not responding", Help: "nothing: the autoscaler"},
		"c|drained~|slurm|2026-11-02T10:00:00|berth: host ada is cordoned":                      {State: "drained", Reason: "berth: host ada is cordoned", Help: "berth undrain HOST"},
		"c|drained|slurm|2026-11-02T10:00:00|guard: waits for this node's jobs to change":       {State: "drained", Reason: "guard: waits for this node's jobs to change", Help: "nothing: the guard ends it"},
	} {
		r := askNodes(t, func([]string) (string, error) { return line + "\n", nil })
		if len(r.Away) != 1 || r.Unasked != "" {
			t.Errorf("%s: %+v, %s", line, r.Away, r.Unasked)
			continue
		}
		got := r.Away[0]
		if got.State != want.State || got.Reason != want.Reason || !strings.HasPrefix(got.Help, want.Help) || got.Since != "2026-11-02T10:00:00" {
			t.Errorf("%s: %+v, want %+v", line, got, want)
		}
	}
	if r := askNodes(t, func([]string) (string, error) { return "sinfo: something else\n", nil }); !strings.Contains(r.Unasked, "which is no node with a reason") {
		t.Errorf("unasked: %q", r.Unasked)
	}
}

// A real sinfo lists each node once, with the reason whole, however many partitions it is in.
func TestRealNodesAway(t *testing.T) {
	s := slurmtest.Start(t, "w-0", "w-1", "w-2").Configure(`NodeName=w-[0-2] NodeHostname=ctl Port=[7000-7002] CPUs=2 RealMemory=1000
PartitionName=cpu Nodes=ALL Default=YES State=UP
PartitionName=other Nodes=ALL State=UP
`, nil)
	s.Slurmctld()
	const long = "health: filesystem: /shared answers with an error that is longer than the twenty columns of a table | and has a bar"
	for nodes, reason := range map[string]string{"w-[0-1]": long, "w-2": "by hand"} {
		s.Client("scontrol", "update", "nodename="+nodes, "state=drain", "reason="+reason)
	}
	r := askNodes(t, func(argv []string) (string, error) {
		return s.Programs().Run(t.Context(), time.Minute, argv[0], argv[1:]...)
	})
	found := map[string]Away{}
	for _, away := range r.Away {
		found[away.Nodes] = away
	}
	if r.Unasked != "" || len(r.Away) != 2 || found["w-[0-1]"].Reason != long || found["w-2"].Reason != "by hand" {
		t.Errorf("%+v, %s", r.Away, r.Unasked)
	}
	if got := found["w-2"]; !strings.HasPrefix(got.State, "dra") || got.By != "root" || !strings.HasPrefix(got.Since, "20") {
		t.Errorf("%+v", got)
	}
}
