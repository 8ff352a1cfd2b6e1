package graph

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-hpc/berth/components/advisor/nn"
)

func vector(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

func critic(r *rand.Rand, s nn.Spec, rows, taus, targets int) Critic {
	c := Critic{Rows: rows, Taus: taus, X: vector(r, rows*s.In), Targets: vector(r, rows*targets), Weight: .3}
	for range rows * taus {
		c.Tau = append(c.Tau, r.Float64())
	}
	for range rows {
		c.Take = append(c.Take, int32(r.IntN(s.Out)))
	}
	return c
}

// kernels computes a critic's loss with package nn in float64.
func kernels(t *testing.T, s nn.Spec, p []float64, c Critic) Result {
	n, err := nn.New[float64](s)
	if err != nil {
		t.Fatal(err)
	}
	copy(n.P, p)
	n.Repack()
	cos := make([]float64, len(c.Tau)*s.Cosines)
	nn.Cosines(cos, c.Tau, s.Cosines)
	rows := nn.Rows[float64]{N: c.Rows, X: c.X, States: c.Rows, Taus: c.Taus, Cos: cos}
	r := Result{Grad: make([]float64, len(p))}
	r.Loss = n.QuantileLoss(&nn.Scratch[float64]{}, &rows, c.Take, c.Tau, c.Targets, c.Weight, r.Grad)
	return r
}

func same(t *testing.T, what string, got, want Result, tol float64) {
	t.Helper()
	if !(math.Abs(got.Loss-want.Loss) <= tol*max(1, math.Abs(want.Loss))) || len(got.Grad) != len(want.Grad) {
		t.Fatalf("%s: loss %v, want %v; %d gradients, want %d", what, got.Loss, want.Loss, len(got.Grad), len(want.Grad))
	}
	top := 0.0
	for _, g := range want.Grad {
		top = max(top, math.Abs(g))
	}
	for i := range want.Grad {
		if !(math.Abs(got.Grad[i]-want.Grad[i]) <= tol*top) {
			t.Fatalf("%s: gradient %d is %v, want %v", what, i, got.Grad[i], want.Grad[i])
		}
	}
}

// The kernels' critic loss and gradient are those gorgonia derives from plain operations.
func TestCriticAgainstGraph(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, s := range []nn.Spec{
		{Kind: nn.IQN, In: 6, Out: 3, Trunk: []int{8}, Head: []int{7}, Cosines: 16},
		{Kind: nn.IQN, In: 5, Out: 1, Trunk: []int{8, 6}, Head: []int{7, 5}, Cosines: 16, LayerNorm: true},
	} {
		p := vector(r, s.Params())
		c := critic(r, s, 6, 4, 3)
		want, err := CriticLoss(s, p, c)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "critic", kernels(t, s, p, c), want, 1e-12)
	}
}

// The actor's loss over ragged states is that of the padded, masked graph.
func TestActorAgainstGraph(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for _, norm := range []bool{false, true} {
		s := nn.Spec{Kind: nn.MLP, In: 5, Out: 1, Trunk: []int{8, 6}, LayerNorm: norm}
		p := vector(r, s.Params())
		a := Actor{States: 4, Width: 5, Valid: []int{5, 1, 3, 2}, X: vector(r, 20*5), Q: vector(r, 20), Alpha: .2, Weight: .25}
		want, err := ActorLoss(s, p, a)
		if err != nil {
			t.Fatal(err)
		}
		n, err := nn.New[float64](s)
		if err != nil {
			t.Fatal(err)
		}
		copy(n.P, p)
		n.Repack()
		var x, q []float64
		var from []int
		for b, v := range a.Valid {
			from = append(from, len(q))
			x = append(x, a.X[b*5*5:(b*5+v)*5]...)
			q = append(q, a.Q[b*5:b*5+v]...)
		}
		from = append(from, len(q))
		var sc nn.Scratch[float64]
		logits, lp, pi := make([]float64, len(q)), make([]float64, len(q)), make([]float64, len(q))
		n.Forward(&sc, len(q), x, logits)
		got := Result{Grad: make([]float64, len(p))}
		for b := range a.Valid {
			i, j := from[b], from[b+1]
			l, _ := nn.ActorLoss(logits[i:j], q[i:j], a.Alpha, a.Weight, lp[i:j], pi[i:j])
			got.Loss += l
		}
		n.Backward(&sc, len(q), logits, got.Grad)
		same(t, "actor", got, want, 1e-12)
	}
}

// golden is what another implementation computed; testdata/golden.py made it with PyTorch.
type golden struct {
	Name    string
	Spec    nn.Spec
	Params  []float64
	X, Tau  []float64
	Rows    int
	Taus    int
	Targets []float64
	Take    []int32
	Q       []float64
	Width   int
	Valid   []int
	Alpha   float64
	Weight  float64
	Loss    float64
	Grad    []float64
}

// The graphs, and so the kernels, compute what PyTorch computes: values catch what gradients alone cannot, such as a softmax that
// became its logarithm.
func TestGolden(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []golden
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 4 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, g := range cases {
		want := Result{g.Loss, g.Grad}
		if g.Spec.Kind == nn.IQN {
			c := Critic{Rows: g.Rows, Taus: g.Taus, X: g.X, Tau: g.Tau, Targets: g.Targets, Take: g.Take, Weight: g.Weight}
			got, err := CriticLoss(g.Spec, g.Params, c)
			if err != nil {
				t.Fatal(err)
			}
			same(t, g.Name+", graph", got, want, 1e-11)
			same(t, g.Name+", kernels", kernels(t, g.Spec, g.Params, c), want, 1e-11)
			continue
		}
		got, err := ActorLoss(g.Spec, g.Params, Actor{States: len(g.Valid), Width: g.Width, Valid: g.Valid, X: g.X, Q: g.Q, Alpha: g.Alpha, Weight: g.Weight})
		if err != nil {
			t.Fatal(err)
		}
		same(t, g.Name, got, want, 1e-11)
	}
}

// A fused loss in a graph gives what the kernel gives, run after run: nothing accumulates, and two losses of one shape stay two.
func TestFused(t *testing.T) {
	square := func(by float32) Loss {
		return func(p, g []float32) float32 {
			s := float32(0)
			for i, v := range p {
				s += by * v * v
				g[i] += 2 * by * v
			}
			return s
		}
	}
	p := []float32{1, 2, 3}
	one, err := NewStep("loss", p, square(1))
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := NewStep("loss", p, square(2))
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	for k := range 3 {
		p[0] = float32(k)
		for by, s := range map[float32]*Step{1: one, 2: two} {
			l, g, err := s.Run()
			if err != nil {
				t.Fatal(err)
			}
			if want := by * (float32(k*k) + 13); l != want || g[0] != 2*by*float32(k) || g[2] != 6*by {
				t.Fatalf("run %d: loss %g, want %g; gradient %v", k, l, want, g)
			}
		}
	}
}

// SoftMax beside LogSoftMax, or under Log, silently computes something else: this package may use neither.
func TestNoSoftMax(t *testing.T) {
	banned := regexp.MustCompile(`gorgonia\.(SoftMax|Log|InverseSqrt|ByIndices|LogSumExp|GroupNorm)\(`)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if m := banned.Find(b); m != nil && !strings.HasSuffix(f, "_test.go") {
			t.Errorf("%s uses %s…", f, m)
		}
	}
}
