package rerank

import (
	"cmp"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestPlan(t *testing.T) {
	for _, test := range []struct {
		name  string
		jobs  []Waiting
		bound int64
		want  []Change
	}{
		{"nobody waits", nil, 100, nil},
		{"one job has nobody to pass", []Waiting{{ID: 1, Priority: 10, Boost: 100}}, 100, nil},
		{"already in order", []Waiting{{ID: 1, Priority: 30, Boost: 0}, {ID: 2, Priority: 20, Boost: 5}}, 100, nil},
		{"the last passes two that stay as they are",
			[]Waiting{{ID: 1, Priority: 30}, {ID: 2, Priority: 20}, {ID: 3, Priority: 10, Boost: 100}}, 100, []Change{{3, 100}}},
		{"the last passes one", []Waiting{{ID: 1, Priority: 90}, {ID: 2, Priority: 20}, {ID: 3, Priority: 10, Boost: 50}}, 100, []Change{{3, 50}}},
		{"no further than the site allows", []Waiting{{ID: 1, Priority: 300}, {ID: 2, Priority: 250, Boost: 1000}, {ID: 3, Priority: 200}}, 40, nil},
		{"a boost that is no longer due is taken back",
			[]Waiting{{ID: 1, Priority: 60, Factor: 50}, {ID: 2, Priority: 20}, {ID: 3, Priority: 15}}, 100, []Change{{1, 0}}},
		{"two change places by one change", []Waiting{{ID: 1, Priority: 20, Boost: 0}, {ID: 2, Priority: 20, Boost: 100}}, 100, []Change{{2, 100}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := plan(slices.Clone(test.jobs), test.bound); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// Whatever waits: the factors stay within the bound, the jobs are then in the order that natural priorities plus boosts give, and
// nothing is left to change.
func TestPlanPutsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.Int64Range(0, 500).Draw(t, "bound")
		jobs := make([]Waiting, rapid.IntRange(0, 12).Draw(t, "jobs"))
		for i := range jobs {
			natural := rapid.Int64Range(1, 300).Draw(t, "natural")
			factor := rapid.Int64Range(0, 2*bound).Draw(t, "factor") // of a site whose bound was higher
			jobs[i] = Waiting{ID: int64(i + 1), Priority: natural + factor, Factor: factor, Boost: rapid.Int64Range(-5, 600).Draw(t, "boost")}
		}
		byGoal := slices.Clone(jobs)
		slices.SortFunc(byGoal, func(a, b Waiting) int {
			return cmp.Or(cmp.Compare(b.natural()+min(max(b.Boost, 0), bound), a.natural()+min(max(a.Boost, 0), bound)), cmp.Compare(a.ID, b.ID))
		})
		for _, c := range plan(jobs, bound) {
			i := slices.IndexFunc(jobs, func(j Waiting) bool { return j.ID == c.ID })
			if c.Factor < 0 || c.Factor > bound || c.Factor == jobs[i].Factor {
				t.Fatalf("%v of %v is not within 0 to %d, or none", c, jobs[i], bound)
			}
			jobs[i].Priority += c.Factor - jobs[i].Factor
			jobs[i].Factor = c.Factor
		}
		slices.SortFunc(jobs, func(a, b Waiting) int { return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID)) })
		if !slices.EqualFunc(jobs, byGoal, func(a, b Waiting) bool { return a.ID == b.ID }) {
			t.Fatalf("the order is then %v, want %v", jobs, byGoal)
		}
		if left := plan(jobs, bound); len(left) > 0 {
			t.Fatalf("left to change: %v", left)
		}
	})
}
