// Package generate makes synthetic workloads. Every generator streams, sets the offered load explicitly, and draws arrivals,
// sizes and run times from streams of their own, so that changing one leaves the others as they are.
package generate

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mathext"

	"github.com/berth-hpc/berth/components/advisor/sim/random"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Lublin is the model of Lublin and Feitelson (2003, "The workload on parallel supercomputers: modeling the characteristics of
// rigid jobs") for batch jobs, with that paper's parameters.
type Lublin struct {
	Procs int
	Jobs  int
	// Load is the offered load: work over capacity, from the first arrival to the last. Inter-arrival times are scaled to meet it.
	Load float64
	Seed uint64
	// Estimate is how far users overestimate: limits are run times times a factor drawn evenly from 1 to Estimate. Below 1 counts
	// as 1: exact estimates.
	Estimate float64
}

// Parameters of the model (batch jobs, from the paper's tables).
const (
	serialProb = 0.244
	powerProb  = 0.576
	sizeLow    = 0.8
	sizeMed    = 4.5
	sizeProb   = 0.86

	runA1, runB1 = 4.2, 0.94
	runA2, runB2 = 312, 0.03
	runPA, runPB = -0.0054, 0.78

	arriveA, arriveB = 10.2303, 0.4871
	countA, countB   = 8.1737, 3.9631

	longestLog = 12 // e^12 s, 45 hours
	arriveLog  = 13
	buckets    = 48 // half hours of a day
	dayStart   = 11 // the cycle begins at half past five in the morning
)

// cycle is the relative arrival rate of each half hour, mean 1.
func cycle() [buckets]float64 {
	var w [buckets]float64
	cdf := func(x float64) float64 { return mathext.GammaIncReg(countA, x/countB) }
	sum := 0.0
	for i := range buckets {
		w[(i+dayStart)%buckets] = cdf(float64(i)+1.5) - cdf(float64(i)+0.5)
		sum += w[(i+dayStart)%buckets]
	}
	for i := range w {
		w[i] = max(w[i]*buckets/sum, 1e-3)
	}
	return w
}

type lublinStream struct {
	arrivals, sizes, runs, estimates random.Stream
	weights                          [buckets]float64
	clock                            float64 // seconds, before scaling
	procs                            int
}

func (l Lublin) stream() *lublinStream {
	return &lublinStream{arrivals: random.New(l.Seed, random.Arrivals), sizes: random.New(l.Seed, random.Sizes),
		runs: random.New(l.Seed, random.Runtimes), estimates: random.New(l.Seed, random.Estimates), weights: cycle(), procs: l.Procs}
}

// next draws a job: arrival and run time in seconds.
func (s *lublinStream) next() (arrival, run float64, size int) {
	gap := math.Inf(1)
	for gap > arriveLog {
		gap = s.arrivals.Gamma(arriveA, arriveB)
	}
	s.advance(math.Exp(gap))
	size = s.size()
	p := min(max(float64(runPA*float64(size))+runPB, 0), 1)
	log := math.Inf(1)
	for log > longestLog {
		if s.runs.Float64() <= p {
			log = s.runs.Gamma(runA1, runB1)
		} else {
			log = s.runs.Gamma(runA2, runB2)
		}
	}
	return s.clock, max(math.Round(math.Exp(log)), 1), size
}

// advance moves the clock by so many seconds at the mean rate: more in slack hours, less in busy ones.
func (s *lublinStream) advance(points float64) {
	const bucket = 86400.0 / buckets
	for {
		b := int(math.Mod(s.clock, 86400) / bucket)
		b = min(b, buckets-1)
		end := (math.Floor(s.clock/bucket) + 1) * bucket
		room := (end - s.clock) * s.weights[b]
		if points <= room {
			s.clock += points / s.weights[b]
			return
		}
		points -= room
		s.clock = end
	}
}

func (s *lublinStream) size() int {
	if s.sizes.Float64() <= serialProb {
		return 1
	}
	high := math.Log2(float64(s.procs))
	low, med := min(sizeLow, high), min(sizeMed, max(high-1, sizeLow))
	var u float64
	if s.sizes.Float64() <= sizeProb {
		u = low + float64(s.sizes.Float64()*(med-low))
	} else {
		u = med + float64(s.sizes.Float64()*(high-med))
	}
	if s.sizes.Float64() <= powerProb {
		u = math.Floor(u + 0.5)
		return min(max(int(math.Exp2(u)), 1), s.procs)
	}
	return min(max(int(math.Exp2(u)+0.5), 1), s.procs)
}

// Source streams the jobs. It runs through the draws twice, first to learn by how much to scale the arrivals.
func (l Lublin) Source() (workload.Source, error) {
	if l.Procs < 1 || l.Procs > 1<<30 || l.Jobs < 1 {
		return nil, fmt.Errorf("a Lublin workload needs 1 to 1073741824 processors and at least one job; got %d and %d", l.Procs, l.Jobs)
	}
	if err := checkLoad(l.Load, l.Estimate); err != nil {
		return nil, err
	}
	return func(yield func(workload.Job, error) bool) {
		pre, work := l.stream(), 0.0
		for range l.Jobs {
			_, run, size := pre.next()
			work += float64(run * float64(size))
		}
		scale := work / (l.Load * float64(l.Procs)) / max(pre.clock, 1)
		s := l.stream()
		for i := range l.Jobs {
			at, run, size := s.next()
			if at*scale > workload.MaxSeconds {
				yield(workload.Job{}, errTooLong(i, l.Load))
				return
			}
			j := workload.Job{Run: workload.Seconds(run)}
			j.ID, j.Submit, j.Procs = int64(i+1), workload.Seconds(at*scale), int32(size)
			j.Limit = j.Run
			if l.Estimate > 1 {
				j.Limit = workload.Seconds(math.Ceil(run * (1 + float64(s.estimates.Float64()*(l.Estimate-1)))))
			}
			if !yield(j, nil) {
				return
			}
		}
	}, nil
}

// checkLoad refuses loads and overestimates that no workload could have.
func checkLoad(load, estimate float64) error {
	if !(load >= 1e-6 && load <= 1e6) {
		return fmt.Errorf("an offered load of %g is out of range; use 0.000001 to 1000000 (1 keeps the machine just busy)", load)
	}
	if !(estimate >= 0 && estimate <= 1e6) {
		return fmt.Errorf("an estimate factor of %g is out of range; use 1 (exact) to 1000000", estimate)
	}
	return nil
}

// errTooLong is met where the clock ends.
func errTooLong(jobs int, load float64) error {
	return fmt.Errorf("at a load of %g the clock ends after %d jobs; use fewer jobs or a higher load", load, jobs)
}
