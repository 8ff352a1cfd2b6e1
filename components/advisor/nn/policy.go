package nn

import "math"

// Softmax puts log-probabilities and probabilities of the logits of one state into logp and p, and gives the entropy. One action
// has entropy zero, exactly.
func Softmax[T Float](logits, logp, p []T) T {
	if len(logits) == 0 {
		return 0
	}
	top := logits[0]
	for _, v := range logits {
		top = max(top, v)
	}
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v - top))
	}
	lse := T(math.Log(sum))
	h := T(0)
	for i, v := range logits {
		l := v - top - lse
		logp[i] = l
		p[i] = T(math.Exp(float64(l)))
		h -= p[i] * l
	}
	return h
}

// ActorLoss is the loss of discrete SAC's actor in one state (Christodoulou 2019): Σ_a π(a)·(α·log π(a) − q(a)), summed over
// actions. It overwrites logits with the gradient by them, times weight, and gives the loss times weight, and the entropy.
func ActorLoss[T Float](logits, q []T, alpha, weight T, logp, p []T) (loss, entropy T) {
	entropy = Softmax(logits, logp, p)
	var mean T
	for i := range logits {
		mean += p[i] * (alpha*logp[i] - q[i])
	}
	// d/dlogit_i = π_i·(f_i − Σπf), f = α·log π − q; the α of d(π log π) is constant and drops out.
	for i := range logits {
		logits[i] = weight * p[i] * (alpha*logp[i] - q[i] - mean)
	}
	return weight * mean, entropy
}
