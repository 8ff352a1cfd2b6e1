package rl

// Experience from actors elsewhere: a trainer without an environment of its own takes stretches of episodes that others made.

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/berth-hpc/berth/components/advisor/nn"
)

// Stretch is a part of one episode, made with one policy.
type Stretch struct {
	// Actor made it, and Sequence numbers what it made, from 1.
	Actor    string `json:"actor"`
	Sequence int64  `json:"sequence"`
	// Version is how many updates of the actor's network the policy had seen.
	Version int64 `json:"version"`
	// Over says that the episode ended with it, Return and Length what it came to then.
	Over   bool    `json:"over"`
	Return float64 `json:"return,omitempty"`
	Length float64 `json:"length,omitempty"`
	// Row and Global are the shape of its states.
	Row    int `json:"row"`
	Global int `json:"global"`

	steps *Replay
}

// Steps is the number of transitions.
func (s *Stretch) Steps() int {
	if s.steps == nil {
		return 0
	}
	n := 0
	for _, bare := range s.steps.bare {
		if !bare {
			n++
		}
	}
	return n
}

// Encode gives a stretch as a safetensors file, under a name in its metadata.
func (s *Stretch) Encode(more map[string]string) ([]byte, error) {
	j, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	meta := map[string]string{"stretch": string(j)}
	for k, v := range more {
		meta[k] = v
	}
	var ts []Tensor
	if s.steps != nil {
		ts = s.steps.tensors()
	}
	return EncodeTensors(meta, ts)
}

// maxStretch bounds what one message may bring.
const maxStretch = 1 << 16

// DecodeStretch reads what Encode gave, and refuses what no actor makes.
func DecodeStretch(b []byte) (*Stretch, map[string]string, error) {
	meta, ts, err := DecodeTensors(b)
	if err != nil {
		return nil, nil, err
	}
	s := &Stretch{}
	if err := strictJSON(meta["stretch"], s); err != nil {
		return nil, nil, fmt.Errorf("the header is not a stretch's: %w", err)
	}
	n := len(ts["replay.rows"].Int)
	if s.Row < 1 || s.Row > 4096 || s.Global < 0 || s.Global > 4096 || n > maxStretch {
		return nil, nil, fmt.Errorf("a stretch has %d states of %d and %d features", n, s.Row, s.Global)
	}
	if n == 0 {
		return s, meta, nil
	}
	s.steps = NewReplay(n, s.Row, s.Global)
	if err := s.steps.load(ts, 0); err != nil {
		return nil, nil, err
	}
	last := n - 1
	if s.steps.bare[last] == s.steps.done[last] || s.steps.done[last] != s.Over {
		return nil, nil, fmt.Errorf("a stretch ends neither with its episode nor with a state")
	}
	for i := range last {
		if s.steps.bare[i] || s.steps.done[i] {
			return nil, nil, fmt.Errorf("a stretch of %d states is interrupted at %d", n, i)
		}
	}
	return s, meta, nil
}

// Actor makes stretches with a policy that somebody else trains.
type Actor struct {
	// Name tells it from others.
	Name string
	Env  Environment

	encoding  Encoding
	net       *nn.Net[float32]
	version   int64
	sequence  int64
	rng       *Source
	scratch   nn.Scratch[float32]
	x, logits []float32
	sum       float64
	length    int
}

// NewActor makes one with a policy of the configuration's shape.
func NewActor(name string, c Config, e Environment, enc Encoding) (*Actor, error) {
	n, err := nn.New[float32](c.actorSpec(enc.Width()))
	if err != nil {
		return nil, err
	}
	h := uint64(14695981039346656037) // FNV-1a: actors of one training differ in what they draw
	for _, b := range []byte(name) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return &Actor{Name: name, Env: e, encoding: enc, net: n, version: -1, rng: NewSource(c.Seed, h)}, nil
}

// Version is of the policy it has; −1 before the first.
func (a *Actor) Version() int64 { return a.version }

// SetPolicy replaces the policy.
func (a *Actor) SetPolicy(version int64, params []float32) error {
	if len(params) != len(a.net.P) {
		return fmt.Errorf("the learner's policy has %d parameters, here it has %d; start both with the same settings", len(params), len(a.net.P))
	}
	copy(a.net.P, params)
	a.net.Repack()
	a.version = version
	return nil
}

// Begin begins an episode. false: it is over at once.
func (a *Actor) Begin(episode uint64) (bool, error) {
	a.sum, a.length = 0, 0
	err := a.Env.Reset(episode)
	return err == nil && !a.Env.Done(), err
}

// Stretch goes on for up to n steps, at random or by the policy, and stops with the episode.
func (a *Actor) Stretch(n int, random bool) (*Stretch, error) {
	row, global := a.Env.Features()
	a.sequence++
	s := &Stretch{Actor: a.Name, Sequence: a.sequence, Version: max(a.version, 0), Row: row, Global: global, steps: NewReplay(n+1, row, global)}
	for range n {
		st := a.Env.Observe()
		state := State{N: st.N, X: append([]float32{}, st.X...), Global: append([]float32{}, st.Global...)}
		var action int
		if random || a.version < 0 {
			action = a.rng.IntN(st.N)
		} else {
			a.x, a.logits = a.encoding.Encode(a.x[:0], st), grow(a.logits, st.N)
			a.net.Forward(&a.scratch, st.N, a.x, a.logits)
			p := make([]float32, st.N)
			nn.Softmax(a.logits, a.logits, p)
			action = draw(p, a.rng.Float32())
		}
		out, err := a.Env.Step(action)
		if err != nil {
			return nil, err
		}
		if err := s.steps.Add(Transition{State: state, Action: action, Reward: out.Reward, Elapsed: out.Elapsed, Done: out.Done}); err != nil {
			return nil, err
		}
		a.sum, a.length = a.sum+out.Reward, a.length+1
		if out.Done {
			s.Over, s.Return, s.Length = true, a.sum, float64(a.length)
			return s, nil
		}
	}
	return s, s.steps.Break(*a.Env.Observe())
}

// Staleness is how old policies were, in updates, when what they had made was learned from.
type Staleness struct {
	Steps, Sum, Max int64
}

// Mean over steps.
func (s *Staleness) Mean() float64 { return float64(s.Sum) / float64(max(s.Steps, 1)) }

// NewCollector begins a training whose experience comes from elsewhere. When it came decides what is learned: two such trainings
// are not equal to the bit.
func NewCollector(p Plan, l *Learner) (*Trainer, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	t := newTrainer(p, l)
	t.Header.Actors = true
	return t, nil
}

// Collect trains on stretches until the plan's steps are done or next gives none. After each one it calls publish: the policy may
// have changed.
func (t *Trainer) Collect(next func() *Stretch, publish func()) error {
	returns := map[string]float64{}
	for t.Step < t.Plan.Steps {
		s := next()
		if s == nil {
			return nil
		}
		before := t.Step
		// Returns are discounted along an episode, and episodes of several actors arrive by turns.
		t.Learner.Scale.Return = returns[s.Actor]
		if err := t.take(s); err != nil {
			return fmt.Errorf("stretch %d of actor %s: %w", s.Sequence, s.Actor, err)
		}
		returns[s.Actor] = t.Learner.Scale.Return
		for k := before/t.Plan.Every + 1; k <= t.Step/t.Plan.Every; k++ {
			if k*t.Plan.Every < t.Plan.Warmup || !t.Online.Ready() {
				continue
			}
			if err := t.update(); err != nil {
				return err
			}
		}
		publish()
		if t.Step/t.Plan.Save != before/t.Plan.Save || t.Step >= t.Plan.Steps {
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

// take adds a stretch to the replay.
func (t *Trainer) take(s *Stretch) error {
	if s.Row != t.Online.Row || s.Global != t.Online.Global {
		return fmt.Errorf("its states have %d and %d features, here they have %d and %d", s.Row, s.Global, t.Online.Row, t.Online.Global)
	}
	old := t.Learner.ActorUpdates - s.Version
	for i := range s.steps.states {
		if s.steps.bare[i] {
			if err := t.Online.Break(s.steps.states[i]); err != nil {
				return err
			}
			continue
		}
		tr := Transition{State: s.steps.states[i], Action: int(s.steps.action[i]), Reward: s.steps.reward[i], Elapsed: s.steps.elapsed[i], Done: s.steps.done[i]}
		if err := t.Online.Add(tr); err != nil {
			return err
		}
		t.Learner.Scale.Observe(tr.Reward, math.Pow(t.Learner.Config.Gamma, tr.Elapsed), tr.Done)
		t.Step++
		t.Stale.Steps, t.Stale.Sum, t.Stale.Max = t.Stale.Steps+1, t.Stale.Sum+old, max(t.Stale.Max, old)
	}
	if s.Over {
		t.episodes, t.lengths = append(t.episodes, s.Return), append(t.lengths, s.Length)
	}
	return nil
}
