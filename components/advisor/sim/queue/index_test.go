package queue

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The index finds what a scan of a sorted slice finds, whatever is put in and taken out.
func TestIndexAgainstScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := NewIndex(256)
		var model []Entry
		seq := int64(0)
		n := rapid.IntRange(1, 600).Draw(t, "steps")
		grow := rapid.Float64Range(.3, .9).Draw(t, "grow")
		fifo := rapid.Bool().Draw(t, "fifo")
		for range n {
			if rapid.Float64().Draw(t, "op") < grow {
				e := Entry{Key: float64(rapid.IntRange(0, 50).Draw(t, "key")), Seq: seq, Limit: rapid.Int64Range(1, 1000).Draw(t, "limit"),
					Procs: int32(rapid.IntRange(1, 256).Draw(t, "procs")), Slot: int32(seq)}
				if fifo {
					e.Key = float64(seq)
				}
				seq++
				x.Insert(e)
				i, _ := slices.BinarySearchFunc(model, e, compare)
				model = slices.Insert(model, i, e)
			} else if len(model) > 0 {
				i := rapid.IntRange(0, len(model)-1).Draw(t, "at")
				if !x.Remove(model[i].Key, model[i].Seq) {
					t.Fatalf("entry %v is not found", model[i])
				}
				model = slices.Delete(model, i, i+1)
			}
			check(t, x, model)
		}
	})
}

func compare(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Seq, b.Seq))
}

func check(t *rapid.T, x *Index, model []Entry) {
	if x.Len() != len(model) {
		t.Fatalf("length %d, want %d", x.Len(), len(model))
	}
	f := Fit{Free: int32(rapid.IntRange(0, 256).Draw(t, "free")), Extra: int32(rapid.IntRange(0, 64).Draw(t, "extra")), Window: rapid.Int64Range(0, 1000).Draw(t, "window")}
	from := 0
	key, seq := -1.0, int64(-1)
	if len(model) > 0 && rapid.Bool().Draw(t, "after") {
		i := rapid.IntRange(0, len(model)-1).Draw(t, "from")
		key, seq, from = model[i].Key, model[i].Seq, i+1
	}
	got, ok := x.After(key, seq, f)
	for _, e := range model[from:] {
		if e.Procs <= f.Free && (e.Limit <= f.Window || e.Procs <= f.Extra) {
			if !ok || got != e {
				t.Fatalf("found %v %v, want %v", got, ok, e)
			}
			return
		}
	}
	if ok {
		t.Fatalf("found %v, want nothing", got)
	}
	if m, ok := x.Min(); ok != (len(model) > 0) || ok && *m != model[0] {
		t.Fatalf("first is %v, want %v", m, model)
	}
}

// A sweep takes what a scan of a sorted slice takes.
func TestSweepAgainstScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := NewIndex(256)
		var model []Entry
		for i := range rapid.IntRange(1, 900).Draw(t, "jobs") {
			e := Entry{Key: float64(rapid.IntRange(0, 400).Draw(t, "key")), Seq: int64(i), Limit: rapid.Int64Range(1, 1000).Draw(t, "limit"),
				Procs: int32(rapid.IntRange(1, 256).Draw(t, "procs")), Slot: int32(i)}
			x.Insert(e)
			model = append(model, e)
		}
		slices.SortFunc(model, compare)
		for range rapid.IntRange(1, 40).Draw(t, "sweeps") {
			f := Fit{Free: int32(rapid.IntRange(0, 2000).Draw(t, "free")), Extra: int32(rapid.IntRange(0, 64).Draw(t, "extra")), Window: rapid.Int64Range(0, 1000).Draw(t, "window")}
			g := f
			var got, want []int32
			x.Sweep(&f, func(s int32) { got = append(got, s) })
			g.Extra = min(g.Extra, g.Free)
			model = slices.DeleteFunc(model, func(e Entry) bool {
				if e.Procs > g.Free || e.Limit > g.Window && e.Procs > g.Extra {
					return false
				}
				if e.Limit > g.Window {
					g.Extra -= e.Procs
				}
				g.Free -= e.Procs
				want = append(want, e.Slot)
				return true
			})
			if !slices.Equal(got, want) || f.Free != g.Free {
				t.Fatalf("swept %v (%v left), want %v (%v left)", got, f, want, g)
			}
			check(t, x, model)
			if m, ok := x.PopMin(); ok {
				if m != model[0] {
					t.Fatalf("popped %v, want %v", m, model[0])
				}
				model = model[1:]
			}
		}
	})
}
