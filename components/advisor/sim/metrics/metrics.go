// Package metrics turns the fates of jobs into the numbers the field reports, each with its definition.
package metrics

import (
	"maps"
	"math"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// BoundSeconds is the threshold below which a run time counts as this long in bounded slowdown (Feitelson 2001: 10 s).
const BoundSeconds = 10

// BoundedSlowdown is max(1, (wait + run) / max(run, 10 s)), times in seconds.
func BoundedSlowdown(wait, run float64) float64 {
	return max(1, (wait+run)/max(run, BoundSeconds))
}

// Job is the fate of one job as metrics see it. Times in microseconds.
type Job struct {
	ID, Submit, Start, End workload.Time
	// Service is the time the job held its resources, all its runs together; without preemption End − Start.
	Service workload.Time
	// Width is processors or cards.
	Width    float64
	User     string
	Deadline workload.Time // 0: none
	Failed   bool          // killed, cancelled or impossible
	Preempts int
	Cost     float64 // node-hours billed, where a pool has a price
}

// Summary is the table of one simulation. Times are in seconds; quantiles are Hyndman and Fan's type 7.
type Summary struct {
	Jobs, Failed                             int
	MeanJCT, P50JCT, P95JCT, P99JCT          float64
	MeanWait, P50Wait, P95Wait, P99Wait, Max float64
	MeanBSLD, P95BSLD                        float64
	Makespan                                 float64
	// Utilisation is work done over capacity from the first submission to the last end.
	Utilisation float64
	// Deadlines counts jobs with one, Violations those that missed it or failed.
	Deadlines, Violations int
	// CVaR95 is the mean of the worst five percent of JCT.
	CVaR95 float64
	// Fairness is Jain's index (1984) of the mean bounded slowdowns of users: 1 when all are treated alike, 1/n at worst. Of
	// jobs, where no users are named.
	Fairness float64
	Preempts int
	// Approximate says that there were more than ExactUpTo jobs: quantiles and CVaR95 are within RelativeError of the exact ones.
	Approximate bool
}

// Collector gathers jobs. The zero value is ready. Its memory is bounded, see ExactUpTo.
type Collector struct {
	jct, wait, bsld sample
	users           map[string]*userSum
	sum             Summary
	area            float64
	first, last     workload.Time
}

type userSum struct {
	n    int
	bsld float64
}

// Add takes in one job.
func (c *Collector) Add(j *Job) {
	if c.sum.Jobs == 0 || j.Submit < c.first {
		c.first = j.Submit
	}
	c.sum.Jobs++
	c.last = max(c.last, j.End)
	if j.Deadline != 0 {
		c.sum.Deadlines++
		if j.Failed || j.End > j.Deadline {
			c.sum.Violations++
		}
	}
	c.sum.Preempts += j.Preempts
	c.area += float64(workload.InSeconds(j.Service) * j.Width)
	if j.Failed {
		c.sum.Failed++
		return
	}
	jct := workload.InSeconds(j.End - j.Submit)
	wait := workload.InSeconds(j.End - j.Submit - j.Service)
	b := BoundedSlowdown(wait, workload.InSeconds(j.Service))
	c.jct.add(jct)
	c.wait.add(wait)
	c.bsld.add(b)
	if j.User != "" {
		if c.users == nil {
			c.users = map[string]*userSum{}
		}
		u := c.users[j.User]
		if u == nil {
			u = &userSum{}
			c.users[j.User] = u
		}
		u.n++
		u.bsld += b
	}
}

// JCT gives the completion times gathered, in seconds, in order of completion; of more than ExactUpTo jobs a few thousand evenly
// spaced quantiles.
func (c *Collector) JCT() []float64 { return c.jct.shape(4096) }

// Summary computes the table for a machine of a capacity (processors or cards); 0 leaves utilisation out.
func (c *Collector) Summary(capacity float64) Summary {
	s := c.sum
	s.MeanJCT, s.MeanWait, s.MeanBSLD, s.Max = c.jct.mean(), c.wait.mean(), c.bsld.mean(), c.wait.largest
	jct, wait, bsld := c.jct.quantiles(), c.wait.quantiles(), c.bsld.quantiles()
	s.P50JCT, s.P95JCT, s.P99JCT = jct.at(.5), jct.at(.95), jct.at(.99)
	s.P50Wait, s.P95Wait, s.P99Wait = wait.at(.5), wait.at(.95), wait.at(.99)
	s.P95BSLD, s.CVaR95 = bsld.at(.95), jct.tail(.95)
	s.Approximate = c.jct.hist != nil
	s.Makespan = workload.InSeconds(c.last - c.first)
	if capacity > 0 && s.Makespan > 0 {
		s.Utilisation = c.area / (s.Makespan * capacity)
	}
	s.Fairness = c.fairness()
	return s
}

func (c *Collector) fairness() float64 {
	if len(c.users) == 0 {
		return jain(c.bsld.n, c.bsld.sum, c.bsld.sumSquare)
	}
	var xs []float64
	for _, n := range slices.Sorted(maps.Keys(c.users)) { // sums of floats depend on their order
		xs = append(xs, c.users[n].bsld/float64(c.users[n].n))
	}
	return Jain(xs)
}

// Mean is the arithmetic mean, summed in order; 0 of nothing.
func Mean(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := 0.0
	for _, x := range xs {
		s += x
	}
	return s / float64(len(xs))
}

// Quantile is Hyndman and Fan's type 7 of sorted values; 0 of nothing.
func Quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	h := p * float64(len(sorted)-1)
	i := int(h)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + float64((h-float64(i))*(sorted[i+1]-sorted[i]))
}

// CVaR is the mean of the upper 1 − p of sorted values, the value at the boundary weighted by its fraction.
func CVaR(sorted []float64, p float64) float64 {
	tail := (1 - p) * float64(len(sorted))
	if tail <= 0 || len(sorted) == 0 {
		return 0
	}
	s, left := 0.0, tail
	for i := len(sorted) - 1; i >= 0 && left > 0; i-- {
		w := math.Min(1, left)
		s += float64(w * sorted[i])
		left -= w
	}
	return s / tail
}

// Jain is Jain's fairness index (Σx)²/(n·Σx²); 1 of nothing.
func Jain(xs []float64) float64 {
	var s, q float64
	for _, x := range xs {
		s += x
		q += float64(x * x)
	}
	return jain(len(xs), s, q)
}

// jain is the index of n numbers of a sum and a sum of squares.
func jain(n int, sum, squares float64) float64 {
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(n) * squares)
}
