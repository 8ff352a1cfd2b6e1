package slurmrest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/slurmrest/v0042"
)

// DataParser is the API version that this package speaks, as the answers name it.
const DataParser = "v0.0.42"

// Node is one Slurm node.
type Node struct {
	Name  string
	State NodeState
	// UnknownWords are state words that this version of Berth does not know. Nobody may act on such a node.
	UnknownWords []string
	// Reason is why the node is down or drained. Slurm leaves an old one standing after the state has gone.
	Reason string
	// ReasonUser is who set the reason, and ReasonAt when; zero where Slurm does not say.
	ReasonUser string
	ReasonAt   time.Time
	// CPUs are what the node has, AllocCPUs what running and configuring jobs hold of them; memory likewise.
	CPUs, AllocCPUs     int
	MemoryMiB, AllocMiB int64
	// Gres and GresUsed are Slurm's GRES strings ("gpu:rtx4070:1").
	Gres, GresUsed string
	Partitions     []string
	// BootTime is when the node's slurmd said last that it booted; zero where slurmctld knows of none. It may stay while the node is
	// powered down and up again.
	BootTime time.Time
	// LastBusy is when the node last had work; zero where Slurm says none.
	LastBusy time.Time
}

// NodeList is an answer to Client.Nodes.
type NodeList struct {
	Nodes []Node
	// AsOf is slurmctld's time when it gave the list: the argument of the next call.
	AsOf time.Time
	// Cluster is slurmctld's ClusterName.
	Cluster string
}

// APIError is what slurmrestd said against a request, also inside an answer of HTTP status 200.
type APIError struct {
	Status int
	// Messages are "error: description (number)" of each error of the answer.
	Messages []string
	// Numbers are Slurm's error numbers.
	Numbers []int
}

func (e *APIError) Error() string {
	return fmt.Sprintf("slurmrestd (HTTP %d): %s", e.Status, strings.Join(e.Messages, "; "))
}

// ErrNoNodes is a node list without nodes. A Berth cluster has some, so slurmctld or its configuration is broken.
var ErrNoNodes = errors.New("slurmrestd gave no nodes where slurm.conf has some; nothing is decided on such an answer")

// answer is what all answers have in common.
type answer struct {
	Meta   *v0042.Meta   `json:"meta"`
	Errors *v0042.Errors `json:"errors"`
}

// check returns the errors of an answer, or of an answer in another version's form.
func (a *answer) check(status int) error {
	if a.Errors != nil && len(*a.Errors) > 0 {
		apiError := &APIError{Status: status}
		for _, e := range *a.Errors {
			number := int(value(e.ErrorNumber))
			apiError.Numbers = append(apiError.Numbers, number)
			apiError.Messages = append(apiError.Messages, fmt.Sprintf("%s: %s (%d)", value(e.Error), value(e.Description), number))
		}
		return apiError
	}
	if status != 200 {
		return &APIError{Status: status, Messages: []string{"no reason given"}}
	}
	if a.Meta == nil || a.Meta.Plugin == nil || a.Meta.Plugin.DataParser == nil {
		return errors.New("the answer does not say its API version: is this slurmrestd?")
	}
	if parser := *a.Meta.Plugin.DataParser; parser != "data_parser/"+DataParser {
		return fmt.Errorf("the answer is of %s, this program speaks %s", parser, DataParser)
	}
	return nil
}

// cluster is the ClusterName in an answer, or "".
func (a *answer) cluster() string {
	if a.Meta == nil || a.Meta.Slurm == nil {
		return ""
	}
	return value(a.Meta.Slurm.Cluster)
}

// decode reads an answer that must be one whole JSON value.
func decode(status int, body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		if status != 200 {
			return &APIError{Status: status, Messages: []string{firstLine(body)}}
		}
		return fmt.Errorf("the answer is not what the API promises: %w", err)
	}
	return nil
}

// DecodeNodes reads an answer of GET /nodes/.
func DecodeNodes(status int, body []byte) (*NodeList, error) {
	var raw struct {
		answer
		LastUpdate *v0042.Uint64NoValStruct `json:"last_update"`
		Nodes      v0042.Nodes              `json:"nodes"`
	}
	if err := decode(status, body, &raw); err != nil {
		return nil, err
	}
	if err := raw.check(status); err != nil {
		return nil, err
	}
	if len(raw.Nodes) == 0 {
		return nil, ErrNoNodes
	}
	list := &NodeList{Nodes: make([]Node, 0, len(raw.Nodes)), AsOf: timeOf(raw.LastUpdate), Cluster: raw.cluster()}
	if list.AsOf.IsZero() {
		return nil, errors.New("the node list does not say when it was made (last_update)")
	}
	seen := make(map[string]bool, len(raw.Nodes))
	for i := range raw.Nodes {
		node, err := nodeOf(&raw.Nodes[i])
		if err != nil {
			return nil, fmt.Errorf("node %d of the list: %w", i, err)
		}
		if seen[node.Name] {
			return nil, fmt.Errorf("node %s is in the list twice", node.Name)
		}
		seen[node.Name] = true
		list.Nodes = append(list.Nodes, node)
	}
	return list, nil
}

func nodeOf(raw *v0042.Node) (Node, error) {
	if value(raw.Name) == "" {
		return Node{}, errors.New("it has no name")
	}
	if raw.State == nil {
		return Node{}, fmt.Errorf("%s has no state", *raw.Name)
	}
	state, unknown := parseState(*raw.State)
	if base := bits.OnesCount64(uint64(state & baseStates)); base != 1 && len(unknown) == 0 {
		return Node{}, fmt.Errorf("%s has %d base states (%s), every node has one", *raw.Name, base, state)
	}
	node := Node{
		Name: *raw.Name, State: state, UnknownWords: unknown,
		Reason: value(raw.Reason), ReasonUser: value(raw.ReasonSetByUser), ReasonAt: timeOf(raw.ReasonChangedAt),
		CPUs: int(value(raw.Cpus)), AllocCPUs: int(value(raw.AllocCpus)),
		MemoryMiB: value(raw.RealMemory), AllocMiB: value(raw.AllocMemory),
		Gres: value(raw.Gres), GresUsed: value(raw.GresUsed),
		BootTime: timeOf(raw.BootTime), LastBusy: timeOf(raw.LastBusy),
	}
	if raw.Partitions != nil {
		node.Partitions = *raw.Partitions
	}
	return node, nil
}

// JobState is a job's number and the words of its state ("RUNNING", "CONFIGURING").
type JobState struct {
	ID     string
	States []string
}

// DecodeJobStates reads an answer of GET /jobs/state/.
func DecodeJobStates(status int, body []byte) ([]JobState, error) {
	var raw struct {
		answer
		Jobs *[]struct {
			// A string in 24.11 ("42", "42_[1-9]"), against its own description, which says integer.
			ID     json.RawMessage `json:"job_id"`
			States []string        `json:"state"`
		} `json:"jobs"`
	}
	if err := decode(status, body, &raw); err != nil {
		return nil, err
	}
	if err := raw.check(status); err != nil {
		return nil, err
	}
	if raw.Jobs == nil {
		return nil, errors.New("the answer has no list of jobs")
	}
	states := make([]JobState, 0, len(*raw.Jobs))
	for i, job := range *raw.Jobs {
		id := strings.Trim(string(job.ID), `"`)
		if id == "" || id == "null" || len(job.States) == 0 {
			return nil, fmt.Errorf("job %d of the list has no number or no state", i)
		}
		states = append(states, JobState{ID: id, States: job.States})
	}
	return states, nil
}

// Statistics are what slurmctld counts (GET /diag/).
type Statistics struct {
	JobsPending, JobsRunning int
	ServerThreads            int
	AgentQueue               int
}

// DecodeStatistics reads an answer of GET /diag/.
func DecodeStatistics(status int, body []byte) (*Statistics, error) {
	var raw struct {
		answer
		Statistics *v0042.StatsMsg `json:"statistics"`
	}
	if err := decode(status, body, &raw); err != nil {
		return nil, err
	}
	if err := raw.check(status); err != nil {
		return nil, err
	}
	if raw.Statistics == nil {
		return nil, errors.New("the answer has no statistics")
	}
	return &Statistics{
		JobsPending: int(value(raw.Statistics.JobsPending)), JobsRunning: int(value(raw.Statistics.JobsRunning)),
		ServerThreads: int(value(raw.Statistics.ServerThreadCount)), AgentQueue: int(value(raw.Statistics.AgentQueueSize)),
	}, nil
}

// DecodePing reads an answer of GET /ping/: nil where a slurmctld answers.
func DecodePing(status int, body []byte) error {
	var raw struct {
		answer
		Pings []v0042.ControllerPing `json:"pings"`
	}
	if err := decode(status, body, &raw); err != nil {
		return err
	}
	if err := raw.check(status); err != nil {
		return err
	}
	for _, ping := range raw.Pings {
		if ping.Responding {
			return nil
		}
	}
	return errors.New("slurmrestd answers, but no slurmctld does")
}

// decodeUpdate reads an answer of a POST that returns nothing but errors.
func decodeUpdate(status int, body []byte) error {
	var raw answer
	if err := decode(status, body, &raw); err != nil {
		return err
	}
	return raw.check(status)
}

// value is what a pointer points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// timeOf reads Slurm's {set, infinite, number} as a time; zero where it is not set, infinite or 0.
func timeOf(n *v0042.Uint64NoValStruct) time.Time {
	if n == nil || n.Number == nil || !value(n.Set) || value(n.Infinite) || *n.Number <= 0 {
		return time.Time{}
	}
	return time.Unix(*n.Number, 0)
}

func firstLine(body []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	if len(line) > 200 {
		line = line[:200] + "…"
	}
	if line == "" {
		return "an empty answer"
	}
	return line
}
