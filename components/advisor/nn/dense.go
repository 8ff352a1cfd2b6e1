package nn

import (
	"math"

	"github.com/berth-hpc/berth/components/advisor/nn/gemm"
)

// normEps keeps the inverse deviation of LayerNorm finite.
const normEps = 1e-5

// trace is what a layer's forward pass leaves for the backward pass.
type trace[T Float] struct {
	x    []T // the input; not its own
	y    []T // the output
	unit []T // the normalised rows
	inv  []T // one over the deviation of each row
	row  []T // memory of one row
}

func grow[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// forward computes a layer over rows of x, all of them.
func (n *Net[T]) forward(l *layer[T], rows int, x []T, t *trace[T]) []T {
	t.x, t.y = x, grow(t.y, rows*l.out)
	norm := l.gain >= 0
	n.product(l, rows, x, t.y, l.relu && !norm)
	if norm {
		t.unit, t.inv = grow(t.unit, rows*l.out), grow(t.inv, rows)
		gain, shift := n.P[l.gain:l.gain+l.out], n.P[l.shift:l.shift+l.out]
		for r := range rows {
			t.inv[r] = normalise(t.y[r*l.out:(r+1)*l.out], t.unit[r*l.out:(r+1)*l.out], gain, shift, l.ones)
		}
	}
	return t.y
}

// product is y = x·W + b, cut at zero if relu.
func (n *Net[T]) product(l *layer[T], rows int, x, y []T, relu bool) {
	if rows == 0 {
		return
	}
	if xs, ok := single(x); ok {
		ys, _ := single(y)
		p, _ := single(n.P)
		floor := gemm.NoFloor
		if relu {
			floor = 0
		}
		if l.out == 1 {
			w, b := p[l.weight:l.weight+l.in], p[l.bias]
			for r := range rows {
				ys[r] = max(gemm.Dot(xs[r*l.in:(r+1)*l.in], w)+b, floor)
			}
			return
		}
		gemm.MulPacked(rows, gemm.Operand{Data: xs, Row: l.in, Step: 1}, &l.forward,
			gemm.Dest{Data: ys, Row: l.out, Init: gemm.Bias, Bias: p[l.bias : l.bias+l.out], Floor: floor})
		return
	}
	floor := T(math.Inf(-1))
	if relu {
		floor = 0
	}
	gemm.Plain(rows, l.out, l.in, x, l.in, 1, n.P[l.weight:], l.out, y, l.out, gemm.Bias, n.P[l.bias:l.bias+l.out], floor)
}

// normalise replaces a row by max(0, gain·unit + shift), where unit is the row less its mean over its deviation, and gives one over
// the deviation.
func normalise[T Float](y, unit, gain, shift, ones []T) T {
	n := T(len(y))
	axpy(-dot(y, ones)/n, y, ones)
	inv := T(1 / math.Sqrt(float64(dot(y, y)/n)+normEps))
	clear(unit)
	axpy(inv, unit, y)
	copy(y, shift)
	mulAdd(y, gain, unit)
	gate(y, y)
	if inv != inv { // cutting at zero would hide it
		y[0] = inv
	}
	return inv
}

// backward takes the gradient by a layer's output (which it overwrites), adds the gradient by its parameters to grad, and puts the
// gradient by its input into dx unless that is nil.
func (n *Net[T]) backward(l *layer[T], rows int, t *trace[T], dy, dx, grad []T) {
	if rows == 0 {
		return
	}
	dy = dy[:rows*l.out]
	if l.relu {
		gate(dy, t.y)
	}
	if l.gain >= 0 {
		gain := n.P[l.gain : l.gain+l.out]
		dgain, dshift := grad[l.gain:l.gain+l.out], grad[l.shift:l.shift+l.out]
		t.row = grow(t.row, l.out)
		for r := range rows {
			unnormalise(dy[r*l.out:(r+1)*l.out], t.unit[r*l.out:(r+1)*l.out], gain, dgain, dshift, l.ones, t.row, t.inv[r])
		}
	}
	columns(grad[l.bias:l.bias+l.out], dy)
	n.weightGradient(l, rows, t.x, dy, grad[l.weight:l.weight+l.in*l.out])
	if dx != nil {
		n.inputGradient(l, rows, dy, dx)
	}
}

// unnormalise turns the gradient by gain·unit + shift into that by the row before it was normalised. row is memory of its length.
func unnormalise[T Float](d, unit, gain, dgain, dshift, ones, row []T, inv T) {
	mulAdd(dgain, d, unit)
	add(dshift, d)
	mulTo(row, d, gain)
	n := T(len(d))
	s, q := dot(row, ones)/n, dot(row, unit)/n
	axpy(-s, row, ones)
	axpy(-q, row, unit)
	clear(d)
	axpy(inv, d, row)
}

// weightGradient adds xᵀ·dy to dw.
func (n *Net[T]) weightGradient(l *layer[T], rows int, x, dy, dw []T) {
	if xs, ok := single(x); ok {
		ds, _ := single(dy)
		ws, _ := single(dw)
		if l.out == 1 {
			for r := range rows {
				gemm.Axpy(ds[r], ws, xs[r*l.in:(r+1)*l.in])
			}
			return
		}
		gemm.Mul(l.in, l.out, rows, gemm.Operand{Data: xs, Row: 1, Step: l.in}, gemm.Right{Data: ds, Row: l.out},
			gemm.Dest{Data: ws, Row: l.out, Init: gemm.Old, Floor: gemm.NoFloor})
		return
	}
	gemm.Plain(l.in, l.out, rows, x, 1, l.in, dy, l.out, dw, l.out, gemm.Old, nil, T(math.Inf(-1)))
}

// inputGradient is dx = dy·Wᵀ.
func (n *Net[T]) inputGradient(l *layer[T], rows int, dy, dx []T) {
	w := n.P[l.weight : l.weight+l.in*l.out]
	if ds, ok := single(dy); ok {
		xs, _ := single(dx)
		gemm.MulPacked(rows, gemm.Operand{Data: ds, Row: l.out, Step: 1}, &l.reverse, gemm.Dest{Data: xs, Row: l.in, Floor: gemm.NoFloor})
		return
	}
	for r := range rows {
		for i := range l.in {
			var s T
			for o := range l.out {
				s += dy[r*l.out+o] * w[i*l.out+o]
			}
			dx[r*l.in+i] = s
		}
	}
}

// gate clears d where y is not above zero.
func gate[T Float](d, y []T) {
	if ds, ok := single(d); ok {
		ys, _ := single(y)
		gemm.Gate(ds, ys)
		return
	}
	for i := range d {
		if !(y[i] > 0) {
			d[i] = 0
		}
	}
}

// columns adds the sums of d's columns to s.
func columns[T Float](s, d []T) {
	for r := 0; r < len(d); r += len(s) {
		add(s, d[r:r+len(s)])
	}
}

func add[T Float](dst, a []T) {
	if x, ok := single(dst); ok {
		y, _ := single(a)
		gemm.Add(x, y)
		return
	}
	for i, v := range a {
		dst[i] += v
	}
}

func mulTo[T Float](dst, a, b []T) {
	if x, ok := single(dst); ok {
		y, _ := single(a)
		z, _ := single(b)
		gemm.MulTo(x, y, z)
		return
	}
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func mulAdd[T Float](dst, a, b []T) {
	if x, ok := single(dst); ok {
		y, _ := single(a)
		z, _ := single(b)
		gemm.MulAdd(x, y, z)
		return
	}
	for i := range dst {
		dst[i] += a[i] * b[i]
	}
}

func axpy[T Float](s T, dst, a []T) {
	if x, ok := single(dst); ok {
		y, _ := single(a)
		gemm.Axpy(float32(s), x, y)
		return
	}
	for i, v := range a {
		dst[i] += s * v
	}
}

func dot[T Float](a, b []T) T {
	if x, ok := single(a); ok {
		y, _ := single(b)
		return T(gemm.Dot(x, y))
	}
	var s T
	for i, v := range a {
		s += v * b[i]
	}
	return s
}
