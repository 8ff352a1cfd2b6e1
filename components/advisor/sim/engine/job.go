package engine

import (
	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Stretch is a time during which a job held cards of a node.
type Stretch struct {
	Job        int64
	Node       string
	Cards      []int
	Start, End workload.Time
}

// Outcome says how a job ended.
type Outcome uint8

// Outcomes.
const (
	Completed  Outcome = iota
	TimedOut           // killed at its limit
	Cancelled          // by its user, or because a job it waits for did not complete
	Impossible         // no node could ever serve it
	Starved            // still waiting when nothing more could happen
	NodeFail           // given up: node after node failed under it, and nothing of its work was ever saved
)

// String names the outcome.
func (o Outcome) String() string {
	return [...]string{"completed", "timeout", "cancelled", "impossible", "starved", "node_fail"}[o]
}

// Result is the fate of one job.
type Result struct {
	Request *workload.Request // valid during the call
	Outcome Outcome
	Start   workload.Time // first start; only if it started
	End     workload.Time
	// Service is the time the job held its resources.
	Service  workload.Time
	Preempts int
	Requeues int
	Node     string // of the last start, the first of several
}

// Job is a live job as schedulers see it.
type Job struct {
	workload.Request
	// Executed is the time the job has been running so far, as of the last event.
	Executed workload.Time
	// Running says that it holds resources.
	Running  bool
	Preempts int
	// Seq is the order of arrival.
	Seq int64
	// Key is for schedulers to keep a value with the job.
	Key float64

	truth     workload.Time // true run time alone at speed 1
	left      int64         // work left, µs at speed 1
	rate      int64         // parts per million of speed 1
	since     workload.Time // Executed and left are as of
	ready     workload.Time // makes progress from (nodes up, restart paid)
	began     workload.Time // of this stretch
	first     workload.Time // first start, −1 before
	service   workload.Time
	requeues  int
	kept      int64  // work left after the last checkpoint that a failure of a node found
	futile    int    // failures of nodes since kept last fell
	version   uint32 // of the completion event in force
	pieces    []piece
	cancelAt  workload.Time
	waitsFor  int
	dead      bool
	active    bool // counts against the bound of its array
	index     int  // in the list of running jobs
	shape     int32
	stretched bool // spread over more nodes than needed
}

// piece is what a job holds of one node.
type piece struct {
	node   int
	demand cluster.Demand
	cards  []int
}
