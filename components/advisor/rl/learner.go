package rl

import (
	"fmt"
	"math"
	"sync"

	"github.com/berth-hpc/berth/components/advisor/nn"
	"github.com/berth-hpc/berth/components/advisor/nn/graph"
)

// Purposes of random streams.
const (
	purposeUpdate uint64 = iota + 1
	purposeAct
	purposeTrain
	purposeCritic // and the critic's number added
)

// Net is a network in training, with its optimiser.
type Net struct {
	*nn.Net[float32]
	Adam *nn.Adam
	step *graph.Step
}

// Learner holds the networks and changes them. It is not safe for concurrent use; inside, critics work in parallel, each alone, so
// that results do not depend on the number of threads.
type Learner struct {
	Config   Config
	Encoding Encoding
	Actor    *Net
	Critics  []*Net
	Targets  []*nn.Net[float32]
	LogAlpha float64
	alphaM   float64
	alphaV   float64
	// Updates counts updates of critics, ActorUpdates those of the actor.
	Updates, ActorUpdates int64
	Scale                 RewardScale
	Threads               int

	rng     *Source
	scratch []criticScratch
	actor   nn.Scratch[float32]
	now     batch // states
	then    batch // their successors
	y       []float32
	level   float64
	logits  []float32
	logp    []float32
	p       []float32
	q       []float32
	subset  []int
	entropy float64 // of the last batch, and how far above the target
	gap     float64
}

// criticScratch is one critic's memory.
type criticScratch struct {
	s  nn.Scratch[float32]
	z  []float32
	q  []float32
	dz []float32
}

// batch is a set of states, encoded, one after the other.
type batch struct {
	from   []int32 // states' first rows, and the end
	state  []int32 // every row's state
	x      []float32
	action []int32 // the row of the action taken
	reward []float32
	keep   []float32 // discount; 0 at an end
	taken  []float32 // encoded rows of the actions taken
	taus   []float32
	cos    []float32
	pick   []int32 // target actions drawn
	px     []float32
	ptaus  []float32
	pcos   []float32
	index  []int // where the transitions come from
}

// NewLearner makes one with random networks.
func NewLearner(c Config, e Encoding) (*Learner, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	l := &Learner{Config: c, Encoding: e, LogAlpha: math.Log(c.InitAlpha), Threads: 1, rng: NewSource(c.Seed, purposeUpdate), Scale: RewardScale{On: c.NormalizeReward}}
	w := e.Width()
	net := func(s nn.Spec, seed uint64, rate float64) (*Net, error) {
		n, err := nn.New[float32](s)
		if err != nil {
			return nil, err
		}
		n.Randomize(seed)
		return &Net{Net: n, Adam: nn.NewAdam(len(n.P), rate)}, nil
	}
	var err error
	if l.Actor, err = net(c.actorSpec(w), c.Seed, c.ActorRate); err != nil {
		return nil, err
	}
	for i := range c.Critics {
		n, err := net(c.criticSpec(w), c.Seed+1000*uint64(i+1), c.CriticRate)
		if err != nil {
			return nil, err
		}
		l.Critics = append(l.Critics, n)
		l.Targets = append(l.Targets, n.Clone())
	}
	return l, l.build()
}

// build makes the training graphs over the networks.
func (l *Learner) build() (err error) {
	l.scratch = make([]criticScratch, len(l.Critics))
	for i, c := range l.Critics {
		if c.step, err = graph.NewStep(fmt.Sprintf("critic %d", i), c.P, func(_, grad []float32) float32 { return l.criticLoss(i, grad) }); err != nil {
			return err
		}
	}
	l.Actor.step, err = graph.NewStep("actor", l.Actor.P, func(_, grad []float32) float32 { return l.actorLoss(grad) })
	return err
}

// Alpha is the temperature.
func (l *Learner) Alpha() float64 { return math.Exp(l.LogAlpha) }

// Metrics are of the last update.
type Metrics struct {
	CriticLoss, ActorLoss float64
	Entropy, Alpha        float64
	Q, QSpread            float64 // mean value, and mean over states of the critics' largest difference
	Level                 float64 // of the CVaR
}

// parallel runs f for every critic, on up to Threads goroutines; each critic is worked on alone.
func (l *Learner) parallel(f func(i int)) {
	t := min(l.Threads, len(l.Critics))
	if t <= 1 {
		for i := range l.Critics {
			f(i)
		}
		return
	}
	var wg sync.WaitGroup
	for w := range t {
		wg.Go(func() {
			for i := w; i < len(l.Critics); i += t {
				f(i)
			}
		})
	}
	wg.Wait()
}

// Update does UTD critic updates and one of the actor and the temperature, from an online replay and, if it is not nil and the
// configuration wants it, an offline one.
func (l *Learner) Update(online, offline *Replay) (Metrics, error) {
	m := Metrics{}
	for range l.Config.UTD {
		if err := l.sample(online, offline); err != nil {
			return m, err
		}
		loss, err := l.updateCritics()
		if err != nil {
			return m, err
		}
		m.CriticLoss += loss / float64(l.Config.UTD)
	}
	if err := l.updateActor(&m); err != nil {
		return m, err
	}
	m.Alpha, m.Level = l.Alpha(), l.level
	return m, nil
}

// sample draws a batch: its first part from the offline replay, the rest from the online one.
func (l *Learner) sample(online, offline *Replay) error {
	n := l.Config.Batch
	old := 0
	if offline != nil && l.Config.Offline > 0 {
		old = int(math.Round(l.Config.Offline * float64(n)))
	}
	if old > 0 && !offline.Ready() || old < n && !online.Ready() {
		return fmt.Errorf("there is no experience to learn from yet")
	}
	l.now.reset()
	l.then.reset()
	scale := l.Scale.Scale()
	for k := range n {
		r := online
		if k < old {
			r = offline
		}
		i := r.Sample(l.rng)
		l.now.index = append(l.now.index, i)
		l.now.add(&l.Encoding, &r.states[i])
		row := int(l.now.from[k]) + int(r.action[i])
		l.now.action = append(l.now.action, int32(row))
		w := l.Encoding.Width()
		l.now.taken = append(l.now.taken, l.now.x[row*w:(row+1)*w]...)
		l.now.reward = append(l.now.reward, float32(r.reward[i]/scale))
		if r.done[i] {
			l.now.keep = append(l.now.keep, 0)
			l.then.add(&l.Encoding, &State{})
		} else {
			l.now.keep = append(l.now.keep, float32(math.Pow(l.Config.Gamma, r.elapsed[i])))
			l.then.add(&l.Encoding, &r.states[r.next(i)])
		}
	}
	return nil
}

func (b *batch) reset() {
	b.from, b.state, b.x = append(b.from[:0], 0), b.state[:0], b.x[:0]
	b.action, b.reward, b.keep, b.taken, b.index = b.action[:0], b.reward[:0], b.keep[:0], b.taken[:0], b.index[:0]
}

func (b *batch) add(e *Encoding, s *State) {
	k := int32(len(b.from) - 1)
	b.x = e.Encode(b.x, s)
	for range s.N {
		b.state = append(b.state, k)
	}
	b.from = append(b.from, b.from[k]+int32(s.N))
}

func (b *batch) states() int { return len(b.from) - 1 }
func (b *batch) rows() int   { return len(b.state) }

// fractions draws quantile fractions and their features: n uniform on (0, level).
func (l *Learner) fractions(taus, cos []float32, n int, level float64) ([]float32, []float32) {
	taus = grow(taus, n)
	for i := range taus {
		taus[i] = float32(level * l.rng.Float64())
	}
	cos = grow(cos, n*l.Config.Cosines)
	nn.Cosines(cos, taus, l.Config.Cosines)
	return taus, cos
}

func grow[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// policy evaluates the actor on a batch: log-probabilities and probabilities of its rows.
func (l *Learner) policy(b *batch) {
	n := b.rows()
	l.logits, l.logp, l.p = grow(l.logits, n), grow(l.logp, n), grow(l.p, n)
	if n > 0 {
		l.Actor.Forward(&l.actor, n, b.x, l.logits)
	}
	for k := range b.states() {
		i, j := b.from[k], b.from[k+1]
		nn.Softmax(l.logits[i:j], l.logp[i:j], l.p[i:j])
	}
}

// updateCritics computes the targets and moves every critic and its target network.
func (l *Learner) updateCritics() (float64, error) {
	l.policy(&l.then)
	l.subset = append(l.subset[:0], l.rng.Perm(len(l.Targets))[:l.Config.Subset]...)
	if l.Config.IQN {
		l.quantileTargets()
		l.now.taus, l.now.cos = l.fractions(l.now.taus, l.now.cos, l.now.states()*l.Config.Taus, 1)
	} else {
		l.valueTargets()
	}
	losses, errs := make([]float64, len(l.Critics)), make([]error, len(l.Critics))
	l.parallel(func(i int) {
		c := l.Critics[i]
		loss, grad, err := c.step.Run()
		if err == nil && (loss-loss != 0) {
			err = fmt.Errorf("its loss is %g", loss)
		}
		if err == nil {
			err = c.Adam.Update(c.P, grad)
		}
		if err != nil {
			errs[i] = err
			return
		}
		losses[i] = float64(loss)
		c.Repack()
		l.Targets[i].Average(c.Net, l.Config.Polyak)
	})
	sum := 0.0
	for i, err := range errs {
		if err != nil {
			return 0, l.broken(fmt.Sprintf("critic %d", i), err)
		}
		sum += losses[i]
	}
	l.Updates++
	return sum / float64(len(losses)), nil
}

// broken says which batch broke the training.
func (l *Learner) broken(who string, err error) error {
	return &DivergenceError{Who: who, Update: l.Updates, Transitions: append([]int{}, l.now.index...), Err: err}
}

// DivergenceError is a loss or gradient that is not finite.
type DivergenceError struct {
	Who         string
	Update      int64
	Transitions []int
	Err         error
}

func (d *DivergenceError) Error() string {
	return fmt.Sprintf("update %d: %s: %v, on the batch of transitions %v; train from the last checkpoint with smaller rates or normalised rewards", d.Update, d.Who, d.Err, d.Transitions)
}

func (d *DivergenceError) Unwrap() error { return d.Err }

// quantileTargets draws, for every transition and target fraction, an action from the policy and a fraction, and takes the least
// value among the subset of target critics: samples of the law of the return under the policy.
func (l *Learner) quantileTargets() {
	b, k := &l.then, l.Config.TargetTaus
	w, n := l.Encoding.Width(), l.then.states()
	b.ptaus, b.pcos = l.fractions(b.ptaus, b.pcos, n*k, 1)
	b.pick, b.px = grow(b.pick, n*k), grow(b.px, n*k*w)
	for s := range n {
		i, j := b.from[s], b.from[s+1]
		for t := range k {
			at := s*k + t
			u := l.rng.Float32()
			if i == j { // an end: any row will do, its value is dropped
				b.pick[at] = -1
				clear(b.px[at*w : (at+1)*w])
				continue
			}
			a := draw(l.p[i:j], u)
			b.pick[at] = i + int32(a)
			copy(b.px[at*w:(at+1)*w], b.x[(int(i)+a)*w:(int(i)+a+1)*w])
		}
	}
	rows := nn.Rows[float32]{N: n * k, X: b.px, States: n * k, Taus: 1, Cos: b.pcos}
	l.inSubset(func(i int, s *criticScratch) {
		s.z = grow(s.z, n*k)
		l.Targets[i].Quantiles(&s.s, &rows, nil, s.z)
	})
	l.y = grow(l.y, n*k)
	alpha := float32(l.Alpha())
	for at := range n * k {
		v := l.scratch[l.subset[0]].z[at]
		for _, i := range l.subset[1:] {
			v = min(v, l.scratch[i].z[at])
		}
		s := at / k
		if l.Config.BackupEntropy && b.pick[at] >= 0 {
			v -= alpha * l.logp[b.pick[at]]
		}
		l.y[at] = l.now.reward[s]
		if keep := l.now.keep[s]; keep != 0 {
			l.y[at] += keep * v
		}
	}
}

// draw gives the action at u of the distribution.
func draw(p []float32, u float32) int {
	for i, v := range p {
		if u -= v; u < 0 {
			return i
		}
	}
	last := len(p) - 1
	for last > 0 && p[last] == 0 {
		last--
	}
	return last
}

// valueTargets are exact expectations over the policy.
func (l *Learner) valueTargets() {
	b, n := &l.then, l.then.rows()
	l.inSubset(func(i int, s *criticScratch) {
		s.z = grow(s.z, n)
		if n > 0 {
			l.Targets[i].Forward(&s.s, n, b.x, s.z)
		}
	})
	l.y = grow(l.y, b.states())
	alpha := float32(l.Alpha())
	for k := range b.states() {
		var v float32
		for r := b.from[k]; r < b.from[k+1]; r++ {
			q := l.scratch[l.subset[0]].z[r]
			for _, i := range l.subset[1:] {
				q = min(q, l.scratch[i].z[r])
			}
			if l.Config.BackupEntropy {
				q -= alpha * l.logp[r]
			}
			v += l.p[r] * q
		}
		l.y[k] = l.now.reward[k]
		if keep := l.now.keep[k]; keep != 0 {
			l.y[k] += keep * v
		}
	}
}

func (l *Learner) inSubset(f func(i int, s *criticScratch)) {
	in := make([]bool, len(l.Critics))
	for _, i := range l.subset {
		in[i] = true
	}
	l.parallel(func(i int) {
		if in[i] {
			f(i, &l.scratch[i])
		}
	})
}

// chunk is how many rows after the embedding a critic works on at a time: its activations stay in the second-level cache.
const chunk = 512

// criticLoss is the loss of one critic on the batch, a mean over transitions.
func (l *Learner) criticLoss(i int, grad []float32) float32 {
	s, n, w := &l.scratch[i], l.now.states(), l.Encoding.Width()
	c := l.Critics[i]
	weight := 1 / float32(n)
	var loss float32
	if !l.Config.IQN {
		s.q, s.dz = grow(s.q, n), grow(s.dz, n)
		c.Forward(&s.s, n, l.now.taken, s.q)
		for k, q := range s.q {
			d := q - l.y[k]
			s.dz[k] = weight * d
			loss += weight * d * d / 2
		}
		c.Backward(&s.s, n, s.dz, grad)
		return loss
	}
	nt, nk, nc := l.Config.Taus, l.Config.TargetTaus, l.Config.Cosines
	step := max(chunk/nt, 1)
	for a := 0; a < n; a += step {
		z := min(a+step, n)
		r := nn.Rows[float32]{N: z - a, X: l.now.taken[a*w : z*w], States: z - a, Taus: nt, Cos: l.now.cos[a*nt*nc : z*nt*nc]}
		loss += c.QuantileLoss(&s.s, &r, zeros[:z-a], l.now.taus[a*nt:z*nt], l.y[a*nk:z*nk], weight, grad)
	}
	return loss
}

// zeros name the only output of row critics.
var zeros [chunk]int32

// values puts into l.q what the actor maximises, for every row of the batch: the mean or least value over critics, of the mean or the
// CVaR of their laws. It gives the mean over states of the critics' largest difference.
func (l *Learner) values(b *batch) (spread float64) {
	n, nk, nc := b.rows(), l.Config.ActTaus, l.Config.Cosines
	w := l.Encoding.Width()
	if l.Config.IQN {
		l.level = l.Config.level(l.Updates)
		b.taus, b.cos = l.fractions(b.taus, b.cos, b.states()*nk, l.level)
	} else {
		l.level = 1
	}
	l.parallel(func(i int) {
		s := &l.scratch[i]
		s.q = grow(s.q, n)
		if !l.Config.IQN {
			l.Critics[i].Forward(&s.s, n, b.x, s.q)
			return
		}
		for k := 0; k < b.states(); {
			end := k + 1
			for end < b.states() && int(b.from[end+1]-b.from[k])*nk <= chunk {
				end++
			}
			lo, hi := int(b.from[k]), int(b.from[end])
			state := make([]int32, hi-lo)
			for r := range state {
				state[r] = b.state[lo+r] - int32(k)
			}
			rows := nn.Rows[float32]{N: hi - lo, X: b.x[lo*w : hi*w], State: state, States: end - k, Taus: nk, Cos: b.cos[k*nk*nc : end*nk*nc]}
			l.Critics[i].MeanQuantiles(&s.s, &rows, s.q[lo:hi])
			k = end
		}
	})
	l.q = grow(l.q, n)
	for k := range b.states() {
		top := 0.0
		for r := b.from[k]; r < b.from[k+1]; r++ {
			lo, hi, sum := float32(math.Inf(1)), float32(math.Inf(-1)), float32(0)
			for i := range l.scratch {
				v := l.scratch[i].q[r]
				lo, hi, sum = min(lo, v), max(hi, v), sum+v
			}
			l.q[r] = sum / float32(len(l.scratch))
			if l.Config.ActorMin {
				l.q[r] = lo
			}
			top = max(top, float64(hi-lo))
		}
		spread += top / float64(b.states())
	}
	return spread
}

// updateActor moves the actor and the temperature on the batch at hand.
func (l *Learner) updateActor(m *Metrics) error {
	b := &l.now
	m.QSpread = l.values(b)
	for _, q := range l.q {
		m.Q += float64(q) / float64(len(l.q))
	}
	loss, grad, err := l.Actor.step.Run()
	if err == nil && (loss-loss != 0) {
		err = fmt.Errorf("its loss is %g", loss)
	}
	if err == nil {
		err = l.Actor.Adam.Update(l.Actor.P, grad)
	}
	if err != nil {
		return l.broken("the actor", err)
	}
	l.Actor.Repack()
	l.temper()
	l.ActorUpdates++
	m.ActorLoss, m.Entropy = float64(loss), l.entropy
	return nil
}

// actorLoss is discrete SAC's, summed over actions and averaged over states. It leaves the mean entropy and how far that is from
// its target; states with one action have neither.
func (l *Learner) actorLoss(grad []float32) float32 {
	b, n := &l.now, l.now.rows()
	l.logits, l.logp, l.p = grow(l.logits, n), grow(l.logp, n), grow(l.p, n)
	l.Actor.Forward(&l.actor, n, b.x, l.logits)
	alpha, weight := float32(l.Alpha()), 1/float32(b.states())
	var loss float32
	gap, choices := 0.0, 0
	l.entropy = 0
	for k := range b.states() {
		i, j := b.from[k], b.from[k+1]
		v, h := nn.ActorLoss(l.logits[i:j], l.q[i:j], alpha, weight, l.logp[i:j], l.p[i:j])
		loss += v
		if j-i > 1 {
			gap += float64(h) - l.Config.EntropyTarget*math.Log(float64(j-i))
			l.entropy += float64(h)
			choices++
		}
	}
	if choices > 0 {
		l.entropy /= float64(choices)
		gap /= float64(choices)
	}
	l.gap = gap
	l.Actor.Backward(&l.actor, n, l.logits, grad)
	return loss
}

// temper moves log α against the gradient of α·(H − target), with Adam, within bounds.
func (l *Learner) temper() {
	if l.Config.FixedAlpha {
		return
	}
	g := l.Alpha() * l.gap
	t := float64(l.ActorUpdates + 1)
	l.alphaM = float64(.9*l.alphaM) + float64(.1*g)
	l.alphaV = float64(.999*l.alphaV) + float64(.001*g*g)
	step := l.Config.AlphaRate * (l.alphaM / (1 - math.Pow(.9, t))) / (math.Sqrt(l.alphaV/(1-math.Pow(.999, t))) + 1e-8)
	l.LogAlpha = min(max(l.LogAlpha-step, minLogAlpha), maxLogAlpha)
}

// AtBound says that the temperature has reached its upper bound: the entropy target is out of reach.
func (l *Learner) AtBound() bool { return l.LogAlpha >= maxLogAlpha }

// Close frees the graphs.
func (l *Learner) Close() error {
	for _, n := range append([]*Net{l.Actor}, l.Critics...) {
		if err := n.step.Close(); err != nil {
			return err
		}
	}
	return nil
}
