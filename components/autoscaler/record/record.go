// Package record keeps what the autoscaler's rounds saw and what they did about it, in a bounded space, so that a person can ask
// afterwards why a pod came or went, and a test can play the rounds again. It decides nothing and reads nothing but its own lines.
package record

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// Node is what a decision reads of a Slurm node.
type Node struct {
	State slurmrest.NodeState `json:"state"`
	// UnknownWords are those of the state that the autoscaler did not know, with "+" between them.
	UnknownWords string    `json:"unknownWords,omitzero"`
	Reason       string    `json:"reason,omitzero"`
	ReasonAt     time.Time `json:"reasonAt,omitzero"`
	AllocCPUs    int       `json:"allocCPUs,omitzero"`
	BootTime     time.Time `json:"bootTime,omitzero"`
}

// NodeOf is what a decision reads of the node.
func NodeOf(n *slurmrest.Node) Node {
	return Node{n.State, strings.Join(n.UnknownWords, "+"), n.Reason, utc(n.ReasonAt), n.AllocCPUs, utc(n.BootTime)}
}

// utc makes equal times equal values, written as they are read.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Round(0)
}

// Done is an action, and why it was not done; "": it was.
type Done struct {
	decision.Action
	Failed string `json:"failed,omitzero"`
}

// State is all that a decision for a pool rests on.
type State struct {
	Pool  decision.Pool
	Names []string
	Nodes map[string]Node
	Pods  map[string]decision.Pod
}

// NewState is the state from a decision's arguments: of the nodes those that are the pool's, or that have a pod of it.
func NewState(pool decision.Pool, names []string, nodes map[string]*slurmrest.Node, pods map[string]*decision.Pod) State {
	s := State{Pool: pool, Names: names, Nodes: make(map[string]Node, len(names)), Pods: make(map[string]decision.Pod, len(pods))}
	s.Pool.Now = time.Time{}
	for _, name := range names {
		if node := nodes[name]; node != nil {
			s.Nodes[name] = NodeOf(node)
		}
	}
	for name, pod := range pods {
		copied := *pod
		copied.Created = utc(pod.Created)
		s.Pods[name] = copied
		if node := nodes[name]; node != nil {
			s.Nodes[name] = NodeOf(node)
		}
	}
	return s
}

// Decide is the decision that rests on the state at that time.
func (s State) Decide(now time.Time) ([]decision.Action, []decision.Hold) {
	nodes := make(map[string]*slurmrest.Node, len(s.Nodes))
	for name, n := range s.Nodes {
		node := &slurmrest.Node{Name: name, State: n.State, Reason: n.Reason, ReasonAt: n.ReasonAt, AllocCPUs: n.AllocCPUs, BootTime: n.BootTime}
		if n.UnknownWords != "" {
			node.UnknownWords = strings.Split(n.UnknownWords, "+")
		}
		nodes[name] = node
	}
	pods := make(map[string]*decision.Pod, len(s.Pods))
	for name, pod := range s.Pods {
		pods[name] = &pod
	}
	pool := s.Pool
	pool.Now = now
	return decision.Decide(pool, s.Names, nodes, pods)
}

// Round is one line of a log: what of a pool's state was another than in the line before it, and what was done.
type Round struct {
	At         time.Time `json:"at"`
	WorkerPool string    `json:"workerPool"`
	// Snapshot: the line begins a log with the state at that time, and says nothing of what was done.
	Snapshot bool           `json:"snapshot,omitzero"`
	Pool     *decision.Pool `json:"pool,omitzero"`
	Names    []string       `json:"names,omitzero"`
	// Nodes and Pods are those that changed; null: gone.
	Nodes map[string]*Node         `json:"nodes,omitzero"`
	Pods  map[string]*decision.Pod `json:"pods,omitzero"`
	Done  []Done                   `json:"done,omitzero"`
}

// quiet tells whether nothing changed and nothing was done.
func (r Round) quiet() bool {
	return r.Pool == nil && r.Names == nil && len(r.Nodes) == 0 && len(r.Pods) == 0 && len(r.Done) == 0
}

// difference is the line that leads from one state to the next; from the zero State it is a whole one.
func difference(from, to State) Round {
	var r Round
	if !reflect.DeepEqual(from.Pool, to.Pool) {
		r.Pool = &to.Pool
	}
	if !slices.Equal(from.Names, to.Names) {
		r.Names = to.Names
	}
	r.Nodes, r.Pods = changed(from.Nodes, to.Nodes), changed(from.Pods, to.Pods)
	return r
}

func changed[V comparable](from, to map[string]V) map[string]*V {
	var out map[string]*V
	note := func(name string, v *V) {
		if out == nil {
			out = map[string]*V{}
		}
		out[name] = v
	}
	for name, v := range to {
		if old, was := from[name]; !was || old != v {
			note(name, &v)
		}
	}
	for name := range from {
		if _, is := to[name]; !is {
			note(name, nil)
		}
	}
	return out
}

// After is the state with a line's changes; s stays as it is.
func (s State) After(r Round) State {
	next := State{Pool: s.Pool, Names: s.Names, Nodes: maps.Clone(s.Nodes), Pods: maps.Clone(s.Pods)}
	if r.Pool != nil {
		next.Pool = *r.Pool
	}
	if r.Names != nil {
		next.Names = r.Names
	}
	next.Nodes, next.Pods = merged(next.Nodes, r.Nodes), merged(next.Pods, r.Pods)
	return next
}

func merged[V any](into map[string]V, changes map[string]*V) map[string]V {
	if into == nil {
		into = map[string]V{}
	}
	for name, v := range changes {
		if v == nil {
			delete(into, name)
		} else {
			into[name] = *v
		}
	}
	return into
}

// Recorder keeps the newest rounds in a bounded space. The zero Recorder is ready; a nil one keeps nothing.
type Recorder struct {
	// Limit is how many bytes of lines are kept; 0: 8 MiB.
	Limit int

	mu    sync.Mutex
	last  map[string]State // after the newest line
	first map[string]began // before the oldest line
	lines [][]byte
	size  int
}

// began is a pool's state before the oldest line that is kept of it.
type began struct {
	at    time.Time
	state State
}

const defaultLimit = 8 << 20

// Add notes a round. Rounds in which nothing changed and nothing was done leave no line.
func (r *Recorder) Add(at time.Time, workerPool string, state State, done []Done) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last, r.first = map[string]State{}, map[string]began{}
	}
	round := difference(r.last[workerPool], state)
	round.Done = done
	if round.quiet() {
		return
	}
	round.At, round.WorkerPool = utc(at), workerPool
	line, err := json.Marshal(round)
	if err != nil { // there is no such value
		return
	}
	r.last[workerPool] = state
	r.lines = append(r.lines, append(line, '\n'))
	r.size += len(line) + 1
	limit := r.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	for r.size > limit && len(r.lines) > 1 {
		r.forget()
	}
}

// forget lets the oldest line go: what it changed is part of the state that the log begins with.
func (r *Recorder) forget() {
	var oldest Round
	if json.Unmarshal(r.lines[0], &oldest) == nil {
		r.first[oldest.WorkerPool] = began{oldest.At, r.first[oldest.WorkerPool].state.After(oldest)}
	}
	r.size -= len(r.lines[0])
	r.lines[0] = nil
	r.lines = r.lines[1:]
}

// WriteSince writes the log from that time on; the zero time is all that is kept. It begins with the state of each pool before
// the lines that follow.
func (r *Recorder) WriteSince(w io.Writer, since time.Time) error {
	r.mu.Lock()
	lines, first := slices.Clone(r.lines), maps.Clone(r.first)
	r.mu.Unlock()
	var out bytes.Buffer
	for len(lines) > 0 {
		var oldest Round
		if err := json.Unmarshal(lines[0], &oldest); err != nil {
			return err
		}
		if !oldest.At.Before(since) {
			break
		}
		first[oldest.WorkerPool] = began{oldest.At, first[oldest.WorkerPool].state.After(oldest)}
		lines = lines[1:]
	}
	encoder := json.NewEncoder(&out)
	for _, name := range slices.Sorted(maps.Keys(first)) {
		snapshot := difference(State{}, first[name].state)
		snapshot.At, snapshot.WorkerPool, snapshot.Snapshot = first[name].at, name, true
		if err := encoder.Encode(snapshot); err != nil {
			return err
		}
	}
	for _, line := range lines {
		out.Write(line)
	}
	_, err := out.WriteTo(w)
	return err
}

// ServeHTTP answers GET with the log, from the time in the query's since on (RFC 3339).
func (r *Recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "GET gives what the last rounds saw and did", http.StatusMethodNotAllowed)
		return
	}
	var since time.Time
	if text := request.URL.Query().Get("since"); text != "" {
		var err error
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			http.Error(w, "since: write a time such as 2026-12-02T08:00:00Z", http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "application/jsonl")
	_ = r.WriteSince(w, since) // to one who has gone there is nothing to say
}
