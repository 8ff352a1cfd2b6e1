package decision_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// words turns "IDLE+CLOUD" into a state.
func words(t testing.TB, text string) (state slurmrest.NodeState) {
	t.Helper()
	byName := map[string]slurmrest.NodeState{}
	for bit := slurmrest.Invalid; bit <= slurmrest.DynamicNorm; bit <<= 1 {
		byName[bit.String()] = bit
	}
	for _, word := range strings.Split(text, "+") {
		bit, ok := byName[word]
		if !ok {
			t.Fatalf("%s is no state", word)
		}
		state |= bit
	}
	return state
}

var (
	running = decision.Pod{UID: "u", Template: "t1"}
	seen    = decision.Pod{UID: "u", Template: "t1", SeenUp: true}
	busyPod = decision.Pod{UID: "u", Template: "t1", SeenUp: true, Busy: true}
	ended   = decision.Pod{UID: "u", Template: "t1", SeenUp: true, Ended: true, EndedBecause: "Evicted"}
	endedB  = decision.Pod{UID: "u", Template: "t1", SeenUp: true, Ended: true, EndedBecause: "Evicted", Busy: true}
	leaving = decision.Pod{UID: "u", Template: "t1", SeenUp: true, Terminating: true}
)

// The table of the design, row by row, with what each state was seen to look like on Slurm 24.11.
func TestNodeAndPod(t *testing.T) {
	const asap = "IDLE+CLOUD+DRAIN+POWER_DOWN"
	for _, test := range []struct {
		name, state, reason string
		pod                 *decision.Pod
		want                string // kinds, and ! where a person must know
	}{
		// POWERED_DOWN, POWERING_DOWN: must not exist.
		{"off, no pod", "IDLE+CLOUD+POWERED_DOWN", "", nil, ""},
		{"off, pod left", "IDLE+CLOUD+POWERED_DOWN", "", &seen, "DeletePod"},
		{"off, ended pod left", "IDLE+CLOUD+POWERED_DOWN", "", &ended, "DeletePod"},
		{"off, pod on its way out", "IDLE+CLOUD+POWERED_DOWN", "", &leaving, ""},
		{"powering down", "IDLE+CLOUD+POWERING_DOWN", "", &seen, "DeletePod"},
		{"powering down, epilog runs", "IDLE+CLOUD+COMPLETING+POWERING_DOWN", "", &busyPod, ""},
		{"POWER_DOWN alone still works", "MIXED+CLOUD+DRAIN+POWER_DOWN", "berth: x", &busyPod, ""},

		// POWERING_UP: must exist and be new.
		{"powering up, no pod", "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", "", nil, "CreatePod"},
		{"powering up by hand", "IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN+POWERING_UP+POWER_UP", "", nil, "CreatePod"},
		{"powering up, new pod", "IDLE+CLOUD+NOT_RESPONDING+POWERING_UP", "", &running, ""},
		{"powering up, pod from before", "IDLE+CLOUD+NOT_RESPONDING+POWERING_UP", "", &seen, "DeletePod"},
		{"powering up, old pod still there", "IDLE+CLOUD+NOT_RESPONDING+POWERING_UP", "", &leaving, ""},
		{"powering up, pod ended", "IDLE+CLOUD+NOT_RESPONDING+POWERING_UP", "", &ended, "DeletePod"},

		// Up: exists; if gone or ended, DOWN with our reason, then power down.
		{"up, first seen", "IDLE+CLOUD", "", &running, "MarkSeenUp"},
		{"up, idle", "IDLE+CLOUD", "", &seen, ""},
		{"up, a job began", "MIXED+CLOUD", "", &seen, "MarkBusy"},
		{"up, its last job ended", "IDLE+CLOUD", "", &busyPod, "MarkIdle"},
		{"up, pod ended", "MIXED+CLOUD", "", &endedB, "SetDown"},
		{"up, pod gone", "ALLOCATED+CLOUD", "", nil, "SetDown"},
		{"down by us, pod ended", "DOWN+CLOUD", "berth: its pod ended: Evicted", &ended, "PowerDown"},
		{"down by us, pod gone", "DOWN+CLOUD", "berth: its pod is gone", nil, "PowerDown"},
		{"up, evicted", "IDLE+CLOUD", "", &leaving, "PowerDownASAP"},
		{"up, evicted, Slurm knows", asap, "berth: evicted", &leaving, ""},
		{"our drain lost its power-down", "IDLE+CLOUD+DRAIN", "berth: new template", &seen, "PowerDownASAP"},

		// Slurm's own reasons: power down, clear, start over.
		{"silent", "DOWN+CLOUD+NOT_RESPONDING", "Not responding", &seen, "PowerDown"},
		{"did not come in time", "DOWN+CLOUD+POWERED_DOWN", "ResumeTimeout reached", &running, "DeletePod"},
		{"did not come, pod gone", "DOWN+CLOUD+POWERED_DOWN", "ResumeTimeout reached", nil, "Resume"},
		{"an old reason on a good node", "IDLE+CLOUD+POWERED_DOWN", "ResumeTimeout reached", nil, ""},

		// A person's word stands.
		{"drained by a person", "IDLE+CLOUD+DRAIN", "fan broken", &seen, ""},
		{"drained by a person, pod gone", "IDLE+CLOUD+DRAIN", "fan broken", nil, "!"},
		{"drained by a person, pod ended", "IDLE+CLOUD+DRAIN", "fan broken", &ended, "!"},
		{"down by a person", "DOWN+CLOUD", "smoke", &seen, ""},
		{"down by a person, pod gone", "DOWN+CLOUD", "smoke", nil, "!"},
		{"down by a person, powered down", "DOWN+CLOUD+POWERED_DOWN", "smoke", nil, ""},

		// What nobody understands is left alone.
		{"no state", "UNKNOWN+CLOUD", "", &seen, "!"},
		{"error", "ERROR+CLOUD", "", nil, "!"},
	} {
		t.Run(test.name, func(t *testing.T) {
			node := &slurmrest.Node{Name: "n-0", State: words(t, test.state), Reason: test.reason}
			pods := map[string]*decision.Pod{}
			if test.pod != nil {
				pods["n-0"] = test.pod
			}
			pool := decision.Pool{Name: "n", Max: 1, Template: "t1", ConfigAccepted: true}
			actions, holds := decision.Decide(pool, []string{"n-0"}, map[string]*slurmrest.Node{"n-0": node}, pods)
			if got := kinds(actions, holds); got != test.want {
				t.Errorf("got %q, want %q (%v %v)", got, test.want, actions, holds)
			}
		})
	}
}

// kinds is a short form of a decision. MarkIdle beside a step that ends the pod anyway says nothing and is left out.
func kinds(actions []decision.Action, holds []decision.Hold) string {
	var out []string
	for _, action := range actions {
		out = append(out, string(action.Kind))
	}
	for range holds {
		out = append(out, "!")
	}
	return strings.Join(out, " ")
}

// fleet is a pool of nodes in given states; every node that is up has a pod of template t1 that was seen up.
func fleet(t *testing.T, states ...string) (names []string, nodes map[string]*slurmrest.Node, pods map[string]*decision.Pod) {
	nodes, pods = map[string]*slurmrest.Node{}, map[string]*decision.Pod{}
	for i, state := range states {
		name := fmt.Sprintf("n-%d", i)
		names = append(names, name)
		nodes[name] = &slurmrest.Node{Name: name, State: words(t, state)}
		if phase := decision.PhaseOf(nodes[name]); phase == decision.Up || phase == decision.Leaving {
			pods[name] = &decision.Pod{Name: name, UID: name, Template: "t1", SeenUp: true, Busy: decision.Busy(nodes[name]), Terminating: phase == decision.Leaving}
		}
	}
	return names, nodes, pods
}

func list(actions []decision.Action) string {
	var out []string
	for _, action := range actions {
		out = append(out, fmt.Sprintf("%s %s", action.Kind, action.Node))
	}
	return strings.Join(out, ", ")
}

const (
	off   = "IDLE+CLOUD+POWERED_DOWN"
	up    = "IDLE+CLOUD"
	busy  = "MIXED+CLOUD"
	maint = "+MAINTENANCE+RESERVED" // what a reservation with the flag MAINT adds while it lasts
)

func TestFloor(t *testing.T) {
	for _, test := range []struct {
		min    int
		states []string
		want   string
	}{
		{0, []string{off, off}, ""},
		{1, []string{off, off}, "PowerUp n-0"},
		{2, []string{off, busy, off}, "PowerUp n-0"},
		{1, []string{off, "IDLE+CLOUD+NOT_RESPONDING+POWERING_UP"}, "CreatePod n-1"},
		{1, []string{"DOWN+CLOUD+POWERED_DOWN", off}, "PowerUp n-1"},
		{1, []string{"IDLE+CLOUD+DRAIN+POWERED_DOWN", off}, "PowerUp n-1"},
		{2, []string{off, "IDLE+CLOUD+POWERING_DOWN", off}, "PowerUp n-0, PowerUp n-2"},
		{2, []string{off + maint, off, "IDLE+CLOUD+DRAIN+POWERED_DOWN" + maint, off}, "PowerUp n-1, PowerUp n-3"},
	} {
		names, nodes, pods := fleet(t, test.states...)
		pool := decision.Pool{Floor: test.min, Max: len(names), Template: "t1", ConfigAccepted: true}
		actions, _ := decision.Decide(pool, names, nodes, pods)
		if got := list(actions); got != test.want {
			t.Errorf("min %d of %v: %s, want %s", test.min, test.states, got, test.want)
		}
	}
}

// A new template reaches idle workers first, and never takes more than a quarter of the pool at a time.
func TestNewTemplate(t *testing.T) {
	for _, test := range []struct {
		states []string
		want   string
	}{
		{[]string{busy, up, off, off}, "PowerDownASAP n-1"},
		{[]string{busy, busy, off, off}, "PowerDownASAP n-0"},
		{[]string{busy, "MIXED+CLOUD+DRAIN+POWER_DOWN", off, off}, ""},
		{[]string{busy, "IDLE+CLOUD+POWERING_DOWN", off, off}, ""},
		{[]string{up, up, up, up, up, up, up, up}, "PowerDownASAP n-0, PowerDownASAP n-1"},
		// In a maintenance window all idle ones, at once; what runs there is left alone.
		{[]string{up + maint, up + maint, up + maint, busy + maint, up, up, off, off}, "PowerDownASAP n-0, PowerDownASAP n-1, PowerDownASAP n-2, PowerDownASAP n-4, PowerDownASAP n-5"},
		{[]string{"IDLE+CLOUD+POWERING_DOWN" + maint, "IDLE+CLOUD+DRAIN+POWER_DOWN" + maint, busy + maint, up}, "PowerDownASAP n-3"},
	} {
		names, nodes, pods := fleet(t, test.states...)
		pool := decision.Pool{Max: len(names), Template: "t2", TemplateProven: true, RenewBusy: true, ConfigAccepted: true}
		actions, _ := decision.Decide(pool, names, nodes, pods)
		if got := list(actions); got != test.want {
			t.Errorf("%v: %s, want %s", test.states, got, test.want)
		}
	}
}

// A template that no node came up with yet is not tried on nodes in a maintenance window, which nobody wakes.
func TestNewTemplateIsTriedOutsideTheWindow(t *testing.T) {
	for states, want := range map[string]string{
		up + maint + " " + off + maint:                        "",
		up + maint + " " + off + maint + " " + up:             "PowerDownASAP n-2",
		up + maint + " " + up + " " + off + maint + " " + off: "PowerUp n-3",
	} {
		names, nodes, pods := fleet(t, strings.Fields(states)...)
		pool := decision.Pool{Max: len(names), Template: "t2", RenewBusy: true, ConfigAccepted: true}
		if actions, _ := decision.Decide(pool, names, nodes, pods); list(actions) != want {
			t.Errorf("%s: %s, want %s", states, list(actions), want)
		}
	}
}

// S3: a push that grows the pool, or changes nothing about it, while three of its four workers are up leaves these three.
func TestS3WorkersThatAreUpStay(t *testing.T) {
	names, nodes, pods := fleet(t, busy, up, busy, off)
	for _, max := range []int{4, 6} {
		pool := decision.Pool{Max: max, Template: "t1", TemplateProven: true, ConfigAccepted: true}
		if actions, holds := decision.Decide(pool, names, nodes, pods); list(actions) != "" || len(holds) != 0 {
			t.Errorf("max %d: %s %v", max, list(actions), holds)
		}
	}
}

func TestPoolShrinks(t *testing.T) {
	names, nodes, pods := fleet(t, busy, busy, up, up)
	pool := decision.Pool{Max: 1, Template: "t1"}
	// slurmctld still has all four, because the guard waits for the jobs: nodes above the new end are asked to go.
	pool.ConfigAccepted = true
	if actions, _ := decision.Decide(pool, names[:1], nodes, pods); list(actions) != "PowerDownASAP n-1, PowerDownASAP n-2, PowerDownASAP n-3" {
		t.Error(list(actions))
	}
	// Their nodes have left Slurm. The pods go only if that is the configuration that the pool belongs to.
	delete(nodes, "n-2")
	delete(nodes, "n-3")
	pool.ConfigAccepted = false
	if actions, _ := decision.Decide(pool, names[:1], nodes, pods); list(actions) != "" {
		t.Error("acted on a configuration that is not the pool's:", list(actions))
	}
	pool.ConfigAccepted = true
	if actions, _ := decision.Decide(pool, names[:1], nodes, pods); list(actions) != "PowerDownASAP n-1, DeletePod n-2, DeletePod n-3" {
		t.Error(list(actions))
	}
}

// A node that should be there and is not: an answer that lies, or a configuration on its way. Nothing is deleted.
func TestNodeMissingInTheAnswer(t *testing.T) {
	names, nodes, pods := fleet(t, busy, up)
	delete(nodes, "n-0")
	actions, holds := decision.Decide(decision.Pool{Max: 2, Template: "t1", ConfigAccepted: true}, names, nodes, pods)
	if list(actions) != "" || len(holds) != 1 {
		t.Error(list(actions), holds)
	}
}

func TestRemoval(t *testing.T) {
	names, nodes, pods := fleet(t, busy, up, off)
	pool := decision.Pool{Floor: 3, Max: 3, Template: "t1", Removing: true}
	if actions, _ := decision.Decide(pool, names, nodes, pods); list(actions) != "PowerDownASAP n-0, PowerDownASAP n-1, Drain n-2" {
		t.Error(list(actions))
	}
}

func TestNoTemplateNoPods(t *testing.T) {
	names, nodes, pods := fleet(t, "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP")
	actions, holds := decision.Decide(decision.Pool{Max: 1}, names, nodes, pods)
	if list(actions) != "" || len(holds) != 1 {
		t.Error(list(actions), holds)
	}
}

func BenchmarkDecideThousandNodes(b *testing.B) {
	nodes, pods := map[string]*slurmrest.Node{}, map[string]*decision.Pod{}
	var names []string
	for i := range 1000 {
		name := fmt.Sprintf("n-%d", i)
		names = append(names, name)
		nodes[name] = &slurmrest.Node{Name: name, State: slurmrest.Idle | slurmrest.Cloud}
		pods[name] = &decision.Pod{Name: name, UID: name, Template: "t1", SeenUp: true}
	}
	pool := decision.Pool{Floor: 2, Max: 1000, Template: "t1", ConfigAccepted: true}
	for b.Loop() {
		decision.Decide(pool, names, nodes, pods)
	}
}

// slurmrestd did not answer while a node was up, was powered down, and powered up again. Its pod has no mark, but slurmctld remembers that
// it booted; a pod that has not booted yet, after one of the same name that had, is left to start.
func TestUpUnseen(t *testing.T) {
	made := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		boot time.Time
		want string
	}{
		"never booted":                   {time.Time{}, ""},
		"the pod before it booted":       {made.Add(-time.Hour), ""},
		"it booted before this power-up": {made.Add(18 * time.Second), "DeletePod"},
	} {
		node := &slurmrest.Node{Name: "slurm-worker-cpu-0", State: words(t, "IDLE+CLOUD+NOT_RESPONDING+POWERING_UP"), BootTime: test.boot}
		pods := map[string]*decision.Pod{node.Name: {Name: node.Name, UID: "u", Template: "t1", Created: made}}
		pool := decision.Pool{Name: "cpu", Max: 1, Template: "t1", ConfigAccepted: true}
		actions, _ := decision.Decide(pool, []string{node.Name}, map[string]*slurmrest.Node{node.Name: node}, pods)
		var kinds []string
		for _, action := range actions {
			kinds = append(kinds, string(action.Kind))
		}
		if got := strings.Join(kinds, " "); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
