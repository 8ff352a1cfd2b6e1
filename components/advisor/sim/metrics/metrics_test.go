package metrics

import (
	"math"
	"testing"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Max(1, math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func upTo(n int) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = float64(i + 1)
	}
	return xs
}

// Golden values: CVaR of 1 to 100 at 95 % is 98; the boundary value counts by its fraction; R's quantile type 7.
func TestGolden(t *testing.T) {
	near(t, "upper CVaR of 1..100", CVaR(upTo(100), .95), 98)
	near(t, "upper CVaR of 1..10 at 75 %", CVaR(upTo(10), .75), (10+9+.5*8)/2.5)
	near(t, "CVaR of nothing", CVaR(nil, .95), 0)
	near(t, "median of 1..4", Quantile(upTo(4), .5), 2.5)
	near(t, "P95 of 1..20", Quantile(upTo(20), .95), 19.05)
	near(t, "maximum", Quantile(upTo(4), 1), 4)
	near(t, "Jain of equals", Jain([]float64{3, 3, 3}), 1)
	near(t, "Jain of one who has all", Jain([]float64{1, 0, 0, 0}), .25)
	near(t, "bounded slowdown of a short job", BoundedSlowdown(90, 1), 9.1)
	near(t, "bounded slowdown is at least 1", BoundedSlowdown(0, 1), 1)
}

func TestSummary(t *testing.T) {
	const s = 1_000_000
	var c Collector
	c.Add(&Job{ID: 1, Submit: 0, Start: 0, End: 100 * s, Service: 100 * s, Width: 2, User: "a", Deadline: 90 * s})
	c.Add(&Job{ID: 2, Submit: 0, Start: 100 * s, End: 200 * s, Service: 100 * s, Width: 1, User: "b", Deadline: 300 * s})
	c.Add(&Job{ID: 3, Submit: 10 * s, End: 10 * s, Failed: true, Deadline: 20 * s})
	sum := c.Summary(2)
	near(t, "mean JCT", sum.MeanJCT, 150)
	near(t, "mean wait", sum.MeanWait, 50)
	near(t, "mean bounded slowdown", sum.MeanBSLD, 1.5)
	near(t, "makespan", sum.Makespan, 200)
	near(t, "utilisation", sum.Utilisation, 300.0/400)
	if sum.Jobs != 3 || sum.Failed != 1 || sum.Deadlines != 3 || sum.Violations != 2 {
		t.Errorf("%+v", sum)
	}
}
