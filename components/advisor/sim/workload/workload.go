// Package workload holds jobs: what a scheduler may see of one (Request), what only the simulator knows (the true
// runtime), and streams of them in order of submission.
package workload

import (
	"fmt"
	"iter"
	"math"
)

// Time is a point in time or a length of time in microseconds. Traces start wherever their authors let them start.
type Time = int64

// Units of Time.
const (
	Millisecond Time = 1000
	Second      Time = 1000 * Millisecond
	Minute           = 60 * Second
	Hour             = 60 * Minute
	Day              = 24 * Hour
	// Never is later than every event.
	Never Time = math.MaxInt64
)

// MaxSeconds is the longest time, in seconds, an importer accepts: about 31,700 years would overflow sums of microseconds.
const MaxSeconds = 1e11

// Seconds turns seconds into Time, rounding to the nearest microsecond.
func Seconds(s float64) Time { return Time(math.Round(s * float64(Second))) }

// InSeconds turns Time into seconds. Whole seconds below 2^53 µs are exact.
func InSeconds(t Time) float64 { return float64(t) / float64(Second) }

// Class says what kind of service a job wants.
type Class uint8

// Classes of jobs.
const (
	Batch   Class = iota // counts by completion time
	Latency              // an inference service: its tail suffers from neighbours on the card
)

// String names the class.
func (c Class) String() string {
	if c == Latency {
		return "latency"
	}
	return "batch"
}

// Request is all of a job that its submitter stated. Policies get this and never the true runtime.
type Request struct {
	ID     int64
	Submit Time
	// Limit is the requested time, the user's estimate; a job is killed there if the engine enforces limits. At least 1 µs.
	Limit Time
	// Procs is what a pool of identical processors is asked for.
	Procs int32

	// What a cluster of nodes is asked for. CPU and memory are for the whole job and are split evenly over its GPUs if it
	// spans nodes.
	CPUMilli  int64
	MemMiB    int64
	GPUs      int32
	GPUMilli  int32 // share of each card in thousandths; 1000 is the whole card. Shares below 1000 only with GPUs = 1.
	GPUMemMiB int32 // memory needed on each card, 0 if not stated
	GPUTypes  []string

	Model string // workload model for the speed matrix, "" if not known
	Util  int32  // percent of a card's compute the job uses alone (0: taken from the model table)
	Batch int32
	Class Class

	User, Account, Partition, QOS string
	Nice                          int32
	// Array is the id of the array a job is a task of, 0 for none.
	Array int64
	// ArrayLimit is how many tasks of the array may run at once (Slurm's --array=…%N), 0 for no bound.
	ArrayLimit int32
	// After lists jobs that must have completed before this one may start. The id of an array stands for all its tasks.
	After []int64
	// Deadline is the absolute time by which the job should have completed, 0 for none.
	Deadline Time
}

// Job is a request and what only the simulator knows about it.
type Job struct {
	Request
	// Run is the true run time alone on a card of relative speed 1. Hidden from policies.
	Run Time
	// CancelAt is when the user withdraws the job, 0 for never.
	CancelAt Time
}

// Area is processor-time (Procs times Run) in processor-microseconds, for utilisation.
func (j *Job) Area() float64 { return float64(j.Procs) * float64(j.Run) }

// Source streams jobs in order of submission. It stops after the first error.
type Source = iter.Seq2[Job, error]

// FromSlice streams a slice.
func FromSlice(jobs []Job) Source {
	return func(yield func(Job, error) bool) {
		for i := range jobs {
			if !yield(jobs[i], nil) {
				return
			}
		}
	}
}

// Collect drains a source. It stops at the first error and returns what came before.
func Collect(s Source) ([]Job, error) {
	var jobs []Job
	for j, err := range s {
		if err != nil {
			return jobs, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// Take streams at most n jobs after leaving out skip.
func Take(s Source, skip, n int) Source {
	return func(yield func(Job, error) bool) {
		i := 0
		for j, err := range s {
			if err == nil && i < skip {
				i++
				continue
			}
			if i >= skip+n {
				return
			}
			i++
			if !yield(j, err) || err != nil {
				return
			}
		}
	}
}

// Validate says what is wrong with a job that any engine must refuse.
func (j *Job) Validate() error {
	switch {
	case j.Run < 0:
		return fmt.Errorf("job %d: negative run time %d µs", j.ID, j.Run)
	case j.Limit < 0:
		return fmt.Errorf("job %d: negative time limit %d µs", j.ID, j.Limit)
	case j.ArrayLimit < 0:
		return fmt.Errorf("job %d: %d tasks of its array may run at once; 0 means no bound", j.ID, j.ArrayLimit)
	case j.Procs < 0, j.GPUs < 0, j.CPUMilli < 0, j.MemMiB < 0:
		return fmt.Errorf("job %d: asks for a negative amount of a resource", j.ID)
	case j.GPUMilli < 0 || j.GPUMilli > 1000:
		return fmt.Errorf("job %d: share of a card is %d thousandths; it must lie within 0 and 1000", j.ID, j.GPUMilli)
	case j.GPUs > 1 && j.GPUMilli != 0 && j.GPUMilli != 1000:
		return fmt.Errorf("job %d: %d cards and a share of %d thousandths; only single-card jobs may share", j.ID, j.GPUs, j.GPUMilli)
	}
	return nil
}
