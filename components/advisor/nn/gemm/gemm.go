// Package gemm multiplies dense row-major matrices of float32, with the widest vectors the processor has: AVX-512, AVX2 with FMA,
// or plain Go. One instruction set always gives the same bits for the same input; different sets round differently.
package gemm

import (
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// Init says what a product is added to.
type Init int

// What a product is added to.
const (
	Zero Init = iota // C = A·B
	Old              // C += A·B
	Bias             // every row of C = bias + A·B
)

// isa is an instruction set of the processor.
type isa int

const (
	portable isa = iota
	avx2
	avx512
)

var names = []string{"portable", "avx2", "avx512"}

// present is the set in use; it is chosen when the program starts.
var present = best()

func best() isa {
	switch {
	case cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ && cpu.X86.HasFMA:
		return avx512
	case cpu.X86.HasAVX2 && cpu.X86.HasFMA:
		return avx2
	}
	return portable
}

// ISA names the instruction set in use.
func ISA() string { return names[present] }

// Use chooses another set, for tests and comparisons: avx512, avx2 or portable. It is not for use while anything multiplies. It
// gives a function that takes the choice back.
func Use(name string) (restore func(), err error) {
	for i, n := range names {
		if n == name {
			if isa(i) > best() {
				return nil, fmt.Errorf("this processor has no %s; use %s", name, names[best()])
			}
			old := present
			present = isa(i)
			return func() { present = old }, nil
		}
	}
	return nil, fmt.Errorf("there is no instruction set %q; use avx512, avx2 or portable", name)
}

// width of a tile in columns: two vectors.
func (i isa) width() int {
	switch i {
	case avx512:
		return 32
	case avx2:
		return 16
	}
	return 1
}

// tile is what a tile function reads; see offsets in asm/main.go.
type tile struct {
	a, b, c, bias *float32
	k             int
	rowA, stepA   int // bytes from row to row of A, and from column to column
	rowB, rowC    int // bytes
	init          Init
	floor         float32
	mask          uint32
	_             [4]byte
}

// Operand is a left matrix: element (i, k) is Data[i*Row + k*Step]. A transposed one has Row 1.
type Operand struct {
	Data      []float32
	Row, Step int
}

// Right is a right matrix, K×N; element (k, j) is Data[k*Row + j].
type Right struct {
	Data []float32
	Row  int
}

// Packed is a right matrix laid out for reading: panels of one tile's width, each with its rows one after the other, padded with
// zeros. It belongs to the instruction set it was packed for.
type Packed struct {
	K, N  int
	width int
	data  []float32
}

// Pack lays out b, K×N with rows of length row, reusing p's memory.
func (p *Packed) Pack(b []float32, k, n, row int) {
	p.pack(k, n, func(panel []float32, w, j, cols int) {
		for r := range k {
			copy(panel[r*w:r*w+cols], b[r*row+j:])
		}
	})
}

// PackTransposed lays out the transpose of b, which is N×K with rows of length row.
func (p *Packed) PackTransposed(b []float32, k, n, row int) {
	p.pack(k, n, func(panel []float32, w, j, cols int) {
		for c := range cols {
			src := b[(j+c)*row : (j+c)*row+k]
			for r, v := range src {
				panel[r*w+c] = v
			}
		}
	})
}

func (p *Packed) pack(k, n int, fill func(panel []float32, w, j, cols int)) {
	w := present.width()
	if w == 1 {
		w = max(n, 1)
	}
	p.K, p.N, p.width = k, n, w
	need := (n + w - 1) / w * w * k
	if cap(p.data) < need {
		p.data = make([]float32, need)
	}
	p.data = p.data[:need]
	if n%w != 0 {
		clear(p.data[n/w*w*k:])
	}
	for j := 0; j < n; j += w {
		fill(p.data[j*k:], w, j, min(w, n-j))
	}
}

// Dest is where a product goes: rows of length Row, what it is added to, and a floor (−Inf for none, 0 for max(0, ·)).
type Dest struct {
	Data  []float32
	Row   int
	Init  Init
	Bias  []float32
	Floor float32
}

// NoFloor is the floor that changes nothing.
var NoFloor = float32(math.Inf(-1))

// MulPacked computes the m×N product of a and p into c. It allocates nothing with AVX-512 and in plain Go.
func MulPacked(m int, a Operand, p *Packed, c Dest) {
	if m == 0 || p.N == 0 {
		return
	}
	check(m, p.N, p.K, a, c)
	if present == portable {
		plain(m, p.N, p.K, a, Right{p.data, p.width}, c)
		return
	}
	if p.width != present.width() {
		panic("gemm: the matrix was packed for another instruction set")
	}
	for j := 0; j < p.N; j += p.width {
		panel(m, min(p.width, p.N-j), p.K, a, p.data[j*p.K:], p.width, p.width, c, j)
	}
}

// Mul computes the m×n product, with inner length k, of a and b into c, without packing.
func Mul(m, n, k int, a Operand, b Right, c Dest) {
	if m == 0 || n == 0 {
		return
	}
	check(m, n, k, a, c)
	if k > 0 {
		_ = b.Data[(k-1)*b.Row+n-1]
	}
	if present == portable {
		plain(m, n, k, a, b, c)
		return
	}
	w := present.width()
	for j := 0; j < n; j += w {
		cols := min(w, n-j)
		var from []float32
		if k > 0 {
			from = b.Data[j:]
		}
		panel(m, cols, k, a, from, b.Row, cols, c, j)
	}
}

// check panics where a bound would be broken: the assembly does not look.
func check(m, n, k int, a Operand, c Dest) {
	if k > 0 {
		_ = a.Data[(m-1)*a.Row+(k-1)*a.Step]
	}
	_ = c.Data[(m-1)*c.Row+n-1]
	if c.Init == Bias {
		_ = c.Bias[n-1]
	}
}

// panel computes columns j to j+cols of c. Panels of b that are narrower than a tile's reads are copied where the set has no masks.
func panel(m, cols, k int, a Operand, b []float32, rowB, readable int, c Dest, j int) {
	t := tile{k: k, rowA: 4 * a.Row, stepA: 4 * a.Step, rowB: 4 * rowB, rowC: 4 * c.Row, init: c.Init, floor: c.Floor,
		mask: uint32(uint64(1)<<cols - 1)}
	if c.Floor == 0 && math.Signbit(float64(c.Floor)) {
		t.floor = 0
	}
	if k > 0 {
		t.a, t.b = &a.Data[0], &b[0]
	} else {
		t.a, t.b = &c.Data[0], &c.Data[0]
	}
	if c.Init == Bias {
		t.bias = &c.Bias[j]
	}
	if present == avx2 && cols < avx2.width() {
		narrow(m, cols, k, a, b, rowB, readable, c, j, t)
		return
	}
	for i := 0; i < m; {
		t.c = &c.Data[i*c.Row+j]
		if k > 0 {
			t.a = &a.Data[i*a.Row]
		}
		i += run(&t, m-i)
	}
}

// run computes one tile of as many rows as fit, and says how many.
func run(t *tile, rows int) int {
	p := (*byte)(unsafe.Pointer(t))
	if present == avx512 {
		switch {
		case rows >= 12:
			avx512Tile12(p)
			return 12
		case rows >= 6:
			avx512Tile6(p)
			return 6
		case rows >= 3:
			avx512Tile3(p)
			return 3
		}
		avx512Tile1(p)
		return 1
	}
	switch {
	case rows >= 6:
		avx2Tile6(p)
		return 6
	case rows >= 3:
		avx2Tile3(p)
		return 3
	}
	avx2Tile1(p)
	return 1
}

// narrow is panel for AVX2 at the right edge: whole tiles over padded copies.
func narrow(m, cols, k int, a Operand, b []float32, rowB, readable int, c Dest, j int, t tile) {
	w := avx2.width()
	if readable < w {
		wide := make([]float32, k*w)
		for r := range k {
			copy(wide[r*w:r*w+cols], b[r*rowB:])
		}
		if k > 0 {
			t.b = &wide[0]
		}
		t.rowB = 4 * w
	}
	if c.Init == Bias {
		var bias [16]float32
		copy(bias[:cols], c.Bias[j:])
		t.bias = &bias[0]
	}
	var out [6 * 16]float32
	t.c, t.rowC = &out[0], 4*w
	for i := 0; i < m; {
		if c.Init == Old {
			for r := range min(6, m-i) {
				copy(out[r*w:r*w+cols], c.Data[(i+r)*c.Row+j:])
			}
		}
		if k > 0 {
			t.a = &a.Data[i*a.Row]
		}
		done := run(&t, m-i)
		for r := range done {
			copy(c.Data[(i+r)*c.Row+j:(i+r)*c.Row+j+cols], out[r*w:])
		}
		i += done
	}
}

func plain(m, n, k int, a Operand, b Right, c Dest) {
	Plain(m, n, k, a.Data, a.Row, a.Step, b.Data, b.Row, c.Data, c.Row, c.Init, c.Bias, c.Floor)
}

// Plain is the product in plain Go, in the precision of its operands; every other way is checked against it.
func Plain[T float32 | float64](m, n, k int, a []T, rowA, stepA int, b []T, rowB int, c []T, rowC int, init Init, bias []T, floor T) {
	for i := range m {
		out := c[i*rowC : i*rowC+n]
		switch init {
		case Zero:
			clear(out)
		case Bias:
			copy(out, bias[:n])
		}
		for l := range k {
			x := a[i*rowA+l*stepA]
			for j, y := range b[l*rowB : l*rowB+n] {
				out[j] += x * y
			}
		}
		for j, v := range out {
			if v < floor {
				out[j] = floor
			}
		}
	}
}
