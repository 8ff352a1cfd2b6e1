package decision_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

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
	lost    int  // jobs that ended with their pod, which Slurm does not know yet
	person  bool // drained or downed by a person
	// cordoned: the one host that the node may run on takes no pods.
	cordoned bool
}

type model struct {
	t      *rapid.T
	nodes  []*modelNode
	uids   int
	pool   decision.Pool
	proven map[string]bool // templates that a node came up with
	now    time.Time
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
	m := &model{
		t: t, proven: map[string]bool{}, now: time.Unix(1_800_000_000, 0),
		pool: decision.Pool{Name: "n", Max: size, Template: "t1", ConfigAccepted: true},
	}
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
	jobs := n.wanted + n.lost
	if n.worker != nil && !n.worker.pod.Ended {
		jobs += n.worker.jobs
	}
	n.node.AllocCPUs = jobs
	if n.has(slurmrest.Down) {
		n.node.AllocCPUs, n.lost = 0, 0
		return
	}
	if jobs > 0 {
		n.set(base, slurmrest.Mixed)
	} else {
		n.set(base, slurmrest.Idle)
	}
}

func (n *modelNode) usable() bool {
	return !n.has(slurmrest.Drain | slurmrest.Down | slurmrest.PowerDown | slurmrest.PoweringDown | slurmrest.Maintenance)
}

// askPowerUp is slurmctld's power-up of a powered-down node.
func (n *modelNode) askPowerUp() {
	n.powerUp++
	n.set(slurmrest.PoweredDown, slurmrest.PoweringUp|slurmrest.NotResponding)
}

// powerDown is slurmctld's power-down of a node without jobs: it takes DRAIN away, and leaves DOWN.
func (n *modelNode) powerDown() {
	n.wanted = 0
	n.set(flagDown|slurmrest.Drain|slurmrest.PowerDown, slurmrest.PoweringDown)
	n.person = n.person && n.has(slurmrest.Down) // also a drain that an administrator asked for while the power-down was due
	if n.worker != nil {                         // Slurm gave a DOWN node's jobs up when it went down
		n.worker.jobs = 0
	}
	n.alloc()
}

// lose is the end of a pod and all in it.
func (n *modelNode) lose() {
	if n.worker != nil {
		n.lost, n.worker.jobs = n.lost+n.worker.jobs, 0
	}
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
		if n.phase() == decision.Starting && alive && !w.pod.Terminating && w.born == n.powerUp && w.pod.Problem == "" {
			n.set(flagDown, 0)
			w.jobs, n.wanted = n.wanted, 0
		}
	case 2: // a job ends, or is cancelled while its node starts
		if alive && w.jobs > 0 {
			w.jobs--
		} else if n.lost > 0 {
			n.lost--
		} else if n.phase() == decision.Starting && n.wanted > 0 {
			n.wanted--
		}
	case 3: // idle for SuspendTime (SuspendExcStates keeps DOWN and DRAIN up)
		if n.phase() == decision.Up && !n.has(slurmrest.Drain|slurmrest.Down|slurmrest.PowerDown) && n.node.AllocCPUs == 0 {
			n.powerDown()
		}
	case 4: // POWER_DOWN, POWER_DOWN_ASAP: the last job has ended, and slurmctld looks at its nodes
		if phase := n.phase(); (phase == decision.Up || phase == decision.Off) && n.has(slurmrest.PowerDown) && n.node.AllocCPUs == 0 {
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
			n.reason(m, "ResumeTimeout reached")
		}
	case 7: // slurmd dies, and its pod with it
		if alive {
			w.pod.Ended, w.pod.EndedBecause = true, "slurmd exited with 1"
			n.lose()
		}
	case 8: // SlurmdTimeout has passed
		if n.phase() == decision.Up && !alive && !n.has(slurmrest.Down) {
			n.set(base, slurmrest.Down|slurmrest.NotResponding)
			if !n.has(slurmrest.Drain) {
				n.reason(m, "Not responding")
			} else if kindOfReason(n.node.Reason) == foreign {
				n.person = true // it stays DOWN for their reason until they resume it
			}
		}
	case 9: // somebody evicts the pod: jobs end with it
		if alive && (w.jobs == 0 || !w.pod.Busy) {
			w.pod.Terminating = true
		}
	case 10: // kubelet is done with a terminating pod
		if w != nil && w.pod.Terminating {
			n.lose()
			n.worker = nil
		}
	case 11: // an administrator drains, or resumes, which lifts a DOWN too
		if n.person {
			n.person = false
			n.set(slurmrest.Drain|slurmrest.Down, 0)
		} else if n.phase() == decision.Up && !n.has(slurmrest.Drain|slurmrest.Down) {
			n.person = true
			n.set(0, slurmrest.Drain)
			n.reason(m, "fan broken")
		}
	case 13: // the host is cordoned, or uncordoned
		n.cordoned = !n.cordoned
	case 14: // Kubernetes finds no room for a pod that has not started
		if alive && n.phase() == decision.Starting && w.born == n.powerUp && !w.pod.SeenUp {
			w.pod.Problem = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu"
		}
	case 15: // a reservation with the flag MAINT begins or ends; jobs that run go on (IGNORE_JOBS)
		if n.has(slurmrest.Maintenance) {
			n.set(slurmrest.Maintenance|slurmrest.Reserved, 0)
		} else {
			n.set(0, slurmrest.Maintenance|slurmrest.Reserved)
		}
	case 16: // somebody deletes the pod by force, or its host is gone: whatever ran in it has ended
		n.lose()
		n.worker = nil
	case 17: // somebody deletes the pod, which no PodDisruptionBudget holds: after its grace the jobs end with it
		if alive {
			w.pod.Terminating = true
		}
	case 18: // an administrator asks for POWER_DOWN_ASAP, with a reason
		if n.phase() == decision.Up && !n.has(slurmrest.Drain|slurmrest.Down|slurmrest.PowerDown) {
			n.set(0, slurmrest.Drain|slurmrest.PowerDown)
			n.reason(m, "fan broken")
		}
	case 12: // the autoscaler is away for long: idle, powered down, and wanted again
		for _, event := range []int{3, 5, 0} {
			m.environment(n, event)
		}
	}
	n.alloc()
}

const events = 19

func (n *modelNode) reason(m *model, text string) { n.node.Reason, n.node.ReasonAt = text, m.now }

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
		case decision.SetDown, decision.PowerDown, decision.PowerDownASAP, decision.Resume, decision.Drain:
			m.violated("%s %s: a person drained it (%s)", action.Kind, action.Node, n.node.Reason)
		}
	}
	switch action.Kind {
	case decision.CreatePod:
		if n.worker == nil { // else 409
			m.uids++
			n.worker = &worker{pod: decision.Pod{Name: action.Node, UID: fmt.Sprint(m.uids), Template: m.pool.Template, Busy: decision.Busy(&n.node)}, born: n.powerUp}
		}
	case decision.DeletePod:
		m.deletePod(n, action)
	case decision.MarkSeenUp:
		if n.worker != nil && n.worker.pod.UID == action.UID {
			n.worker.pod.SeenUp = true
			m.proven[n.worker.pod.Template] = true
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
		n.reason(m, "berth: "+action.Why)
	case decision.PowerDown:
		if n.worker != nil && n.worker.jobs > 0 && !n.has(slurmrest.Down) {
			m.violated("%s is powered down with %d jobs", action.Node, n.worker.jobs)
		}
		n.set(0, slurmrest.PowerDown)
	case decision.PowerDownASAP:
		if n.phase() == decision.Up {
			n.set(0, slurmrest.Drain|slurmrest.PowerDown)
			n.reason(m, "berth: "+action.Why)
		}
	case decision.PowerUp:
		if n.has(slurmrest.Maintenance) {
			m.violated("%s is woken in a maintenance window", action.Node)
		}
		if n.phase() == decision.Off && n.usable() {
			n.askPowerUp()
		}
	case decision.Drain:
		if phase := n.phase(); phase != decision.Off {
			m.violated("%s is drained while %s", action.Node, n.node.State)
		}
		n.set(0, slurmrest.Drain)
		n.reason(m, "berth: "+action.Why)
	case decision.Resume:
		if n.phase() != decision.Off {
			m.violated("%s is resumed while %s", action.Node, n.node.State)
		}
		n.set(slurmrest.Down|slurmrest.Drain, slurmrest.NotResponding) // seen on 24.11
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
			if n.cordoned {
				pod.HostProblem = "its host is cordoned"
			}
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
	m.now = m.now.Add(time.Minute)
	m.pool.Now, m.pool.TemplateProven, m.pool.Blocked = m.now, m.proven[m.pool.Template], map[string]string{}
	for _, n := range m.nodes {
		if n.cordoned {
			m.pool.Blocked[n.node.Name] = "its host is cordoned"
		}
	}
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
var order = []int{events, 0, 1, events, 12, 2, events, 12, 3, 4, 5, events, 10, 7, 8, 6, 9, 11, 13, 14, 15, 16, 17, 18, events}

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
	m.atRest()
}

// atRest checks what must hold in the end.
func (m *model) atRest() {
	inService, usable := 0, 0
	for _, n := range m.nodes {
		out := n.cordoned || m.pool.Removing // kept from Slurm with our reason, for as long as that holds
		waits := n.phase() == decision.Starting || n.phase() == decision.Leaving || n.has(slurmrest.PowerDown) ||
			n.has(slurmrest.Down|slurmrest.Drain) && !n.person && !out
		gone := n.phase() == decision.Up && !n.person && (n.worker == nil || n.worker.pod.Ended)
		extra := n.phase() == decision.Off && n.worker != nil
		if waits || gone || extra {
			m.violated("%s never comes to rest: %s %q, pod %+v", n.node.Name, n.node.State, n.node.Reason, n.worker)
		}
		if out && n.phase() != decision.Off {
			m.violated("%s is to be off and is %s %q", n.node.Name, n.node.State, n.node.Reason)
		}
		if n.worker != nil && m.pool.RenewBusy && !n.has(slurmrest.Maintenance) && n.worker.pod.Template != m.pool.Template {
			m.violated("%s never gets the new template: %s", n.node.Name, n.node.State)
		}
		if decision.InService(&n.node) {
			inService++
		}
		if !out && !n.has(slurmrest.Maintenance) {
			usable++
		}
	}
	if want := min(m.pool.Floor, usable); inService < want {
		m.violated("%d nodes are up, of at least %d", inService, want)
	}
}

// schedules is how many schedules the tests of the model play.
const schedules = 10_000

// checks makes rapid.Check play that many schedules; -rapid.checks asks for another number, -rapid.seed for one again.
func checks(t *testing.T) {
	asked := flag.Lookup("rapid.checks")
	if asked == nil || asked.Value.String() != asked.DefValue || testing.Short() {
		return
	}
	if err := asked.Value.Set(fmt.Sprint(schedules)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = asked.Value.Set(asked.DefValue) })
}

func TestNoScheduleKillsAJobOrStaysStuck(t *testing.T) {
	checks(t)
	rapid.Check(t, func(t *rapid.T) { schedule(t, "").settle() })
}

// schedule plays one schedule, and lets the administrators finish.
func schedule(t *rapid.T, bug string) *model {
	m := newModel(t, rapid.IntRange(1, 4).Draw(t, "nodes"))
	m.bug = bug
	m.pool.Floor = rapid.IntRange(0, 1).Draw(t, "floor")
	m.pool.RenewBusy = rapid.Bool().Draw(t, "renew busy workers")
	m.play()
	for _, n := range m.nodes {
		if n.person {
			m.environment(n, 11)
		}
	}
	if rapid.Bool().Draw(t, "uncordon") {
		for _, n := range m.nodes {
			n.cordoned = false
		}
	}
	m.pool.Removing = rapid.IntRange(0, 9).Draw(t, "remove the pool") == 9
	return m
}

// A model that finds nothing proves nothing: each of these mistakes of others' autoscalers must be found.
func TestModelFindsSeededBugs(t *testing.T) {
	for _, bug := range []string{"old data", "foreign drain lifted", "pod reused across a power-up"} {
		t.Run(bug, func(t *testing.T) {
			found := rapid.Custom(func(t *rapid.T) string {
				m := schedule(t, bug)
				m.settle()
				return m.found
			})
			for seed := range 1000 {
				if found := found.Example(seed); found != "" {
					t.Logf("schedule %d: %s", seed, found)
					return
				}
			}
			t.Error("not found in 1,000 schedules")
		})
	}
}
