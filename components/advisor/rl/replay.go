package rl

import (
	"fmt"
	"math"
)

// Transition is one step of experience, with its raw reward: scaling is the learner's and may change.
type Transition struct {
	State   State
	Action  int
	Reward  float64
	Elapsed float64
	Done    bool
}

// Replay keeps the last transitions. States are kept once: a transition's successor is the state of the next one, or the end. The
// newest transition has no successor yet and is not sampled unless it ends an episode. A stretch that others interrupt ends with its
// last state alone, which is nobody's to sample.
type Replay struct {
	Row, Global, Capacity int

	states  []State
	action  []int32
	reward  []float64
	elapsed []float64
	done    []bool
	bare    []bool // a state alone
	head    int    // where the next one goes, once full
}

// NewReplay makes an empty one for states of the given shape.
func NewReplay(capacity, row, global int) *Replay {
	return &Replay{Row: row, Global: global, Capacity: max(capacity, 2)}
}

// Len is the number of transitions kept.
func (r *Replay) Len() int { return len(r.states) }

// Add keeps a copy of a transition. Transitions of an episode must be added in order, without others between.
func (r *Replay) Add(t Transition) error {
	if t.State.N < 1 || t.Action < 0 || t.Action >= t.State.N || len(t.State.X) < t.State.N*r.Row || len(t.State.Global) < r.Global {
		return fmt.Errorf("a transition takes action %d of %d, with %d and %d features; rows have %d and states %d", t.Action, t.State.N, len(t.State.X), len(t.State.Global), r.Row, r.Global)
	}
	for _, part := range [][]float32{t.State.X[:t.State.N*r.Row], t.State.Global[:r.Global]} {
		for _, v := range part {
			if v-v != 0 {
				return fmt.Errorf("a feature of a transition is %g", v)
			}
		}
	}
	// A reward beyond float32 would be infinite in the target.
	if !(math.Abs(t.Reward) <= math.MaxFloat32) || !(t.Elapsed >= 0) || math.IsInf(t.Elapsed, 0) {
		return fmt.Errorf("a transition has reward %g and took %g", t.Reward, t.Elapsed)
	}
	i := len(r.states)
	if i < r.Capacity {
		r.states = append(r.states, State{})
		r.action, r.reward = append(r.action, 0), append(r.reward, 0)
		r.elapsed, r.done, r.bare = append(r.elapsed, 0), append(r.done, false), append(r.bare, false)
	} else {
		i = r.head
		r.head = (r.head + 1) % r.Capacity
	}
	s := &r.states[i]
	s.N = t.State.N
	s.X = append(s.X[:0], t.State.X[:t.State.N*r.Row]...)
	s.Global = append(s.Global[:0], t.State.Global[:r.Global]...)
	r.action[i], r.reward[i], r.elapsed[i], r.done[i], r.bare[i] = int32(t.Action), t.Reward, t.Elapsed, t.Done, false
	return nil
}

// Break ends a stretch with the state it has come to: what is added next belongs elsewhere.
func (r *Replay) Break(s State) error {
	if err := r.Add(Transition{State: s}); err != nil {
		return err
	}
	r.bare[r.newest()] = true
	return nil
}

// newest is the index of the last transition added.
func (r *Replay) newest() int {
	if len(r.states) < r.Capacity {
		return len(r.states) - 1
	}
	return (r.head + r.Capacity - 1) % r.Capacity
}

// Ready says that a transition can be sampled.
func (r *Replay) Ready() bool {
	return len(r.states) > 1 || len(r.states) == 1 && r.done[0]
}

// Sample draws the index of a transition whose successor is known, all of them equally likely.
func (r *Replay) Sample(rng *Source) int {
	for {
		i := rng.IntN(len(r.states))
		if (i != r.newest() || r.done[i]) && !r.bare[i] {
			return i
		}
	}
}

// next is the index of a transition's successor.
func (r *Replay) next(i int) int {
	if i+1 == len(r.states) {
		return 0
	}
	return i + 1
}

// RewardScale divides rewards by the running standard deviation of discounted returns. It subtracts nothing: with episodes of
// different lengths a shift changes which policy is best.
type RewardScale struct {
	On, Frozen bool
	Count      float64
	Mean, M2   float64
	Return     float64
}

// Observe takes in a step: its reward and its discount.
func (s *RewardScale) Observe(reward, discount float64, done bool) {
	if s.Frozen {
		return
	}
	s.Return = reward + float64(discount*s.Return)
	s.Count++
	d := s.Return - s.Mean
	s.Mean += d / s.Count
	s.M2 += float64(d * (s.Return - s.Mean))
	if done {
		s.Return = 0
	}
}

// Scale is what rewards are divided by.
func (s *RewardScale) Scale() float64 {
	if !s.On || s.Count < 2 {
		return 1
	}
	return max(math.Sqrt(s.M2/s.Count), 1e-6)
}
