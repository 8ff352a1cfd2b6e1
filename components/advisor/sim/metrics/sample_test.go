package metrics

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Beyond the limit memory stays as it is, and quantiles, CVaR and the picture stay within the promised error of the exact ones.
func TestSampleBeyondLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	exact, bounded := sample{limit: 1 << 30}, sample{limit: 1000}
	for i := range 200_000 {
		v := math.Exp(r.NormFloat64()*3 + 5) // from a millisecond to years
		if i%7 == 0 {
			v = 0
		}
		exact.add(v)
		bounded.add(v)
	}
	if bounded.exact != nil || bounded.hist == nil {
		t.Fatal("values are still kept one by one")
	}
	within := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > RelativeError*want {
			t.Errorf("%s is %v, exactly %v", what, got, want)
		}
	}
	sorted := exact.quantiles().sorted
	for _, p := range []float64{.05, .15, .5, .95, .99, .9999} {
		within("quantile", bounded.hist.quantile(p, bounded.n), Quantile(sorted, p))
	}
	within("CVaR", bounded.hist.cvar(.95, bounded.n), CVaR(sorted, .95))
	if bounded.mean() != exact.mean() || bounded.largest != exact.largest {
		t.Error("mean or maximum differ")
	}
	shape := bounded.shape(100)
	within("the middle of the picture", shape[50], Quantile(sorted, .505))
	if shape[99] != exact.largest {
		t.Errorf("the picture ends at %v, the largest value is %v", shape[99], exact.largest)
	}
}

// A summary says by itself whether its quantiles are exact.
func TestSummarySaysWhatItIs(t *testing.T) {
	const s = 1_000_000
	var few, many Collector
	many.jct.limit, many.wait.limit, many.bsld.limit = 10, 10, 10
	for i := range int64(100) {
		j := Job{ID: i, Submit: i * s, Start: i * s, End: (2*i + 1) * s, Service: (i + 1) * s, Width: 1}
		few.Add(&j)
		many.Add(&j)
	}
	a, b := few.Summary(1), many.Summary(1)
	if a.Approximate || !b.Approximate {
		t.Errorf("approximate: %v and %v", a.Approximate, b.Approximate)
	}
	if a.MeanJCT != b.MeanJCT || a.MeanWait != b.MeanWait || a.Fairness != b.Fairness || a.Max != b.Max || a.Makespan != b.Makespan {
		t.Errorf("what needs no quantiles differs: %+v and %+v", a, b)
	}
	if math.Abs(a.CVaR95-b.CVaR95) > RelativeError*a.CVaR95 {
		t.Errorf("CVaR is %v and %v", a.CVaR95, b.CVaR95)
	}
}
