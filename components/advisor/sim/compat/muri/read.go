package muri

import (
	"fmt"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/trace"
)

// ReadTrace reads a Muri trace in the form its simulator computes with: submission ÷ 1000 and iteration time × 1.015 ÷ 1000, in
// float64. Jobs come sorted by submission.
func ReadTrace(path string) ([]Job, error) {
	var jobs []Job
	err := trace.Rows(path, []string{"job_id", "num_gpu", "submit_time", "iterations", "iteration_time", "model_name", "duration"}, func(r trace.Row) error {
		id, err := r.Whole("job_id", 0, 1<<53)
		if err != nil {
			return err
		}
		gpus, err := r.Whole("num_gpu", 1, 1<<20)
		if err != nil {
			return err
		}
		var v [4]float64
		for i, name := range []string{"submit_time", "iterations", "iteration_time", "duration"} {
			if v[i], err = r.Number(name); err != nil {
				return err
			}
			if v[i] < 0 || v[i] == 0 && (name == "iterations" || name == "iteration_time") {
				return r.Errorf("job %d: %s is %g; a job is submitted at 0 or later, and iterates at least once for longer than no time", id, name, v[i])
			}
		}
		jobs = append(jobs, Job{ID: id, GPUs: int(gpus), Submit: v[0] / 1000, Iterations: v[1], IterationTime: float64(v[2]*IterationFactor) / 1000,
			Duration: v[3] / 1000, Model: r.Text("model_name")})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("%s: the trace has no jobs, only a header; name one that has", path)
	}
	slices.SortStableFunc(jobs, func(a, b Job) int {
		switch {
		case a.Submit < b.Submit:
			return -1
		case a.Submit > b.Submit:
			return 1
		}
		return 0
	})
	return jobs, nil
}
