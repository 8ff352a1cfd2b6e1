// Package metrics turns the fates of jobs into the numbers the field reports, each with its definition.
package metrics

import (
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
}

// Collector gathers jobs. The zero value is ready. It keeps three numbers a job.
type Collector struct {
	jct, wait, bsld []float64
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
	c.jct = append(c.jct, jct)
	c.wait = append(c.wait, wait)
	c.bsld = append(c.bsld, b)
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

// Values gives the completion times, waits and bounded slowdowns gathered, in order of completion.
func (c *Collector) Values() (jct, wait, bsld []float64) { return c.jct, c.wait, c.bsld }

// Summary computes the table for a machine of a capacity (processors or cards); 0 leaves utilisation out.
func (c *Collector) Summary(capacity float64) Summary {
	s := c.sum
	jct, wait, bsld := slices.Clone(c.jct), slices.Clone(c.wait), slices.Clone(c.bsld)
	slices.Sort(jct)
	slices.Sort(wait)
	slices.Sort(bsld)
	s.MeanJCT, s.P50JCT, s.P95JCT, s.P99JCT = Mean(c.jct), Quantile(jct, .5), Quantile(jct, .95), Quantile(jct, .99)
	s.MeanWait, s.P50Wait, s.P95Wait, s.P99Wait = Mean(c.wait), Quantile(wait, .5), Quantile(wait, .95), Quantile(wait, .99)
	s.Max = Quantile(wait, 1)
	s.MeanBSLD, s.P95BSLD = Mean(c.bsld), Quantile(bsld, .95)
	s.Makespan = workload.InSeconds(c.last - c.first)
	if capacity > 0 && s.Makespan > 0 {
		s.Utilisation = c.area / (s.Makespan * capacity)
	}
	s.CVaR95 = CVaR(jct, .95)
	s.Fairness = c.fairness()
	return s
}

func (c *Collector) fairness() float64 {
	var xs []float64
	if len(c.users) == 0 {
		xs = c.bsld
	} else {
		names := make([]string, 0, len(c.users))
		for n := range c.users {
			names = append(names, n)
		}
		slices.Sort(names) // sums of floats depend on their order
		for _, n := range names {
			xs = append(xs, c.users[n].bsld/float64(c.users[n].n))
		}
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
	if q == 0 {
		return 1
	}
	return s * s / (float64(len(xs)) * q)
}
