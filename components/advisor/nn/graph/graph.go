// Package graph is the only place that knows gorgonia. It builds the learner's losses as graphs of plain operations, in float64,
// which gorgonia differentiates: the oracle that the fast kernels of package nn are checked against. And it runs those kernels as
// one custom operation of a graph, for training.
//
// Gorgonia v0.9.18 has traps, all of them silent (gorgonia#569 and others found by comparing values):
//
//   - SoftMax and LogSoftMax of one node are one node, and Log(SoftMax(x)) turns the softmax itself into its logarithm. Here there
//     is only LogSoftMax, and probabilities are its Exp; a test keeps SoftMax out of this package.
//   - Two inputs with one name, type and shape are one node, and so are two operations with one hash: names are numbered, and
//     custom operations hash their identity.
//   - InverseSqrt and ByIndices along axis 1 have wrong gradients, LogSumExp along an axis does not build: none is used.
//   - Gradients accumulate over runs of dual values: gradients here are nodes, read after one run.
package graph

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/berth-hpc/berth/components/advisor/nn"
)

// Result is a loss with its gradient by the parameters, in the order of nn.Spec.Layout.
type Result struct {
	Loss float64
	Grad []float64
}

// builder makes one graph. The first error is kept and ends all further work.
type builder struct {
	g      *gorgonia.ExprGraph
	inputs int
	err    error
	params []*gorgonia.Node
	lay    []nn.Tensor
}

func (b *builder) try(n *gorgonia.Node, err error) *gorgonia.Node {
	if b.err == nil && err != nil {
		b.err = err
	}
	return n
}

// do applies an operation unless something failed before.
func (b *builder) do(f func() (*gorgonia.Node, error)) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	return b.try(f())
}

// matrix is an input with a value and a name of its own.
func (b *builder) matrix(rows, cols int, v []float64) *gorgonia.Node {
	b.inputs++
	t := tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(append([]float64{}, v[:rows*cols]...)))
	return gorgonia.NewMatrix(b.g, tensor.Float64, gorgonia.WithShape(rows, cols), gorgonia.WithName(fmt.Sprintf("input%d", b.inputs)), gorgonia.WithValue(t))
}

// filled is a matrix of one value.
func (b *builder) filled(rows, cols int, v float64) *gorgonia.Node {
	x := make([]float64, rows*cols)
	for i := range x {
		x[i] = v
	}
	return b.matrix(rows, cols, x)
}

func (b *builder) mul(x, y *gorgonia.Node) *gorgonia.Node {
	return b.do(func() (*gorgonia.Node, error) { return gorgonia.Mul(x, y) })
}

func (b *builder) times(x, y *gorgonia.Node) *gorgonia.Node {
	return b.do(func() (*gorgonia.Node, error) { return gorgonia.HadamardProd(x, y) })
}

func (b *builder) relu(x *gorgonia.Node) *gorgonia.Node {
	return b.do(func() (*gorgonia.Node, error) { return gorgonia.Rectify(x) })
}

// parameters makes a node of every tensor of a network. Vectors are matrices of one row.
func (b *builder) parameters(s nn.Spec, p []float64) {
	b.lay = s.Layout()
	for _, t := range b.lay {
		b.params = append(b.params, b.matrix(max(t.Rows, 1), t.Cols, p[t.Offset:]))
	}
}

// dense consumes the parameters of a layer, starting at *i.
func (b *builder) dense(x *gorgonia.Node, i *int, relu, norm bool) *gorgonia.Node {
	w, bias := b.params[*i], b.params[*i+1]
	*i += 2
	y := b.mul(x, w)
	y = b.do(func() (*gorgonia.Node, error) { return gorgonia.BroadcastAdd(y, bias, nil, []byte{0}) })
	if norm {
		y = b.norm(y, b.params[*i], b.params[*i+1])
		*i += 2
	}
	if relu {
		y = b.relu(y)
	}
	return y
}

// norm is LayerNorm, from operations whose gradients are right.
func (b *builder) norm(x, gain, shift *gorgonia.Node) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	rows, cols := x.Shape()[0], x.Shape()[1]
	mean := b.mul(x, b.filled(cols, 1, 1/float64(cols)))
	d := b.do(func() (*gorgonia.Node, error) { return gorgonia.BroadcastSub(x, mean, nil, []byte{1}) })
	v := b.mul(b.do(func() (*gorgonia.Node, error) { return gorgonia.Square(d) }), b.filled(cols, 1, 1/float64(cols)))
	v = b.do(func() (*gorgonia.Node, error) { return gorgonia.Add(v, b.filled(rows, 1, 1e-5)) })
	sd := b.do(func() (*gorgonia.Node, error) { return gorgonia.Sqrt(v) })
	u := b.do(func() (*gorgonia.Node, error) { return gorgonia.BroadcastHadamardDiv(d, sd, nil, []byte{1}) })
	u = b.do(func() (*gorgonia.Node, error) { return gorgonia.BroadcastHadamardProd(u, gain, nil, []byte{0}) })
	return b.do(func() (*gorgonia.Node, error) { return gorgonia.BroadcastAdd(u, shift, nil, []byte{0}) })
}

// run differentiates a scalar loss and evaluates it.
func (b *builder) run(loss *gorgonia.Node) (Result, error) {
	if b.err != nil {
		return Result{}, fmt.Errorf("the graph cannot be built: %w", b.err)
	}
	grads, err := gorgonia.Grad(loss, b.params...)
	if err != nil {
		return Result{}, fmt.Errorf("the graph cannot be differentiated: %w", err)
	}
	out := make([]gorgonia.Value, len(grads))
	for i, g := range grads {
		gorgonia.Read(g, &out[i])
	}
	var l gorgonia.Value
	gorgonia.Read(loss, &l)
	vm := gorgonia.NewTapeMachine(b.g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return Result{}, fmt.Errorf("the graph cannot be run: %w", err)
	}
	r := Result{Loss: l.Data().(float64)}
	for i := range out {
		switch v := out[i].Data().(type) {
		case []float64:
			r.Grad = append(r.Grad, v[:b.lay[i].Len()]...)
		case float64:
			r.Grad = append(r.Grad, v)
		}
	}
	return r, nil
}

// Critic is a batch for a quantile critic: rows of X (rows×In), each with Taus fractions (Tau, rows×Taus), targets (rows×any) and
// the output that was taken.
type Critic struct {
	Rows, Taus int
	X          []float64
	Tau        []float64
	Targets    []float64
	Take       []int32
	Weight     float64
}

// CriticLoss is weight·Σ over rows of the quantile Huber loss, from plain operations.
func CriticLoss(s nn.Spec, p []float64, c Critic) (Result, error) {
	b := &builder{g: gorgonia.NewGraph()}
	b.parameters(s, p)
	n := c.Rows * c.Taus
	i := 0
	psi := b.matrix(c.Rows, s.In, c.X)
	for range s.Trunk {
		psi = b.dense(psi, &i, true, s.LayerNorm)
	}
	cos := make([]float64, n*s.Cosines)
	nn.Cosines(cos, c.Tau, s.Cosines)
	phi := b.dense(b.matrix(n, s.Cosines, cos), &i, true, false)
	spread := make([]float64, n*c.Rows) // repeats each row of ψ once a fraction
	for k := range n {
		spread[k*c.Rows+k/c.Taus] = 1
	}
	h := b.times(b.mul(b.matrix(n, c.Rows, spread), psi), phi)
	for range s.Head {
		h = b.dense(h, &i, true, s.LayerNorm)
	}
	z := b.dense(h, &i, false, false)
	pick := make([]float64, n*s.Out)
	for k := range n {
		pick[k*s.Out+int(c.Take[k/c.Taus])] = 1
	}
	z = b.mul(b.times(z, b.matrix(n, s.Out, pick)), b.filled(s.Out, 1, 1))
	return b.run(b.huber(z, c))
}

// huber splits u = target − z into its parts above and below zero, whose weights are τ and 1 − τ: no comparison needs a gradient.
func (b *builder) huber(z *gorgonia.Node, c Critic) *gorgonia.Node {
	n, k := c.Rows*c.Taus, len(c.Targets)/c.Rows
	y, above, below := make([]float64, n*k), make([]float64, n*k), make([]float64, n*k)
	for i := range n {
		for j := range k {
			y[i*k+j] = c.Targets[i/c.Taus*k+j]
			above[i*k+j] = c.Weight * c.Tau[i] / float64(k) / nn.Kappa
			below[i*k+j] = c.Weight * (1 - c.Tau[i]) / float64(k) / nn.Kappa
		}
	}
	u := b.do(func() (*gorgonia.Node, error) { return gorgonia.BroadcastSub(b.matrix(n, k, y), z, nil, []byte{1}) })
	part := func(u *gorgonia.Node, w []float64) *gorgonia.Node {
		a := b.relu(u)
		// min(a, κ) = a − max(0, a−κ); the loss is min(a,κ)·(a − min(a,κ)/2).
		over := b.relu(b.do(func() (*gorgonia.Node, error) { return gorgonia.Sub(a, b.filled(n, k, nn.Kappa)) }))
		m := b.do(func() (*gorgonia.Node, error) { return gorgonia.Sub(a, over) })
		half := b.times(m, b.filled(n, k, .5))
		l := b.times(m, b.do(func() (*gorgonia.Node, error) { return gorgonia.Sub(a, half) }))
		return b.times(l, b.matrix(n, k, w))
	}
	down := b.do(func() (*gorgonia.Node, error) { return gorgonia.Neg(u) })
	pos, neg := part(u, above), part(down, below)
	sum := b.do(func() (*gorgonia.Node, error) { return gorgonia.Add(pos, neg) })
	return b.do(func() (*gorgonia.Node, error) { return gorgonia.Sum(sum) })
}

// Actor is a batch for the actor: States states of Width rows each, of which the first Valid count; Q is the critics' value of
// every row.
type Actor struct {
	States, Width int
	Valid         []int
	X, Q          []float64
	Alpha, Weight float64
}

// ActorLoss is weight·Σ over states of Σ_a π(a)·(α·log π(a) − q(a)), from plain operations.
func ActorLoss(s nn.Spec, p []float64, a Actor) (Result, error) {
	if s.Out != 1 {
		return Result{}, fmt.Errorf("an actor scores each row once, it has %d outputs", s.Out)
	}
	b := &builder{g: gorgonia.NewGraph()}
	b.parameters(s, p)
	n := a.States * a.Width
	i := 0
	h := b.matrix(n, s.In, a.X)
	for range s.Trunk {
		h = b.dense(h, &i, true, s.LayerNorm)
	}
	logits := b.dense(h, &i, false, false)
	// Rows of padding get a logit so low that their probability is zero, exactly.
	mask, q := make([]float64, n), make([]float64, n)
	for k := range n {
		if k%a.Width >= a.Valid[k/a.Width] {
			mask[k] = -1e9
		} else {
			q[k] = -a.Q[k]
		}
	}
	logits = b.do(func() (*gorgonia.Node, error) { return gorgonia.Reshape(logits, tensor.Shape{a.States, a.Width}) })
	logits = b.do(func() (*gorgonia.Node, error) { return gorgonia.Add(logits, b.matrix(a.States, a.Width, mask)) })
	lp := b.do(func() (*gorgonia.Node, error) { return gorgonia.LogSoftMax(logits, 1) })
	pi := b.do(func() (*gorgonia.Node, error) { return gorgonia.Exp(lp) })
	f := b.times(lp, b.filled(a.States, a.Width, a.Alpha))
	f = b.do(func() (*gorgonia.Node, error) { return gorgonia.Add(f, b.matrix(a.States, a.Width, q)) })
	f = b.times(b.times(pi, f), b.filled(a.States, a.Width, a.Weight))
	return b.run(b.do(func() (*gorgonia.Node, error) { return gorgonia.Sum(f) }))
}
