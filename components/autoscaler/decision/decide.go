package decision

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/slurmrest"
)

// Decide returns the next steps for a pool. names are the pool's node names in order of their index, as the WorkerPool
// counts them; nodes is slurmctld's fresh answer by node name, and pods are the pool's pods by name. Decide must not be
// called without a fresh answer: no data, no action.
func Decide(pool Pool, names []string, nodes map[string]*slurmrest.Node, pods map[string]*Pod) ([]Action, []Hold) {
	var actions []Action
	var holds []Hold
	for _, name := range names {
		node, pod := nodes[name], pods[name]
		if node == nil {
			if pod != nil {
				holds = append(holds, Hold{name, "slurmctld does not know the node (yet): its pod is left alone"})
			}
			continue
		}
		action, hold := decideNode(pool, node, pod)
		actions = append(actions, action...)
		holds = append(holds, hold...)
	}
	actions = append(actions, leftOver(pool, names, nodes, pods)...)
	actions = append(actions, floor(pool, names, nodes, pods)...)
	actions = append(actions, renew(pool, names, nodes, pods)...)
	return actions, holds
}

// decideNode is the table of the design: what Slurm says of the node, and what its pod must be.
func decideNode(pool Pool, node *slurmrest.Node, pod *Pod) ([]Action, []Hold) {
	var actions []Action
	if pod != nil && !pod.Terminating && pod.Busy != Busy(node) {
		kind := MarkIdle
		if Busy(node) {
			kind = MarkBusy
		}
		actions = append(actions, Action{Kind: kind, Node: node.Name, UID: pod.UID, Why: node.State.String()})
	}
	var more []Action
	var holds []Hold
	switch PhaseOf(node) {
	case Leaving, Off:
		more, holds = away(pool, node, pod)
	case Starting:
		more, holds = starting(pool, node, pod)
	case Up:
		more, holds = up(pool, node, pod)
	default:
		holds = []Hold{{node.Name, fmt.Sprintf("its state %s %v is not one that Berth understands", node.State, node.UnknownWords)}}
	}
	return append(actions, more...), holds
}

// retryAfter is how long a node whose pod Kubernetes could not run in time stays drained before it is tried again.
const retryAfter = 5 * time.Minute

// away: the node is powered down or powering down, so it has no job. Its pod must go; when it has gone, what keeps Slurm
// from using the node again is cleared, or the node is kept from Slurm for as long as no host could take its pod.
func away(pool Pool, node *slurmrest.Node, pod *Pod) ([]Action, []Hold) {
	leaving := PhaseOf(node) == Leaving
	blocked := pool.blocked(node.Name)
	unused := node.State.Has(slurmrest.Down | slurmrest.Drain) // Slurm gives it to nobody
	clearable := unused && Clearable(node.Reason)
	switch {
	case !leaving && !unused && blocked != "" && !node.State.Has(slurmrest.PowerDown):
		actions := []Action{{Kind: Drain, Node: node.Name, UID: uidOf(pod), Why: blocked}}
		return append(actions, takeAway(node, pod)...), nil
	case !leaving && pod != nil && !pod.Terminating && pod.Problem != "" && strings.HasPrefix(node.Reason, reasonResumeTimeout) && node.State.Has(slurmrest.Down):
		// The reason says what to mend, and the node is left out until it may have been.
		actions := []Action{{Kind: Drain, Node: node.Name, UID: pod.UID, Why: noPod + pod.Problem}}
		return append(actions, takeAway(node, pod)...), nil
	case pod != nil && !pod.Ended && leaving && Busy(node):
		return nil, nil // an epilog still runs; Slurm says when it has ended
	case pod != nil:
		return takeAway(node, pod), nil
	case !leaving && node.State.Has(slurmrest.NotResponding) && !node.State.Has(slurmrest.Down|slurmrest.Drain|slurmrest.PowerDown):
		// Left by a slurmctld that ended while the node was on its way: Slurm allocates such a node to nobody, RESUME is
		// refused, and another power-down clears it (seen on 24.11).
		return []Action{{Kind: PowerDown, Node: node.Name, Why: "powered down, but marked as not responding"}}, nil
	case leaving || !clearable:
		return nil, nil
	case blocked != "":
		return nil, []Hold{{node.Name, blocked + ": drained until that has changed"}}
	case strings.HasPrefix(node.Reason, ReasonPrefix+" "+noPod) && pool.Now.Sub(node.ReasonAt) < retryAfter:
		return nil, []Hold{{node.Name, fmt.Sprintf("%s: drained, and tried again in %s", ownWords(node.Reason), retryAfter)}}
	}
	return []Action{{Kind: Resume, Node: node.Name, Why: fmt.Sprintf("powered down after %q", node.Reason)}}, nil
}

// noPod begins our reason for a node whose pod did not run in time.
const noPod = "no pod in time: "

// takeAway deletes a pod whose node is powered down, once.
func takeAway(node *slurmrest.Node, pod *Pod) []Action {
	if pod == nil || pod.Terminating {
		return nil
	}
	return []Action{{Kind: DeletePod, Node: node.Name, UID: pod.UID, Why: "Slurm says " + node.State.String()}}
}

// ownWords are a reason of ours without its prefix and what slurmctld appends.
func ownWords(reason string) string {
	words, _, _ := strings.Cut(strings.TrimPrefix(reason, ReasonPrefix), " [")
	return strings.TrimSpace(words)
}

// starting: the node must have a pod, and a new one.
func starting(pool Pool, node *slurmrest.Node, pod *Pod) ([]Action, []Hold) {
	switch {
	case pod == nil && pool.Template == "":
		return nil, []Hold{{node.Name, "Slurm wants the node, but no pod template was accepted yet"}}
	case pod == nil:
		why := "Slurm powers it up"
		if wants := pool.Wants[node.Name]; wants != "" {
			why += " for " + wants
		}
		return []Action{{Kind: CreatePod, Node: node.Name, Why: why}}, nil
	case pod.Terminating:
		return nil, nil // its name is free when it has gone
	case pod.Ended:
		return []Action{{Kind: DeletePod, Node: node.Name, UID: pod.UID, Why: "it ended while its node powers up: " + pod.EndedBecause}}, nil
	case pod.SeenUp || !pod.Created.IsZero() && node.BootTime.After(pod.Created):
		// Its slurmd booted before this power-up, and slurmctld would wait for another boot until ResumeTimeout. Where slurmrestd did
		// not answer while the node was up nobody saw it, but slurmctld remembers a boot of this pod's, and a boot for this power-up
		// would have ended it.
		return []Action{{Kind: DeletePod, Node: node.Name, UID: pod.UID, Why: "it is from before this power-up"}}, nil
	}
	return nil, nil
}

// up: the node is registered, or was. Its pod must exist and run; if it does not, Slurm is told in two steps, DOWN and
// then power-down, each of which the next call can take up after a crash.
func up(pool Pool, node *slurmrest.Node, pod *Pod) ([]Action, []Hold) {
	asked := node.State.Has(slurmrest.PowerDown) // it goes down by itself as soon as its jobs have ended
	switch {
	case node.State.Has(slurmrest.Down):
		return down(node, pod, asked)
	case pod == nil || pod.Ended:
		return gone(node, pod)
	case pod.Terminating:
		if asked || node.State.Has(slurmrest.Drain) {
			return nil, nil
		}
		// Somebody else deletes the pod (an eviction, a node that shuts down): no new job may start on it.
		why := "its pod is being deleted by somebody else"
		if pod.TerminatingBecause != "" {
			why = "its pod is being deleted: " + pod.TerminatingBecause
		}
		return []Action{{Kind: PowerDownASAP, Node: node.Name, UID: pod.UID, Why: why}}, nil
	case node.State.Has(slurmrest.Drain) && !asked && strings.HasPrefix(node.Reason, ReasonPrefix):
		// Our own drain without the power-down that belongs to it: nothing else would ever lift it.
		return []Action{{Kind: PowerDownASAP, Node: node.Name, UID: pod.UID, Why: ownWords(node.Reason)}}, nil
	case !pod.SeenUp:
		return []Action{{Kind: MarkSeenUp, Node: node.Name, UID: pod.UID, Why: node.State.String()}}, nil
	case asked || node.State.Has(slurmrest.Drain):
		return nil, nil
	case pool.Removing:
		// Its jobs end by themselves; new ones would keep the pool for ever.
		return []Action{{Kind: PowerDownASAP, Node: node.Name, UID: pod.UID, Why: "the pool is removed"}}, nil
	case pod.HostProblem != "":
		return []Action{{Kind: PowerDownASAP, Node: node.Name, UID: pod.UID, Why: pod.HostProblem}}, nil
	}
	return nil, nil
}

// down: Slurm has given the node up, so no job runs on it any more. For our own or Slurm's own reasons it is brought
// round; a person's DOWN stays as it is.
func down(node *slurmrest.Node, pod *Pod, asked bool) ([]Action, []Hold) {
	if !Clearable(node.Reason) {
		if pod == nil || pod.Ended {
			return nil, []Hold{{node.Name, fmt.Sprintf("down because of %q, and its pod is gone: resume it when that is mended", node.Reason)}}
		}
		return nil, nil
	}
	if asked {
		return nil, nil
	}
	return []Action{{Kind: PowerDown, Node: node.Name, UID: uidOf(pod), Why: node.Reason}}, nil
}

// gone: the node counts as up, but its pod has ended or is not there.
func gone(node *slurmrest.Node, pod *Pod) ([]Action, []Hold) {
	why := "its pod is gone"
	if pod != nil {
		why = "its pod ended: " + pod.EndedBecause
	}
	if node.State.Has(slurmrest.Drain) && !Clearable(node.Reason) {
		// A person drained it. DOWN with our reason would overwrite theirs, and the power-down after it would lift the
		// drain. Jobs on it, if any, are Slurm's to find ("Not responding").
		return nil, []Hold{{node.Name, fmt.Sprintf("%s, and it is drained because of %q: undrain it when that is mended", why, node.Reason)}}
	}
	return []Action{{Kind: SetDown, Node: node.Name, UID: uidOf(pod), Why: why}}, nil
}

// leftOver deletes pods whose nodes left Slurm: the pool shrank, and slurmctld already runs with the configuration that
// has them no longer (the guard applied it only when they had no jobs).
func leftOver(pool Pool, names []string, nodes map[string]*slurmrest.Node, pods map[string]*Pod) []Action {
	if !pool.ConfigAccepted && !pool.Removing {
		return nil
	}
	inPool := make(map[string]bool, len(names))
	for _, name := range names {
		inPool[name] = true
	}
	var actions []Action
	for name, pod := range pods {
		if inPool[name] && !pool.Removing || nodes[name] != nil || pod.Terminating {
			continue
		}
		actions = append(actions, Action{Kind: DeletePod, Node: name, UID: pod.UID, Why: "its node is in Slurm's configuration no longer"})
	}
	for name, pod := range pods { // a node above max that Slurm still has: ask for its end
		node := nodes[name]
		if node == nil || inPool[name] {
			continue
		}
		if PhaseOf(node) == Up && !node.State.Has(slurmrest.PowerDown|slurmrest.Drain|slurmrest.Down) {
			actions = append(actions, Action{Kind: PowerDownASAP, Node: name, UID: pod.UID, Why: "the pool is smaller now"})
		} else if phase := PhaseOf(node); phase == Off || phase == Leaving {
			more, _ := away(Pool{}, node, pod)
			actions = append(actions, more...)
		}
	}
	slices.SortFunc(actions, func(a, b Action) int { return strings.Compare(a.Node, b.Node) })
	return actions
}

// floor powers nodes up until as many as stay up are in service or on their way, lowest index first. Slurm keeps them up
// by SuspendExcNodes; that list alone starts none.
func floor(pool Pool, names []string, nodes map[string]*slurmrest.Node, pods map[string]*Pod) []Action {
	if pool.Removing || pool.Template == "" {
		return nil
	}
	missing := pool.Floor
	for _, name := range names {
		if node := nodes[name]; node != nil && InService(node) {
			missing--
		}
	}
	var actions []Action
	for _, name := range names {
		if missing <= 0 {
			break
		}
		if !startable(pool, nodes[name]) {
			continue
		}
		missing--
		if pods[name] == nil { // else its pod must go first
			actions = append(actions, Action{Kind: PowerUp, Node: name, Why: fmt.Sprintf("the pool keeps %d up (%s)", pool.Floor, pool.FloorWhy)})
		}
	}
	return actions
}

// startable tells whether a power-up of the node would be of use.
func startable(pool Pool, node *slurmrest.Node) bool {
	const out = slurmrest.Down | slurmrest.Drain | slurmrest.PowerUp | slurmrest.PowerDown | slurmrest.NotResponding | slurmrest.Maintenance
	return node != nil && PhaseOf(node) == Off && !node.State.Has(out) && pool.blocked(node.Name) == ""
}

// renew brings a new template into the pool. First one node tries it: one that is off, if there is one, so that nobody
// gives anything up for a template that does not work. Once a node has come up with it, workers from older ones are asked to
// end: idle ones first, and never more at one time than the pool's share, everything counted that is on its way. In a
// maintenance window nobody misses an idle worker, so all of them are, and what is on its way there counts for nothing; busy
// ones are the administrator's there.
func renew(pool Pool, names []string, nodes map[string]*slurmrest.Node, pods map[string]*Pod) []Action {
	if pool.Template == "" || pool.Removing {
		return nil
	}
	var idle, busy, spare, window []Action
	underway := 0
	for _, name := range names {
		node, pod := nodes[name], pods[name]
		if node == nil {
			continue
		}
		if !pool.TemplateProven && len(spare) == 0 && pod == nil && startable(pool, node) {
			spare = append(spare, Action{Kind: PowerUp, Node: name, Why: "to try the pool's new pod template before workers are replaced"})
		}
		maintained := node.State.Has(slurmrest.Maintenance)
		switch phase := PhaseOf(node); {
		case maintained && (!pool.TemplateProven || Busy(node)):
			continue
		case !maintained && (phase == Leaving || phase == Starting || phase == Up && (node.State.Has(slurmrest.PowerDown) || pod != nil && !pod.SeenUp) ||
			phase == Off && failed(node) && pool.blocked(name) == ""):
			underway++
			continue
		case phase != Up || pod == nil || pod.Ended || pod.Terminating || pod.Template == pool.Template ||
			node.State.Has(slurmrest.Drain|slurmrest.Down|slurmrest.PowerDown):
			continue
		}
		action := Action{Kind: PowerDownASAP, Node: name, UID: pod.UID, Why: "the pool's pod template is a new one"}
		switch {
		case maintained:
			action.Why += ", and its node is in a maintenance window"
			window = append(window, action)
		case Busy(node):
			busy = append(busy, action)
		default:
			idle = append(idle, action)
		}
	}
	all := idle
	if pool.RenewBusy {
		all = append(all, busy...)
	}
	percent := pool.RenewPercent
	if percent <= 0 {
		percent = 25
	}
	budget := max(1, pool.Max*percent/100) - underway
	if !pool.TemplateProven {
		budget = 1 - underway
		if len(idle)+len(busy) > 0 && len(spare) > 0 {
			all = spare
		}
	}
	return append(window, all[:max(0, min(budget, len(all)))]...)
}

// failed tells whether a node is left out because its pod did not come: a replacement that is not there, whatever Slurm
// would do with the node.
func failed(node *slurmrest.Node) bool {
	return node.State.Has(slurmrest.Down|slurmrest.Drain) &&
		(strings.HasPrefix(node.Reason, reasonResumeTimeout) || strings.HasPrefix(node.Reason, ReasonPrefix+" "+noPod))
}

// InService reports whether a node counts for the floor: up or starting, and neither down, drained nor on its way out.
func InService(node *slurmrest.Node) bool {
	phase := PhaseOf(node)
	return (phase == Up || phase == Starting) && !node.State.Has(slurmrest.Down|slurmrest.Drain|slurmrest.PowerDown)
}

// Clearable reports whether a node's reason is one that Berth may clear: its own, or one of Slurm's two own. slurmctld
// appends " [user@time]" to a reason in some answers.
func Clearable(reason string) bool {
	return strings.HasPrefix(reason, ReasonPrefix) || strings.HasPrefix(reason, reasonNotResponding) || strings.HasPrefix(reason, reasonResumeTimeout)
}

func uidOf(pod *Pod) string {
	if pod == nil {
		return ""
	}
	return pod.UID
}
