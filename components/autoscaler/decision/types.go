package decision

import (
	"time"

	"github.com/berth-hpc/berth/components/slurmrest"
)

// ReasonPrefix begins every reason that Berth gives a Slurm node. Reasons with it are ours to clear.
const ReasonPrefix = "berth:"

// Reasons that Slurm itself gives a node, and that stand for "its pod did not come or went silent": ours to clear too.
// Every other reason is a person's (or a health check's), and neither overwritten nor cleared.
const (
	reasonNotResponding = "Not responding"
	reasonResumeTimeout = "ResumeTimeout reached"
)

// Pool is what a WorkerPool says.
type Pool struct {
	Name string `json:"name,omitzero"`
	// Floor is how many nodes stay up, FloorWhy says by which rule, and Max is the number of nodes.
	Floor    int    `json:"floor,omitzero"`
	FloorWhy string `json:"floorWhy,omitzero"`
	Max      int    `json:"max,omitzero"`
	// Template is the hash of the accepted pod template; "" while none was ever accepted: no pods are made.
	Template string `json:"template,omitzero"`
	// TemplateProven says that a node came up with a pod of Template. Until then one node at most tries it.
	TemplateProven bool `json:"templateProven,omitzero"`
	// RenewBusy says that busy workers of older templates are to take no new jobs; before, only idle ones are replaced.
	RenewBusy bool `json:"renewBusy,omitzero"`
	// RenewPercent is how much of the pool may be away at a time for a new template; 0: 25.
	RenewPercent int `json:"renewPercent,omitzero"`
	// ConfigAccepted says that slurmctld runs with the very configuration that the pool belongs to.
	ConfigAccepted bool `json:"configAccepted,omitzero"`
	// Removing says that the WorkerPool is being deleted: no floor, and its nodes take no new jobs.
	Removing bool `json:"removing,omitzero"`
	// Blocked says of a node why no host can take its pod now ("host ada is cordoned"). Slurm is told not to use it.
	Blocked map[string]string `json:"blocked,omitzero"`
	// Wants says of a node what Slurm powers it up for ("job 42, gres/mps:25"), where that is known. It is for people.
	Wants map[string]string `json:"wants,omitzero"`
	// Now is the time of slurmctld's answer.
	Now time.Time `json:"-"`
}

// blocked says why Slurm must not use the node; "": it may.
func (p Pool) blocked(node string) string {
	if p.Removing {
		return "the pool is removed"
	}
	return p.Blocked[node]
}

// Pod is what Kubernetes says of a worker's pod.
type Pod struct {
	// Name is the node's name too.
	Name string `json:"name,omitzero"`
	UID  string `json:"uid,omitzero"`
	// Ended: all its containers have ended (phase Succeeded or Failed).
	Ended bool `json:"ended,omitzero"`
	// EndedBecause says why, for the node's reason.
	EndedBecause string `json:"endedBecause,omitzero"`
	// Terminating: it has a deletion timestamp.
	Terminating bool `json:"terminating,omitzero"`
	// TerminatingBecause says on whose account, where Kubernetes does: an eviction, a preemption, a node that shuts down.
	TerminatingBecause string `json:"terminatingBecause,omitzero"`
	// Problem says why it does not run: no host has room, an image does not come; "": nothing is known.
	Problem string `json:"problem,omitzero"`
	// HostProblem says why it should leave its host ("host ada is cordoned"); "": it may stay.
	HostProblem string `json:"hostProblem,omitzero"`
	// Created is when Kubernetes made it.
	Created time.Time `json:"created,omitzero"`
	// SeenUp: its node was seen up since the pod was made, so it is no pod for a later power-up.
	SeenUp bool `json:"seenUp,omitzero"`
	// Busy: it carries the label that holds evictions back.
	Busy bool `json:"busy,omitzero"`
	// Template is the hash of the template that it was made from.
	Template string `json:"template,omitzero"`
}

// Kind is what an Action does.
type Kind string

const (
	// CreatePod makes the node's pod.
	CreatePod Kind = "CreatePod"
	// DeletePod deletes exactly the pod with Action.UID, with its grace.
	DeletePod Kind = "DeletePod"
	// MarkSeenUp notes on the pod that its node was up.
	MarkSeenUp Kind = "MarkSeenUp"
	// MarkBusy and MarkIdle set and take off the label that holds evictions back.
	MarkBusy Kind = "MarkBusy"
	MarkIdle Kind = "MarkIdle"
	// SetDown tells Slurm that the node is gone, so that its jobs requeue at once.
	SetDown Kind = "SetDown"
	// PowerDown asks Slurm to power a node down that has no work left and no slurmd worth keeping.
	PowerDown Kind = "PowerDown"
	// PowerDownASAP asks Slurm to power the node down when its jobs have ended; it takes no new ones.
	PowerDownASAP Kind = "PowerDownASAP"
	// PowerUp asks Slurm to power a node up that nobody waits for (the floor).
	PowerUp Kind = "PowerUp"
	// Drain keeps Slurm from using a powered-down node that could have no pod, and says why.
	Drain Kind = "Drain"
	// Resume clears a powered-down node's DOWN or DRAIN, so that Slurm can use it again.
	Resume Kind = "Resume"
)

// Action is one step for one node.
type Action struct {
	Kind Kind   `json:"kind,omitzero"`
	Node string `json:"node,omitzero"`
	// UID is the pod that the step is about, where there is one.
	UID string `json:"uid,omitzero"`
	// Why goes into the event, the log line, and Slurm's reason where the step sets one.
	Why string `json:"why,omitzero"`
}

// Hold is a node that needs something which this package must not do; a person has to know.
type Hold struct {
	Node string
	Why  string
}

// Phase is what a node's state means for its pod.
type Phase int

const (
	// Unclear: not to be touched.
	Unclear Phase = iota
	// Off: powered down.
	Off
	// Leaving: powering down.
	Leaving
	// Starting: powering up.
	Starting
	// Up: in service, whatever it does (idle, busy, draining, drained, down).
	Up
)

func (p Phase) String() string { return [...]string{"unclear", "off", "leaving", "starting", "up"}[p] }

// PhaseOf reads a node's state. POWER_DOWN alone is not Leaving: it is only asked for, and the node still works.
func PhaseOf(node *slurmrest.Node) Phase {
	s := node.State
	switch {
	case len(node.UnknownWords) > 0, s.Has(slurmrest.Unknown | slurmrest.Error | slurmrest.Future | slurmrest.Invalid):
		return Unclear
	case s.Has(slurmrest.PoweringDown):
		return Leaving
	case s.Has(slurmrest.PoweringUp):
		// Before PoweredDown: a power-up that was asked for by hand shows both (recorded from 24.11).
		return Starting
	case s.Has(slurmrest.PoweredDown):
		return Off
	default:
		return Up
	}
}

// Busy reports whether the node has jobs, configuring and completing ones included.
func Busy(node *slurmrest.Node) bool {
	return node.AllocCPUs > 0 || node.State.Has(slurmrest.Allocated|slurmrest.Mixed|slurmrest.Completing)
}
