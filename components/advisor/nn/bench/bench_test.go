package bench

import (
	"math"
	"runtime"
	"testing"
)

// tiny is a shape of milliseconds.
func tiny(norm bool) Shape {
	return Shape{State: 5, Actions: 3, Hidden: 8, Batch: 7, Taus: 4, TargetTaus: 3, ActTaus: 2, Cosines: 6, Critics: 3, LayerNorm: norm}
}

// What is timed is what PyTorch computes, if it is here: every loss of one update, and of those after it.
func TestAgainstPyTorch(t *testing.T) {
	exe, err := python(t.Context())
	if err != nil {
		t.Skip(err)
	}
	u, err := newUpdate(tiny(true), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	p, err := startPeer(t.Context(), exe, t.TempDir(), u.Shape, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	for k := range 3 {
		if err := compare(u, p); err != nil {
			t.Errorf("update %d: %v", k, err)
		}
	}
}

// Threads change no bit, an update learns (its losses change), and choosing allocates nothing.
func TestUpdate(t *testing.T) {
	one, err := newUpdate(tiny(true), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer one.close()
	two, err := newUpdate(tiny(true), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer two.close()
	var first []float32
	for k := range 4 {
		a, err := one.run(one.checked)
		if err != nil {
			t.Fatal(err)
		}
		b, err := two.run(two.checked)
		if err != nil {
			t.Fatal(err)
		}
		for i := range a {
			if a[i] != b[i] || math.IsNaN(float64(a[i])) {
				t.Errorf("update %d, loss %d: %v with one thread, %v with two", k, i, a[i], b[i])
			}
		}
		if k == 0 {
			first = a
		} else if a[0] == first[0] || a[len(a)-1] == first[len(first)-1] {
			t.Errorf("update %d left a loss as it was", k)
		}
	}
	runtime.GC()
	for _, critics := range []bool{false, true} {
		c := one.chooser()
		c.choose(critics)
		if n := testing.AllocsPerRun(50, func() { c.choose(critics) }); n != 0 {
			t.Errorf("critics %v: %g allocations", critics, n)
		}
	}
}
