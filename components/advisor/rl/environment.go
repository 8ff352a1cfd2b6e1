// Package rl is the learner: discrete soft actor-critic and its risk-aware, distributional kin (RDSAC) over a semi-Markov decision
// process, from experience of the simulator and, when fine-tuning, of a cluster's own log. It trains and evaluates; serving what it
// made is not its business.
package rl

import (
	"math/rand/v2"
)

// State is what the agent sees: N rows, one an action that is allowed now, and features of the whole.
type State struct {
	N      int
	X      []float32 // N×Features
	Global []float32
}

// Outcome is what an action led to. Elapsed is in units of the environment's discount time.
type Outcome struct {
	Reward, Elapsed float64
	Done            bool
}

// Environment is a semi-Markov decision process. Observe's state is the environment's own and changes with every step.
type Environment interface {
	// Features are the lengths of a row and of the global part.
	Features() (row, global int)
	// Reset begins an episode, the same one for the same number.
	Reset(episode uint64) error
	Observe() *State
	Step(action int) (Outcome, error)
	Done() bool
}

// Encoding turns a state into rows for the networks: the action's features, the global ones and, if Pool, the mean and the maximum
// of the features over all actions. All of it is symmetric in the actions, so that a score follows its action through any
// reordering.
type Encoding struct {
	Version string `json:"version"`
	Row     int    `json:"row"`
	Global  int    `json:"global"`
	Pool    bool   `json:"pool"`
	// Names of the row's features and of the global ones, and what is subtracted from and divides each.
	Names []string  `json:"names,omitempty"`
	Shift []float32 `json:"shift,omitempty"`
	Scale []float32 `json:"scale,omitempty"`
}

// Width is the length of an encoded row.
func (e *Encoding) Width() int {
	if e.Pool {
		return 3*e.Row + e.Global
	}
	return e.Row + e.Global
}

// Encode appends the rows of a state to dst.
func (e *Encoding) Encode(dst []float32, s *State) []float32 {
	w, base := e.Width(), len(dst)
	need := base + s.N*w
	if cap(dst) < need {
		dst = append(dst, make([]float32, need-base)...)
	}
	dst = dst[:need]
	if s.N == 0 {
		return dst
	}
	out := dst[base:]
	norm := len(e.Shift) > 0
	for i := range s.N {
		row := out[i*w : (i+1)*w]
		copy(row, s.X[i*e.Row:(i+1)*e.Row])
		copy(row[e.Row:], s.Global[:e.Global])
		if norm {
			for k := range e.Row + e.Global {
				row[k] = (row[k] - e.Shift[k]) / e.Scale[k]
			}
		}
	}
	if e.Pool {
		first := out[:w]
		mean, top := first[e.Row+e.Global:2*e.Row+e.Global], first[2*e.Row+e.Global:]
		clear(mean)
		copy(top, first[:e.Row])
		for i := range s.N {
			for k, v := range out[i*w : i*w+e.Row] {
				mean[k] += v
				top[k] = max(top[k], v)
			}
		}
		for k := range mean {
			mean[k] /= float32(s.N)
		}
		for i := 1; i < s.N; i++ {
			copy(out[i*w+e.Row+e.Global:(i+1)*w], first[e.Row+e.Global:])
		}
	}
	return dst
}

// Source is a stream of random numbers whose state can be saved.
type Source struct {
	pcg *rand.PCG
	*rand.Rand
}

// NewSource gives the stream of a seed and a purpose.
func NewSource(seed, purpose uint64) *Source {
	p := rand.NewPCG(seed, purpose)
	return &Source{p, rand.New(p)}
}

// MarshalBinary and UnmarshalBinary save and restore the stream; a Rand of math/rand/v2 keeps nothing beside its source.
func (s *Source) MarshalBinary() ([]byte, error) { return s.pcg.MarshalBinary() }

// UnmarshalBinary restores what MarshalBinary saved.
func (s *Source) UnmarshalBinary(b []byte) error { return s.pcg.UnmarshalBinary(b) }
