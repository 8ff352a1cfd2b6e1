package decision_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/slurmrest"
)

const name = "slurm-worker-cpu-0"

// decide runs one pool of one node, with an accepted template.
func decide(state slurmrest.NodeState, reason string, pod *decision.Pod) []decision.Action {
	pool := decision.Pool{Name: "cpu", Max: 1, Template: "t1", ConfigAccepted: true}
	nodes := map[string]*slurmrest.Node{name: {Name: name, State: state, Reason: reason}}
	pods := map[string]*decision.Pod{}
	if pod != nil {
		pod.Name, pod.UID, pod.Template = name, "u1", "t1"
		pods[name] = pod
	}
	actions, _ := decision.Decide(pool, []string{name}, nodes, pods)
	return actions
}

// The table of docs/decisions/004-slurm-decides.md, row by row.
func TestTable(t *testing.T) {
	const (
		ours   = "berth: the worker's pod was deleted"
		person = "broken fan"
	)
	cloud := slurmrest.Cloud
	for _, test := range []struct {
		name   string
		state  slurmrest.NodeState
		reason string
		pod    *decision.Pod
		want   []decision.Kind
	}{
		{"powered down, no pod", slurmrest.Idle | cloud | slurmrest.PoweredDown, "", nil, nil},
		{"powered down, a pod is left", slurmrest.Idle | cloud | slurmrest.PoweredDown, "", &decision.Pod{SeenUp: true}, []decision.Kind{decision.DeletePod}},
		{"powering down", slurmrest.Idle | cloud | slurmrest.PoweringDown, "", &decision.Pod{SeenUp: true}, []decision.Kind{decision.DeletePod}},
		{"powering down, the pod already goes", slurmrest.Idle | cloud | slurmrest.PoweringDown, "", &decision.Pod{Terminating: true}, nil},
		{"powering up, no pod", slurmrest.Mixed | cloud | slurmrest.PoweringUp, "", nil, []decision.Kind{decision.CreatePod}},
		{"powering up, its pod starts", slurmrest.Mixed | cloud | slurmrest.PoweringUp, "", &decision.Pod{Busy: true}, nil},
		{"powering up, the pod was up before", slurmrest.Mixed | cloud | slurmrest.PoweringUp, "", &decision.Pod{SeenUp: true, Busy: true}, []decision.Kind{decision.DeletePod}},
		{"powering up, the pod ended", slurmrest.Mixed | cloud | slurmrest.PoweringUp, "", &decision.Pod{Ended: true, Busy: true}, []decision.Kind{decision.DeletePod}},
		{"first seen up", slurmrest.Idle | cloud, "", &decision.Pod{}, []decision.Kind{decision.MarkSeenUp}},
		{"idle", slurmrest.Idle | cloud, "", &decision.Pod{SeenUp: true}, nil},
		{"busy for the first time", slurmrest.Mixed | cloud, "", &decision.Pod{SeenUp: true}, []decision.Kind{decision.MarkBusy}},
		{"idle again", slurmrest.Idle | cloud, "", &decision.Pod{SeenUp: true, Busy: true}, []decision.Kind{decision.MarkIdle}},
		{"busy, asked to go", slurmrest.Mixed | cloud | slurmrest.PowerDown, "", &decision.Pod{SeenUp: true, Busy: true}, nil},
		{"up, its pod is gone", slurmrest.Mixed | cloud, "", nil, []decision.Kind{decision.SetDown}},
		{"up, its pod has ended", slurmrest.Mixed | cloud, "", &decision.Pod{SeenUp: true, Busy: true, Ended: true}, []decision.Kind{decision.SetDown}},
		{"down for our reason", slurmrest.Down | cloud, ours, nil, []decision.Kind{decision.PowerDown}},
		{"down: not responding", slurmrest.Down | cloud, "Not responding", &decision.Pod{SeenUp: true}, []decision.Kind{decision.PowerDown}},
		{"powered down after our reason", slurmrest.Down | cloud | slurmrest.PoweredDown, ours, nil, []decision.Kind{decision.Resume}},
		{"resume timed out", slurmrest.Down | cloud | slurmrest.PoweredDown, "ResumeTimeout reached", nil, []decision.Kind{decision.Resume}},
		{"down by a person", slurmrest.Down | cloud, person, &decision.Pod{SeenUp: true}, nil},
		{"powered down, drained by a person", slurmrest.Idle | cloud | slurmrest.PoweredDown | slurmrest.Drain, person, nil, nil},
		{"drained by a person, its pod is gone", slurmrest.Idle | cloud | slurmrest.Drain, person, nil, nil},
		{"somebody else deletes the pod", slurmrest.Mixed | cloud, "", &decision.Pod{SeenUp: true, Busy: true, Terminating: true}, []decision.Kind{decision.PowerDownASAP}},
		{"an unknown state", slurmrest.Unknown | cloud, "", &decision.Pod{SeenUp: true}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []decision.Kind
			for _, action := range decide(test.state, test.reason, test.pod) {
				got = append(got, action.Kind)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// A node that slurmctld did not name in its answer keeps its pod.
func TestUnknownNodeKeepsItsPod(t *testing.T) {
	pool := decision.Pool{Name: "cpu", Max: 1, Template: "t1", ConfigAccepted: true}
	pods := map[string]*decision.Pod{name: {Name: name, UID: "u1", SeenUp: true, Template: "t1"}}
	actions, holds := decision.Decide(pool, []string{name}, map[string]*slurmrest.Node{}, pods)
	if len(actions) != 0 || len(holds) != 1 {
		t.Errorf("got actions %v and holds %v, want one hold", actions, holds)
	}
}

// The floor asks for what is missing, and counts what is on its way.
func TestFloor(t *testing.T) {
	names := []string{"w-0", "w-1", "w-2"}
	off := slurmrest.Idle | slurmrest.Cloud | slurmrest.PoweredDown
	nodes := map[string]*slurmrest.Node{
		"w-0": {Name: "w-0", State: off},
		"w-1": {Name: "w-1", State: slurmrest.Idle | slurmrest.Cloud | slurmrest.PoweringUp},
		"w-2": {Name: "w-2", State: off},
	}
	actions, _ := decision.Decide(decision.Pool{Name: "w", Min: 2, Max: 3, Template: "t1", ConfigAccepted: true}, names, nodes, nil)
	want := []decision.Kind{decision.CreatePod, decision.PowerUp}
	var got []decision.Kind
	for _, action := range actions {
		got = append(got, action.Kind)
	}
	if !slices.Equal(got, want) || actions[1].Node != "w-0" {
		t.Errorf("got %v, want w-1's pod and power for w-0", actions)
	}
}

// Whatever Slurm and Kubernetes say: a pod is deleted only if its node is powered down or powering down, or the pod has
// ended, or it is from before a power-up; and a person's reason is never overwritten or cleared.
func TestNeverTakesWork(t *testing.T) {
	flags := []slurmrest.NodeState{
		slurmrest.PoweredDown, slurmrest.PoweringDown, slurmrest.PoweringUp, slurmrest.PowerDown, slurmrest.PowerUp,
		slurmrest.Drain, slurmrest.Completing, slurmrest.Maintenance,
	}
	bases := []slurmrest.NodeState{slurmrest.Idle, slurmrest.Mixed, slurmrest.Allocated, slurmrest.Down, slurmrest.Unknown}
	rapid.Check(t, func(t *rapid.T) {
		state := slurmrest.Cloud | rapid.SampledFrom(bases).Draw(t, "base")
		for _, flag := range flags {
			if rapid.Bool().Draw(t, "flag") {
				state |= flag
			}
		}
		reason := rapid.SampledFrom([]string{"", "berth: template", "Not responding", "ResumeTimeout reached", "broken fan"}).Draw(t, "reason")
		var pod *decision.Pod
		if rapid.Bool().Draw(t, "pod") {
			pod = &decision.Pod{
				Ended: rapid.Bool().Draw(t, "ended"), Terminating: rapid.Bool().Draw(t, "terminating"),
				SeenUp: rapid.Bool().Draw(t, "seen up"), Busy: rapid.Bool().Draw(t, "busy"),
			}
		}
		for _, action := range decide(state, reason, pod) {
			switch action.Kind {
			case decision.DeletePod:
				gone := state.Has(slurmrest.PoweredDown | slurmrest.PoweringDown)
				stale := state.Has(slurmrest.PoweringUp) && pod.SeenUp
				if !gone && !stale && !pod.Ended {
					t.Errorf("deletes the pod of a node that is %s", state)
				}
			case decision.SetDown, decision.PowerDown, decision.Resume:
				foreign := reason == "broken fan" && state.Has(slurmrest.Down|slurmrest.Drain)
				if foreign {
					t.Errorf("%s on a node with a person's reason, %s", action.Kind, state)
				}
			}
		}
	})
}
