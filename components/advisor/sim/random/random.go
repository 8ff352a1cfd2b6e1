// Package random gives reproducible streams of pseudo-random numbers, one per purpose, so that two policies that are
// compared see the same arrivals, the same interference and the same failures (common random numbers).
package random

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
)

// Purpose names what a stream is drawn for. Streams of different purposes are independent: drawing more from one does not
// move another.
type Purpose string

// The purposes the simulator uses.
const (
	Arrivals     Purpose = "arrivals"
	Sizes        Purpose = "sizes"
	Runtimes     Purpose = "runtimes"
	Estimates    Purpose = "estimates"
	Mix          Purpose = "mix"
	Interference Purpose = "interference"
	Failures     Purpose = "failures"
	Repairs      Purpose = "repairs"
	Placement    Purpose = "placement"
	Shuffle      Purpose = "shuffle"
	Inflate      Purpose = "inflate"
)

// Stream is one sequence of random numbers: a PCG (O'Neill 2014, PCG-DXSM of math/rand/v2, whose output Go fixes).
type Stream struct{ *rand.Rand }

// New gives the stream of one purpose under a seed.
func New(seed uint64, p Purpose) Stream {
	h := fnv.New64a()
	h.Write([]byte(p)) // a hash.Hash never returns an error
	return Stream{rand.New(rand.NewPCG(mix(seed), mix(h.Sum64()^seed)))}
}

// Keyed gives a stream that depends on the seed, the purpose and two further keys, and on nothing that was drawn before:
// the noise of a pair of jobs is the same whichever policy brings them together, and whenever.
func Keyed(seed uint64, p Purpose, a, b uint64) Stream {
	h := fnv.New64a()
	h.Write([]byte(p))
	s := mix(seed ^ h.Sum64())
	return Stream{rand.New(rand.NewPCG(mix(s^a), mix(s^mix(b))))}
}

// Reusable gives keyed streams without allocating: each call of At ends the stream that the call before gave.
type Reusable struct {
	pcg     *rand.PCG
	stream  Stream
	purpose uint64
}

// NewReusable makes one for a purpose.
func NewReusable(p Purpose) *Reusable {
	h := fnv.New64a()
	h.Write([]byte(p))
	r := &Reusable{pcg: rand.NewPCG(0, 0), purpose: h.Sum64()}
	r.stream = Stream{rand.New(r.pcg)}
	return r
}

// At gives the stream that Keyed gives.
func (r *Reusable) At(seed, a, b uint64) Stream {
	s := mix(seed ^ r.purpose)
	r.pcg.Seed(mix(s^a), mix(s^mix(b)))
	return r.stream
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014): it spreads neighbouring seeds over the state space.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

// Exp draws an exponential variate with the given mean.
func (s Stream) Exp(mean float64) float64 { return s.ExpFloat64() * mean }

// Gamma draws a gamma variate with shape k and scale theta (Marsaglia and Tsang 2000; for k < 1 boosted by U^(1/k)).
func (s Stream) Gamma(k, theta float64) float64 {
	if k < 1 {
		u := 1 - s.Float64()
		return s.Gamma(k+1, theta) * math.Pow(u, 1/k)
	}
	d := k - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := s.NormFloat64()
		v := 1 + float64(c*x)
		if v <= 0 {
			continue
		}
		v = v * v * v
		u := 1 - s.Float64()
		if math.Log(u) < float64(0.5*x*x)+d-float64(d*v)+float64(d*math.Log(v)) {
			return d * v * theta
		}
	}
}

// Beta draws a beta variate with the given mean and standard deviation, both on (0, 1). A spread that no beta law has at
// that mean is cut to the widest one that is still unimodal enough to sample (variance 0.9·m·(1−m)).
func (s Stream) Beta(mean, sd float64) float64 {
	if sd <= 0 {
		return mean
	}
	v := min(sd*sd, 0.9*mean*(1-mean))
	k := mean*(1-mean)/v - 1
	x, y := s.Gamma(mean*k, 1), s.Gamma((1-mean)*k, 1)
	if x+y == 0 {
		return mean
	}
	return x / (x + y)
}

// HyperExp draws from a balanced-means two-phase hyperexponential law with the given mean and coefficient of variation
// (at least 1); cv = 1 is the exponential law.
func (s Stream) HyperExp(mean, cv float64) float64 {
	c2 := cv * cv
	if c2 <= 1 {
		return s.Exp(mean)
	}
	p := 0.5 * (1 + math.Sqrt((c2-1)/(c2+1)))
	if s.Float64() < p {
		return s.Exp(mean / (2 * p))
	}
	return s.Exp(mean / (2 * (1 - p)))
}
