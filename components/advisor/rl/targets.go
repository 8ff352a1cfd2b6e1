package rl

// What the critics are moved toward, and the losses that move them.

import (
	"math"

	"github.com/berth-hpc/berth/components/advisor/nn"
)

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
