package queue

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func compare(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Seq, b.Seq))
}

// sweepModel is a sweep over a sorted slice: what it takes, and what stays.
func sweepModel(model []Entry, f *Fit) (rest []Entry, taken []int32) {
	rest = slices.DeleteFunc(model, func(e Entry) bool {
		if e.Procs > f.Free || e.Limit > f.Window && e.Procs > f.Extra {
			return false
		}
		if e.Limit > f.Window {
			f.Extra -= e.Procs
		}
		f.Free -= e.Procs
		taken = append(taken, e.Slot)
		return true
	})
	return rest, taken
}

func equal(t interface{ Fatalf(string, ...any) }, x *Index, model []Entry) {
	if x.Len() != len(model) {
		t.Fatalf("length %d, want %d", x.Len(), len(model))
	}
	if m, ok := x.Min(); ok != (len(model) > 0) || ok && m != model[0] {
		t.Fatalf("first is %v, want %v", m, model)
	}
	i := 0
	x.Each(func(e Entry) bool {
		if i >= len(model) || e != model[i] {
			t.Fatalf("position %d holds %v, want %v", i, e, model[min(i, len(model)-1)])
		}
		i++
		return true
	})
	if i != len(model) {
		t.Fatalf("%d of %d jobs are visited", i, len(model))
	}
}

// The index holds what a sorted slice holds and a sweep takes what a scan takes, whatever is put in and taken out.
func TestIndexAgainstScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := NewIndex(256)
		var model []Entry
		seq := int64(0)
		n := rapid.IntRange(1, 600).Draw(t, "steps")
		grow := rapid.Float64Range(.3, .9).Draw(t, "grow")
		fifo := rapid.Bool().Draw(t, "fifo")
		for range n {
			switch op := rapid.Float64().Draw(t, "op"); {
			case op < grow:
				e := Entry{Key: float64(rapid.IntRange(-25, 25).Draw(t, "key")), Seq: seq, Limit: rapid.Int64Range(1, 1000).Draw(t, "limit"),
					Procs: int32(rapid.IntRange(1, 256).Draw(t, "procs")), Slot: int32(seq)}
				if fifo {
					e.Key = float64(seq)
				}
				seq++
				x.Insert(e)
				i, _ := slices.BinarySearchFunc(model, e, compare)
				model = slices.Insert(model, i, e)
			case op > .97:
				model = sweepBoth(t, x, model, drawFit(t))
			case len(model) > 0:
				i := rapid.IntRange(0, len(model)-1).Draw(t, "at")
				if !x.Remove(model[i].Key, model[i].Seq) {
					t.Fatalf("entry %v is not found", model[i])
				}
				if x.Remove(model[i].Key, model[i].Seq) {
					t.Fatalf("entry %v is found twice", model[i])
				}
				model = slices.Delete(model, i, i+1)
			}
			equal(t, x, model)
		}
	})
}

func drawFit(t *rapid.T) Fit {
	return Fit{Free: int32(rapid.IntRange(0, 2000).Draw(t, "free")), Extra: int32(rapid.IntRange(0, 64).Draw(t, "extra")), Window: rapid.Int64Range(0, 1000).Draw(t, "window")}
}

func sweepBoth(t interface{ Fatalf(string, ...any) }, x *Index, model []Entry, f Fit) []Entry {
	rest := sweepOnce(t, x, model, &f)
	// More processors, less time: of the jobs as narrow as what was left nobody can fit, and leaving them out changes nothing.
	f.Above, f.Free, f.Window, f.Again = f.Free, f.Free+7, f.Window-f.Window/8, true
	return sweepOnce(t, x, rest, &f)
}

func sweepOnce(t interface{ Fatalf(string, ...any) }, x *Index, model []Entry, f *Fit) []Entry {
	g := *f
	var got []int32
	x.Sweep(f, func(s, _ int32, _ int64) { got = append(got, s) })
	rest, want := sweepModel(model, &g)
	if !slices.Equal(got, want) || *f != g {
		t.Fatalf("swept %v (%v left), want %v (%v left)", got, *f, want, g)
	}
	return rest
}

// A tree of three levels that grows, is swept, popped from the front, and empties again.
func TestDeepIndexAgainstScan(t *testing.T) {
	for _, order := range []string{"arrival", "limit", "few keys"} {
		t.Run(order, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			x := NewIndex(256)
			var model []Entry
			put := func(i int) {
				e := Entry{Seq: int64(i), Limit: int64(math.Exp(r.Float64() * 12)), Procs: int32(1 << r.IntN(8)), Slot: int32(i)}
				if r.IntN(3) == 0 {
					e.Procs = 1 + r.Int32N(256)
				}
				e.Key = map[string]float64{"arrival": float64(i), "limit": float64(e.Limit), "few keys": float64(r.IntN(5))}[order]
				x.Insert(e)
				k, _ := slices.BinarySearchFunc(model, e, compare)
				model = slices.Insert(model, k, e)
			}
			for i := range 9000 {
				put(i)
			}
			equal(t, x, model)
			deepest := 0
			for in := x.root; in != nil; in = in.kids[0] {
				deepest++
			}
			if deepest < 2 {
				t.Fatalf("the tree has %d levels of inner nodes; this test means to have at least two", deepest)
			}
			for i := 0; len(model) > 0; i++ {
				f := Fit{Free: r.Int32N(60), Extra: r.Int32N(3), Window: int64(math.Exp(r.Float64() * 9))}
				if i > 3000 {
					f = Fit{Free: 400, Extra: 400}
				}
				model = sweepBoth(t, x, model, f)
				if e, ok := x.PopMin(); ok {
					if e != model[0] {
						t.Fatalf("popped %v, want %v", e, model[0])
					}
					model = model[1:]
				}
				if i < 1000 {
					put(10000 + i)
				}
				if i%500 == 0 {
					equal(t, x, model)
				}
			}
			equal(t, x, model)
		})
	}
}

// Keys of either sign keep their order as whole numbers and come back unchanged; squeezed limits keep theirs.
func TestOrderIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Float64().Draw(t, "a"), rapid.Float64().Draw(t, "b")
		if a < b != (ordered(a) < ordered(b)) || unordered(ordered(a)) != a {
			t.Fatalf("%g and %g become %d and %d", a, b, ordered(a), ordered(b))
		}
		x, y := rapid.Int64Range(0, math.MaxInt64).Draw(t, "x"), rapid.Int64Range(0, math.MaxInt64).Draw(t, "y")
		if x <= y && squeeze(x) > squeeze(y) {
			t.Fatalf("%d and %d become %d and %d", x, y, squeeze(x), squeeze(y))
		}
	})
	for _, c := range []struct{ procs, class int32 }{{1, 0}, {2, 1}, {3, 1}, {4, 2}, {7, 2}, {8, 3}, {255, 7}, {256, 8}, {1023, 9}, {1024, 10}, {1 << 23, 23}, {1 << 30, maxClasses - 1}} {
		if got := class(c.procs); got != int(c.class) {
			t.Errorf("width %d is in class %d, want %d", c.procs, got, c.class)
		}
	}
}
