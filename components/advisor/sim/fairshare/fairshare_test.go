package fairshare

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func must(t testing.TB) func(*Association, error) *Association {
	return func(a *Association, err error) *Association {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
}

// The example of Slurm's page on classic fair share: accounts A (40 shares) with B (30) and C (10), D (60) with E (25) and F
// (35); one user in B, two in C, one each in E and F.
func TestClassicWorkedExample(t *testing.T) {
	tree, m := NewTree(), must(t)
	m(tree.Account("A", "", 40))
	m(tree.Account("D", "", 60))
	m(tree.Account("B", "A", 30))
	m(tree.Account("C", "A", 10))
	m(tree.Account("E", "D", 25))
	m(tree.Account("F", "D", 35))
	users := []*Association{m(tree.User("1", "B", 1)), m(tree.User("2", "C", 1)), m(tree.User("3", "C", 1)), m(tree.User("4", "E", 1)), m(tree.User("5", "F", 1))}
	// A used 45 % of the machine (B 20 %, C 25 %, all of it user 2), D and E 25 %; the rest was used under root by nobody listed.
	users[0].Charge(.20)
	users[1].Charge(.25)
	users[3].Charge(.25)
	tree.root.Charge(.30)
	tree.Classic(1)
	for i, want := range []struct{ usage, shares, factor float64 }{
		{.3875, .3, .408479}, {.275, .05, .022097}, {.15, .05, .125}, {.25, .25, .5}, {.145833, .35, .749154},
	} {
		u := users[i]
		if math.Abs(u.Effective-want.usage) > 1e-6 || math.Abs(u.NormShares-want.shares) > 1e-9 || math.Abs(u.Factor-want.factor) > 1e-6 {
			t.Errorf("user %s: usage %.6f, shares %.4f, factor %.6f; want %.6f, %.4f, %.6f", u.Name, u.Effective, u.NormShares, u.Factor, want.usage, want.shares, want.factor)
		}
	}
}

// Fair Tree: the users of a better account all rank before those of a worse one.
func TestFairTreeRanks(t *testing.T) {
	tree, m := NewTree(), must(t)
	m(tree.Account("A", "", 1))
	m(tree.Account("B", "", 1))
	a1, a2 := m(tree.User("a1", "A", 1)), m(tree.User("a2", "A", 1))
	b1, b2 := m(tree.User("b1", "B", 1)), m(tree.User("b2", "B", 3))
	a1.Charge(10)
	a2.Charge(30)
	b1.Charge(5)
	b2.Charge(5)
	tree.FairTree()
	// B used 10 of 50 on half the shares: level 2.5, A 0.625. In B the user with three of four shares goes first.
	for _, w := range []struct {
		a    *Association
		want float64
	}{{b2, 1}, {b1, .75}, {a1, .5}, {a2, .25}} {
		if w.a.Factor != w.want {
			t.Errorf("%s has %g, want %g", w.a.Name, w.a.Factor, w.want)
		}
	}
}

// Ties: users that tie share a rank and the next one goes on below both; a user that ties with an account goes before its users;
// accounts that tie are merged only if asked to.
func TestFairTreeTies(t *testing.T) {
	tree, m := NewTree(), must(t)
	m(tree.Account("P", "", 1))
	u1, u2 := m(tree.User("u1", "P", 1)), m(tree.User("u2", "P", 1))
	u3 := m(tree.User("u3", "P", 1))
	u3.Charge(9)
	tree.FairTree()
	if u1.Factor != 1 || u2.Factor != 1 || u3.Factor != 1.0/3 {
		t.Errorf("tied users have %g and %g, the third %g; want 1, 1, 1/3", u1.Factor, u2.Factor, u3.Factor)
	}

	tree = NewTree()
	m(tree.Account("A", "", 1))
	x := m(tree.User("x", "root", 1))
	y := m(tree.User("y", "A", 1))
	tree.FairTree()
	if x.Factor != 1 || y.Factor >= 1 && y.Factor != 1 {
		t.Errorf("the user beside the account has %g, the user in it %g; want the first at 1", x.Factor, y.Factor)
	}

	for _, merge := range []bool{false, true} {
		tree := NewTree()
		tree.MergeTies = merge
		m(tree.Account("A", "", 1))
		m(tree.Account("B", "", 1))
		a1, a2 := m(tree.User("a1", "A", 1)), m(tree.User("a2", "A", 1))
		b1 := m(tree.User("b1", "B", 1))
		a1.Charge(1)
		a2.Charge(3)
		b1.Charge(4)
		tree.FairTree()
		// Merged, a1 (level 2), b1 (1), a2 (2/3); apart, A's users first.
		if got := b1.Factor > a2.Factor; got != merge || a1.Factor != 1 {
			t.Errorf("merge %v: a1 %g, a2 %g, b1 %g", merge, a1.Factor, a2.Factor, b1.Factor)
		}
	}
}

// Ranks are those of a sort whatever the tree: factors lie in (0, 1], and every user of a better sibling account ranks before
// every user of a worse one.
func TestFairTreeOrderProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := NewTree()
		accounts := rapid.IntRange(1, 5).Draw(t, "accounts")
		users := map[string][]*Association{}
		for i := range accounts {
			name := string(rune('A' + i))
			if _, err := tree.Account(name, "", float64(rapid.IntRange(1, 9).Draw(t, "shares"))); err != nil {
				t.Fatal(err)
			}
			for k := range rapid.IntRange(1, 4).Draw(t, "users") {
				u, err := tree.User(name+string(rune('0'+k)), name, float64(rapid.IntRange(1, 5).Draw(t, "share")))
				if err != nil {
					t.Fatal(err)
				}
				u.Charge(float64(rapid.IntRange(1, 1000).Draw(t, "usage")))
				users[name] = append(users[name], u)
			}
		}
		tree.FairTree()
		for a, us := range users {
			for b, vs := range users {
				if tree.nodes[a].LevelFS <= tree.nodes[b].LevelFS {
					continue
				}
				for _, u := range us {
					for _, v := range vs {
						if u.Factor <= v.Factor || u.Factor > 1 || v.Factor <= 0 {
							t.Fatalf("%s (%g) of %s is not before %s (%g) of %s", u.Name, u.Factor, a, v.Name, v.Factor, b)
						}
					}
				}
			}
		}
	})
}

// The billing examples of Slurm's page on TRES: CPU 1.0, memory 0.25 a GiB.
func TestBillingExamples(t *testing.T) {
	w := map[string]float64{"cpu": 1, "mem": .25}
	for _, c := range []struct {
		cpu, mem, want float64
		largest        bool
	}{{1, 60, 16, false}, {16, 1, 16.25, false}, {16, 60, 31, false}, {1, 60, 15, true}} {
		if got := Billing(w, map[string]float64{"cpu": c.cpu, "mem": c.mem}, c.largest); got != c.want {
			t.Errorf("%g CPUs and %g GiB bill %g, want %g", c.cpu, c.mem, got, c.want)
		}
	}
}

func TestPriorityBounds(t *testing.T) {
	w := Weights{Age: 1000, FairShare: 10000}
	for _, c := range []struct {
		site float64
		f    Factors
		nice int
		want uint32
	}{
		{0, Factors{Age: .5, FairShare: .25}, 0, 3000},
		{0, Factors{Age: .5}, 499, 1},
		{0, Factors{}, 5000, 1}, // 0 would be held
		{1e12, Factors{}, 0, MaxPriority},
		{0, Factors{Age: .9999}, 0, 999}, // cut, not rounded
	} {
		if got := Priority(c.site, w, c.f, c.nice); got != c.want {
			t.Errorf("site %g, %+v, nice %d: %d, want %d", c.site, c.f, c.nice, got, c.want)
		}
	}
	if f := AgeFactor(3.5*86400, 7*86400); f != .5 {
		t.Errorf("half of the longest age is %g", f)
	}
	if d, exact := DecayFactor(7*86400, 7*86400), .5; math.Abs(d-exact) > 1e-4 || d == exact {
		t.Errorf("after a half-life %g is left; slurmctld's approximation is near a half, but not it", d)
	}
}
