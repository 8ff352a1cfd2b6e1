package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/berth-hpc/berth/components/advisor/nn/gemm"
)

func shapes() []Spec {
	return []Spec{
		{Kind: MLP, In: 5, Out: 3, Trunk: []int{7, 6}},
		{Kind: MLP, In: 5, Out: 1, Trunk: []int{7}, LayerNorm: true},
		{Kind: IQN, In: 4, Out: 3, Trunk: []int{6}, Head: []int{5}, Cosines: 8},
		{Kind: IQN, In: 4, Out: 1, Trunk: []int{7, 6}, Head: []int{5, 4}, Cosines: 8, LayerNorm: true},
		{Kind: IQN, In: 40, Out: 1, Trunk: []int{64}, Head: []int{64}, Cosines: 64},
	}
}

func normal[T Float](r *rand.Rand, n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = T(r.NormFloat64())
	}
	return x
}

func uniform[T Float](r *rand.Rand, n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = T(r.Float64())
	}
	return x
}

func convert[A, B Float](x []A) []B {
	y := make([]B, len(x))
	for i, v := range x {
		y[i] = B(v)
	}
	return y
}

// random draws every parameter, biases and gains too, so that none of them hides.
func randomNet(t testing.TB, s Spec, seed uint64) *Net[float64] {
	n, err := New[float64](s)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range n.P {
		n.P[i] = .5 * r.NormFloat64()
	}
	n.Repack()
	return n
}

func single32(t testing.TB, n *Net[float64]) *Net[float32] {
	m, err := New[float32](n.Spec)
	if err != nil {
		t.Fatal(err)
	}
	copy(m.P, convert[float64, float32](n.P))
	m.Repack()
	return m
}

// problem is a loss of a network on a random batch, of either kind.
type problem struct {
	spec          Spec
	rows, taus    int
	x, tau, coeff []float64
	targets       []float64
	take          []int32
}

func newProblem(s Spec, rows int, seed uint64) *problem {
	r := rand.New(rand.NewPCG(seed, 2))
	p := &problem{spec: s, rows: rows, taus: 4, x: normal[float64](r, rows*s.In), coeff: normal[float64](r, rows*s.Out)}
	p.tau, p.targets = uniform[float64](r, rows*p.taus), normal[float64](r, rows*3)
	for range rows {
		p.take = append(p.take, int32(r.IntN(s.Out)))
	}
	return p
}

// loss gives the loss and adds its gradient to grad: of an MLP the outputs times coefficients, of an IQN the quantile loss.
func loss[T Float](p *problem, n *Net[T], grad []T) float64 {
	var s Scratch[T]
	x := convert[float64, T](p.x)
	if p.spec.Kind == MLP {
		y, c := make([]T, p.rows*p.spec.Out), convert[float64, T](p.coeff)
		n.Forward(&s, p.rows, x, y)
		sum := 0.0
		for i := range y {
			sum += float64(y[i] * c[i])
		}
		n.Backward(&s, p.rows, c, grad)
		return sum
	}
	tau := convert[float64, T](p.tau)
	cos := make([]T, len(tau)*p.spec.Cosines)
	Cosines(cos, tau, p.spec.Cosines)
	r := Rows[T]{N: p.rows, X: x, States: p.rows, Taus: p.taus, Cos: cos}
	return float64(n.QuantileLoss(&s, &r, p.take, tau, convert[float64, T](p.targets), .25, grad))
}

// Gradients agree with central differences in float64, parameter by parameter, for every shape.
func TestGradients(t *testing.T) {
	for _, spec := range shapes() {
		t.Run(fmt.Sprintf("%s-%d-%v", spec.Kind, spec.Out, spec.LayerNorm), func(t *testing.T) {
			n, p := randomNet(t, spec, 7), newProblem(spec, 6, 8)
			grad := make([]float64, len(n.P))
			loss(p, n, grad)
			top := 0.0
			for _, g := range grad {
				top = max(top, math.Abs(g))
			}
			step := max(1, len(n.P)/400)
			for i := 0; i < len(n.P); i += step {
				const h = 1e-6
				old, waste := n.P[i], make([]float64, len(n.P))
				n.P[i] = old + h
				n.Repack()
				up := loss(p, n, waste)
				n.P[i] = old - h
				n.Repack()
				down := loss(p, n, waste)
				n.P[i] = old
				n.Repack()
				if d := math.Abs((up-down)/(2*h) - grad[i]); !(d <= 1e-5*max(top, 1)) {
					t.Errorf("parameter %d: gradient %g, differences say %g", i, grad[i], (up-down)/(2*h))
				}
			}
		})
	}
}

// The float32 kernels give what float64 gives, on every instruction set of this machine, for batches of awkward sizes.
func TestSinglePrecision(t *testing.T) {
	for _, isa := range []string{"portable", "avx2", "avx512"} {
		restore, err := gemm.Use(isa)
		if err != nil {
			t.Logf("left out: %v", err)
			continue
		}
		for _, spec := range shapes() {
			for _, rows := range []int{1, 5, 37} {
				n, p := randomNet(t, spec, 9), newProblem(spec, rows, 10)
				want := make([]float64, len(n.P))
				lw := loss(p, n, want)
				got := make([]float32, len(n.P))
				lg := loss(p, single32(t, n), got)
				top := 0.0
				for _, g := range want {
					top = max(top, math.Abs(g))
				}
				if math.Abs(lg-lw) > 1e-4*max(1, math.Abs(lw)) {
					t.Errorf("%s %v: loss %g, want %g", isa, spec, lg, lw)
				}
				for i := range got {
					if d := math.Abs(float64(got[i]) - want[i]); !(d <= 2e-4*top) {
						t.Fatalf("%s %v rows %d: gradient %d is %g, want %g (largest %g)", isa, spec, rows, i, got[i], want[i], top)
					}
				}
			}
		}
		restore()
	}
}

// The loss of the reference: theta [0,1,3] at fractions 1/6, 1/2, 5/6 against [.5,2,−1].
func TestQuantileHuber(t *testing.T) {
	grad := make([]float64, 3)
	got := QuantileHuber([]float64{0, 1, 3}, []float64{1. / 6, .5, 5. / 6}, []float64{.5, 2, -1}, grad)
	if math.Abs(got-.9166666666666666) > 1e-15 {
		t.Errorf("loss %v", got)
	}
	for i, want := range []float64{.19444444444444445, .08333333333333333, .16666666666666663} {
		if math.Abs(grad[i]-want) > 1e-15 {
			t.Errorf("gradient %d is %v, want %v", i, grad[i], want)
		}
	}
}

func TestCosines(t *testing.T) {
	out := make([]float64, 64)
	Cosines(out, []float64{.3}, 64)
	for i, want := range []float64{1, .5877852522924731, -.3090169943749474, -.9510565162951536} {
		if math.Abs(out[i]-want) > 1e-14 {
			t.Errorf("cos(%d·0.3π) is %v, want %v", i, out[i], want)
		}
	}
	for i, got := range out {
		if want := math.Cos(math.Pi * .3 * float64(i)); math.Abs(got-want) > 1e-12 {
			t.Errorf("cos(%d·0.3π) is %v, want %v", i, got, want)
		}
	}
}

// The actor's loss and its gradient by the logits agree with differences; the softmax and its logarithm are two things.
func TestActorLoss(t *testing.T) {
	logits, q := []float64{.3, -1.2, 2, .1}, []float64{-1, .5, -.3, 2}
	const alpha, weight = .2, .5
	logp, p := make([]float64, 4), make([]float64, 4)
	f := func(l []float64) float64 {
		z, s := 0.0, 0.0
		for _, v := range l {
			z += math.Exp(v)
		}
		for i, v := range l {
			pi := math.Exp(v) / z
			s += pi * (alpha*math.Log(pi) - q[i])
		}
		return weight * s
	}
	grad := append([]float64{}, logits...)
	loss, h := ActorLoss(grad, q, alpha, weight, logp, p)
	if math.Abs(loss-f(logits)) > 1e-14 {
		t.Errorf("loss %v, want %v", loss, f(logits))
	}
	want := 0.0
	for i := range logits {
		if math.Abs(math.Exp(logp[i])-p[i]) > 1e-15 {
			t.Errorf("exp(log p) is %v, p is %v", math.Exp(logp[i]), p[i])
		}
		want -= p[i] * math.Log(p[i])
		up, down := append([]float64{}, logits...), append([]float64{}, logits...)
		up[i] += 1e-6
		down[i] -= 1e-6
		if d := (f(up) - f(down)) / 2e-6; math.Abs(d-grad[i]) > 1e-9 {
			t.Errorf("gradient %d is %v, differences say %v", i, grad[i], d)
		}
	}
	if math.Abs(h-want) > 1e-14 {
		t.Errorf("entropy %v, want %v", h, want)
	}
}

// The entropy of 257 equal actions is the reference's ln 257; of one action it is nothing, and its gradient too.
func TestEntropy(t *testing.T) {
	x, lp, p := make([]float64, 257), make([]float64, 257), make([]float64, 257)
	if h := Softmax(x, lp, p); math.Abs(h-5.549076084895219) > 1e-12 {
		t.Errorf("entropy %v", h)
	}
	one := []float32{3.7}
	if _, h := ActorLoss(one, []float32{-2}, .3, 1, make([]float32, 1), make([]float32, 1)); h != 0 || one[0] != 0 {
		t.Errorf("one action: entropy %v, gradient %v", h, one[0])
	}
}

// The mean over fractions taken before the last layer is that taken after it, also for rows that share a state's fractions.
func TestMeanQuantiles(t *testing.T) {
	for _, spec := range shapes()[2:4] {
		n := randomNet(t, spec, 3)
		r := rand.New(rand.NewPCG(4, 4))
		rows := Rows[float64]{N: 5, X: normal[float64](r, 5*spec.In), State: []int32{0, 0, 1, 1, 1}, States: 2, Taus: 3}
		rows.Cos = make([]float64, 6*spec.Cosines)
		Cosines(rows.Cos, uniform[float64](r, 6), spec.Cosines)
		z, q := make([]float64, 5*3*spec.Out), make([]float64, 5*spec.Out)
		var s Scratch[float64]
		n.Quantiles(&s, &rows, nil, z)
		n.MeanQuantiles(&s, &rows, q)
		for i := range 5 {
			for o := range spec.Out {
				m := (z[(i*3)*spec.Out+o] + z[(i*3+1)*spec.Out+o] + z[(i*3+2)*spec.Out+o]) / 3
				if math.Abs(m-q[i*spec.Out+o]) > 1e-12 {
					t.Errorf("row %d output %d: %v, want %v", i, o, q[i*spec.Out+o], m)
				}
			}
		}
	}
}

// Adam's first steps are those of the paper's formula.
func TestAdam(t *testing.T) {
	a := NewAdam(1, .1)
	p := []float32{1}
	m, v, want := 0.0, 0.0, 1.0
	for k := 1; k <= 10; k++ {
		g := math.Sin(float64(k))
		if err := a.Update(p, []float32{float32(g)}); err != nil {
			t.Fatal(err)
		}
		m, v = .9*m+.1*g, .999*v+.001*g*g
		want -= .1 * (m / (1 - math.Pow(.9, float64(k)))) / (math.Sqrt(v/(1-math.Pow(.999, float64(k)))) + 1e-4)
		if math.Abs(float64(p[0])-want) > 1e-6 {
			t.Fatalf("step %d: %g, want %g", k, p[0], want)
		}
	}
	before, step := p[0], a.Step
	if err := a.Update(p, []float32{float32(math.NaN())}); err == nil || p[0] != before || a.Step != step {
		t.Errorf("a NaN was taken: %v", err)
	}
}

func TestForwardAllocatesNothing(t *testing.T) {
	for _, spec := range shapes() {
		n, p := randomNet(t, spec, 9), newProblem(spec, 12, 10)
		m := single32(t, n)
		var s Scratch[float32]
		x, y := convert[float64, float32](p.x), make([]float32, p.rows*spec.Out)
		cos := make([]float32, p.rows*p.taus*max(spec.Cosines, 1))
		run := func() {
			if spec.Kind == MLP {
				m.Forward(&s, p.rows, x, y)
				return
			}
			r := Rows[float32]{N: p.rows, X: x, States: p.rows, Taus: p.taus, Cos: cos}
			m.MeanQuantiles(&s, &r, y)
		}
		run()
		if a := testing.AllocsPerRun(10, run); a != 0 && gemm.ISA() != "avx2" {
			t.Errorf("%v: %g allocations", spec, a)
		}
	}
}
