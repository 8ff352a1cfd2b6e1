// Package muri reproduces the simulator of Muri (SIGCOMM'22) for SRTF, SRSF and Tiresias' discretised two-dimensional least
// attained service, digit for digit. Its clock is float64 seconds and its sums are made in the original's order, because the
// published digits depend on both; products are rounded before they are added (the float64 conversions), so that no machine
// fuses the two. It exists to reproduce published tables; schedule with package engine.
package muri

import (
	"fmt"
	"math"
	"slices"
)

// Policy is a scheduling policy of the original.
type Policy string

// The policies, by the original's names.
const (
	SRTF     Policy = "shortest"     // shortest remaining time first
	SRSF     Policy = "shortest-gpu" // shortest remaining service (time × GPUs) first
	Tiresias Policy = "dlas-gpu"     // discretised 2D-LAS, three queues
)

// Job is a line of the trace: times in seconds, the iteration time already with the original's factor.
type Job struct {
	ID            int64
	GPUs          int
	Submit        float64
	Iterations    float64
	IterationTime float64
	Duration      float64
	Model         string
}

// IterationFactor is what the original multiplies measured iteration times by.
const IterationFactor = 1.015

// Result is a line of the original's job log.
type Result struct {
	ID                     int64
	GPUs                   int
	Submit, Start, End     float64
	Executed, JCT, Pending float64
	Preempts               int
}

// startOverhead is the profiled cost of a start in seconds, by the number of GPUs (1, 2, 4, 8, 16, 32) and model, from the
// original's table; models not in it cost 10 s.
var startOverhead = map[string][6]float64{
	"vgg16":              {7, 7, 8, 9, 9, 10},
	"vgg19":              {7, 7, 8, 9, 10, 10},
	"resnet18":           {4, 5, 5, 7, 7, 7},
	"shufflenet_v2_x1_0": {4, 4, 5, 5, 7, 8},
	"bert":               {10, 10, 10, 10, 10, 10},
	"gpt2":               {10, 10, 10, 10, 10, 10},
	"a2c":                {38, 39, 39, 46, 46, 46},
	"dqn":                {5, 5, 6, 6, 8, 8},
}

// StartOverhead is the cost of starting a model on so many GPUs, in seconds. Widths between the measured ones cost as the next
// wider one.
func StartOverhead(model string, gpus int) float64 {
	row, ok := startOverhead[model]
	if !ok {
		return 10
	}
	for i, w := range [...]int{1, 2, 4, 8, 16, 32} {
		if gpus <= w {
			return row[i]
		}
	}
	return row[5]
}

// Cluster is nodes of equally many GPUs.
type Cluster struct{ Nodes, GPUsPerNode int }

// thresholds end the first and second queue of Tiresias, in GPU-seconds.
var thresholds = [...]float64{3250, 7200}

type state struct {
	Job
	oh        float64
	running   bool
	remaining float64 // iterations
	check     float64 // time of the last account
	executed  float64
	total     float64
	pending   float64
	start     float64
	queue     int
	preempts  int
	key       float64
}

// arrival is the jobs submitted at one time. A completion at exactly that time is merged into it.
type arrival struct {
	at     float64
	jobs   []*state
	ending []*state
}

type simulation struct {
	cluster  Cluster
	policy   Policy
	arrivals []arrival
	live     []*state
	queues   [len(thresholds) + 1][]*state
	now      float64
	endAt    float64
	ending   []*state
	jumpAt   float64
	results  []Result
}

// Run simulates jobs, sorted by submission, and gives the job log in order of completion.
func Run(jobs []Job, c Cluster, p Policy) ([]Result, error) {
	if p != SRTF && p != SRSF && p != Tiresias {
		return nil, fmt.Errorf("no policy of the Muri simulator is called %q; use %s, %s or %s", p, SRTF, SRSF, Tiresias)
	}
	s := &simulation{cluster: c, policy: p, endAt: math.Inf(1), jumpAt: math.Inf(1)}
	for i := range jobs {
		if jobs[i].GPUs > c.Nodes*c.GPUsPerNode || jobs[i].GPUs <= 0 {
			return nil, fmt.Errorf("job %d asks for %d GPUs; the cluster has %d, give it more nodes or GPUs", jobs[i].ID, jobs[i].GPUs, c.Nodes*c.GPUsPerNode)
		}
		if jobs[i].IterationTime <= 0 || jobs[i].Iterations <= 0 {
			return nil, fmt.Errorf("job %d: iterations and iteration time must be positive", jobs[i].ID)
		}
		j := &state{Job: jobs[i], remaining: jobs[i].Iterations, start: math.Inf(1), oh: StartOverhead(jobs[i].Model, jobs[i].GPUs)}
		if n := len(s.arrivals); n > 0 && s.arrivals[n-1].at == j.Submit {
			s.arrivals[n-1].jobs = append(s.arrivals[n-1].jobs, j)
			continue
		} else if n > 0 && s.arrivals[n-1].at > j.Submit {
			return nil, fmt.Errorf("job %d is submitted before the job ahead of it; sort the trace by submission", j.ID)
		}
		s.arrivals = append(s.arrivals, arrival{at: j.Submit, jobs: []*state{j}})
	}
	for len(s.arrivals)+len(s.live) > 0 {
		s.event()
		if p == Tiresias {
			s.scheduleQueues()
		} else {
			s.scheduleShortest()
		}
	}
	return s.results, nil
}

// event moves to the next event and accounts for the time in between.
func (s *simulation) event() {
	start := math.Inf(1)
	if len(s.arrivals) > 0 {
		start = s.arrivals[0].at
	}
	var a arrival
	take := false
	switch {
	case s.endAt < start:
		a = arrival{at: s.endAt, ending: s.ending}
	case s.endAt > start:
		a, take = s.arrivals[0], true
	default:
		// The original writes the completions into the arrival, where they stay even if a queue jump comes in between.
		s.arrivals[0].ending = s.ending
		a, take = s.arrivals[0], true
	}
	if a.at > s.jumpAt {
		a, take = arrival{at: s.jumpAt}, false
	}
	if take {
		s.arrivals = s.arrivals[1:]
	}
	s.now = a.at
	for _, j := range a.ending {
		s.complete(j)
	}
	for _, j := range a.jobs {
		j.check = s.now
		s.live = append(s.live, j)
		s.queues[0] = append(s.queues[0], j)
	}
	for _, j := range s.live {
		s.account(j)
	}
}

func (s *simulation) complete(j *state) {
	i := slices.Index(s.live, j)
	if i < 0 {
		return // ended already
	}
	j.total += s.now - j.check
	s.live = slices.Delete(s.live, i, i+1)
	q := &s.queues[j.queue]
	if i := slices.Index(*q, j); i >= 0 {
		*q = slices.Delete(*q, i, i+1)
	}
	s.results = append(s.results, Result{ID: j.ID, GPUs: j.GPUs, Submit: j.Submit, Start: j.start, End: s.now,
		Executed: j.total, JCT: s.now - j.Submit, Pending: j.pending, Preempts: j.preempts})
}

// account charges the time since the last event: the start overhead in every interval, as the original does.
func (s *simulation) account(j *state) {
	if !j.running {
		j.pending += s.now - j.check
		j.check = s.now
		return
	}
	j.remaining -= max(s.now-j.check-j.oh, 0) / j.IterationTime
	j.total = j.total + s.now - j.check
	j.executed = j.executed + s.now - j.check
	j.check = s.now
	if s.policy == Tiresias && j.queue < len(thresholds) && float64(j.executed*float64(j.GPUs)) >= thresholds[j.queue] {
		q := &s.queues[j.queue]
		*q = slices.Delete(*q, slices.Index(*q, j), slices.Index(*q, j)+1)
		j.queue++
		s.queues[j.queue] = append(s.queues[j.queue], j)
	}
}

// scheduleShortest sorts all live jobs, empties the cluster and fills it in order, leaving out what does not fit.
func (s *simulation) scheduleShortest() {
	for _, j := range s.live {
		j.key = j.remaining * j.IterationTime
		if s.policy == SRSF {
			j.key *= float64(j.GPUs)
		}
	}
	slices.SortStableFunc(s.live, func(a, b *state) int {
		switch {
		case a.key < b.key:
			return -1
		case a.key > b.key:
			return 1
		}
		return 0
	})
	free := make([]int, s.cluster.Nodes)
	for i := range free {
		free[i] = s.cluster.GPUsPerNode
	}
	for _, j := range s.live {
		s.set(j, place(free, s.cluster.GPUsPerNode, j.GPUs))
	}
	s.endAt, s.ending = math.Inf(1), nil
	for _, j := range s.live {
		s.consider(j)
	}
}

// consider keeps the earliest completion.
func (s *simulation) consider(j *state) {
	if !j.running {
		return
	}
	end := s.now + float64(j.remaining*j.IterationTime)
	switch {
	case end < s.endAt:
		s.endAt, s.ending = end, []*state{j}
	case end == s.endAt:
		s.ending = append(s.ending, j)
	}
}

// set lets a job run or not.
func (s *simulation) set(j *state, run bool) {
	if run && !j.running && math.IsInf(j.start, 1) {
		j.start = s.now
	}
	if !run && j.running {
		j.preempts++
	}
	j.running = run
}

// place takes GPUs first-fit: on the first node with room, or, for wide jobs, on free nodes and the rest on another.
func place(free []int, perNode, gpus int) bool {
	if gpus <= perNode {
		for i, f := range free {
			if f >= gpus {
				free[i] -= gpus
				return true
			}
		}
		return false
	}
	whole, rest := gpus/perNode, gpus%perNode
	var nodes []int
	last := -1
	for i, f := range free {
		if f == perNode && len(nodes) < whole {
			nodes = append(nodes, i)
		} else if rest > 0 && last < 0 && f >= rest {
			last = i
		}
	}
	if len(nodes) < whole || rest > 0 && last < 0 {
		return false
	}
	for _, i := range nodes {
		free[i] = 0
	}
	if rest > 0 {
		free[last] -= rest
	}
	return true
}

// scheduleQueues counts GPUs through the queues, running jobs of a queue first, and finds the next completion and the next
// demotion.
func (s *simulation) scheduleQueues() {
	free := s.cluster.Nodes * s.cluster.GPUsPerNode
	for _, q := range s.queues {
		for _, j := range q {
			fits := free >= j.GPUs
			if fits {
				free -= j.GPUs
			}
			s.set(j, fits)
		}
	}
	for i, q := range s.queues {
		sorted := make([]*state, 0, len(q))
		for _, running := range []bool{true, false} {
			for _, j := range q {
				if j.running == running {
					sorted = append(sorted, j)
				}
			}
		}
		s.queues[i] = sorted
	}
	s.endAt, s.ending, s.jumpAt = math.Inf(1), nil, math.Inf(1)
	for _, j := range s.live {
		s.consider(j)
		if j.running && j.queue < len(thresholds) {
			s.jumpAt = min(s.jumpAt, math.Ceil(thresholds[j.queue]/float64(j.GPUs))-j.executed+s.now)
		}
	}
}

// Summary is the original's summary line.
type Summary struct {
	Jobs                   int
	MeanJCT, Makespan, P99 float64
}

// Summarise computes the mean completion time, the last end, and the value at index ⌊0.99·n⌋ of the sorted completion times.
func Summarise(rs []Result) Summary {
	s := Summary{Jobs: len(rs)}
	var jct []float64
	sum := 0.0
	for _, r := range rs {
		sum += r.JCT
		s.Makespan = max(s.Makespan, r.End)
		jct = append(jct, r.JCT)
	}
	if len(rs) == 0 {
		return s
	}
	slices.Sort(jct)
	s.MeanJCT = sum / float64(len(rs))
	s.P99 = jct[int(float64(len(rs))*0.99)]
	return s
}
