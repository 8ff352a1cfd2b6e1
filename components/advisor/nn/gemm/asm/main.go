// Command asm writes the assembly of package gemm: matrix tiles and vector loops for AVX-512 and AVX2.
//
//	go run ./components/advisor/nn/gemm/asm -out components/advisor/nn/gemm/kernels_amd64.s -stubs components/advisor/nn/gemm/kernels_amd64.go -pkg gemm
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Offsets into type tile of package gemm.
const (
	offA = 8 * iota
	offB
	offC
	offBias
	offK
	offRowA
	offStepA
	offRowB
	offRowC
	offInit
	offFloorMask // floor: float32; mask: uint32
)

// isa is an instruction set: the width of a vector in floats, and how to name a new register.
type isa struct {
	name  string
	width int
	vec   func() VecVirtual
}

var (
	avx512 = isa{"avx512", 16, ZMM}
	avx2   = isa{"avx2", 8, YMM}
)

func main() {
	ConstraintExpr("amd64")
	for _, rows := range []int{12, 6, 3, 1} {
		tile(avx512, rows)
	}
	for _, rows := range []int{6, 3, 1} {
		tile(avx2, rows)
	}
	for _, i := range []isa{avx512, avx2} {
		loop(i, "Add", []string{"dst", "a"}, func(v []Op, out VecVirtual) { VADDPS(v[1], v[0], out) })
		loop(i, "Mul", []string{"dst", "a", "b"}, func(v []Op, out VecVirtual) { VMULPS(v[1], v[2], out) })
		loop(i, "MulAdd", []string{"dst", "a", "b"}, func(v []Op, out VecVirtual) {
			VMOVAPS(v[0], out)
			VFMADD231PS(v[1], v[2], out)
		})
		gate(i)
		dot(i)
		axpy(i)
	}
	Generate()
}

// tile makes C[rows, 2 vectors] = init + A·B, no element below floor. Rows of A are taken in threes, so that few pointers reach
// them all.
func tile(i isa, rows int) {
	TEXT(fmt.Sprintf("%sTile%d", i.name, rows), NOSPLIT, "func(t *byte)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%sTile%d multiplies a tile of %d rows; t points to a tile.", i.name, rows, rows))
	t := Load(Param("t"), GP64())
	at := func(off int) Mem { return Mem{Base: t, Disp: off} }
	get := func(off int) GPVirtual { r := GP64(); MOVQ(at(off), r); return r }
	z := i.name == "avx512"
	var k1, k2 Register
	if z {
		m := GP32()
		MOVL(at(offFloorMask+4), m)
		k1, k2 = K(), K()
		KMOVW(m, k1)
		SHRL(Imm(16), m)
		KMOVW(m, k2)
	}
	acc := make([][2]VecVirtual, rows)
	for r := range acc {
		acc[r] = [2]VecVirtual{i.vec(), i.vec()}
	}
	load := func(m Mem, v [2]VecVirtual) {
		if z {
			VMOVUPS_Z(m, k1, v[0])
			VMOVUPS_Z(m.Offset(4*i.width), k2, v[1])
			return
		}
		VMOVUPS(m, v[0])
		VMOVUPS(m.Offset(4*i.width), v[1])
	}
	mode := get(offInit)
	rowC := get(offRowC)
	CMPQ(mode, Imm(1))
	JEQ(LabelRef("old"))
	CMPQ(mode, Imm(2))
	JEQ(LabelRef("bias"))
	for r := range acc {
		VXORPS(acc[r][0], acc[r][0], acc[r][0])
		VXORPS(acc[r][1], acc[r][1], acc[r][1])
	}
	JMP(LabelRef("start"))
	Label("old")
	c := get(offC)
	for r := range acc {
		load(Mem{Base: c}, acc[r])
		ADDQ(rowC, c)
	}
	JMP(LabelRef("start"))
	Label("bias")
	bias := get(offBias)
	for r := range acc {
		load(Mem{Base: bias}, acc[r])
	}
	Label("start")
	var base []GPVirtual
	rowA, stepA, b, rowB, k := get(offRowA), get(offStepA), get(offB), get(offRowB), get(offK)
	for g := 0; g < rows; g += 3 {
		if g == 0 {
			base = append(base, get(offA))
			continue
		}
		p := GP64()
		LEAQ(Mem{Base: base[len(base)-1], Index: rowA, Scale: 2}, p)
		ADDQ(rowA, p)
		base = append(base, p)
	}
	TESTQ(k, k)
	JZ(LabelRef("done"))
	bv := [2]VecVirtual{i.vec(), i.vec()}
	Label("loop")
	load(Mem{Base: b}, bv)
	for r := range acc {
		m := Mem{Base: base[r/3]}
		if r%3 > 0 {
			m.Index, m.Scale = rowA, uint8(r%3)
		}
		a := i.vec()
		VBROADCASTSS(m, a)
		VFMADD231PS(a, bv[0], acc[r][0])
		VFMADD231PS(a, bv[1], acc[r][1])
	}
	for _, p := range base {
		ADDQ(stepA, p)
	}
	ADDQ(rowB, b)
	DECQ(k)
	JNZ(LabelRef("loop"))
	Label("done")
	floor := i.vec()
	VBROADCASTSS(at(offFloorMask), floor)
	out := get(offC)
	for r := range acc {
		for h := range 2 {
			VMAXPS(acc[r][h], floor, acc[r][h]) // a NaN in the accumulator is kept: it is the second source
			m := Mem{Base: out, Disp: 4 * i.width * h}
			if z {
				VMOVUPS(acc[r][h], []Register{k1, k2}[h], m)
			} else {
				VMOVUPS(acc[r][h], m)
			}
		}
		ADDQ(rowC, out)
	}
	VZEROUPPER()
	RET()
}

// loop makes a function over n elements, a multiple of the vector's width; the first parameter is read and written.
func loop(i isa, name string, params []string, f func(v []Op, out VecVirtual)) {
	sig := "func(n int"
	for _, p := range params {
		sig += ", " + p + " *float32"
	}
	TEXT(i.name+name, NOSPLIT, sig+")")
	Pragma("noescape")
	Doc(i.name + name + " works on n elements, a multiple of the vector's width.")
	n := Load(Param("n"), GP64()).(GPVirtual)
	var p []Register
	for _, s := range params {
		p = append(p, Load(Param(s), GP64()))
	}
	x := GP64()
	XORQ(x, x)
	Label("loop")
	CMPQ(x, n)
	JGE(LabelRef("done"))
	v := make([]Op, len(p))
	for k := range p {
		r := i.vec()
		VMOVUPS(Mem{Base: p[k], Index: x, Scale: 4}, r)
		v[k] = r
	}
	out := i.vec()
	f(v, out)
	VMOVUPS(out, Mem{Base: p[0], Index: x, Scale: 4})
	ADDQ(Imm(uint64(i.width)), x)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// gate clears d where y is not above zero: the derivative of max(0, ·) passed back.
func gate(i isa) {
	loop(i, "Gate", []string{"d", "y"}, func(v []Op, out VecVirtual) {
		zero := i.vec()
		VXORPS(zero, zero, zero)
		if i.width == 16 {
			k := K()
			VCMPPS(Imm(0x1e), zero, v[1], k) // y > 0, ordered
			VMOVAPS_Z(v[0], k, out)
			return
		}
		m := i.vec()
		VCMPPS(Imm(0x1e), zero, v[1], m)
		VANDPS(v[0], m, out)
	})
}

// dot gives the inner product of n elements.
func dot(i isa) {
	TEXT(i.name+"Dot", NOSPLIT, "func(n int, a, b *float32) float32")
	Pragma("noescape")
	Doc(i.name + "Dot is the inner product of n elements, a multiple of the vector's width.")
	n := Load(Param("n"), GP64()).(GPVirtual)
	a, b := Load(Param("a"), GP64()), Load(Param("b"), GP64())
	s := i.vec()
	VXORPS(s, s, s)
	x := GP64()
	XORQ(x, x)
	Label("loop")
	CMPQ(x, n)
	JGE(LabelRef("done"))
	v := i.vec()
	VMOVUPS(Mem{Base: a, Index: x, Scale: 4}, v)
	VFMADD231PS(Mem{Base: b, Index: x, Scale: 4}, v, s)
	ADDQ(Imm(uint64(i.width)), x)
	JMP(LabelRef("loop"))
	Label("done")
	y := s.AsY()
	if i.width == 16 {
		h := YMM()
		VEXTRACTF64X4(Imm(1), s, h)
		VADDPS(h, y, y)
	}
	q := XMM()
	VEXTRACTF128(Imm(1), y, q)
	l := s.AsX()
	VADDPS(q, l, l)
	VHADDPS(l, l, l)
	VHADDPS(l, l, l)
	Store(l, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// axpy adds s·a to dst.
func axpy(i isa) {
	TEXT(i.name+"Axpy", NOSPLIT, "func(n int, s float32, dst, a *float32)")
	Pragma("noescape")
	Doc(i.name + "Axpy adds s·a to dst, n elements, a multiple of the vector's width.")
	n := Load(Param("n"), GP64()).(GPVirtual)
	dst, a := Load(Param("dst"), GP64()), Load(Param("a"), GP64())
	s := i.vec()
	m, err := Param("s").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(m.Addr, s)
	x := GP64()
	XORQ(x, x)
	Label("loop")
	CMPQ(x, n)
	JGE(LabelRef("done"))
	v := i.vec()
	VMOVUPS(Mem{Base: dst, Index: x, Scale: 4}, v)
	VFMADD231PS(Mem{Base: a, Index: x, Scale: 4}, s, v)
	VMOVUPS(v, Mem{Base: dst, Index: x, Scale: 4})
	ADDQ(Imm(uint64(i.width)), x)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}
