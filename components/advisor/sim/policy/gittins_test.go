package policy

import (
	"math"
	"math/rand/v2"
	"testing"
)

func sample(n int, draw func(*rand.Rand) float64) []float64 {
	r := rand.New(rand.NewPCG(1, 2))
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = draw(r)
	}
	return xs
}

// Exponential sizes have no memory: the index is the rate at every age.
func TestGittinsExponential(t *testing.T) {
	g, err := NewGittins(sample(200_000, func(r *rand.Rand) float64 { return r.ExpFloat64() * 10 }))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []float64{0, 5, 10, 20} {
		// The supremum over a sample is a little above the law's constant: the noise of small d.
		if got := g.index(a, .5); math.Abs(got-.1) > .01 {
			t.Errorf("index at age %g is %.4f, want 0.1", a, got)
		}
	}
}

// A decreasing hazard rate makes the index fall with attained service: Gittins is least attained service.
func TestGittinsDecreasingHazardIsLAS(t *testing.T) {
	g, err := NewGittins(sample(100_000, func(r *rand.Rand) float64 {
		if r.Float64() < .9 {
			return r.ExpFloat64()
		}
		return r.ExpFloat64() * 100
	}))
	if err != nil {
		t.Fatal(err)
	}
	last := math.Inf(1)
	for _, a := range []float64{0, 1, 2, 4, 8} {
		i := g.index(a, .2)
		if i >= last {
			t.Errorf("the index rises to %.4f at age %g", i, a)
		}
		last = i
	}
}

// Sizes that are all equal: the nearer the end, the better.
func TestGittinsDeterministic(t *testing.T) {
	g, err := NewGittins([]float64{10, 10, 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []float64{0, 5, 9} {
		if got, want := g.Index(a), 1/(10-a); math.Abs(got-want) > 1e-12 {
			t.Errorf("index at %g is %g, want %g", a, got, want)
		}
	}
	if g.Index(10) != 0 {
		t.Error("beyond all sizes the index is not 0")
	}
	if _, err := NewGittins(nil); err == nil {
		t.Error("an empty sample is accepted")
	}
}

func TestParseDiscipline(t *testing.T) {
	for in, want := range map[string]string{"fcfs": "fcfs", "easy": "fcfs+easy", "sjbf": "fcfs+easy-sjf", "saf+easy": "saf+easy", "conservative": "fcfs+conservative", "f1+greedy": "f1+greedy"} {
		d, err := ParseDiscipline(in)
		if err != nil || d.Name() != want {
			t.Errorf("%s is read as %s, want %s: %v", in, d.Name(), want, err)
		}
	}
	for _, in := range []string{"", "easy+easy", "fcfs+lazy", "fcfs+easy-nobody"} {
		if _, err := ParseDiscipline(in); err == nil {
			t.Errorf("%q is accepted", in)
		}
	}
}
