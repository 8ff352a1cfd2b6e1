// Package nn holds the learner's networks: multilayer perceptrons that score rows, and implicit quantile networks (Dabney et al.
// 2018) that give the law of a return, with their gradients. It computes in float32 with the kernels of package gemm, or in float64
// to check itself; it never decides what is learned.
package nn

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/berth-hpc/berth/components/advisor/nn/gemm"
	"github.com/berth-hpc/berth/components/advisor/sim/random"
)

// Float is a precision: float32 to work, float64 to check.
type Float interface{ float32 | float64 }

// Init is the purpose of the random numbers that weights start from.
const Init random.Purpose = "weights"

// Kinds of networks.
const (
	// MLP: x → (linear, norm, max(0,·))… → linear.
	MLP = "mlp"
	// IQN: ψ = trunk(x), φ = max(0, cos(πiτ)·Wt + bt) with i < Cosines, Z(x, τ) = linear(head(ψ∘φ)).
	IQN = "iqn"
)

// Spec is the shape of a network.
type Spec struct {
	Kind string `json:"kind"`
	// In is the length of an input row, Out the number of outputs a row.
	In  int `json:"in"`
	Out int `json:"out"`
	// Trunk are the widths of the hidden layers on the input. Of an IQN, the last one is also the width of the embedding of τ.
	Trunk []int `json:"trunk"`
	// Head are the widths of the hidden layers after the embedding (IQN).
	Head []int `json:"head,omitempty"`
	// Cosines is the number of cosine features of τ (IQN).
	Cosines int `json:"cosines,omitempty"`
	// LayerNorm normalises each hidden layer before max(0,·) (Ba et al. 2016), as RLPD's critics need.
	LayerNorm bool `json:"layerNorm,omitempty"`
}

// Validate says what is wrong with a shape.
func (s *Spec) Validate() error {
	if s.Kind != MLP && s.Kind != IQN {
		return fmt.Errorf("network kind %q is not known; use %s or %s", s.Kind, MLP, IQN)
	}
	if len(s.Trunk) == 0 || s.Kind == IQN && (len(s.Head) == 0 || s.Cosines < 1) || s.Kind == MLP && (len(s.Head) > 0 || s.Cosines != 0) {
		return fmt.Errorf("a network has a trunk; an iqn also a head and cosines, an mlp neither")
	}
	for _, w := range append(append([]int{s.In, s.Out}, s.Trunk...), s.Head...) {
		if w < 1 || w > 1<<16 {
			return fmt.Errorf("a width of a network is %d; use 1 to 65536", w)
		}
	}
	return nil
}

// Tensor is a named part of a network's parameters: a matrix of Rows×Cols, or a vector if Rows is 0.
type Tensor struct {
	Name       string
	Rows, Cols int
	Offset     int
}

// Len is the number of parameters.
func (t Tensor) Len() int { return max(t.Rows, 1) * t.Cols }

// Layout lists a network's parameters in their order.
func (s *Spec) Layout() []Tensor {
	var out []Tensor
	off := 0
	add := func(name string, rows, cols int) {
		t := Tensor{name, rows, cols, off}
		off += t.Len()
		out = append(out, t)
	}
	dense := func(name string, in, width int, norm bool) {
		add(name+".weight", in, width)
		add(name+".bias", 0, width)
		if norm {
			add(name+".norm.gain", 0, width)
			add(name+".norm.shift", 0, width)
		}
	}
	in := s.In
	for i, w := range s.Trunk {
		dense(fmt.Sprintf("trunk.%d", i), in, w, s.LayerNorm)
		in = w
	}
	if s.Kind == IQN {
		dense("tau", s.Cosines, in, false)
		for i, w := range s.Head {
			dense(fmt.Sprintf("head.%d", i), in, w, s.LayerNorm)
			in = w
		}
	}
	dense("out", in, s.Out, false)
	return out
}

// Params is the number of parameters.
func (s *Spec) Params() int {
	l := s.Layout()
	return l[len(l)-1].Offset + l[len(l)-1].Len()
}

// layer is a dense layer over a network's parameters. gain and shift are −1 without LayerNorm; with it there are ones to sum by.
type layer[T Float] struct {
	ones             []T
	in, out          int
	weight, bias     int
	gain, shift      int
	relu             bool
	forward, reverse gemm.Packed // of float32 weights
}

// Net is a network with its parameters. Reading it is safe from several goroutines, each with a Scratch of its own.
type Net[T Float] struct {
	Spec Spec
	// P are the parameters in the order of Layout. Call Repack after changing them.
	P     []T
	trunk []*layer[T]
	tau   *layer[T]
	head  []*layer[T]
	last  *layer[T]
	// lastT is the last layer's weight matrix transposed: a row an output.
	lastT []T
}

// New makes a network with zero parameters.
func New[T Float](s Spec) (*Net[T], error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	n := &Net[T]{Spec: s, P: make([]T, s.Params())}
	lay := s.Layout()
	i := 0
	dense := func(relu, norm bool) *layer[T] {
		w := lay[i]
		l := &layer[T]{in: w.Rows, out: w.Cols, weight: w.Offset, bias: lay[i+1].Offset, gain: -1, shift: -1, relu: relu}
		i += 2
		if norm {
			l.gain, l.shift = lay[i].Offset, lay[i+1].Offset
			l.ones = make([]T, l.out)
			for k := range l.ones {
				l.ones[k] = 1
			}
			i += 2
		}
		return l
	}
	for range s.Trunk {
		n.trunk = append(n.trunk, dense(true, s.LayerNorm))
	}
	if s.Kind == IQN {
		n.tau = dense(true, false)
		for range s.Head {
			n.head = append(n.head, dense(true, s.LayerNorm))
		}
	}
	n.last = dense(false, false)
	n.lastT = make([]T, n.last.in*n.last.out)
	return n, nil
}

// Randomize draws the parameters: weights uniform in ±√(1/in) (the default of common frameworks' linear layers), biases zero, gains
// one. The last layer is scaled down tenfold, so that a new actor is nearly indifferent.
func (n *Net[T]) Randomize(seed uint64) {
	r := random.New(seed, Init)
	lay := n.Spec.Layout()
	for i, t := range lay {
		p := n.P[t.Offset : t.Offset+t.Len()]
		switch {
		case t.Rows > 0:
			bound := math.Sqrt(1 / float64(t.Rows))
			if i >= len(lay)-2 {
				bound /= 10
			}
			for k := range p {
				p[k] = T(bound * (2*r.Float64() - 1))
			}
		case t.Name[len(t.Name)-4:] == "gain":
			for k := range p {
				p[k] = 1
			}
		default:
			clear(p)
		}
	}
	n.Repack()
}

// Repack prepares the parameters for use; it must follow every change of P.
func (n *Net[T]) Repack() {
	for _, l := range n.layers() {
		if p, ok := single(n.P); ok {
			w := p[l.weight : l.weight+l.in*l.out]
			l.forward.Pack(w, l.in, l.out, l.out)
			l.reverse.PackTransposed(w, l.out, l.in, l.out)
		}
	}
	for i := range n.last.in {
		for o := range n.last.out {
			n.lastT[o*n.last.in+i] = n.P[n.last.weight+i*n.last.out+o]
		}
	}
}

func (n *Net[T]) layers() []*layer[T] {
	all := append([]*layer[T]{}, n.trunk...)
	if n.tau != nil {
		all = append(all, n.tau)
	}
	return append(append(all, n.head...), n.last)
}

// Clone copies a network.
func (n *Net[T]) Clone() *Net[T] {
	c, err := New[T](n.Spec)
	if err != nil {
		panic(err) // the spec was good before
	}
	copy(c.P, n.P)
	c.Repack()
	return c
}

// Average moves n's parameters towards o's: P ← (1−tau)·P + tau·o.P (Polyak averaging).
func (n *Net[T]) Average(o *Net[T], tau float64) {
	t := T(tau)
	for i, v := range o.P {
		n.P[i] += t * (v - n.P[i])
	}
	n.Repack()
}

// single views x as float32 if it is.
func single[T Float](x []T) ([]float32, bool) {
	var z T
	if unsafe.Sizeof(z) == 4 {
		return *(*[]float32)(unsafe.Pointer(&x)), true
	}
	return nil, false
}
