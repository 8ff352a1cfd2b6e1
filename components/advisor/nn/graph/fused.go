package graph

import (
	"fmt"
	"hash"
	"hash/fnv"
	"sync/atomic"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Loss computes a loss of parameters and puts its gradient into grad (cleared before), in one go.
type Loss func(params, grad []float32) float32

// Step is a training graph of one network: its parameters, a loss that is one operation, and the gradient gorgonia derives from it.
type Step struct {
	vm     gorgonia.VM
	op     *fused
	params []float32
	loss   gorgonia.Value
	grad   gorgonia.Value
}

// ids tell operations apart: gorgonia takes two with one hash for one.
var ids atomic.Uint64

// NewStep builds the graph over parameters, which it reads where they are at every run.
func NewStep(name string, params []float32, loss Loss) (*Step, error) {
	g := gorgonia.NewGraph()
	op := &fused{id: ids.Add(1), name: name, loss: loss, grad: make([]float32, len(params))}
	p := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(len(params)), gorgonia.WithName(fmt.Sprintf("%s.parameters.%d", name, op.id)),
		gorgonia.WithValue(tensor.New(tensor.WithShape(len(params)), tensor.WithBacking(params))))
	l, err := gorgonia.ApplyOp(op, p)
	if err != nil {
		return nil, fmt.Errorf("graph of %s: %w", name, err)
	}
	d, err := gorgonia.Grad(l, p)
	if err != nil {
		return nil, fmt.Errorf("gradient of %s: %w", name, err)
	}
	s := &Step{op: op, params: params}
	gorgonia.Read(l, &s.loss)
	gorgonia.Read(d[0], &s.grad)
	s.vm = gorgonia.NewTapeMachine(g)
	return s, nil
}

// Run evaluates the loss at the present parameters and gives it with its gradient, which is valid until the next run.
func (s *Step) Run() (float32, []float32, error) {
	s.vm.Reset()
	if err := s.vm.RunAll(); err != nil {
		return 0, nil, fmt.Errorf("graph of %s: %w", s.op.name, err)
	}
	return s.loss.Data().(float32), s.op.grad, nil
}

// Close frees the machine.
func (s *Step) Close() error { return s.vm.Close() }

// fused is a loss as one operation. Its gradient comes out of the forward pass; the operation that SymDiff gives fetches it.
type fused struct {
	id   uint64
	name string
	loss Loss
	grad []float32
}

// Arity, Type, InferShape, ReturnsPtr, CallsExtern, OverwritesInput, WriteHash, Hashcode and String describe the operation to
// gorgonia.
func (f *fused) Arity() int { return 1 }

// Type is vector → scalar.
func (f *fused) Type() hm.Type {
	return hm.NewFnType(gorgonia.TensorType{Dims: 1, Of: tensor.Float32}, tensor.Float32)
}

// InferShape is that of a scalar.
func (f *fused) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return tensor.ScalarShape(), nil
}

// Do computes the loss, and the gradient along with it.
func (f *fused) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	p, ok := in[0].Data().([]float32)
	if !ok || len(p) != len(f.grad) {
		return nil, fmt.Errorf("%s takes a vector of %d parameters", f.name, len(f.grad))
	}
	clear(f.grad)
	return gorgonia.NewF32(f.loss(p, f.grad)), nil
}

// ReturnsPtr says that the result is new.
func (f *fused) ReturnsPtr() bool { return false }

// CallsExtern says that no foreign code runs.
func (f *fused) CallsExtern() bool { return false }

// OverwritesInput says that no input is overwritten.
func (f *fused) OverwritesInput() int { return -1 }

// WriteHash makes every operation one of its own.
func (f *fused) WriteHash(h hash.Hash) { fmt.Fprintf(h, "%s#%d", f.name, f.id) }

// Hashcode is the hash of WriteHash.
func (f *fused) Hashcode() uint32 { return hashcode(f) }

// String names it.
func (f *fused) String() string { return f.name }

// DiffWRT says that the loss is differentiable.
func (f *fused) DiffWRT(int) []bool { return []bool{true} }

// SymDiff gives the node that fetches the gradient; it takes the loss, so that it runs after it.
func (f *fused) SymDiff(in gorgonia.Nodes, output, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	n, err := gorgonia.ApplyOp(&fetch{f}, in[0], output, grad)
	return gorgonia.Nodes{n}, err
}

// fetch is the gradient of a fused loss, times the gradient by that loss.
type fetch struct{ *fused }

func (f *fetch) Arity() int { return 3 }

func (f *fetch) Type() hm.Type {
	v := gorgonia.TensorType{Dims: 1, Of: tensor.Float32}
	return hm.NewFnType(v, tensor.Float32, tensor.Float32, v)
}

func (f *fetch) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, ok := in[0].(tensor.Shape)
	if !ok {
		return nil, fmt.Errorf("the gradient of %s has the shape of its parameters", f.name)
	}
	return s.Clone(), nil
}

func (f *fetch) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	by, ok := in[2].Data().(float32)
	if !ok {
		return nil, fmt.Errorf("%s: the gradient by the loss is not a number", f.name)
	}
	if by != 1 {
		for i := range f.grad {
			f.grad[i] *= by
		}
	}
	return tensor.New(tensor.WithShape(len(f.grad)), tensor.WithBacking(f.grad)), nil
}

func (f *fetch) WriteHash(h hash.Hash) { fmt.Fprintf(h, "gradient of %s#%d", f.name, f.id) }
func (f *fetch) Hashcode() uint32      { return hashcode(f) }
func (f *fetch) String() string        { return "gradient of " + f.name }
func (f *fetch) DiffWRT(int) []bool    { return []bool{false, false, false} }
func (f *fetch) SymDiff(_ gorgonia.Nodes, _, _ *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, fmt.Errorf("the gradient of %s has no gradient", f.name)
}

func hashcode(o gorgonia.Op) uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}
