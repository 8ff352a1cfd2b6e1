// Package bench measures the learner's kernels beside PyTorch: one update of a discrete soft actor-critic with quantile critics at
// shapes that others can repeat, and choosing for one state.
package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/berth-hpc/berth/components/advisor/nn"
	"github.com/berth-hpc/berth/components/advisor/nn/graph"
)

// Shape is the size of an update: states of a length, actions, the width of every hidden layer, and the numbers of quantile
// fractions (of the estimate, the target and the actor's objective).
type Shape struct {
	Name                          string
	State, Actions, Hidden, Batch int
	Taus, TargetTaus, ActTaus     int
	Cosines, Critics              int
	LayerNorm                     bool
	steps                         int // updates in a round
	ratioAlone, ratioOnTwo        float64
}

// Shapes are the ones measured. The first three are twin critics, the last RLPD's ten with LayerNorm.
var Shapes = []Shape{
	{Name: "S", State: 64, Actions: 16, Hidden: 256, Batch: 256, Taus: 8, TargetTaus: 8, ActTaus: 8, Cosines: 64, Critics: 2, steps: 8, ratioAlone: 1, ratioOnTwo: 1.5},
	{Name: "M", State: 128, Actions: 32, Hidden: 256, Batch: 256, Taus: 32, TargetTaus: 32, ActTaus: 32, Cosines: 64, Critics: 2, steps: 2, ratioAlone: 1, ratioOnTwo: 1.5},
	{Name: "L", State: 256, Actions: 64, Hidden: 256, Batch: 256, Taus: 32, TargetTaus: 32, ActTaus: 32, Cosines: 64, Critics: 2, steps: 2, ratioAlone: 1, ratioOnTwo: 1.5},
	{Name: "rlpd", State: 64, Actions: 16, Hidden: 256, Batch: 128, Taus: 8, TargetTaus: 8, ActTaus: 8, Cosines: 64, Critics: 10, LayerNorm: true, steps: 3, ratioAlone: 1, ratioOnTwo: 1.5},
}

// Constants of both sides.
const (
	gamma, alpha, polyak = .99, .1, .005
	subset               = 2   // target critics that the minimum is over
	chunk                = 512 // rows after the embedding that a critic works on at a time
)

// fill gives the numbers that both sides begin with: the fractional parts of a fast sine.
func fill(seed, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		v := math.Sin(float64(i+1)*12.9898+float64(seed)*78.233) * 43758.5453
		x[i] = v - math.Floor(v)
	}
	return x
}

func floats(x []float64, f func(float64) float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(f(v))
	}
	return out
}

// network is one in training.
type network struct {
	*nn.Net[float32]
	adam *nn.Adam
	step *graph.Step
}

func newNet(s nn.Spec, seed int) (*network, error) {
	n, err := nn.New[float32](s)
	if err != nil {
		return nil, err
	}
	u := fill(seed, len(n.P))
	for _, t := range s.Layout() {
		p := n.P[t.Offset : t.Offset+t.Len()]
		switch {
		case t.Rows > 0:
			for i := range p {
				p[i] = float32((2*u[t.Offset+i] - 1) * math.Sqrt(1/float64(t.Rows)))
			}
		case t.Name[len(t.Name)-4:] == "gain":
			for i := range p {
				p[i] = 1
			}
		}
	}
	n.Repack()
	adam := nn.NewAdam(len(n.P), 3e-4)
	return &network{Net: n, adam: adam}, nil
}

// worker is the memory of one critic.
type worker struct {
	s    nn.Scratch[float32]
	z, q []float32
	loss float32
	err  error
}

// update holds the networks and the batch of one shape.
type update struct {
	Shape
	threads       int
	actor         *network
	critics       []*network
	targets       []*nn.Net[float32]
	workers       []worker
	actorScratch  nn.Scratch[float32]
	s, s2         []float32
	action        []int32
	reward        []float32
	y, q          []float32
	logits, lp, p []float32
	tau           [3][]float32 // of the target, the estimate and the objective
	cos           [3][]float32
	rng           *rand.Rand
}

func newUpdate(shape Shape, threads int) (*update, error) {
	u := &update{Shape: shape, threads: threads, workers: make([]worker, shape.Critics), rng: rand.New(rand.NewPCG(1, 2))}
	h := shape.Hidden
	var err error
	if u.actor, err = newNet(nn.Spec{Kind: nn.MLP, In: shape.State, Out: shape.Actions, Trunk: []int{h, h}}, 1); err != nil {
		return nil, err
	}
	if u.actor.step, err = graph.NewStep("actor", u.actor.P, func(_, grad []float32) float32 { return u.actorLoss(grad) }); err != nil {
		return nil, err
	}
	critic := nn.Spec{Kind: nn.IQN, In: shape.State, Out: shape.Actions, Trunk: []int{h}, Head: []int{h}, Cosines: shape.Cosines, LayerNorm: shape.LayerNorm}
	for i := range shape.Critics {
		c, err := newNet(critic, 10+i)
		if err != nil {
			return nil, err
		}
		if c.step, err = graph.NewStep(fmt.Sprintf("critic %d", i), c.P, func(_, grad []float32) float32 { return u.criticLoss(i, grad) }); err != nil {
			return nil, err
		}
		u.critics, u.targets = append(u.critics, c), append(u.targets, c.Clone())
	}
	b := shape.Batch
	both := func(v float64) float64 { return 2*v - 1 }
	same := func(v float64) float64 { return v }
	u.s, u.s2 = floats(fill(100, b*shape.State), both), floats(fill(101, b*shape.State), both)
	for _, v := range fill(102, b) {
		u.action = append(u.action, int32(min(int(v*float64(shape.Actions)), shape.Actions-1)))
	}
	u.reward = floats(fill(103, b), same)
	n := b * shape.Actions
	u.q, u.logits, u.lp, u.p = make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	u.y = make([]float32, b*shape.TargetTaus)
	for i, t := range []int{shape.TargetTaus, shape.Taus, shape.ActTaus} {
		u.tau[i], u.cos[i] = make([]float32, b*t), make([]float32, b*t*shape.Cosines)
	}
	for i := range u.workers {
		u.workers[i].z, u.workers[i].q = make([]float32, b*shape.TargetTaus*shape.Actions), make([]float32, n)
	}
	return u, nil
}

// parallel runs f for the first n critics, each on one of the threads.
func (u *update) parallel(n int, f func(i int)) {
	if u.threads == 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var wg sync.WaitGroup
	for w := range u.threads {
		wg.Go(func() {
			for i := w; i < n; i += u.threads {
				f(i)
			}
		})
	}
	wg.Wait()
}

// states calls f with the first and last state of every chunk.
func (u *update) states(taus int, f func(a, z int)) {
	step := max(chunk/taus, 1)
	for a := 0; a < u.Batch; a += step {
		f(a, min(a+step, u.Batch))
	}
}

func (u *update) rows(x []float32, a, z, k, taus int) nn.Rows[float32] {
	return nn.Rows[float32]{N: z - a, X: x[a*u.State : z*u.State], States: z - a, Taus: taus, Cos: u.cos[k][a*taus*u.Cosines : z*taus*u.Cosines]}
}

// drawn draws fractions at random; checked draws those of the comparison with PyTorch.
func (u *update) drawn() {
	for k := range u.tau {
		for i := range u.tau[k] {
			u.tau[k][i] = u.rng.Float32()
		}
	}
}

func (u *update) checked() {
	for k := range u.tau {
		copy(u.tau[k], floats(fill(201+k, len(u.tau[k])), func(v float64) float64 { return v }))
	}
}

// run is one update: targets, every critic and its target network, the actor. It gives the losses, the actor's last.
func (u *update) run(draw func()) ([]float32, error) {
	draw()
	for k := range u.tau {
		nn.Cosines(u.cos[k], u.tau[k], u.Cosines)
	}
	u.target()
	u.parallel(u.Critics, func(i int) {
		c, w := u.critics[i], &u.workers[i]
		var grad []float32
		if w.loss, grad, w.err = c.step.Run(); w.err == nil {
			w.err = c.adam.Update(c.P, grad)
		}
		c.Repack()
		u.targets[i].Average(c.Net, polyak)
		u.states(u.ActTaus, func(a, z int) {
			r := u.rows(u.s, a, z, 2, u.ActTaus)
			c.MeanQuantiles(&w.s, &r, w.q[a*u.Actions:z*u.Actions])
		})
	})
	var losses []float32
	for i := range u.workers {
		if err := u.workers[i].err; err != nil {
			return nil, err
		}
		losses = append(losses, u.workers[i].loss)
	}
	for k := range u.q {
		u.q[k] = 0
		for i := range u.workers {
			u.q[k] += u.workers[i].q[k]
		}
		u.q[k] /= float32(u.Critics)
	}
	loss, grad, err := u.actor.step.Run()
	if err == nil {
		err = u.actor.adam.Update(u.actor.P, grad)
	}
	u.actor.Repack()
	return append(losses, loss), err
}

// target is r + γ·Σ_a π(a)·min over the subset of Z(s′, τ)_a, at every fraction.
func (u *update) target() {
	u.actor.Forward(&u.actorScratch, u.Batch, u.s2, u.logits)
	for b := range u.Batch {
		i, j := b*u.Actions, (b+1)*u.Actions
		nn.Softmax(u.logits[i:j], u.lp[i:j], u.p[i:j])
	}
	u.parallel(subset, func(i int) {
		w := &u.workers[i]
		u.states(u.TargetTaus, func(a, z int) {
			r := u.rows(u.s2, a, z, 0, u.TargetTaus)
			u.targets[i].Quantiles(&w.s, &r, nil, w.z[a*u.TargetTaus*u.Actions:z*u.TargetTaus*u.Actions])
		})
	})
	for b := range u.Batch {
		p := u.p[b*u.Actions : (b+1)*u.Actions]
		for j := range u.TargetTaus {
			at := (b*u.TargetTaus + j) * u.Actions
			z0, z1 := u.workers[0].z[at:at+u.Actions], u.workers[1].z[at:at+u.Actions]
			var sum float32
			for a, v := range p {
				sum += v * min(z0[a], z1[a])
			}
			u.y[b*u.TargetTaus+j] = u.reward[b] + gamma*sum
		}
	}
}

func (u *update) criticLoss(i int, grad []float32) float32 {
	c, w := u.critics[i], &u.workers[i]
	weight := 1 / float32(u.Batch)
	var loss float32
	u.states(u.Taus, func(a, z int) {
		r := u.rows(u.s, a, z, 1, u.Taus)
		loss += c.QuantileLoss(&w.s, &r, u.action[a:z], u.tau[1][a*u.Taus:z*u.Taus], u.y[a*u.TargetTaus:z*u.TargetTaus], weight, grad)
	})
	return loss
}

func (u *update) actorLoss(grad []float32) float32 {
	u.actor.Forward(&u.actorScratch, u.Batch, u.s, u.logits)
	var loss float32
	for b := range u.Batch {
		i, j := b*u.Actions, (b+1)*u.Actions
		l, _ := nn.ActorLoss(u.logits[i:j], u.q[i:j], alpha, 1/float32(u.Batch), u.lp[i:j], u.p[i:j])
		loss += l
	}
	u.actor.Backward(&u.actorScratch, u.Batch, u.logits, grad)
	return loss
}

// chooser picks the best action of one state, by the actor or by twin critics' CVaR.
type chooser struct {
	u       *update
	s       nn.Scratch[float32]
	tau     []float32
	cos     []float32
	a, b, x []float32
}

func (u *update) chooser() *chooser {
	c := &chooser{u: u, a: make([]float32, u.Actions), b: make([]float32, u.Actions), x: u.s[:u.State]}
	c.tau = floats(fill(204, u.ActTaus), func(v float64) float64 { return .25 * v })
	c.cos = make([]float32, u.ActTaus*u.Cosines)
	return c
}

func (c *chooser) choose(critics bool) int {
	u := c.u
	u.actor.Forward(&c.s, 1, c.x, c.a)
	if critics {
		nn.Cosines(c.cos, c.tau, u.Cosines)
		r := nn.Rows[float32]{N: 1, X: c.x, States: 1, Taus: u.ActTaus, Cos: c.cos}
		u.critics[0].MeanQuantiles(&c.s, &r, c.a)
		u.critics[1].MeanQuantiles(&c.s, &r, c.b)
		for i, v := range c.b {
			c.a[i] += v
		}
	}
	best := 0
	for i, v := range c.a {
		if v > c.a[best] {
			best = i
		}
	}
	return best
}

func (u *update) close() {
	for _, n := range append([]*network{u.actor}, u.critics...) {
		_ = n.step.Close()
	}
}
