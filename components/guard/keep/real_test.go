package keep_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard/keep"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// On a real slurmctld: the list is set and taken off at run time, is back after a reconfigure, and a node that is powered
// down can be drained with a reason and given back, as the autoscaler does with those of a cordoned host.
func TestRealSlurmctldKeepsNodes(t *testing.T) {
	s := slurmtest.Start(t, "slurm-worker-cpu-0", "slurm-worker-cpu-1").Configure(`SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=600
SuspendTimeout=2
SuspendExcNodes=slurm-worker-cpu-[0-1]:1
NodeName=slurm-worker-cpu-[0-1] CPUs=2 RealMemory=1000 State=CLOUD
PartitionName=cpu Nodes=slurm-worker-cpu-[0-1] Default=YES State=UP
`, nil)
	s.Slurmctld()
	run := func(args ...string) string {
		t.Helper()
		return s.Client("scontrol", args...)
	}
	list := func() string {
		t.Helper()
		for line := range strings.Lines(run("show", "config")) {
			if key, value, _ := strings.Cut(line, "="); strings.TrimSpace(key) == "SuspendExcNodes" {
				return strings.TrimSpace(value)
			}
		}
		return "no such line"
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	round := func(nodes int32) {
		t.Helper()
		keeper := &keep.Keeper{
			Slurm: s.Programs(), Namespace: "slurm-workers", Log: slog.New(slog.DiscardHandler),
			Kubernetes: fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool("cpu", 2, &v1alpha1.Floor{Nodes: nodes})).Build(),
		}
		if err := keeper.Round(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		nodes int32
		want  string
	}{{2, "slurm-worker-cpu-[0-1]:2"}, {0, "(null)"}, {2, "slurm-worker-cpu-[0-1]:2"}} {
		round(test.nodes)
		if got := list(); got != test.want {
			t.Errorf("with a floor of %d slurmctld keeps %q, want %q", test.nodes, got, test.want)
		}
	}
	run("reconfigure")
	if got := list(); got != "slurm-worker-cpu-[0-1]:1" {
		t.Errorf("after a reconfigure slurmctld keeps %q, want the file's", got)
	}
	round(2)
	if got := list(); got != "slurm-worker-cpu-[0-1]:2" {
		t.Errorf("not restored: %q", got)
	}

	node := func() string { return run("show", "node", "slurm-worker-cpu-1", "--oneliner") }
	t.Log(node())
	run("update", "nodename=slurm-worker-cpu-1", "state=DRAIN", "reason=berth: host ada is cordoned")
	if out := node(); !strings.Contains(out, "POWERED_DOWN") || !strings.Contains(out, "DRAIN") || !strings.Contains(out, "Reason=berth: host ada is cordoned") {
		t.Errorf("drained while powered down: %s", out)
	}
	run("update", "nodename=slurm-worker-cpu-1", "state=RESUME")
	// RESUME lifts the drain and may leave NOT_RESPONDING, with which Slurm gives the node to nobody; a power-down clears it.
	if out := node(); strings.Contains(out, "DRAIN") {
		t.Errorf("given back: %s", out)
	}
	run("update", "nodename=slurm-worker-cpu-1", "state=POWER_DOWN")
	slurmtest.Eventually(t, time.Minute, "the node is given back", func() (bool, string) {
		out := node()
		return strings.Contains(out, "State=IDLE+CLOUD+POWERED_DOWN "), out
	})
}
