package nn

import "math"

// Scratch is the memory of one goroutine's passes through networks. The zero value is ready; passes of one shape reuse it and
// allocate nothing.
type Scratch[T Float] struct {
	trunk, head []trace[T]
	tau         trace[T]
	merged      []T
	d, e, dphi  []T
	dpsi, dz    []T
	hbar        []T
	z           []T
}

func (s *Scratch[T]) fit(n *Net[T]) {
	for len(s.trunk) < len(n.trunk) {
		s.trunk = append(s.trunk, trace[T]{})
	}
	for len(s.head) < len(n.head) {
		s.head = append(s.head, trace[T]{})
	}
}

// Forward puts an MLP's outputs for rows of x into y, rows×Out.
func (n *Net[T]) Forward(s *Scratch[T], rows int, x, y []T) {
	s.fit(n)
	n.product(n.last, rows, n.forwardAll(n.trunk, s.trunk, rows, x), y[:rows*n.last.out], false)
}

func (n *Net[T]) forwardAll(ls []*layer[T], ts []trace[T], rows int, x []T) []T {
	for i, l := range ls {
		x = n.forward(l, rows, x, &ts[i])
	}
	return x
}

// Backward adds the gradient by the parameters to grad, given the gradient dy by the outputs of the last Forward with s.
func (n *Net[T]) Backward(s *Scratch[T], rows int, dy, grad []T) {
	if rows == 0 {
		return
	}
	l := n.last
	h := s.trunk[len(n.trunk)-1].y[:rows*l.in]
	dy = dy[:rows*l.out]
	columns(grad[l.bias:l.bias+l.out], dy)
	n.weightGradient(l, rows, h, dy, grad[l.weight:l.weight+l.in*l.out])
	s.d = grow(s.d, rows*l.in)
	n.inputGradient(l, rows, dy, s.d)
	n.backwardAll(s, n.trunk, s.trunk, rows, grad, false)
}

// backwardAll goes back through layers, from s.d. If input, it leaves the gradient by the first one's input in s.d.
func (n *Net[T]) backwardAll(s *Scratch[T], ls []*layer[T], ts []trace[T], rows int, grad []T, input bool) {
	for i := len(ls) - 1; i >= 0; i-- {
		l := ls[i]
		if i == 0 && !input {
			n.backward(l, rows, &ts[i], s.d, nil, grad)
			return
		}
		s.e = grow(s.e, rows*l.in)
		n.backward(l, rows, &ts[i], s.d, s.e, grad)
		s.d, s.e = s.e, s.d
	}
}

// Cosines puts the features cos(πiτ), i = 0…n−1, of every τ into out. They come from the recurrence of Chebyshev polynomials,
// cos(iθ) = 2·cos θ·cos((i−1)θ) − cos((i−2)θ), in float64.
func Cosines[T Float](out, taus []T, n int) {
	for k, tau := range taus {
		row := out[k*n : (k+1)*n]
		c := math.Cos(math.Pi * float64(tau))
		a, b := 1.0, c
		for i := range row {
			row[i] = T(a)
			a, b = b, float64(2*c*b)-a
		}
	}
}

// Rows is an input of an IQN: rows of x, each of a state, and the quantile fractions of every state.
type Rows[T Float] struct {
	N int // of rows
	X []T
	// State gives each row's state; nil: row i is of state i.
	State []int32
	// States is their number, Taus the number of fractions a state; Cos are the fractions' features (see Cosines), States·Taus rows.
	States, Taus int
	Cos          []T
}

func (r *Rows[T]) state(i int) int {
	if r.State == nil {
		return i
	}
	return int(r.State[i])
}

// embed computes head(ψ∘φ) for every row and fraction.
func (n *Net[T]) embed(s *Scratch[T], r *Rows[T]) []T {
	s.fit(n)
	psi := n.forwardAll(n.trunk, s.trunk, r.N, r.X)
	phi := n.forward(n.tau, r.States*r.Taus, r.Cos, &s.tau)
	w := n.tau.out
	s.merged = grow(s.merged, r.N*r.Taus*w)
	for i := range r.N {
		p, f := psi[i*w:(i+1)*w], phi[r.state(i)*r.Taus*w:]
		for j := range r.Taus {
			mulTo(s.merged[(i*r.Taus+j)*w:(i*r.Taus+j+1)*w], p, f[j*w:(j+1)*w])
		}
	}
	return n.forwardAll(n.head, s.head, r.N*r.Taus, s.merged)
}

// Quantiles puts Z(x, τ) into z: rows×Taus×Out, or rows×Taus if take names one output for every row.
func (n *Net[T]) Quantiles(s *Scratch[T], r *Rows[T], take []int32, z []T) {
	h := n.embed(s, r)
	if take == nil {
		n.product(n.last, r.N*r.Taus, h, z[:r.N*r.Taus*n.last.out], false)
		return
	}
	n.taken(r, take, h, z)
}

func (n *Net[T]) taken(r *Rows[T], take []int32, h, z []T) {
	w := n.last.in
	for i := range r.N {
		o := int(take[i])
		out, b := n.lastT[o*w:(o+1)*w], n.P[n.last.bias+o]
		for j := range r.Taus {
			k := i*r.Taus + j
			z[k] = dot(h[k*w:(k+1)*w], out) + b
		}
	}
}

// MeanQuantiles puts the mean of Z(x, τ) over a row's fractions into q, rows×Out: the expectation of the return if the fractions
// cover (0, 1), its CVaR at level α if they cover (0, α). The last layer is linear, so the mean is taken before it.
func (n *Net[T]) MeanQuantiles(s *Scratch[T], r *Rows[T], q []T) {
	h := n.embed(s, r)
	w := n.last.in
	s.hbar = grow(s.hbar, r.N*w)
	clear(s.hbar)
	for i := range r.N {
		m := s.hbar[i*w : (i+1)*w]
		for j := range r.Taus {
			add(m, h[(i*r.Taus+j)*w:(i*r.Taus+j+1)*w])
		}
		for k := range m {
			m[k] /= T(r.Taus)
		}
	}
	n.product(n.last, r.N, s.hbar, q[:r.N*n.last.out], false)
}

// QuantileLoss adds to grad the gradient of weight·Σ over rows of the quantile Huber loss of the taken outputs against the targets
// (rows×targets), and gives that sum. taus are the fractions, rows×Taus. Every row is a state of its own.
func (n *Net[T]) QuantileLoss(s *Scratch[T], r *Rows[T], take []int32, taus, targets []T, weight T, grad []T) T {
	h := n.embed(s, r)
	w, nt := n.last.in, r.Taus
	s.z, s.dz = grow(s.z, r.N*nt), grow(s.dz, r.N*nt)
	n.taken(r, take, h, s.z)
	var loss T
	nk := len(targets) / max(r.N, 1)
	for i := range r.N {
		loss += QuantileHuber(s.z[i*nt:(i+1)*nt], taus[i*nt:(i+1)*nt], targets[i*nk:(i+1)*nk], s.dz[i*nt:(i+1)*nt])
	}
	s.d = grow(s.d, r.N*nt*w)
	clear(s.d)
	l := n.last
	if cap(s.hbar) < w {
		s.hbar = make([]T, w)
	}
	dw := s.hbar[:w]
	for i := range r.N {
		o := int(take[i])
		out := n.lastT[o*w : (o+1)*w]
		clear(dw)
		for j := range nt {
			k := i*nt + j
			g := weight * s.dz[k]
			grad[l.bias+o] += g
			axpy(g, dw, h[k*w:(k+1)*w])
			axpy(g, s.d[k*w:(k+1)*w], out)
		}
		for c, v := range dw {
			grad[l.weight+c*l.out+o] += v
		}
	}
	n.backwardAll(s, n.head, s.head, r.N*nt, grad, true)
	n.unmerge(s, r, grad)
	return weight * loss
}

// unmerge goes back through ψ∘φ, the embedding of τ, and the trunk.
func (n *Net[T]) unmerge(s *Scratch[T], r *Rows[T], grad []T) {
	w := n.tau.out
	psi, phi := s.trunk[len(n.trunk)-1].y, s.tau.y
	s.dphi, s.dpsi = grow(s.dphi, r.States*r.Taus*w), grow(s.dpsi, r.N*w)
	clear(s.dpsi)
	for i := range r.N {
		for j := range r.Taus {
			k := i*r.Taus + j
			d := s.d[k*w : (k+1)*w]
			mulAdd(s.dpsi[i*w:(i+1)*w], d, phi[k*w:(k+1)*w])
			mulTo(s.dphi[k*w:(k+1)*w], d, psi[i*w:(i+1)*w])
		}
	}
	n.backward(n.tau, r.N*r.Taus, &s.tau, s.dphi, nil, grad)
	s.d = grow(s.d, r.N*w)
	copy(s.d, s.dpsi)
	n.backwardAll(s, n.trunk, s.trunk, r.N, grad, false)
}

// Kappa is the threshold of the Huber loss (Dabney et al. 2018: 1).
const Kappa = 1

// QuantileHuber is the loss of quantile estimates theta at fractions tau against samples of a target, Σ over tau of the mean over
// targets of |tau − 1{u<0}|·huber(u)/κ with u = target − theta, and puts its gradient by theta into grad. The sign matters: the
// weight of an estimate above its target is 1 − tau. Inverted, everything still trains and a CVaR policy seeks risk.
func QuantileHuber[T Float](theta, tau, targets, grad []T) T {
	var loss T
	for j, z := range theta {
		var below, above, lb, la T // gradient and loss, of targets below and above z
		for _, y := range targets {
			u := y - z
			g := min(max(u, -Kappa), Kappa)
			l := g * (u - g/2) // u²/2 inside κ, κ(|u|−κ/2) outside
			if u < 0 {
				below, lb = below+g, lb+l
			} else {
				above, la = above+g, la+l
			}
		}
		n := T(len(targets)) * Kappa
		grad[j] = -((1-tau[j])*below + tau[j]*above) / n
		loss += ((1-tau[j])*lb + tau[j]*la) / n
	}
	return loss
}
