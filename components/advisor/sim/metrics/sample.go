package metrics

import (
	"math"
	"slices"
)

// ExactUpTo is how many jobs a Collector keeps the values of. Up to that many, quantiles and CVaR are exact; with more they come
// from a histogram of fixed size, and are off by at most RelativeError of their value. Means, maxima and counts are always exact.
const ExactUpTo = 1 << 20

// RelativeError bounds how far a quantile of more than ExactUpTo jobs is from the exact one.
const RelativeError = 1e-3

// sample is a set of non-negative values in bounded memory. The zero value is empty.
type sample struct {
	limit          int // how many values are kept exactly; 0 is ExactUpTo
	n              int
	sum, sumSquare float64 // in the order of arrival
	largest        float64
	exact          []float64
	hist           *histogram // nil while exact holds all
}

func (s *sample) add(v float64) {
	s.n++
	s.sum += v
	s.sumSquare += float64(v * v)
	s.largest = max(s.largest, v)
	if s.hist == nil {
		limit := s.limit
		if limit == 0 {
			limit = ExactUpTo
		}
		if len(s.exact) < limit {
			s.exact = append(s.exact, v)
			return
		}
		s.hist = &histogram{}
		for _, x := range s.exact {
			s.hist.add(x)
		}
		s.exact = nil
	}
	s.hist.add(v)
}

func (s *sample) mean() float64 {
	if s.n == 0 {
		return 0
	}
	return s.sum / float64(s.n)
}

// quantiles looks at a sample in order.
type quantiles struct {
	sorted []float64
	hist   *histogram
	n      int
}

func (s *sample) quantiles() quantiles {
	q := quantiles{hist: s.hist, n: s.n}
	if s.hist == nil {
		q.sorted = slices.Clone(s.exact)
		slices.Sort(q.sorted)
	}
	return q
}

func (q *quantiles) at(p float64) float64 {
	if q.hist != nil {
		return q.hist.quantile(p, q.n)
	}
	return Quantile(q.sorted, p)
}

func (q *quantiles) tail(p float64) float64 {
	if q.hist != nil {
		return q.hist.cvar(p, q.n)
	}
	return CVaR(q.sorted, p)
}

// shape gives all values while they are few, and else so many evenly spaced quantiles: enough to draw the distribution.
func (s *sample) shape(points int) []float64 {
	if s.hist == nil {
		return s.exact
	}
	v := make([]float64, points)
	for i := range v {
		v[i] = s.hist.quantile((float64(i)+.5)/float64(points), s.n)
	}
	v[points-1] = s.largest
	return v
}

// Buckets of the histogram grow by a constant factor, so that a bucket's middle is within RelativeError of all that is in it (the
// idea of DDSketch, Masson and others, VLDB 2019). The first holds what is below a microsecond, the smallest time there is; the last
// reaches beyond workload.MaxSeconds.
const (
	growth  = (1 + RelativeError) / (1 - RelativeError)
	lowest  = 1e-6
	buckets = 20480
)

var logGrowth = math.Log(growth)

// histogram counts values by bucket, and sums them: the mean of a tail is exact but for the bucket at its border.
type histogram struct {
	count [buckets]int64
	sum   [buckets]float64
}

func (h *histogram) add(v float64) {
	i := 0
	if v > lowest {
		i = min(int(math.Log(v/lowest)/logGrowth)+1, buckets-1)
	}
	h.count[i]++
	h.sum[i] += v
}

// quantile is Hyndman and Fan's type 7, of values that are each the mean of their bucket.
func (h *histogram) quantile(p float64, n int) float64 {
	rank := p * float64(n-1)
	i := int64(rank)
	v := h.at(i)
	return v + float64((rank-float64(i))*(h.at(min(i+1, int64(n-1)))-v))
}

// at is the mean of the bucket that holds the value of a rank.
func (h *histogram) at(rank int64) float64 {
	for i, c := range h.count {
		if rank < c {
			return h.sum[i] / float64(c)
		}
		rank -= c
	}
	return 0
}

// cvar is the mean of the upper 1 − p.
func (h *histogram) cvar(p float64, n int) float64 {
	tail := (1 - p) * float64(n)
	if tail <= 0 {
		return 0
	}
	s, left := 0.0, tail
	for i := buckets - 1; i >= 0 && left > 0; i-- {
		c := float64(h.count[i])
		if c == 0 {
			continue
		}
		w := min(c, left)
		s += float64(h.sum[i] / c * w)
		left -= w
	}
	return s / tail
}
