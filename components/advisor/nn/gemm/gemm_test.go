package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// sets are the instruction sets of this machine.
func sets(t testing.TB, f func(name string)) {
	for _, name := range names {
		restore, err := Use(name)
		if err != nil {
			t.Logf("left out: %v", err)
			continue
		}
		f(name)
		restore()
	}
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// Every shape of product, plain, transposed and packed, with every start and floor, is what float64 says, and touches nothing else.
func TestMul(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		m, n, k := 1+r.IntN(30), 1+r.IntN(70), r.IntN(40)
		pad := r.IntN(3)
		transA := r.IntN(2) == 1
		a := Operand{Data: random(r, (m+pad)*(k+pad)+1), Row: k + pad, Step: 1}
		if transA {
			a.Row, a.Step = 1, m+pad
		}
		b := random(r, k*(n+pad)+1)
		bt := make([]float32, n*max(k, 1))
		for i := range k {
			for j := range n {
				bt[j*k+i] = b[i*(n+pad)+j]
			}
		}
		bias, start := random(r, n), random(r, m*(n+pad))
		mode := Init(r.IntN(3))
		floor := []float32{NoFloor, 0}[r.IntN(2)]
		want := widen(start)
		Plain(m, n, k, widen(a.Data), a.Row, a.Step, widen(b), n+pad, want, n+pad, mode, widen(bias), float64(floor))
		sets(t, func(name string) {
			for _, how := range []string{"raw", "packed", "transposed"} {
				got := append([]float32{}, start...)
				c := Dest{Data: got, Row: n + pad, Init: mode, Bias: bias, Floor: floor}
				var p Packed
				switch how {
				case "raw":
					Mul(m, n, k, a, Right{b, n + pad}, c)
				case "packed":
					p.Pack(b, k, n, n+pad)
					MulPacked(m, a, &p, c)
				case "transposed":
					p.PackTransposed(bt, k, n, k)
					MulPacked(m, a, &p, c)
				}
				for i := range got {
					if d := math.Abs(float64(got[i]) - want[i]); !(d <= 1e-4) {
						t.Fatalf("%s %s %dx%dx%d transposed %v init %d floor %g: element %d is %g, want %g", name, how, m, n, k, transA, mode, floor, i, got[i], want[i])
					}
				}
			}
		})
	}
}

// A NaN is not lost at the floor: a training run must notice it.
func TestNaNPassesTheFloor(t *testing.T) {
	nan := float32(math.NaN())
	sets(t, func(name string) {
		c := make([]float32, 16*33)
		a := make([]float32, 16)
		a[3], a[15] = nan, nan
		b := make([]float32, 33)
		Mul(16, 33, 1, Operand{a, 1, 1}, Right{b, 33}, Dest{Data: c, Row: 33, Floor: 0})
		for _, i := range []int{3 * 33, 15*33 + 32} {
			if c[i] == c[i] {
				t.Errorf("%s: element %d is %g", name, i, c[i])
			}
		}
		if c[0] != 0 {
			t.Errorf("%s: element 0 is %g", name, c[0])
		}
	})
}

func TestVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 70 {
		x, a, b := random(r, n), random(r, n), random(r, n)
		sets(t, func(name string) {
			try := func(what string, got func(d []float32), want func(i int) float64) {
				d := append([]float32{}, x...)
				got(d)
				for i := range d {
					if math.Abs(float64(d[i])-want(i)) > 1e-6 {
						t.Fatalf("%s %s of %d: element %d is %g, want %g", name, what, n, i, d[i], want(i))
					}
				}
			}
			try("Add", func(d []float32) { Add(d, a) }, func(i int) float64 { return float64(x[i]) + float64(a[i]) })
			try("MulTo", func(d []float32) { MulTo(d, a, b) }, func(i int) float64 { return float64(a[i]) * float64(b[i]) })
			try("MulAdd", func(d []float32) { MulAdd(d, a, b) }, func(i int) float64 { return float64(x[i]) + float64(a[i])*float64(b[i]) })
			try("Axpy", func(d []float32) { Axpy(.5, d, a) }, func(i int) float64 { return float64(x[i]) + .5*float64(a[i]) })
			try("Gate", func(d []float32) { Gate(d, a) }, func(i int) float64 {
				if a[i] > 0 {
					return float64(x[i])
				}
				return 0
			})
			want := 0.0
			for i := range a {
				want += float64(a[i]) * float64(b[i])
			}
			if got := Dot(a, b); math.Abs(float64(got)-want) > 1e-5 {
				t.Fatalf("%s Dot of %d is %g, want %g", name, n, got, want)
			}
		})
	}
}

func TestPackedMulAllocatesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var p Packed
	p.Pack(random(r, 64*50), 64, 50, 50)
	a, c := random(r, 20*64), make([]float32, 20*50)
	if n := testing.AllocsPerRun(20, func() { MulPacked(20, Operand{a, 64, 1}, &p, Dest{Data: c, Row: 50, Floor: NoFloor}) }); n != 0 && present != avx2 {
		t.Errorf("a product makes %g allocations", n)
	}
}

func BenchmarkMul(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, s := range [][3]int{{512, 256, 256}, {8192, 256, 256}, {512, 32, 256}} {
		m, n, k := s[0], s[1], s[2]
		a, w, c := random(r, m*k), random(r, k*n), make([]float32, m*n)
		sets(b, func(name string) {
			var p Packed
			p.Pack(w, k, n, n)
			run := func(what string, f func()) {
				b.Run(fmt.Sprintf("%s/%s/%dx%dx%d", name, what, m, n, k), func(b *testing.B) {
					for b.Loop() {
						f()
					}
					b.ReportMetric(2e-9*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds(), "GFLOP/s")
				})
			}
			if name == "portable" && m > 512 {
				return
			}
			run("packed", func() { MulPacked(m, Operand{a, k, 1}, &p, Dest{Data: c, Row: n, Floor: NoFloor}) })
			dw := make([]float32, k*n)
			run("transposed", func() { Mul(k, n, m, Operand{a, 1, k}, Right{c, n}, Dest{Data: dw, Row: n, Floor: NoFloor}) })
		})
	}
}
