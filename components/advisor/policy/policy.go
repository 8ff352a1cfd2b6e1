// Package policy is what the advisor serves: one small interface that a heuristic, a fixed answer for tests and a trained network
// all fill. A policy sees a job's request and the cluster's state; it knows nothing of HTTP, Slurm or guardrails, and decides
// nothing about whether it is asked.
package policy

import (
	"slices"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Policy is one way to advise. It is safe for concurrent use.
type Policy interface {
	// Name says which policy it is, for people.
	Name() string
	// Prepare derives from a state of the cluster all that advice on it needs. It may take milliseconds and allocate; what it
	// returns may not.
	Prepare(*State) Prepared
}

// Prepared advises on one state of the cluster. Its methods allocate nothing, take microseconds, and are safe for concurrent
// use.
type Prepared interface {
	// Decide advises on a job that is being submitted.
	Decide(*workload.Request) Advice
	// Act chooses which of the held jobs goes where; false: none of them anywhere.
	Act(jobs []workload.Request) (Action, bool)
}

// Advice is what a policy thinks of a job.
type Advice struct {
	// Score is the part of the largest boost that the job should get, 0 to 1.
	Score float64
	// Value is how good the policy expects the outcome to be, on the policy's own scale.
	Value float64
}

// Action is a placement: indices into the jobs that were given, the state's nodes, and the node's cards.
type Action struct {
	Job, Node, Card int
	Value           float64
}

// State is a cluster at one moment.
type State struct {
	Now     workload.Time
	Waiting []workload.Request // pending jobs
	Nodes   []Node             // in the site's order, fastest cards first
}

// Node is what is free on one Slurm node.
type Node struct {
	Name string
	// Usable is false for nodes that are down, draining or unreachable.
	Usable     bool
	Partitions []string
	Type       string // model of its cards
	CPUMilli   int64
	MemMiB     int64
	// CardMilli is what is free of each card, in thousandths.
	CardMilli []int32
}

// Fits says whether a job of one node fits on the node now, and on which card: the fullest that has room for a share, or
// −1 for whole cards.
func (n *Node) Fits(r *workload.Request) (card int, fits bool) {
	if !n.Usable || n.CPUMilli < r.CPUMilli || n.MemMiB < r.MemMiB || !n.has(r.Partition) || !n.is(r.GPUTypes) {
		return -1, false
	}
	if r.GPUs == 0 {
		return -1, true
	}
	share := r.GPUMilli
	if share == 0 {
		share = wholeCard
	}
	card = -1
	if r.GPUs == 1 && share < wholeCard {
		for i, left := range n.CardMilli {
			if left >= share && (card < 0 || left < n.CardMilli[card]) {
				card = i
			}
		}
		return card, card >= 0
	}
	free := int32(0)
	for i, left := range n.CardMilli {
		if left >= wholeCard {
			if card < 0 {
				card = i
			}
			free++
		}
	}
	return card, free >= r.GPUs
}

const wholeCard = 1000

// Take takes from what is free what a job of one node will use: where Fits would put it, or, if that is not free yet, the cards with
// the most left.
func (n *Node) Take(r *workload.Request) {
	card, fits := n.Fits(r)
	n.CPUMilli, n.MemMiB = max(n.CPUMilli-r.CPUMilli, 0), max(n.MemMiB-r.MemMiB, 0)
	share := r.GPUMilli
	if share == 0 {
		share = wholeCard
	}
	for range min(int(r.GPUs), len(n.CardMilli)) {
		if !fits || r.GPUs > 1 || share >= wholeCard {
			card = 0
			for i, left := range n.CardMilli {
				if left > n.CardMilli[card] {
					card = i
				}
			}
		}
		n.CardMilli[card] = max(n.CardMilli[card]-share, 0)
	}
}

func (n *Node) has(partition string) bool {
	if partition == "" || len(n.Partitions) == 0 {
		return true
	}
	// A job may name several partitions.
	for rest := partition; rest != ""; {
		var one string
		one, rest, _ = strings.Cut(rest, ",")
		if slices.Contains(n.Partitions, one) {
			return true
		}
	}
	return false
}

func (n *Node) is(types []string) bool {
	for _, t := range types {
		if t == n.Type {
			return true
		}
	}
	return len(types) == 0
}
