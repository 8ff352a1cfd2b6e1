package decision_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// The model is what Slurm 24.11 and Kubernetes were seen to do around the loop, as far as pods and node states go. It
// plays both sides against decision.Decide, with crashes between actions, and checks the invariants at every step:
// no pod is deleted that could have a job, no administrator's word is lifted, and whatever happens, all of it comes to
// rest once nothing new happens.

// worker is a pod of the model.
type worker struct {
	pod decision.Pod
	// born is the node's power-up that it was made in; its slurmd can register for that one only.
	born int
	jobs int
}

type modelNode struct {
	node    slurmrest.Node
	worker  *worker
	powerUp int  // how many times Slurm asked for a power-up
	wanted  int  // jobs that wait for the node to come up
	person  bool // drained or downed by a person
}

type model struct {
	t     *rapid.T
	nodes []*modelNode
	uids  int
	pool  decision.Pool
	// bug breaks a rule on purpose, to show that the model notices.
	bug string
	// found is the violation in a model with a bug.
	found string
	last  view
}

// view is slurmctld's answer and Kubernetes' cache at one moment.
type view struct {
	names []string
	nodes map[string]*slurmrest.Node
	pods  map[string]*decision.Pod
}

// violated fails the test, or notes what a seeded bug did.
func (m *model) violated(format string, args ...any) {
	if m.bug == "" {
		m.t.Fatalf(format, args...)
	}
	if m.found == "" {
		m.found = fmt.Sprintf(format, args...)
	}
}

const (
	flagDown = slurmrest.PoweredDown | slurmrest.PoweringDown | slurmrest.PoweringUp | slurmrest.PowerUp | slurmrest.NotResponding
	base     = slurmrest.Idle | slurmrest.Mixed | slurmrest.Down
)

func newModel(t *rapid.T, size int) *model {
	m := &model{t: t, pool: decision.Pool{Name: "n", Max: size, Template: "t1", ConfigAccepted: true}}
	for i := range size {
		m.nodes = append(m.nodes, &modelNode{node: slurmrest.Node{
			Name: fmt.Sprintf("n-%d", i), State: slurmrest.Idle | slurmrest.Cloud | slurmrest.PoweredDown,
		}})
	}
	return m
}

func (n *modelNode) has(s slurmrest.NodeState) bool { return n.node.State.Has(s) }
func (n *modelNode) set(drop, add slurmrest.NodeState) {
	n.node.State = n.node.State&^drop | add
}
func (n *modelNode) phase() decision.Phase { return decision.PhaseOf(&n.node) }

// alloc keeps base state and CPUs as Slurm shows them.
func (n *modelNode) alloc() {
	jobs := n.wanted
	if n.worker != nil && !n.worker.pod.Ended {
		jobs += n.worker.jobs
	}
	n.node.AllocCPUs = jobs
	if n.has(slurmrest.Down) {
		n.node.AllocCPUs = 0
		return
	}
	if jobs > 0 {
		n.set(base, slurmrest.Mixed)
	} else {
		n.set(base, slurmrest.Idle)
	}
}

func (n *modelNode) usable() bool {
	return !n.has(slurmrest.Drain | slurmrest.Down | slurmrest.PowerDown | slurmrest.PoweringDown)
}

// askPowerUp is slurmctld's power-up of a powered-down node.
func (n *modelNode) askPowerUp() {
	n.powerUp++
	n.set(slurmrest.PoweredDown, slurmrest.PoweringUp|slurmrest.NotResponding)
}

// powerDown is slurmctld's power-down of a node without jobs: it takes DOWN and DRAIN away.
func (n *modelNode) powerDown() {
	n.wanted = 0
	n.set(flagDown|slurmrest.Down|slurmrest.Drain|slurmrest.PowerDown, slurmrest.PoweringDown)
	n.alloc()
}

// environment is one thing that happens without the autoscaler.
func (m *model) environment(n *modelNode, event int) {
	w := n.worker
	alive := w != nil && !w.pod.Ended
	switch event {
	case 0: // a job is allocated to the node
		if n.usable() && n.phase() == decision.Off {
			n.wanted++
			n.askPowerUp()
		} else if n.usable() && n.phase() == decision.Starting {
			n.wanted++
		} else if n.usable() && n.phase() == decision.Up && alive {
			w.jobs++
		}
	case 1: // slurmd registers, if it booted since the power-up was asked for
		if n.phase() == decision.Starting && alive && !w.pod.Terminating && w.born == n.powerUp {
			n.set(flagDown, 0)
			w.jobs, n.wanted = n.wanted, 0
		}
	case 2: // a job ends
		if alive && w.jobs > 0 {
			w.jobs--
		}
	case 3: // idle for SuspendTime (SuspendExcStates keeps DOWN and DRAIN up)
		if n.phase() == decision.Up && n.usable() && n.node.AllocCPUs == 0 && alive {
			n.powerDown()
		}
	case 4: // POWER_DOWN_ASAP: the last job has ended
		if n.phase() == decision.Up && n.has(slurmrest.PowerDown) && n.node.AllocCPUs == 0 {
			n.powerDown()
		}
	case 5: // SuspendTimeout has passed
		if n.phase() == decision.Leaving {
			n.set(slurmrest.PoweringDown, slurmrest.PoweredDown)
		}
	case 6: // ResumeTimeout has passed
		if n.phase() == decision.Starting {
			n.wanted = 0
			n.set(flagDown|base, slurmrest.Down|slurmrest.PoweredDown)
			n.node.Reason = "ResumeTimeout reached"
		}
	case 7: // slurmd dies, and its pod with it
		if alive {
			w.pod.Ended, w.pod.EndedBecause, w.jobs = true, "slurmd exited with 1", 0
		}
	case 8: // SlurmdTimeout has passed
		if n.phase() == decision.Up && !alive && !n.has(slurmrest.Down) {
			n.set(base, slurmrest.Down|slurmrest.NotResponding)
			if !n.has(slurmrest.Drain) {
				n.node.Reason = "Not responding"
			}
		}
	case 9: // somebody evicts the pod: jobs end with it
		if alive && (w.jobs == 0 || !w.pod.Busy) {
			w.pod.Terminating = true
		}
	case 10: // kubelet is done with a terminating pod
		if w != nil && w.pod.Terminating {
			n.worker = nil
		}
	case 11: // an administrator drains, or resumes, which lifts a DOWN too
		if n.person {
			n.person = false
			n.set(slurmrest.Drain|slurmrest.Down, 0)
		} else if n.phase() == decision.Up && !n.has(slurmrest.Drain|slurmrest.Down) {
			n.person = true
			n.set(0, slurmrest.Drain)
			n.node.Reason = "fan broken"
		}
	case 12: // the autoscaler is away for long: idle, powered down, and wanted again
		for _, event := range []int{3, 5, 0} {
			m.environment(n, event)
		}
	}
	n.alloc()
}

const events = 13

// do is what an action does to both sides, with the checks of the invariants.
func (m *model) do(action decision.Action) {
	var n *modelNode
	for _, candidate := range m.nodes {
		if candidate.node.Name == action.Node {
			n = candidate
		}
	}
	if n.person {
		switch action.Kind {
		case decision.SetDown, decision.PowerDown, decision.PowerDownASAP, decision.Resume:
			m.violated("%s %s: a person drained it (%s)", action.Kind, action.Node, n.node.Reason)
		}
	}
	switch action.Kind {
	case decision.CreatePod:
		if n.worker == nil { // else 409
			m.uids++
			n.worker = &worker{pod: decision.Pod{Name: action.Node, UID: fmt.Sprint(m.uids), Template: m.pool.Template}, born: n.powerUp}
		}
	case decision.DeletePod:
		m.deletePod(n, action)
	case decision.MarkSeenUp:
		if n.worker != nil && n.worker.pod.UID == action.UID {
			n.worker.pod.SeenUp = true
		}
	case decision.MarkBusy, decision.MarkIdle:
		if n.worker != nil && n.worker.pod.UID == action.UID {
			n.worker.pod.Busy = action.Kind == decision.MarkBusy
		}
	case decision.SetDown:
		if n.worker != nil && !n.worker.pod.Ended {
			m.violated("%s is set down, but its pod runs", action.Node)
		}
		n.set(base, slurmrest.Down)
		n.node.Reason = "berth: " + action.Why
	case decision.PowerDown:
		if n.worker != nil && n.worker.jobs > 0 && !n.has(slurmrest.Down) {
			m.violated("%s is powered down with %d jobs", action.Node, n.worker.jobs)
		}
		if n.worker != nil { // Slurm gave a DOWN node's jobs up when it went down
			n.worker.jobs = 0
		}
		n.powerDown()
	case decision.PowerDownASAP:
		if n.phase() == decision.Up {
			n.set(0, slurmrest.Drain|slurmrest.PowerDown)
			n.node.Reason = "berth: " + action.Why
		}
	case decision.PowerUp:
		if n.phase() == decision.Off && n.usable() {
			n.askPowerUp()
		}
	case decision.Resume:
		if n.phase() != decision.Off {
			m.violated("%s is resumed while %s", action.Node, n.node.State)
		}
		n.set(slurmrest.Down|slurmrest.Drain, 0)
	}
	n.alloc()
}

func (m *model) deletePod(n *modelNode, action decision.Action) {
	w := n.worker
	if w == nil || w.pod.UID != action.UID {
		return // UID precondition
	}
	phase := n.phase()
	replaced := phase == decision.Starting && w.born != n.powerUp
	if !w.pod.Ended && phase != decision.Leaving && phase != decision.Off && !replaced {
		m.violated("pod of %s deleted while Slurm says %s", action.Node, n.node.State)
	}
	if w.jobs > 0 && !w.pod.Ended {
		m.violated("pod of %s deleted with %d jobs", action.Node, w.jobs)
	}
	if w.pod.Ended {
		n.worker = nil
		return
	}
	w.pod.Terminating = true
}

// look is what a round sees.
func (m *model) look() view {
	v := view{nodes: map[string]*slurmrest.Node{}, pods: map[string]*decision.Pod{}}
	for _, n := range m.nodes {
		v.names = append(v.names, n.node.Name)
		node := n.node
		v.nodes[node.Name] = &node
		if n.worker != nil {
			pod := n.worker.pod
			v.pods[node.Name] = &pod
		}
	}
	return v
}

// round is one round of the loop, which crashes after some of its actions.
func (m *model) round(crashAfter int) {
	v := m.look()
	if m.bug == "old data" && m.last.nodes != nil {
		v.nodes = m.last.nodes
	}
	m.last = m.look()
	actions, _ := decision.Decide(m.pool, v.names, v.nodes, v.pods)
	for _, n := range m.nodes {
		if m.bug == "foreign drain lifted" && n.has(slurmrest.Drain) && n.phase() == decision.Up {
			actions = append(actions, decision.Action{Kind: decision.PowerDown, Node: n.node.Name})
		}
	}
	for i, action := range actions {
		if i == crashAfter {
			break
		}
		if m.bug == "pod reused across a power-up" && action.Kind == decision.DeletePod && !v.pods[action.Node].Ended && decision.PhaseOf(v.nodes[action.Node]) == decision.Starting {
			continue
		}
		m.do(action)
	}
}

// order puts what moves a node through its life first, because rapid draws what comes first more often: a round, a job, a
// registration, and so on.
var order = []int{events, 0, 1, 2, 12, 3, 4, 5, events, 10, 7, 8, 6, 9, 11, events}

// play draws a schedule of events and rounds.
func (m *model) play() {
	steps := rapid.IntRange(1, 150).Draw(m.t, "steps")
	if m.bug != "" {
		steps = 150
	}
	for range steps {
		if event := rapid.SampledFrom(order).Draw(m.t, "event"); event < events {
			m.environment(m.nodes[rapid.IntRange(0, len(m.nodes)-1).Draw(m.t, "node")], event)
		} else {
			m.round(rapid.IntRange(0, 6).Draw(m.t, "crash after"))
		}
		if rapid.IntRange(0, 20).Draw(m.t, "template") == 0 {
			m.pool.Template = rapid.SampledFrom([]string{"t1", "t2"}).Draw(m.t, "new template")
		}
	}
}

// settle lets nothing new happen: nodes that start come up, pods that end go, and jobs finish. A pod that was seen up is
// replaced at once; one that was not, and is still from another power-up, costs a ResumeTimeout.
func (m *model) settle() {
	for i := range 200 {
		for _, n := range m.nodes {
			if n.phase() == decision.Starting && i == 100 {
				if n.worker != nil && n.worker.pod.SeenUp {
					m.violated("%s waits for a pod that was seen up before: %s", n.node.Name, n.node.State)
				}
				m.environment(n, 6)
			}
			for _, event := range []int{10, 1, 2, 4, 5} {
				m.environment(n, event)
			}
		}
		m.round(-1)
	}
	for _, n := range m.nodes {
		waits := n.phase() == decision.Starting || n.phase() == decision.Leaving || n.has(slurmrest.PowerDown) ||
			n.has(slurmrest.Down|slurmrest.Drain) && !n.person
		gone := n.phase() == decision.Up && !n.person && (n.worker == nil || n.worker.pod.Ended)
		extra := n.phase() == decision.Off && n.worker != nil
		if waits || gone || extra {
			m.violated("%s never comes to rest: %s %q, pod %+v", n.node.Name, n.node.State, n.node.Reason, n.worker)
		}
	}
}

func TestNoScheduleKillsAJobOrStaysStuck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, rapid.IntRange(1, 4).Draw(t, "nodes"))
		m.pool.Min = rapid.IntRange(0, 1).Draw(t, "min")
		m.play()
		for _, n := range m.nodes { // the administrators are done
			if n.person {
				m.environment(n, 11)
			}
		}
		m.settle()
	})
}

// A model that finds nothing proves nothing: each of these mistakes of others' autoscalers must be found.
func TestModelFindsSeededBugs(t *testing.T) {
	for _, bug := range []string{"old data", "foreign drain lifted", "pod reused across a power-up"} {
		t.Run(bug, func(t *testing.T) {
			schedule := rapid.Custom(func(t *rapid.T) string {
				m := newModel(t, rapid.IntRange(1, 4).Draw(t, "nodes"))
				m.bug = bug
				m.play()
				for _, n := range m.nodes {
					if n.person {
						m.environment(n, 11)
					}
				}
				m.settle()
				return m.found
			})
			for seed := range 1000 {
				if found := schedule.Example(seed); found != "" {
					t.Logf("schedule %d: %s", seed, found)
					return
				}
			}
			t.Error("not found in 1,000 schedules")
		})
	}
}
