package rl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/berth-hpc/berth/components/advisor/nn"
)

// encodeState writes all that the training depends on: moments, targets, replay, streams of random numbers, and the actions of the
// running episode, which bring the environment back to where it is.
func (t *Trainer) encodeState(h Header) ([]byte, error) {
	l := t.Learner
	s := saved{Header: h, Plan: t.Plan, Step: t.Step, Episode: t.Episode, Sum: t.sum, Episodes: t.episodes, Lengths: t.lengths, Curve: t.Curve,
		LogAlpha: l.LogAlpha, AlphaM: l.alphaM, AlphaV: l.alphaV, Updates: l.Updates, Actors: l.ActorUpdates, Scale: l.Scale, Last: t.last,
		ReplayHead: t.Online.head}
	var ts []Tensor
	for i, n := range append([]*Net{l.Actor}, l.Critics...) {
		name := "actor"
		if i > 0 {
			name = fmt.Sprintf("critic.%d", i-1)
			ts = append(ts, netTensors(fmt.Sprintf("target.%d", i-1), l.Targets[i-1])...)
		}
		ts = append(ts, netTensors(name, n.Net)...)
		ts = append(ts, Tensor{Name: name + ".adam.m", Shape: []int{len(n.Adam.M)}, Float: n.Adam.M}, Tensor{Name: name + ".adam.v", Shape: []int{len(n.Adam.V)}, Float: n.Adam.V})
		s.AdamSteps = append(s.AdamSteps, n.Adam.Step)
	}
	for name, r := range map[string]*Source{"random.update": l.rng, "random.act": t.act} {
		b, err := r.MarshalBinary()
		if err != nil {
			return nil, err
		}
		ts = append(ts, Tensor{Name: name, Shape: []int{len(b)}, Raw: b})
	}
	ts = append(ts, Tensor{Name: "episode.actions", Shape: []int{len(t.actions)}, Int: append([]int32{}, t.actions...)})
	ts = append(ts, t.Online.tensors()...)
	j, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return EncodeTensors(map[string]string{"berth.state": string(j)}, ts)
}

// bits splits float64s into halves that survive any reader.
func bits(v []float64) []int32 {
	out := make([]int32, 0, 2*len(v))
	for _, x := range v {
		b := math.Float64bits(x)
		out = append(out, int32(uint32(b)), int32(uint32(b>>32)))
	}
	return out
}

func floats(v []int32) []float64 {
	out := make([]float64, len(v)/2)
	for i := range out {
		out[i] = math.Float64frombits(uint64(uint32(v[2*i])) | uint64(uint32(v[2*i+1]))<<32)
	}
	return out
}

// tensors are a replay's contents.
func (r *Replay) tensors() []Tensor {
	n := make([]int32, len(r.states))
	x, g := []float32{}, []float32{}
	done := make([]byte, len(r.states))
	for i := range r.states {
		n[i] = int32(r.states[i].N)
		x, g = append(x, r.states[i].X...), append(g, r.states[i].Global...)
		switch {
		case r.bare[i]:
			done[i] = 2
		case r.done[i]:
			done[i] = 1
		}
	}
	reward, elapsed := bits(r.reward), bits(r.elapsed)
	return []Tensor{
		{Name: "replay.rows", Shape: []int{len(n)}, Int: n},
		{Name: "replay.x", Shape: []int{len(x)}, Float: x},
		{Name: "replay.global", Shape: []int{len(g)}, Float: g},
		{Name: "replay.action", Shape: []int{len(r.action)}, Int: append([]int32{}, r.action...)},
		{Name: "replay.reward", Shape: []int{len(reward)}, Int: reward},
		{Name: "replay.elapsed", Shape: []int{len(elapsed)}, Int: elapsed},
		{Name: "replay.done", Shape: []int{len(done)}, Raw: done},
	}
}

// load fills an empty replay.
func (r *Replay) load(ts map[string]Tensor, head int) error {
	n, x, g := ts["replay.rows"].Int, ts["replay.x"].Float, ts["replay.global"].Float
	action, reward, elapsed := ts["replay.action"].Int, floats(ts["replay.reward"].Int), floats(ts["replay.elapsed"].Int)
	done := ts["replay.done"].Raw
	if len(n) > r.Capacity || len(action) != len(n) || len(reward) != len(n) || len(elapsed) != len(n) || len(done) != len(n) || len(g) != len(n)*r.Global || head < 0 || head >= r.Capacity {
		return fmt.Errorf("the replay's parts do not belong together")
	}
	for i, c := range n {
		if c < 1 || int(c)*r.Row > len(x) {
			return fmt.Errorf("the replay's states are cut short")
		}
		t := Transition{State: State{N: int(c), X: x[:int(c)*r.Row], Global: g[i*r.Global : (i+1)*r.Global]}, Action: int(action[i]), Reward: reward[i], Elapsed: elapsed[i], Done: done[i] == 1}
		x = x[int(c)*r.Row:]
		if err := r.Add(t); err != nil {
			return fmt.Errorf("the replay's transition %d: %w", i, err)
		}
		r.bare[r.newest()] = done[i] == 2
	}
	if len(x) != 0 {
		return fmt.Errorf("the replay has %d numbers too many", len(x))
	}
	r.head = head
	return nil
}

// ErrFresh says that a folder holds no training yet.
var ErrFresh = errors.New("there is no training to resume")

// ReadLatest reads a training's latest.json.
func ReadLatest(dir string) (Latest, error) {
	var l Latest
	b, err := os.ReadFile(filepath.Join(dir, "latest.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return l, ErrFresh
	}
	if err != nil {
		return l, err
	}
	if err := strictJSON(string(b), &l); err != nil {
		return l, fmt.Errorf("%s: %w", filepath.Join(dir, "latest.json"), err)
	}
	return l, nil
}

// Resume brings a new trainer, made as the interrupted one was, to where that one last saved. The same configuration, plan and data
// are needed; more steps are welcome.
func (t *Trainer) Resume() error {
	latest, err := ReadLatest(t.Dir)
	if err != nil {
		return err
	}
	path := filepath.Join(t.Dir, "states", latest.State+".safetensors")
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read the state to resume from: %w", err)
	}
	if err := checkName(path, b); err != nil {
		return err
	}
	meta, ts, err := DecodeTensors(b)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var s saved
	if err := strictJSON(meta["berth.state"], &s); err != nil {
		return fmt.Errorf("%s: the header is not a state's: %w", path, err)
	}
	if err := t.resume(&s, ts); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if t.Env != nil {
		if err := t.replayEpisode(ts["episode.actions"].Int); err != nil {
			return err
		}
	}
	return forget(filepath.Dir(path), latest.State) // what a kill left behind
}

func (t *Trainer) resume(s *saved, ts map[string]Tensor) error {
	l := t.Learner
	if err := t.sameRun(s); err != nil {
		return err
	}
	if len(s.AdamSteps) != len(l.Critics)+1 {
		return fmt.Errorf("%d optimisers for %d networks", len(s.AdamSteps), len(l.Critics)+1)
	}
	for i, n := range append([]*Net{l.Actor}, l.Critics...) {
		name := "actor"
		if i > 0 {
			name = fmt.Sprintf("critic.%d", i-1)
			if err := loadNet(fmt.Sprintf("target.%d", i-1), l.Targets[i-1], ts); err != nil {
				return err
			}
		}
		if err := loadNet(name, n.Net, ts); err != nil {
			return err
		}
		m, v := ts[name+".adam.m"].Float, ts[name+".adam.v"].Float
		if len(m) != len(n.P) || len(v) != len(n.P) {
			return fmt.Errorf("the moments of %s have %d and %d entries for %d parameters", name, len(m), len(v), len(n.P))
		}
		copy(n.Adam.M, m)
		copy(n.Adam.V, v)
		n.Adam.Step = s.AdamSteps[i]
	}
	for name, r := range map[string]*Source{"random.update": l.rng, "random.act": t.act} {
		if err := r.UnmarshalBinary(ts[name].Raw); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	t.Online = NewReplay(t.Plan.Replay, l.Encoding.Row, l.Encoding.Global)
	if err := t.Online.load(ts, s.ReplayHead); err != nil {
		return err
	}
	l.LogAlpha, l.alphaM, l.alphaV, l.Updates, l.ActorUpdates, l.Scale = s.LogAlpha, s.AlphaM, s.AlphaV, s.Updates, s.Actors, s.Scale
	t.Step, t.Episode, t.Curve, t.episodes, t.lengths, t.last = s.Step, s.Episode, s.Curve, s.Episodes, s.Lengths, s.Last
	t.sum = s.Sum
	return nil
}

// sameRun refuses to go on with something else than what was begun.
func (t *Trainer) sameRun(s *saved) error {
	encode := func(h Header, p Plan, c Config, e Encoding) ([]byte, error) {
		p.Steps = 0
		return json.Marshal([]any{p, c, e, h.Topology, h.Data, h.Actors})
	}
	was, err := encode(s.Header, s.Plan, s.Header.Config, s.Header.Encoding)
	if err != nil {
		return err
	}
	is, err := encode(t.Header, t.Plan, t.Learner.Config, t.Learner.Encoding)
	if err != nil {
		return err
	}
	if !bytes.Equal(was, is) {
		return fmt.Errorf("it was begun with other settings:\n  then %s\n  now  %s\ngive the same, or another folder", was, is)
	}
	return nil
}

// replayEpisode takes the environment to where it was.
func (t *Trainer) replayEpisode(actions []int32) error {
	if err := t.Env.Reset(t.Episode); err != nil {
		return err
	}
	for i, a := range actions {
		if t.Env.Done() {
			return fmt.Errorf("episode %d ends after %d steps, %d were made: the data or the program have changed; begin anew in another folder", t.Episode, i, len(actions))
		}
		if _, err := t.Env.Step(int(a)); err != nil {
			return fmt.Errorf("episode %d cannot be repeated: %w; the data or the program have changed; begin anew in another folder", t.Episode, err)
		}
	}
	t.actions = slices.Clone(actions)
	return nil
}

// StartFrom takes the networks, and the scale of rewards, of a checkpoint: where fine-tuning begins. Critics beyond the
// checkpoint's start as copies of its, in turn.
func (l *Learner) StartFrom(c *Checkpoint) error {
	if c.Header.Encoding.Version != l.Encoding.Version || c.Header.Encoding.Width() != l.Encoding.Width() {
		return fmt.Errorf("the checkpoint sees states as %s with %d features, here they are %s with %d", c.Header.Encoding.Version, c.Header.Encoding.Width(), l.Encoding.Version, l.Encoding.Width())
	}
	put := func(what string, to, from *nn.Net[float32]) error {
		if len(to.P) != len(from.P) || fmt.Sprint(to.Spec) != fmt.Sprint(from.Spec) {
			return fmt.Errorf("the %s of the checkpoint is %+v, here it is %+v", what, from.Spec, to.Spec)
		}
		copy(to.P, from.P)
		to.Repack()
		return nil
	}
	if err := put("actor", l.Actor.Net, c.Actor); err != nil {
		return err
	}
	// Critics of another shape (RLPD adds LayerNorm) begin anew; the actor is what must not be lost.
	if fmt.Sprint(l.Critics[0].Spec) == fmt.Sprint(c.Critics[0].Spec) {
		for i := range l.Critics {
			from := c.Critics[i%len(c.Critics)]
			if err := put("critic", l.Critics[i].Net, from); err != nil {
				return err
			}
			if err := put("critic", l.Targets[i], from); err != nil {
				return err
			}
		}
	}
	l.Scale = RewardScale{On: true, Frozen: true, Count: 2, M2: 2 * c.Header.RewardScale * c.Header.RewardScale}
	return nil
}

// curveHeader names the columns of progress.csv.
const curveHeader = "step,episode,return,length,critic_loss,actor_loss,entropy,alpha,q,q_spread,level\n"

// writeCurve writes progress.csv whole, so that a resumed training leaves what an uninterrupted one leaves.
func (t *Trainer) writeCurve() error {
	var b strings.Builder
	b.WriteString(curveHeader)
	for _, p := range t.Curve {
		fmt.Fprintf(&b, "%d,%d,%g,%g,%g,%g,%g,%g,%g,%g,%g\n", p.Step, p.Episode, p.Return, p.Length, p.Critic, p.Actor, p.Entropy, p.Alpha, p.Q, p.Spread, p.Level)
	}
	if err := renameio.WriteFile(filepath.Join(t.Dir, "progress.csv"), []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("cannot write progress.csv: %w", err)
	}
	return nil
}

// LoadReplay reads the experience of a training in a folder.
func LoadReplay(dir string) (*Replay, error) {
	latest, err := ReadLatest(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	path := filepath.Join(dir, "states", latest.State+".safetensors")
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the old experience: %w", err)
	}
	if err := checkName(path, b); err != nil {
		return nil, err
	}
	meta, ts, err := DecodeTensors(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var s saved
	if err := strictJSON(meta["berth.state"], &s); err != nil {
		return nil, fmt.Errorf("%s: the header is not a state's: %w", path, err)
	}
	r := NewReplay(s.Plan.Replay, s.Header.Encoding.Row, s.Header.Encoding.Global)
	if err := r.load(ts, s.ReplayHead); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
