package service

import (
	"strconv"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
	"github.com/berth-hpc/berth/components/advisor/snapshot"
)

// Job is a job as job_submit.lua and the placement controller describe it, in Slurm's own words. What is left out is not set.
type Job struct {
	ID             int64  `json:"id,omitempty"`
	Name           string `json:"name,omitempty"`
	UserID         int64  `json:"user_id,omitempty"`
	Partition      string `json:"partition,omitempty"`
	Account        string `json:"account,omitempty"`
	DefaultAccount string `json:"default_account,omitempty"`
	QOS            string `json:"qos,omitempty"`
	Array          string `json:"array,omitempty"`
	Features       string `json:"features,omitempty"`
	LimitMinutes   int64  `json:"limit_minutes,omitempty"`
	CPUs           int64  `json:"cpus,omitempty"`
	Nodes          int64  `json:"nodes,omitempty"`
	MaxNodes       int64  `json:"max_nodes,omitempty"`
	Tasks          int64  `json:"tasks,omitempty"`
	CPUsPerTask    int64  `json:"cpus_per_task,omitempty"`
	MemoryMiB      int64  `json:"memory_mib,omitempty"`
	MemoryPerCPU   int64  `json:"memory_per_cpu_mib,omitempty"`
	TRESPerJob     string `json:"tres_per_job,omitempty"`
	TRESPerNode    string `json:"tres_per_node,omitempty"`
	TRESPerSocket  string `json:"tres_per_socket,omitempty"`
	TRESPerTask    string `json:"tres_per_task,omitempty"`
	Submit         int64  `json:"submit,omitempty"`
}

// most bounds every number of a request, so that no product overflows.
const most = 1 << 20

func bounded(n int64) int64 { return max(0, min(n, most)) }

// request is the job as policies see it, submitted now (microseconds) if it does not say when.
func (j *Job) request(now workload.Time) workload.Request {
	nodes, tasks := max(bounded(j.Nodes), 1), max(bounded(j.Tasks), 1)
	cpus := max(bounded(j.CPUs), tasks*max(bounded(j.CPUsPerTask), 1), 1)
	r := workload.Request{
		ID: j.ID, Submit: now, Limit: min(bounded(j.LimitMinutes), 525600) * workload.Minute,
		Procs: int32(min(cpus, most)), CPUMilli: cpus * 1000, MemMiB: max(bounded(j.MemoryMiB)*nodes, bounded(j.MemoryPerCPU)*cpus),
		User: strconv.FormatInt(j.UserID, 10), Account: j.Account, Partition: j.Partition, QOS: j.QOS,
	}
	if r.Limit == 0 {
		r.Limit = 365 * workload.Day // as Slurm plans a job without a limit
	}
	if j.Submit > 0 && j.Submit < now/workload.Second {
		r.Submit = j.Submit * workload.Second
	}
	for _, of := range []struct {
		text  string
		times int64
	}{{j.TRESPerJob, 1}, {j.TRESPerNode, nodes}, {j.TRESPerSocket, nodes}, {j.TRESPerTask, tasks}} {
		if of.text != "" {
			applyGRES(&r, of.text, of.times)
		}
	}
	return r
}

// applyGRES reads what sbatch was told: gres/gpu:rtx4070:2, gres:mps:25, gpu=1.
func applyGRES(r *workload.Request, text string, times int64) {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(part), "gres/"), "gres:")
		words := strings.FieldsFunc(part, func(c rune) bool { return c == ':' || c == '=' })
		if len(words) == 0 {
			continue
		}
		kind, count := "", int64(1)
		for _, word := range words[1:] {
			if n, err := strconv.ParseInt(word, 10, 32); err == nil {
				count = bounded(n)
			} else {
				kind = word
			}
		}
		if words[0] == "gpu" {
			count = bounded(count * times)
		}
		snapshot.ApplyGRES(r, words[0], kind, strconv.FormatInt(count, 10))
	}
}
