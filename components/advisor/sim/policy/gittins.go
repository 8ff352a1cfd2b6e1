package policy

import (
	"fmt"
	"slices"
	"sort"
)

// Gittins is the Gittins index of a distribution of job sizes, given as a sample:
//
//	G(a) = sup over d of P(S−a ≤ d | S > a) / E[min(S−a, d) | S > a]
//
// The larger it is, the better to serve a job of attained service a (Gittins 1979; Aalto, Ayesta, Righter 2009). For a finite
// sample the supremum is attained at one of its values.
type Gittins struct {
	sizes []float64
	sum   []float64 // prefix sums
}

// NewGittins takes a sample of sizes, all above zero, in any unit.
func NewGittins(sample []float64) (*Gittins, error) {
	if len(sample) == 0 {
		return nil, fmt.Errorf("a Gittins index needs a sample of job sizes")
	}
	g := &Gittins{sizes: slices.Clone(sample), sum: make([]float64, len(sample)+1)}
	slices.Sort(g.sizes)
	if !(g.sizes[0] > 0) {
		return nil, fmt.Errorf("job sizes must be above zero; the smallest is %g", g.sizes[0])
	}
	for i, s := range g.sizes {
		g.sum[i+1] = g.sum[i] + s
	}
	return g, nil
}

// Index is G(a). Beyond the largest size of the sample nothing is known, and the index is 0.
func (g *Gittins) Index(a float64) float64 { return g.index(a, 0) }

// index leaves out stretches shorter than least, in which a sample of a continuous law is noise.
func (g *Gittins) index(a, least float64) float64 {
	n := len(g.sizes)
	from := sort.Search(n, func(i int) bool { return g.sizes[i] > a })
	if from == n {
		return 0
	}
	best := 0.0
	left := float64(n - from)
	for i := from; i < n; i++ {
		if i+1 < n && g.sizes[i+1] == g.sizes[i] {
			continue
		}
		d := g.sizes[i] - a
		if d < least {
			continue
		}
		finish := float64(i + 1 - from)
		// Those that finish within d need their size, the others d.
		work := g.sum[i+1] - g.sum[from] - float64(finish*a) + float64((left-finish)*d)
		best = max(best, finish/work)
	}
	return best
}
