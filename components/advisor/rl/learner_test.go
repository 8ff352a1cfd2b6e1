package rl

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/berth-hpc/berth/components/advisor/nn"
)

// arms is a one-step problem: a row an arm, each with a law of rewards given by its values and their probabilities.
func arms(t testing.TB, n int, laws ...map[float64]float64) *Replay {
	r := NewReplay(n, len(laws), 0)
	rng := NewSource(5, 5)
	x := make([]float32, len(laws)*len(laws))
	for i := range laws {
		x[i*len(laws)+i] = 1
	}
	for range n {
		a := rng.IntN(len(laws))
		values := make([]float64, 0, 3)
		for v := range laws[a] {
			values = append(values, v)
		}
		slices.Sort(values)
		u, v := rng.Float64(), 0.0
		for _, v = range values {
			if u -= laws[a][v]; u < 0 {
				break
			}
		}
		if err := r.Add(Transition{State: State{N: len(laws), X: x}, Action: a, Reward: v, Elapsed: 1, Done: true}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// quick is a small, fast learner of small problems.
func quick() Config {
	c := Defaults()
	c.Hidden, c.Cosines, c.NormalizeReward = []int{32, 32}, 32, false
	c.ActorRate, c.CriticRate, c.Polyak, c.FixedAlpha, c.InitAlpha, c.AnnealSteps = 3e-3, 2e-3, .02, true, .02, 0
	return c
}

func train(t testing.TB, c Config, r *Replay, updates int) *Learner {
	t.Helper()
	l, err := NewLearner(c, Encoding{Version: "test", Row: r.Row, Global: r.Global})
	if err != nil {
		t.Fatal(err)
	}
	for range updates {
		if _, err := l.Update(r, nil); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// tail is the mean of the first critic's Z over fractions from lo to hi, for the row that is all of one arm.
func tail(l *Learner, arm int, lo, hi float64) float64 {
	const n = 50
	x, taus, z := make([]float32, l.Encoding.Width()), make([]float32, n), make([]float32, n)
	x[arm] = 1
	for i := range taus {
		taus[i] = float32(lo + (hi-lo)*(float64(i)+.5)/n)
	}
	cos := make([]float32, n*l.Config.Cosines)
	nn.Cosines(cos, taus, l.Config.Cosines)
	l.Critics[0].Quantiles(&nn.Scratch[float32]{}, &nn.Rows[float32]{N: 1, X: x, States: 1, Taus: n, Cos: cos}, nil, z)
	s := 0.0
	for _, v := range z {
		s += float64(v) / n
	}
	return s
}

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s is %.3f, want %.3f ± %.3f", what, got, want, tol)
	}
}

// Trained on a law with two modes, quantiles rise with τ, and the tails are where they belong. An inverted sign of the quantile
// loss (D2) exchanges them; weights clamped as in one public DSAC (D3) make the tails of 5 % and of 20 % equal.
func TestQuantilesOfKnownLaw(t *testing.T) {
	c := quick()
	c.Taus, c.TargetTaus, c.CriticRate, c.Batch, c.Critics, c.Subset, c.Hidden = 16, 1, 1e-2, 128, 1, 1, []int{64, 64}
	l := train(t, c, arms(t, 4000, map[float64]float64{-4: .1, 0: .4, 2: .5}), 1500)
	last := math.Inf(-1)
	for tau := .05; tau < 1; tau += .05 {
		z := tail(l, 0, tau, tau)
		if z < last-.15 {
			t.Errorf("the quantile at %.2f is %.3f, below the %.3f before it", tau, z, last)
		}
		last = max(last, z)
	}
	near(t, "the mean", tail(l, 0, 0, 1), .6, .25)
	near(t, "CVaR at 0.05", tail(l, 0, 0, .05), -4, .5)
	near(t, "CVaR at 0.2", tail(l, 0, 0, .2), -2, .6)
	near(t, "the upper quarter", tail(l, 0, .75, 1), 2, .4)
	if a, b := tail(l, 0, 0, .05), tail(l, 0, 0, .2); a > b-.8 {
		t.Errorf("CVaR at 0.05 is %.3f, at 0.2 %.3f: they must differ", a, b)
	}
}

// Where the arm with the best mean has the worst tail, risk decides which is taken.
func TestBandit(t *testing.T) {
	r := arms(t, 3000, map[float64]float64{2: .8, -2: .2}, map[float64]float64{.5: 1})
	for risk, want := range map[string]int{RiskMean: 0, RiskCVaR: 1} {
		c := quick()
		c.Risk, c.CVaR, c.TargetTaus = risk, .25, 1
		l := train(t, c, r, 900)
		l.now.reset()
		l.now.add(&l.Encoding, &r.states[0])
		l.policy(&l.now)
		if l.p[want] < .9 {
			t.Errorf("risk %s takes arm %d with probability %.3f", risk, want, l.p[want])
		}
	}
}

// A CVaR at level 1 is the mean, bit for bit, after any number of updates.
func TestFullCVaRIsMean(t *testing.T) {
	r := arms(t, 500, map[float64]float64{2: .8, -2: .2}, map[float64]float64{.5: 1})
	c := quick()
	mean := train(t, c, r, 40)
	c.Risk, c.CVaR = RiskCVaR, 1
	sameBits(t, mean, train(t, c, r, 40))
}

func sameBits(t *testing.T, a, b *Learner) {
	t.Helper()
	if !slices.Equal(a.Actor.P, b.Actor.P) || a.LogAlpha != b.LogAlpha {
		t.Error("the actors differ")
	}
	for i := range a.Critics {
		if !slices.Equal(a.Critics[i].P, b.Critics[i].P) || !slices.Equal(a.Targets[i].P, b.Targets[i].P) {
			t.Errorf("critics %d differ", i)
		}
	}
}

// Threads change nothing in what is learned.
func TestThreadsChangeNothing(t *testing.T) {
	r := arms(t, 500, map[float64]float64{2: .8, -2: .2}, map[float64]float64{.5: 1})
	run := func(threads int) *Learner {
		l, err := NewLearner(quick(), Encoding{Row: 2})
		if err != nil {
			t.Fatal(err)
		}
		l.Threads = threads
		for range 30 {
			if _, err := l.Update(r, nil); err != nil {
				t.Fatal(err)
			}
		}
		return l
	}
	sameBits(t, run(1), run(3))
}

// smdp is a semi-Markov problem of three states and two actions with fixed outcomes.
var smdp = [3][2]struct {
	reward, elapsed float64
	next            int // −1: the end
}{
	{{1, 1, 0}, {-1, .5, 1}},
	{{0, 2, 2}, {2, 1, 0}},
	{{8, 1, 0}, {3, .25, -1}},
}

// SAC finds the policy and the values that value iteration finds, with discounts that depend on the time a step takes.
func TestTabularSMDP(t *testing.T) {
	const gamma = .8
	var q [3][2]float64
	for range 500 {
		var next [3][2]float64
		for s := range smdp {
			for a, o := range smdp[s] {
				next[s][a] = o.reward
				if o.next >= 0 {
					next[s][a] += math.Pow(gamma, o.elapsed) * max(q[o.next][0], q[o.next][1])
				}
			}
		}
		q = next
	}
	r := NewReplay(2000, 2, 3)
	rng, s := NewSource(1, 1), 0
	for range 2000 {
		st := State{N: 2, X: []float32{1, 0, 0, 1}, Global: make([]float32, 3)}
		st.Global[s] = 1
		a := rng.IntN(2)
		o := smdp[s][a]
		if err := r.Add(Transition{State: st, Action: a, Reward: o.reward, Elapsed: o.elapsed, Done: o.next < 0}); err != nil {
			t.Fatal(err)
		}
		if s = o.next; s < 0 {
			s = rng.IntN(3)
		}
	}
	c := quick()
	c.IQN, c.Gamma, c.Polyak = false, gamma, .05
	l := train(t, c, r, 1800)
	for s := range 3 {
		st := State{N: 2, X: []float32{1, 0, 0, 1}, Global: make([]float32, 3)}
		st.Global[s] = 1
		l.now.reset()
		l.now.add(&l.Encoding, &st)
		l.policy(&l.now)
		l.values(&l.now)
		best := 0
		if q[s][1] > q[s][0] {
			best = 1
		}
		if l.p[best] < .8 {
			t.Errorf("state %d: the best action %d is taken with probability %.3f (values %.3f)", s, best, l.p[best], q[s])
		}
		for a := range 2 {
			near(t, "value", float64(l.q[a]), q[s][a], .08*math.Abs(q[s][best]))
		}
	}
}

// A state with one action has no entropy, teaches the actor nothing and leaves the temperature alone.
func TestOneActionCarriesNoEntropy(t *testing.T) {
	c := quick()
	c.FixedAlpha = false
	l, err := NewLearner(c, Encoding{Row: 1})
	if err != nil {
		t.Fatal(err)
	}
	before, alpha := slices.Clone(l.Actor.P), l.LogAlpha
	r := arms(t, 100, map[float64]float64{1: .5, -1: .5})
	for range 5 {
		m, err := l.Update(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.Entropy != 0 {
			t.Errorf("the entropy is %g", m.Entropy)
		}
	}
	if !slices.Equal(before, l.Actor.P) || l.LogAlpha != alpha {
		t.Error("the actor or the temperature moved")
	}
}

// An entropy target out of reach (D4) takes the temperature to its bound, not to infinity, and that is seen.
func TestTemperatureIsBounded(t *testing.T) {
	c := quick()
	c.FixedAlpha, c.EntropyTarget, c.AlphaRate = false, .99, .5
	r := arms(t, 300, map[float64]float64{100: 1}, map[float64]float64{-100: 1})
	l := train(t, c, r, 60)
	for range 100 {
		if _, err := l.Update(r, nil); err != nil {
			t.Fatal(err)
		}
		if l.LogAlpha > maxLogAlpha {
			t.Fatalf("log α is %g", l.LogAlpha)
		}
	}
	if !l.AtBound() {
		t.Errorf("log α is %g and not at its bound %d", l.LogAlpha, maxLogAlpha)
	}
}

// RLPD's batches are half offline and half online, exactly; its targets use two of ten critics, drawn anew.
func TestRLPDBatches(t *testing.T) {
	offline, online := arms(t, 200, map[float64]float64{1: 1}), arms(t, 30, map[float64]float64{2: 1})
	c := quick().RLPD(3)
	c.Hidden = []int{8, 8}
	l, err := NewLearner(c, Encoding{Row: 1})
	if err != nil {
		t.Fatal(err)
	}
	subsets := map[[2]int]bool{}
	for range 12 {
		if err := l.sample(online, offline); err != nil {
			t.Fatal(err)
		}
		n := map[float32]int{}
		for _, v := range l.now.reward {
			n[v]++
		}
		if n[1] != 64 || n[2] != 64 {
			t.Fatalf("%d offline and %d online transitions", n[1], n[2])
		}
		if _, err := l.updateCritics(); err != nil {
			t.Fatal(err)
		}
		if len(l.subset) != 2 || len(l.Critics) != 10 || l.subset[0] == l.subset[1] {
			t.Fatalf("subset %v of %d", l.subset, len(l.Critics))
		}
		subsets[[2]int{l.subset[0], l.subset[1]}] = true
	}
	if len(subsets) < 6 {
		t.Errorf("%d different subsets in 12 updates", len(subsets))
	}
	before := l.Updates
	if _, err := l.Update(online, offline); err != nil {
		t.Fatal(err)
	}
	if l.Updates-before != 3 || l.ActorUpdates != 1 {
		t.Errorf("%d critic and %d actor updates", l.Updates-before, l.ActorUpdates)
	}
}

// The policy follows its actions through any order: the encoding and the scores are equivariant.
func TestEquivariance(t *testing.T) {
	e := Encoding{Row: 3, Global: 2, Pool: true}
	l, err := NewLearner(quick(), e)
	if err != nil {
		t.Fatal(err)
	}
	rng := NewSource(3, 3)
	a := State{N: 9, X: make([]float32, 27), Global: []float32{.3, -1}}
	for i := range a.X {
		a.X[i] = float32(rng.NormFloat64())
	}
	order := rng.Perm(9)
	b := State{N: 9, X: make([]float32, 27), Global: a.Global}
	for i, k := range order {
		copy(b.X[i*3:i*3+3], a.X[k*3:k*3+3])
	}
	probs := func(s *State) []float32 {
		l.now.reset()
		l.now.add(&e, s)
		l.policy(&l.now)
		return slices.Clone(l.p)
	}
	p, q := probs(&a), probs(&b)
	for i, k := range order {
		if math.Abs(float64(p[k]-q[i])) > 1e-6 {
			t.Errorf("action %d has probability %g, in place %d %g", k, p[k], i, q[i])
		}
	}
}

// A loss that is not a number stops the run, names the batch, and leaves the networks as they were.
func TestDivergenceIsNamed(t *testing.T) {
	r := arms(t, 50, map[float64]float64{1: 1})
	l := train(t, quick(), r, 3)
	r.reward[7] = math.Inf(1)
	var d *DivergenceError
	for range 50 {
		before := slices.Clone(l.Critics[0].P)
		_, err := l.Update(r, nil)
		if err == nil {
			continue
		}
		if !errors.As(err, &d) || !slices.Contains(d.Transitions, 7) || !slices.Equal(before, l.Critics[0].P) {
			t.Fatalf("%v", err)
		}
		return
	}
	t.Fatal("an infinite reward went unnoticed")
}

// A replay refuses what would poison it.
func TestReplayRefuses(t *testing.T) {
	r := NewReplay(10, 1, 0)
	nan := float32(math.NaN())
	for _, bad := range []Transition{
		{State: State{N: 1, X: []float32{nan}}},
		{State: State{N: 1, X: []float32{1}}, Reward: math.NaN()},
		{State: State{N: 1, X: []float32{1}}, Reward: math.Inf(-1)},
		{State: State{N: 1, X: []float32{1}}, Action: 1},
		{State: State{N: 0}},
		{State: State{N: 1, X: []float32{1}}, Elapsed: -1},
	} {
		if err := r.Add(bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// Dividing rewards never subtracts anything, and stays as it is once frozen.
func TestRewardScale(t *testing.T) {
	s := RewardScale{On: true}
	rng := NewSource(1, 9)
	for range 5000 {
		s.Observe(5+2*rng.NormFloat64(), 0, true)
	}
	near(t, "the scale", s.Scale(), 2, .1)
	s.Frozen = true
	before := s
	s.Observe(1000, .9, false)
	if s != before {
		t.Error("a frozen scale moved")
	}
}
