package rl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/google/renameio/v2"

	"github.com/berth-hpc/berth/components/advisor/nn"
)

// Plan is how long to train and how often to do what. Together with the configuration, the environment and the seed it decides every
// bit of the result.
type Plan struct {
	Steps  int64 `json:"steps"`  // of the environment, in all
	Warmup int64 `json:"warmup"` // first steps that act at random
	// Every is how many steps go between updates.
	Every int64 `json:"every"`
	// Save is how many steps go between checkpoints.
	Save   int64 `json:"save"`
	Replay int   `json:"replay"` // transitions kept
}

// Validate says what cannot work.
func (p *Plan) Validate() error {
	if p.Steps < 1 || p.Every < 1 || p.Save < 1 || p.Warmup < 0 || p.Replay < 2 {
		return fmt.Errorf("a plan has steps (%d), updates every so many (%d), checkpoints every so many (%d) and a replay of at least 2 (%d)", p.Steps, p.Every, p.Save, p.Replay)
	}
	return nil
}

// Point is one row of the training curves.
type Point struct {
	Step    int64   `json:"step"`
	Episode uint64  `json:"episode"`
	Return  float64 `json:"return"` // mean raw return of the episodes since the last point; NaN-free: 0 without one
	Length  float64 `json:"length"`
	Critic  float64 `json:"critic"`
	Actor   float64 `json:"actor"`
	Entropy float64 `json:"entropy"`
	Alpha   float64 `json:"alpha"`
	Q       float64 `json:"q"`
	Spread  float64 `json:"spread"`
	Level   float64 `json:"level"`
}

// Trainer runs one training.
type Trainer struct {
	Plan    Plan
	Learner *Learner
	Env     Environment
	Online  *Replay
	Offline *Replay // RLPD's; not saved: it is given anew
	Header  Header  // what checkpoints say beside what the learner knows
	Dir     string
	// Progress, if set, is told of every point of the curves; Warn of what a person should look at.
	Progress func(Point)
	Warn     func(string)

	Step    int64
	Episode uint64
	Curve   []Point
	// Stale is of what was learned from since this process began, where others act.
	Stale Staleness

	actions   []int32
	act       *Source
	sum       float64
	episodes  []float64
	lengths   []float64
	last      Metrics
	values    []float32
	scratch   nn.Scratch[float32]
	x, logits []float32
	warned    bool
}

// NewTrainer begins a training, in its first episode.
func NewTrainer(p Plan, l *Learner, e Environment) (*Trainer, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	row, global := e.Features()
	if row != l.Encoding.Row || global != l.Encoding.Global {
		return nil, fmt.Errorf("the environment has rows of %d and %d global features, the networks were made for %d and %d", row, global, l.Encoding.Row, l.Encoding.Global)
	}
	t := newTrainer(p, l)
	t.Env = e
	return t, t.reset(0)
}

func newTrainer(p Plan, l *Learner) *Trainer {
	return &Trainer{Plan: p, Learner: l, Online: NewReplay(p.Replay, l.Encoding.Row, l.Encoding.Global), act: NewSource(l.Config.Seed, purposeAct)}
}

// reset begins an episode; episodes that are over at once are passed by.
func (t *Trainer) reset(episode uint64) error {
	for tries := range uint64(1000) {
		t.Episode, t.actions, t.sum = episode+tries, t.actions[:0], 0
		if err := t.Env.Reset(t.Episode); err != nil {
			return err
		}
		if !t.Env.Done() {
			return nil
		}
	}
	return fmt.Errorf("1000 episodes in a row, from %d on, leave nothing to decide", episode)
}

// Run trains until the plan's steps are done, the context's end (stop returns true), or an error. It saves on the way and at the end.
func (t *Trainer) Run(stop func() bool) error {
	for t.Step < t.Plan.Steps {
		if stop != nil && stop() {
			return nil
		}
		if err := t.one(); err != nil {
			return err
		}
		if t.Step%t.Plan.Save == 0 || t.Step == t.Plan.Steps {
			t.point()
			if t.Dir != "" {
				if err := t.Save(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// one is a step of the environment, and an update if it is time.
func (t *Trainer) one() error {
	s := t.Env.Observe()
	a := t.choose(s)
	tr := Transition{State: State{N: s.N, X: slices.Clone(s.X), Global: slices.Clone(s.Global)}, Action: a}
	out, err := t.Env.Step(a)
	if err != nil {
		return fmt.Errorf("episode %d, step %d: %w", t.Episode, len(t.actions), err)
	}
	tr.Reward, tr.Elapsed, tr.Done = out.Reward, out.Elapsed, out.Done
	if err := t.Online.Add(tr); err != nil {
		return fmt.Errorf("episode %d, step %d: %w", t.Episode, len(t.actions), err)
	}
	t.Learner.Scale.Observe(out.Reward, math.Pow(t.Learner.Config.Gamma, out.Elapsed), out.Done)
	t.actions, t.sum = append(t.actions, int32(a)), t.sum+out.Reward
	t.Step++
	if out.Done {
		t.episodes, t.lengths = append(t.episodes, t.sum), append(t.lengths, float64(len(t.actions)))
		if err := t.reset(t.Episode + 1); err != nil {
			return err
		}
	}
	if t.Step >= t.Plan.Warmup && t.Step%t.Plan.Every == 0 && t.Online.Len() > 1 {
		return t.update()
	}
	return nil
}

func (t *Trainer) update() (err error) {
	if t.last, err = t.Learner.Update(t.Online, t.Offline); err != nil {
		return err
	}
	if t.Learner.AtBound() && !t.warned && t.Warn != nil && !t.Learner.Config.FixedAlpha {
		t.warned = true
		t.Warn(fmt.Sprintf("step %d: the temperature is at its upper bound %.3g: an entropy of %g·log|A| is out of reach; lower --entropy-target or fix the temperature", t.Step, t.Learner.Alpha(), t.Learner.Config.EntropyTarget))
	}
	return nil
}

// choose draws an action: at random during warm-up, then from the policy.
func (t *Trainer) choose(s *State) int {
	if t.Step < t.Plan.Warmup {
		return t.act.IntN(s.N)
	}
	t.x = t.Learner.Encoding.Encode(t.x[:0], s)
	t.logits = grow(t.logits, s.N)
	t.Learner.Actor.Forward(&t.scratch, s.N, t.x, t.logits)
	p := grow(t.values, s.N)
	t.values = p
	nn.Softmax(t.logits, t.logits, p)
	return draw(p, t.act.Float32())
}

// point adds a row to the curves.
func (t *Trainer) point() {
	p := Point{Step: t.Step, Episode: t.Episode, Critic: t.last.CriticLoss, Actor: t.last.ActorLoss, Entropy: t.last.Entropy,
		Alpha: t.Learner.Alpha(), Q: t.last.Q, Spread: t.last.QSpread, Level: t.last.Level}
	for i, v := range t.episodes {
		p.Return += v / float64(len(t.episodes))
		p.Length += t.lengths[i] / float64(len(t.episodes))
	}
	t.episodes, t.lengths = t.episodes[:0], t.lengths[:0]
	t.Curve = append(t.Curve, p)
	if t.Progress != nil {
		t.Progress(p)
	}
}

// Latest is the content of latest.json: the one file that changes, so that at any moment it names whole files.
type Latest struct {
	Step       int64  `json:"step"`
	Checkpoint string `json:"checkpoint"` // digests
	State      string `json:"state"`
}

// saved is what a state's header holds beside tensors.
type saved struct {
	Header     Header      `json:"header"`
	Plan       Plan        `json:"plan"`
	Step       int64       `json:"step"`
	Episode    uint64      `json:"episode"`
	Sum        float64     `json:"sum"`
	Episodes   []float64   `json:"episodes"`
	Lengths    []float64   `json:"lengths"`
	Curve      []Point     `json:"curve"`
	LogAlpha   float64     `json:"logAlpha"`
	AlphaM     float64     `json:"alphaM"`
	AlphaV     float64     `json:"alphaV"`
	Updates    int64       `json:"updates"`
	Actors     int64       `json:"actorUpdates"`
	AdamSteps  []int64     `json:"adamSteps"`
	Scale      RewardScale `json:"scale"`
	Last       Metrics     `json:"last"`
	ReplayHead int         `json:"replayHead"`
}

// Save writes the policy and the state, and then names them in latest.json. Whatever fails or is killed before that leaves the last
// ones in force.
func (t *Trainer) Save() error {
	h := t.Header
	h.Steps = t.Step
	if n := len(t.Curve); n > 0 {
		h.Metrics = map[string]float64{"return": t.Curve[n-1].Return, "entropy": t.Curve[n-1].Entropy, "alpha": t.Curve[n-1].Alpha, "q": t.Curve[n-1].Q}
	}
	h.ValueQuantiles = t.calibrate()
	c := t.Learner.Checkpoint(h)
	b, err := c.Encode()
	if err != nil {
		return err
	}
	l := Latest{Step: t.Step}
	if l.Checkpoint, err = store(filepath.Join(t.Dir, "checkpoints"), b); err != nil {
		return err
	}
	if b, err = t.encodeState(c.Header); err != nil {
		return err
	}
	states := filepath.Join(t.Dir, "states")
	if l.State, err = store(states, b); err != nil {
		return err
	}
	// Before latest.json: a training killed between the two resumes and writes the curve again, also after its last step.
	if err := t.writeCurve(); err != nil {
		return err
	}
	j, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(t.Dir, "latest.json"), append(j, '\n'), 0o644); err != nil {
		return fmt.Errorf("cannot write latest.json (the last checkpoint stays in force): %w", err)
	}
	return forget(states, l.State)
}

// calibrate gives quantiles of the value of the newest states, under the policy.
func (t *Trainer) calibrate() []float64 {
	n := min(t.Online.Len(), 256)
	l := t.Learner
	var vs []float64
	b := &batch{}
	b.reset()
	for k := range n {
		i := (t.Online.newest() - k + t.Online.Len()) % t.Online.Len()
		b.add(&l.Encoding, &t.Online.states[i])
	}
	rng, err := l.rng.MarshalBinary() // looking must not change the training
	if err != nil {
		return nil
	}
	l.policy(b)
	l.values(b)
	if err := l.rng.UnmarshalBinary(rng); err != nil {
		return nil
	}
	for k := range b.states() {
		v := 0.0
		for r := b.from[k]; r < b.from[k+1]; r++ {
			v += float64(l.p[r]) * float64(l.q[r])
		}
		vs = append(vs, v)
	}
	sort.Float64s(vs)
	var out []float64
	for _, p := range []float64{.01, .05, .25, .5, .75, .95, .99} {
		if len(vs) > 0 {
			out = append(out, vs[int(p*float64(len(vs)-1))])
		}
	}
	return out
}

// forget removes states but the one in force: they are large.
func forget(dir, keep string) error {
	es, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range es {
		if e.Name() != keep+".safetensors" {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
