package nn

import (
	"fmt"
	"math"
)

// Adam is the optimiser of Kingma and Ba (2015). Its moments are open, so that a run can be resumed to the bit.
type Adam struct {
	Rate, Beta1, Beta2, Epsilon float64
	Step                        int64
	M, V                        []float32
}

// NewAdam makes one for a number of parameters, with the usual β (0.9, 0.999) and an ε of 1e-4, as discrete SAC implementations
// use for large, noisy gradients.
func NewAdam(params int, rate float64) *Adam {
	return &Adam{Rate: rate, Beta1: .9, Beta2: .999, Epsilon: 1e-4, M: make([]float32, params), V: make([]float32, params)}
}

// Update moves p against the gradient g. A gradient that is not finite changes nothing and is an error.
func (a *Adam) Update(p, g []float32) error {
	for i, v := range g {
		if v-v != 0 {
			return fmt.Errorf("the gradient of parameter %d is %g", i, v)
		}
	}
	a.Step++
	b1, b2, d1, d2 := float32(a.Beta1), float32(a.Beta2), float32(1-a.Beta1), float32(1-a.Beta2)
	c1 := 1 - math.Pow(a.Beta1, float64(a.Step))
	c2 := 1 - math.Pow(a.Beta2, float64(a.Step))
	rate, eps, root := float32(a.Rate/c1), float32(a.Epsilon), float32(1/math.Sqrt(c2))
	m, v := a.M[:len(g)], a.V[:len(g)]
	p = p[:len(g)]
	for i, d := range g {
		m[i] = b1*m[i] + d1*d
		v[i] = b2*v[i] + d2*d*d
		p[i] -= rate * m[i] / (float32(math.Sqrt(float64(v[i])))*root + eps)
	}
	return nil
}
