// Package snapshot is the advisor's picture of a cluster: nodes and jobs as slurmctld last told them, with a version and an
// age. It holds the picture, the changes that bring one up to date (Delta), and the agent that asks slurmrestd for them. It
// advises nothing.
package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-hpc/berth/components/advisor/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Schema is the version of Delta's JSON.
const Schema = 1

// Bounds of what a snapshot may hold, against callers gone mad.
const (
	MaxNodes = 50_000
	MaxJobs  = 500_000
	maxText  = 1024
)

// Node is a Slurm node.
type Node struct {
	Name       string   `json:"name"`
	State      []string `json:"state"`
	Partitions []string `json:"partitions,omitempty"`
	CPUs       int      `json:"cpus"`
	AllocCPUs  int      `json:"alloc_cpus"`
	MemoryMiB  int64    `json:"memory_mib"`
	AllocMiB   int64    `json:"alloc_memory_mib"`
	Gres       string   `json:"gres,omitempty"`
	GresUsed   string   `json:"gres_used,omitempty"`
}

// Job is a job that waits or runs. Times are Unix seconds, 0 where Slurm says none.
type Job struct {
	ID           int64  `json:"id"`
	Tasks        string `json:"tasks,omitempty"` // array tasks that the record still stands for
	State        string `json:"state"`
	Name         string `json:"name,omitempty"`
	User         string `json:"user,omitempty"`
	Account      string `json:"account,omitempty"`
	Partition    string `json:"partition,omitempty"`
	QOS          string `json:"qos,omitempty"`
	Comment      string `json:"comment,omitempty"`
	Submit       int64  `json:"submit"`
	Start        int64  `json:"start,omitempty"`
	End          int64  `json:"end,omitempty"`
	LimitMinutes int64  `json:"limit_minutes,omitempty"` // 0: none
	TRES         string `json:"tres,omitempty"`          // what it asks for, as Slurm writes it
	Nodes        string `json:"nodes,omitempty"`         // where it runs
	Priority     int64  `json:"priority"`
	Nice         int64  `json:"nice,omitempty"`
	Held         bool   `json:"held,omitempty"`
	Reason       string `json:"reason,omitempty"`         // why it waits, in Slurm's word
	Required     string `json:"required_nodes,omitempty"` // the nodes that it must run on
	Bound        string `json:"bound,omitempty"`          // what else bounds where or when it may run, for people
	Exit         string `json:"exit,omitempty"`
	Note         string `json:"admin_comment,omitempty"`
}

// Pending says that the job waits.
func (j *Job) Pending() bool { return j.State == "PENDING" }

// RequiredNode is the one node that the job must run on; "" where it names none or several.
func (j *Job) RequiredNode() string {
	if strings.ContainsAny(j.Required, ",[") {
		return ""
	}
	return j.Required
}

// Snapshot is the picture. It is never changed once made.
type Snapshot struct {
	Cluster string
	Version uint64
	TakenAt time.Time
	Nodes   []Node // by name
	Jobs    []Job  // by number
}

// Delta brings a snapshot of version Base to Version; Base 0 holds everything.
type Delta struct {
	Schema  int       `json:"schema"`
	Cluster string    `json:"cluster"`
	Base    uint64    `json:"base"`
	Version uint64    `json:"version"`
	TakenAt time.Time `json:"taken_at"`
	Nodes   []Node    `json:"nodes,omitempty"` // new or changed
	Jobs    []Job     `json:"jobs,omitempty"`  // new or changed
	Gone    []int64   `json:"gone,omitempty"`  // jobs that Slurm no longer has
	NoNodes []string  `json:"no_nodes,omitempty"`
}

// ErrBase says that a delta does not follow on what is there: the sender must send everything.
var ErrBase = errors.New("the change does not follow on the snapshot that is here; send the whole (base 0)")

// check refuses what no agent sends.
func (d *Delta) check(now time.Time) error {
	switch {
	case d.Schema != Schema:
		return fmt.Errorf("schema is %d, this program reads %d", d.Schema, Schema)
	case d.Version == 0 || d.Version <= d.Base:
		return fmt.Errorf("version %d does not follow base %d", d.Version, d.Base)
	case d.TakenAt.IsZero() || d.TakenAt.After(now.Add(time.Minute)):
		return fmt.Errorf("taken_at %s is no time in the past", d.TakenAt)
	case len(d.Nodes) > MaxNodes || len(d.Jobs) > MaxJobs:
		return fmt.Errorf("%d nodes and %d jobs are more than %d and %d", len(d.Nodes), len(d.Jobs), MaxNodes, MaxJobs)
	}
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.Name == "" || len(n.Name) > maxText || n.CPUs < 0 || n.AllocCPUs < 0 || n.MemoryMiB < 0 || n.AllocMiB < 0 {
			return fmt.Errorf("node %d (%.64q) has no name or negative sizes", i, n.Name)
		}
	}
	for i := range d.Jobs {
		if j := &d.Jobs[i]; j.ID <= 0 || j.State == "" || j.LimitMinutes < 0 {
			return fmt.Errorf("job %d of the list has no number, no state or a negative limit", i)
		}
	}
	return nil
}

// Store holds the present snapshot. It is safe for concurrent use.
type Store struct {
	mu      sync.Mutex
	present *Snapshot
}

// Present is the snapshot, nil before the first.
func (s *Store) Present() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present
}

// Apply takes a change and returns the snapshot that it makes. ErrBase asks for the whole.
func (s *Store) Apply(d *Delta, now time.Time) (*Snapshot, error) {
	if err := d.check(now); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var nodes []Node
	var jobs []Job
	if d.Base != 0 {
		if s.present == nil || s.present.Version != d.Base || s.present.Cluster != d.Cluster {
			return nil, ErrBase
		}
		nodes, jobs = s.present.Nodes, s.present.Jobs
	}
	next := &Snapshot{
		Cluster: d.Cluster, Version: d.Version, TakenAt: d.TakenAt,
		Nodes: merge(nodes, d.Nodes, d.NoNodes, func(n *Node) string { return n.Name }),
		Jobs:  merge(jobs, d.Jobs, d.Gone, func(j *Job) int64 { return j.ID }),
	}
	if len(next.Nodes) > MaxNodes || len(next.Jobs) > MaxJobs {
		return nil, fmt.Errorf("the snapshot would hold %d nodes and %d jobs, more than %d and %d", len(next.Nodes), len(next.Jobs), MaxNodes, MaxJobs)
	}
	s.present = next
	return next, nil
}

// merge gives old with changed laid over it and gone taken away, in the order of the keys.
func merge[T any, K int64 | string](old, changed []T, gone []K, key func(*T) K) []T {
	if len(changed) == 0 && len(gone) == 0 {
		return old
	}
	all := make(map[K]*T, len(old)+len(changed))
	for i := range old {
		all[key(&old[i])] = &old[i]
	}
	for _, k := range gone {
		delete(all, k)
	}
	for i := range changed {
		all[key(&changed[i])] = &changed[i]
	}
	out := make([]T, 0, len(all))
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, *all[k])
	}
	return out
}

// State is the snapshot as a policy sees it. order lists node name prefixes in the site's order, fastest cards first; nodes of
// no prefix come last, by name. A job that waits for one node by name counts as on it.
func (s *Snapshot) State(now time.Time, order []string) *policy.State {
	state := &policy.State{Now: now.UnixMicro(), Nodes: make([]policy.Node, 0, len(s.Nodes))}
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.Pending() && !j.Held {
			state.Waiting = append(state.Waiting, j.Request())
		}
	}
	for i := range s.Nodes {
		state.Nodes = append(state.Nodes, s.Nodes[i].Free())
	}
	s.promise(state.Nodes)
	rank := func(name string) int {
		for i, prefix := range order {
			if strings.HasPrefix(name, prefix) {
				return i
			}
		}
		return len(order)
	}
	slices.SortStableFunc(state.Nodes, func(a, b policy.Node) int { return rank(a.Name) - rank(b.Name) })
	return state
}

// promise takes from the nodes, which are in the snapshot's order, what waiting jobs that name one of them will use.
func (s *Snapshot) promise(nodes []policy.Node) {
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Required == "" || !j.Pending() || j.Held {
			continue
		}
		at, has := slices.BinarySearchFunc(s.Nodes, j.RequiredNode(), func(n Node, name string) int { return strings.Compare(n.Name, name) })
		if has {
			nodes[at].Take(ptr(j.Request()))
		}
	}
}

// unlimited stands for a job's limit where it has none: the 365 days that Slurm plans an unlimited job with.
const unlimited = 365 * workload.Day

// Request is the job as policies see it.
func (j *Job) Request() workload.Request {
	r := workload.Request{
		ID: j.ID, Submit: j.Submit * workload.Second, Limit: min(j.LimitMinutes, 525600) * workload.Minute,
		User: j.User, Account: j.Account, Partition: j.Partition, QOS: j.QOS,
		// Slurm gives every job a CPU at least; a job of which nothing is known must not look like the smallest of all.
		Procs: 1, CPUMilli: 1000,
	}
	if r.Limit <= 0 {
		r.Limit = unlimited
	}
	ApplyTRES(&r, j.TRES)
	return r
}

// ApplyTRES reads what a job asks for from Slurm's text (cpu=4,mem=8G,node=1,gres/gpu:rtx4070=1,gres/mps=25). Words that it
// does not know are left out.
func ApplyTRES(r *workload.Request, text string) {
	for part := range strings.SplitSeq(text, ",") {
		name, count, has := strings.Cut(part, "=")
		if !has {
			continue
		}
		name, kind, _ := strings.Cut(strings.TrimSpace(name), ":")
		switch name {
		case "cpu":
			if n, err := strconv.ParseInt(count, 10, 32); err == nil && n > 0 {
				r.CPUMilli, r.Procs = n*1000, int32(n)
			}
		case "mem":
			r.MemMiB = mebibytes(count)
		case "gres/gpu", "gres/mps":
			ApplyGRES(r, strings.TrimPrefix(name, "gres/"), kind, count)
		}
	}
}

// ApplyGRES notes cards, or a share of one, that a job asks for.
func ApplyGRES(r *workload.Request, name, kind, count string) {
	n, err := strconv.ParseInt(count, 10, 32)
	if err != nil || n <= 0 {
		return
	}
	switch name {
	case "gpu":
		r.GPUs, r.GPUMilli = int32(n), 1000
	case "mps": // percent of one card
		r.GPUs, r.GPUMilli = 1, int32(min(n, 100))*10
	default:
		return
	}
	if kind != "" && !slices.Contains(r.GPUTypes, kind) {
		r.GPUTypes = append(r.GPUTypes, kind)
	}
}

// mebibytes reads Slurm's amount of memory: a number with K, M, G or T, M where there is none.
func mebibytes(text string) int64 {
	unit := 1.0
	if n := len(text); n > 0 {
		switch text[n-1] {
		case 'K':
			unit, text = 1.0/1024, text[:n-1]
		case 'M':
			text = text[:n-1]
		case 'G':
			unit, text = 1024, text[:n-1]
		case 'T':
			unit, text = 1<<20, text[:n-1]
		}
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0) || x*unit > 1<<50 {
		return 0
	}
	return int64(x * unit)
}

// usable is a node that takes jobs, now or once it is powered up.
func (n *Node) usable() bool {
	for _, word := range n.State {
		switch word {
		case "NOT_RESPONDING":
			// A powered-down node that was drained and resumed keeps the word, and slurmctld powers it up for a job like any other.
			if !slices.Contains(n.State, "POWERED_DOWN") {
				return false
			}
		case "DOWN", "DRAIN", "FAIL", "ERROR", "UNKNOWN", "FUTURE", "POWERING_DOWN", "POWER_DOWN", "POWER_DRAIN", "MAINTENANCE", "BLOCKED", "INVALID_REG", "REBOOT_REQUESTED", "REBOOT_ISSUED":
			return false
		}
	}
	return len(n.State) > 0
}

// Free is what is free on the node.
func (n *Node) Free() policy.Node {
	out := policy.Node{
		Name: n.Name, Usable: n.usable(), Partitions: n.Partitions,
		CPUMilli: int64(max(n.CPUs-n.AllocCPUs, 0)) * 1000, MemMiB: max(n.MemoryMiB-n.AllocMiB, 0),
	}
	total, used := gresCounts(n.Gres), gresCounts(n.GresUsed)
	cards := total["gpu"]
	out.Type = cards.kind
	out.CardMilli = make([]int32, min(cards.count, 64))
	whole, shares := used["gpu"].count, used["mps"].count
	for i := range out.CardMilli {
		switch {
		case whole > 0:
			whole--
		case shares > 0:
			out.CardMilli[i] = int32(max(100-shares, 0)) * 10
			shares -= 100
		default:
			out.CardMilli[i] = 1000
		}
	}
	return out
}

type gresCount struct {
	kind  string
	count int
}

// gresCounts reads a GRES string: gpu:rtx4070:1, mps:rtx4070:100, and as used gpu:rtx4070:0(IDX:N/A),mps:rtx4070:25(25/100).
func gresCounts(text string) map[string]gresCount {
	out := map[string]gresCount{}
	depth := 0
	split := func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		return r == ',' && depth == 0
	}
	for _, part := range strings.FieldsFunc(text, split) {
		part, _, _ = strings.Cut(part, "(")
		words := strings.Split(part, ":")
		if len(words) < 2 {
			continue
		}
		n, err := strconv.Atoi(words[len(words)-1])
		if err != nil || n < 0 || n > 1<<20 {
			continue
		}
		c := out[words[0]]
		c.count += n
		if len(words) > 2 {
			c.kind = words[1]
		}
		out[words[0]] = c
	}
	return out
}
