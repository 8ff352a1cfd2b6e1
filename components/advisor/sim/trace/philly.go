package trace

import (
	"encoding/json"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

func sniffPhillyJSON(head string) bool {
	h := strings.TrimSpace(head)
	return strings.HasPrefix(h, "[") && containsAll(h, `"jobid"`, `"attempts"`)
}

// phillyJob is a job of cluster_job_log: a list of attempts, each with the cards it held.
type phillyJob struct {
	Status        string
	VC            string `json:"vc"`
	JobID         string `json:"jobid"`
	SubmittedTime string `json:"submitted_time"`
	User          string
	Attempts      []struct {
		StartTime string `json:"start_time"`
		EndTime   string `json:"end_time"`
		Detail    []struct {
			IP   string
			GPUs []string `json:"gpus"`
		}
	}
}

// readPhillyJSON streams the raw Philly log. The run time is the sum of the attempts, the cards those of the first.
func readPhillyJSON(in *input, emit func(workload.Job) bool) error {
	counted := newLineCounter(in.r)
	d := json.NewDecoder(counted)
	fail := func(err error) error {
		in.line = counted.lines + 1
		return in.errorf("not a Philly job log: %v", err)
	}
	if tok, err := d.Token(); err != nil || tok != json.Delim('[') {
		return fail(orUnexpected(err, "it does not begin with ["))
	}
	id := int64(0)
	for d.More() {
		counted.element()
		var p phillyJob
		if err := d.Decode(&p); err != nil {
			return fail(err)
		}
		id++
		in.line = counted.lines + 1
		in.report.Lines++
		j, keep, err := p.job(in, id)
		if err != nil {
			if err = in.bad(err); err != nil {
				return err
			}
			continue
		}
		if keep && !emit(j) {
			return errStopped
		}
	}
	if _, err := d.Token(); err != nil {
		return fail(err)
	}
	return nil
}

func (p *phillyJob) job(in *input, id int64) (j workload.Job, keep bool, err error) {
	if j.Submit, err = unixMicro(in, p.SubmittedTime); err != nil {
		return j, false, in.errorf("job %s: submitted_time: %v", p.JobID, err)
	}
	var gpus int
	var run workload.Time
	for _, a := range p.Attempts {
		start, err := unixMicro(in, a.StartTime)
		if err != nil {
			continue
		}
		end, err := unixMicro(in, a.EndTime)
		if err != nil || end < start {
			continue
		}
		if run += end - start; run > workload.Seconds(workload.MaxSeconds) {
			return j, false, in.errorf("job %s runs longer than the clock allows", p.JobID)
		}
		if gpus == 0 {
			for _, n := range a.Detail {
				gpus += len(n.GPUs)
			}
		}
	}
	if run == 0 {
		in.report.repair("job without a finished attempt, left out")
		return j, false, nil
	}
	j.ID, j.User, j.Account, j.Partition = id, p.User, p.VC, p.VC
	return gpuJob(in, j, int32(min(gpus, 1<<20)), workload.InSeconds(run))
}
