package cluster

import (
	"math"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/random"
)

// Matrix gives how fast a model runs on a type of card.
type Matrix struct {
	rates map[string]map[string][]Speed // model → type → rows by batch
	types map[string]float64
}

// NewMatrix reads a spec's speeds.
func NewMatrix(s *Spec) *Matrix {
	m := &Matrix{rates: map[string]map[string][]Speed{}, types: map[string]float64{}}
	for _, p := range s.Pools {
		v := p.Speed
		if v == 0 {
			v = 1
		}
		m.types[p.GPUType] = v
	}
	for _, v := range s.Speeds {
		if m.rates[v.Model] == nil {
			m.rates[v.Model] = map[string][]Speed{}
		}
		m.rates[v.Model][v.Type] = append(m.rates[v.Model][v.Type], v)
	}
	for _, types := range m.rates {
		for _, rows := range types {
			slices.SortFunc(rows, func(a, b Speed) int { return int(a.Batch - b.Batch) })
		}
	}
	return m
}

// Relative is the speed of a model on a type of card relative to a card of speed 1. Where the matrix has the model on that
// type, it is the rate at the largest batch measured there that does not exceed the job's: a type whose memory is too small
// for the batch has no row for it, and the batch is cut. The reference is the slowest type the model was measured on at any
// batch up to the job's, counted as the relative speed of that type. Else it is the site's relative speed of the type.
func (m *Matrix) Relative(model, gpuType string, batch int32) float64 {
	site := m.types[gpuType]
	if site == 0 {
		site = 1
	}
	types := m.rates[model]
	own, ok := rateAt(types[gpuType], batch)
	if !ok {
		return site
	}
	reference, refType := math.Inf(1), ""
	for t, rows := range types {
		if r, ok := rateAt(rows, batch); ok && (r < reference || r == reference && t < refType) {
			reference, refType = r, t
		}
	}
	base := m.types[refType]
	if base == 0 {
		base = 1
	}
	return base * (own / reference)
}

// rateAt is the rate at the largest batch up to the one asked for (any batch for 0); the smallest measured if all are larger.
func rateAt(rows []Speed, batch int32) (float64, bool) {
	if len(rows) == 0 {
		return 0, false
	}
	best := rows[0]
	for _, r := range rows {
		if batch == 0 || r.Batch <= batch {
			best = r
		}
	}
	return best.Rate, true
}

// The measured effect of sharing one card between two jobs, by the sum of their utilisations alone (1,388 pairs on one RTX
// 3090, Lucid, ASPLOS'23; aggregates): the mean speed of the pair relative to alone, and that of its slower half.
var (
	utilSum     = [...]float64{20, 50, 70, 90, 110, 130, 150, 170, 190}
	pairSpeed   = [...]float64{.989, 1.02, .987, .970, .932, .868, .805, .729, .675}
	slowerSpeed = [...]float64{.963, .956, .940, .930, .890, .807, .736, .658, .610}
)

// speedSpread is the standard deviation of speeds at a sum of utilisations: .03 rising to .14.
func speedSpread(u float64) float64 { return .03 + .11*min(max((u-20)/170, 0), 1) }

func interpolate(xs, ys []float64, x float64) float64 {
	if x <= xs[0] {
		return ys[0]
	}
	for i := 1; i < len(xs); i++ {
		if x <= xs[i] {
			f := (x - xs[i-1]) / (xs[i] - xs[i-1])
			return ys[i-1] + float64(f*(ys[i]-ys[i-1]))
		}
	}
	// Beyond what was measured the card is divided: speed falls with the sum.
	return ys[len(ys)-1] * xs[len(xs)-1] / x
}

// Interference draws what neighbours on a card cost. The draw of a pair depends on the seed and the two jobs alone: whichever
// policy brings them together, and whenever, they harm each other equally.
type Interference struct {
	Seed uint64
	// Off makes sharing free.
	Off bool

	draws *random.Reusable
}

// NewInterference prepares the draws of a seed. It is not safe for concurrent use.
func NewInterference(seed uint64, off bool) Interference {
	return Interference{Seed: seed, Off: off, draws: random.NewReusable(random.Interference)}
}

// Tenant is a job on a card.
type Tenant struct {
	ID    int64
	Util  int32 // percent of the card it uses alone
	Milli int32 // its share
}

// used is the utilisation a tenant brings: what it uses alone, at most its share.
func (t Tenant) used() float64 { return min(float64(t.Util), float64(t.Milli)/10) }

// ShareSpeed is the speed of a tenant on its share of an otherwise empty card relative to a whole one: 1 while the share
// covers what it uses, linear below (concave, as measured for SM limits: small models saturate early).
func ShareSpeed(t Tenant) float64 {
	if t.Util <= 0 {
		return 1
	}
	return min(1, float64(t.Milli)/10/float64(t.Util))
}

// Factor is the speed of a tenant beside others, relative to alone on its share.
func (i Interference) Factor(t Tenant, others []Tenant) float64 {
	if i.Off || len(others) == 0 {
		return 1
	}
	sum := t.used()
	for _, o := range others {
		sum += o.used()
	}
	// The partner that decides is the one with the lowest draw.
	worst := math.Inf(1)
	for _, o := range others {
		worst = min(worst, i.pair(t, o, sum))
	}
	return worst
}

func (i Interference) pair(t, o Tenant, sum float64) float64 {
	a, b := min(t.ID, o.ID), max(t.ID, o.ID)
	s := i.draws.At(i.Seed, uint64(a), uint64(b))
	mean := interpolate(utilSum[:], pairSpeed[:], sum)
	slower := min(interpolate(utilSum[:], slowerSpeed[:], sum), mean)
	firstIsSlower := s.Float64() < .5
	m := 2*mean - slower
	if firstIsSlower == (t.ID == a) {
		m = slower
	}
	// Speeds lie between .3 and 1.15 of alone; the beta law is stretched to that.
	const low, high = .3, 1.15
	da, db := s.Beta(.5, .15), s.Beta(.5, .15) // the two halves' own noise, drawn in a fixed order
	z := da
	if t.ID != a {
		z = db
	}
	v := m + (z-.5)/.15*speedSpread(sum)
	return min(max(v, low), high)
}

// Tail is by how much a latency job's responses stretch beside neighbours, on top of its mean speed: token times were 20 %
// longer at moderate sharing, and grow above a utilisation sum of 140 %.
func Tail(sum float64) float64 {
	switch {
	case sum <= 60:
		return 1
	case sum <= 140:
		return 1.2
	}
	return 1.2 + float64(.01*(sum-140))
}

// UtilSum is the utilisation all tenants bring.
func UtilSum(ts []Tenant) float64 {
	s := 0.0
	for _, t := range ts {
		s += t.used()
	}
	return s
}
