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
	// offline is how many of them, the first ones, are of the offline replay.
	offline int
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
	l.now.offline = old
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

// broken says which batch broke the training, and which of its transitions stand out.
func (l *Learner) broken(who string, err error) error {
	d := &DivergenceError{Who: who, Update: l.Updates, Transitions: append([]int{}, l.now.index...), Offline: l.now.offline, Err: err}
	each := max(len(l.y)/max(len(d.Transitions), 1), 1)
	for at, y := range l.y {
		if k := at / each; y-y != 0 && k < len(d.Transitions) && (len(d.Suspects) == 0 || d.Suspects[len(d.Suspects)-1] != k) {
			d.Suspects = append(d.Suspects, k)
		}
	}
	return d
}

// DivergenceError is a loss or gradient that is not finite.
type DivergenceError struct {
	Who    string
	Update int64
	// Transitions are the batch's places in the replays; the first Offline of them are in the offline one. Suspects are the places
	// in Transitions whose target is not finite.
	Transitions []int
	Offline     int
	Suspects    []int
	Err         error
}

func (d *DivergenceError) Error() string {
	batch := fmt.Sprintf("transitions %v", d.Transitions)
	if d.Offline > 0 {
		batch = fmt.Sprintf("transitions %v of the old experience and %v of the new", d.Transitions[:d.Offline], d.Transitions[d.Offline:])
	}
	if len(d.Suspects) > 0 {
		var s []int
		for _, k := range d.Suspects {
			s = append(s, d.Transitions[k])
		}
		batch += fmt.Sprintf(" (not finite is the target of %v)", s)
	}
	return fmt.Sprintf("update %d: %s: %v, on the batch of %s; train from the last checkpoint with smaller rates or normalised rewards", d.Update, d.Who, d.Err, batch)
}

func (d *DivergenceError) Unwrap() error { return d.Err }

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
