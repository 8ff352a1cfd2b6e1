package slurmrest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/slurmrest/v0042"
)

// JobRecord is one record of a job: a job, a component of a heterogeneous job, a task of an array, or the tasks that still wait
// together.
type JobRecord struct {
	ID int64
	// ArrayTasks are the tasks that the record stands for ("3", "4-9"); "" for no array.
	ArrayTasks            string
	States                []string
	Name, User, Account   string
	Partition, QOS        string
	Comment, AdminComment string
	Submit, Start, End    time.Time
	Limit                 time.Duration // 0: none
	TRES                  string        // what it asks for ("cpu=1,mem=100M,node=1,billing=1")
	Nodes                 string        // where it runs or ran
	Priority, Nice        int64
	Held                  bool
	// Reason is why it waits, in Slurm's word ("Priority", "JobHeldUser").
	Reason string
	// RequiredNodes is the list of the nodes that it must run on; "": any.
	RequiredNodes string
	// Bound is what else bounds where or when it may run, in words ("it asks for features"); "": nothing that Slurm's record tells.
	Bound string
	Exit  string // "0", "1", or a signal's name
}

// invalidJobID is ESLURM_INVALID_JOB_ID.
const invalidJobID = 2017

// JobRecords lists the records of a job, none if slurmctld has no such job any more.
func (c *Client) JobRecords(ctx context.Context, id int64) ([]JobRecord, error) {
	status, body, err := c.call(ctx, http.MethodGet, "/job/"+strconv.FormatInt(id, 10), nil)
	if err != nil {
		return nil, fmt.Errorf("read job %d: %w", id, err)
	}
	jobs, err := DecodeJobRecords(status, body)
	var refused *APIError
	if errors.As(err, &refused) && slices.Contains(refused.Numbers, invalidJobID) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read job %d: %w", id, err)
	}
	return jobs, nil
}

// DecodeJobRecords reads an answer of GET /job/{id}.
func DecodeJobRecords(status int, body []byte) ([]JobRecord, error) {
	var raw struct {
		answer
		Jobs *[]v0042.JobInfo `json:"jobs"`
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
	jobs := make([]JobRecord, 0, len(*raw.Jobs))
	for i := range *raw.Jobs {
		r := &(*raw.Jobs)[i]
		if value(r.JobId) <= 0 || r.JobState == nil || len(*r.JobState) == 0 {
			return nil, fmt.Errorf("job %d of the list has no number or no state", i)
		}
		jobs = append(jobs, jobRecordOf(r))
	}
	return jobs, nil
}

func jobRecordOf(r *v0042.JobInfo) JobRecord {
	j := JobRecord{
		ID: int64(*r.JobId), ArrayTasks: value(r.ArrayTaskString), States: *r.JobState, Name: value(r.Name), User: value(r.UserName),
		Account: value(r.Account), Partition: value(r.Partition), QOS: value(r.Qos), Comment: value(r.Comment),
		AdminComment: value(r.AdminComment), Submit: timeOf(r.SubmitTime), Start: timeOf(r.StartTime), End: timeOf(r.EndTime),
		TRES: requestOf(r), Nodes: value(r.Nodes), Held: value(r.Hold), Nice: int64(value(r.Nice)),
	}
	if n, set := number(r.TimeLimit); set {
		j.Limit = time.Duration(n) * time.Minute
	}
	j.Priority, _ = number(r.Priority)
	j.Reason, j.RequiredNodes, j.Bound = value(r.StateReason), value(r.RequiredNodes), boundOf(r)
	if n, set := number(r.ArrayTaskId); set {
		j.ArrayTasks = strconv.FormatInt(n, 10)
	}
	if r.ExitCode != nil {
		if n, set := number(r.ExitCode.ReturnCode); set {
			j.Exit = strconv.FormatInt(n, 10)
		}
		if r.ExitCode.Signal != nil && value(r.ExitCode.Signal.Name) != "" {
			j.Exit = *r.ExitCode.Signal.Name
		}
	}
	return j
}

// requestOf is what the job asks for. Slurm's own summary has cards only where AccountingStorageTRES names them, and can be empty; what
// it lacks is taken from what sbatch was told.
func requestOf(r *v0042.JobInfo) string {
	text := value(r.TresReqStr)
	nodes, _ := number(r.NodeCount)
	tasks, _ := number(r.Tasks)
	nodes, tasks = min(max(nodes, 1), 1<<20), min(max(tasks, 1), 1<<20)
	parts := []string{}
	if text != "" {
		parts = append(parts, text)
	} else if cpus, set := number(r.Cpus); set && cpus > 0 {
		parts = append(parts, fmt.Sprintf("cpu=%d", cpus))
		if memory := max(megabytes(r.MemoryPerNode)*nodes, megabytes(r.MemoryPerCpu)*cpus); memory > 0 {
			parts = append(parts, fmt.Sprintf("mem=%dM", memory))
		}
		parts = append(parts, fmt.Sprintf("node=%d", nodes))
	}
	if !strings.Contains(text, "gres/") {
		for _, of := range []struct {
			told  string
			times int64
		}{{value(r.TresPerJob), 1}, {value(r.TresPerNode), nodes}, {value(r.TresPerTask), tasks}} {
			parts = append(parts, gresAsked(of.told, of.times)...)
		}
	}
	return strings.Join(parts, ",")
}

// gresAsked turns sbatch's words (gres/gpu:rtx4070:2, gres:mps:25) into those of a summary (gres/gpu:rtx4070=2).
func gresAsked(text string, times int64) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		rest, is := strings.CutPrefix(part, "gres/")
		if !is {
			rest, is = strings.CutPrefix(part, "gres:")
		}
		words := strings.FieldsFunc(rest, func(c rune) bool { return c == ':' || c == '=' })
		if !is || len(words) == 0 {
			continue
		}
		count := int64(1)
		if n, err := strconv.ParseInt(words[len(words)-1], 10, 32); err == nil && len(words) > 1 {
			count, words = n, words[:len(words)-1]
		}
		out = append(out, fmt.Sprintf("gres/%s=%d", strings.Join(words, ":"), count*times))
	}
	return out
}

// megabytes is an amount of memory that a job asks for, at most a pebibyte.
func megabytes(n *v0042.Uint64NoValStruct) int64 {
	if n == nil || n.Number == nil || !value(n.Set) || value(n.Infinite) {
		return 0
	}
	return min(max(int64(*n.Number), 0), 1<<30)
}

func boundOf(r *v0042.JobInfo) string {
	switch het, _ := number(r.HetJobId); {
	case het > 0:
		return "it is part of a heterogeneous job"
	case value(r.ExcludedNodes) != "":
		return "it excludes nodes"
	case value(r.Features) != "":
		return "it asks for features"
	case value(r.ResvName) != "":
		return "it is in a reservation"
	case value(r.Dependency) != "":
		return "it depends on other jobs"
	}
	return ""
}

// number reads Slurm's {set, infinite, number}; what is infinite counts as not set.
func number(n *v0042.Uint32NoValStruct) (int64, bool) {
	if n == nil || n.Number == nil || !value(n.Set) || value(n.Infinite) {
		return 0, false
	}
	return int64(*n.Number), true
}

// JobUpdate is what UpdateJob changes; nil leaves a field alone.
type JobUpdate struct {
	// SiteFactor is added to the job's priority; the other factors go on counting.
	SiteFactor *int `json:"site_factor,omitempty"`
	// RequiredNodes are the nodes that the job must run on; AnyNode takes the requirement away.
	RequiredNodes []string `json:"required_nodes,omitempty"`
	// Hold false releases a held job.
	Hold *bool `json:"hold,omitempty"`
	// AdminComment replaces the administrator's comment.
	AdminComment *string `json:"admin_comment,omitempty"`
}

// AnyNode is the RequiredNodes of a job that may run anywhere. An empty list would change nothing.
var AnyNode = []string{""}

// siteFactorZero stands for a site factor of 0: slurmctld keeps site factors with an offset (NICE_OFFSET, 2^31), which scontrol adds
// and slurmrestd 24.11 does not.
const siteFactorZero = 1 << 31

// UpdateJob changes a pending job.
func (c *Client) UpdateJob(ctx context.Context, id int64, update JobUpdate) error {
	if update.SiteFactor != nil {
		wire := siteFactorZero + *update.SiteFactor
		update.SiteFactor = &wire
	}
	payload, err := json.Marshal(update)
	if err != nil {
		return fmt.Errorf("encode the update of job %d: %w", id, err)
	}
	status, body, err := c.call(ctx, http.MethodPost, "/job/"+strconv.FormatInt(id, 10), payload)
	if err == nil {
		err = decodeUpdate(status, body)
	}
	if err != nil {
		return fmt.Errorf("update job %d: %w", id, err)
	}
	return nil
}
