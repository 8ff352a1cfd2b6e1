package muri

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
)

// ReadTrace reads a Muri trace in the form its simulator computes with: submission ÷ 1000 and iteration time × 1.015 ÷ 1000, in
// float64. Jobs come sorted by submission.
func ReadTrace(path string) ([]Job, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open the trace: %w", err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.ReuseRecord = true
	header, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s:1: cannot read the header: %w", path, err)
	}
	col := map[string]int{}
	for i, h := range header {
		col[h] = i
	}
	for _, need := range []string{"job_id", "num_gpu", "submit_time", "iterations", "iteration_time", "model_name", "duration"} {
		if _, ok := col[need]; !ok {
			return nil, fmt.Errorf("%s:1: the header has no column %q", path, need)
		}
	}
	var jobs []Job
	for {
		rec, err := r.Read()
		if err == io.EOF {
			break
		}
		line, _ := r.FieldPos(0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		num := func(name string) float64 {
			v, e := strconv.ParseFloat(rec[col[name]], 64)
			if e != nil && err == nil {
				err = fmt.Errorf("%s:%d: %s: %q is not a number", path, line, name, rec[col[name]])
			}
			return v
		}
		j := Job{ID: int64(num("job_id")), GPUs: int(num("num_gpu")), Submit: num("submit_time") / 1000, Iterations: num("iterations"),
			IterationTime: float64(num("iteration_time")*IterationFactor) / 1000, Duration: num("duration") / 1000, Model: rec[col["model_name"]]}
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
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
