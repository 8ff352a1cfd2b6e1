package rl

import (
	"fmt"
	"math"

	"github.com/berth-hpc/berth/components/advisor/nn"
)

// Risk modes of the actor.
const (
	RiskMean = "mean"
	RiskCVaR = "cvar"
)

// Config is everything that decides what is learned from given experience. Its zero value is not one: start from Defaults.
type Config struct {
	// IQN makes critics implicit quantile networks (RDSAC); without, they give one value a row (SAC).
	IQN bool `json:"iqn"`
	// Risk is what of the law of returns the actor maximises: its mean, or its CVaR at level CVaR, the mean of the worst such part.
	// The level goes from 1 to CVaR over the first AnnealSteps updates. Greedy CVaR of Z(s,a) optimises a nested criterion, not the
	// CVaR of an episode's return.
	Risk        string  `json:"risk"`
	CVaR        float64 `json:"cvar"`
	AnnealSteps int64   `json:"annealSteps"`
	// Taus, TargetTaus and ActTaus are numbers of quantile fractions: of the estimate and the target in the loss, and of the actor's
	// objective (N, N′, K).
	Taus       int `json:"taus"`
	TargetTaus int `json:"targetTaus"`
	ActTaus    int `json:"actTaus"`
	Cosines    int `json:"cosines"`
	// Critics is the size of the ensemble, Subset how many of it, drawn anew for each update, the target's minimum is over.
	Critics int `json:"critics"`
	Subset  int `json:"subset"`
	// ActorMin makes the actor use the minimum over critics; otherwise their mean.
	ActorMin  bool  `json:"actorMin"`
	LayerNorm bool  `json:"layerNorm"`
	Hidden    []int `json:"hidden"`
	// Gamma discounts over one unit of elapsed time.
	Gamma float64 `json:"gamma"`
	// Polyak is the rate at which targets follow.
	Polyak float64 `json:"polyak"`
	Batch  int     `json:"batch"`
	// UTD is the number of critic updates for one of the actor and the temperature.
	UTD        int     `json:"utd"`
	ActorRate  float64 `json:"actorRate"`
	CriticRate float64 `json:"criticRate"`
	AlphaRate  float64 `json:"alphaRate"`
	// FixedAlpha keeps the temperature at InitAlpha. A learned one aims at the entropy EntropyTarget·log|A(s)| in each state.
	FixedAlpha    bool    `json:"fixedAlpha"`
	InitAlpha     float64 `json:"initAlpha"`
	EntropyTarget float64 `json:"entropyTarget"`
	// BackupEntropy puts the entropy into the critics' target.
	BackupEntropy bool `json:"backupEntropy"`
	// NormalizeReward divides rewards by the deviation of returns.
	NormalizeReward bool `json:"normalizeReward"`
	// Offline is the part of each batch that is drawn from the offline replay when there is one; RLPD: one half.
	Offline float64 `json:"offline"`
	Seed    uint64  `json:"seed"`
}

// Bounds of the logarithm of the temperature. A target that cannot be reached would take it to infinity.
const (
	minLogAlpha = -8
	maxLogAlpha = 1
)

// Defaults are RDSAC's: twin quantile critics, mean over both in the actor, entropy out of the target.
func Defaults() Config {
	return Config{IQN: true, Risk: RiskMean, CVaR: .25, AnnealSteps: 20000, Taus: 8, TargetTaus: 8, ActTaus: 8, Cosines: 64, Critics: 2, Subset: 2,
		Hidden: []int{64, 64}, Gamma: .99, Polyak: .005, Batch: 64, UTD: 1, ActorRate: 3e-4, CriticRate: 3e-4, AlphaRate: 3e-4, InitAlpha: .1,
		EntropyTarget: .4, NormalizeReward: true, Seed: 42}
}

// RLPD changes a configuration for fine-tuning (Ball et al. 2023): ten LayerNorm critics, minimum over two at random in the target,
// mean of all in the actor, halves of each batch from both replays.
func (c Config) RLPD(utd int) Config {
	c.Critics, c.Subset, c.ActorMin, c.LayerNorm, c.Offline, c.UTD, c.Batch = 10, 2, false, true, .5, utd, 128
	return c
}

// Validate says what cannot work.
func (c *Config) Validate() error {
	switch {
	case c.Risk != RiskMean && c.Risk != RiskCVaR:
		return fmt.Errorf("risk is %q; use %s or %s", c.Risk, RiskMean, RiskCVaR)
	case c.Risk == RiskCVaR && !c.IQN:
		return fmt.Errorf("the CVaR of returns needs their law: use quantile critics (iqn) or the risk %s", RiskMean)
	case !(c.CVaR > 0 && c.CVaR <= 1):
		return fmt.Errorf("the CVaR level is %g; use more than 0, up to 1 (risk-neutral)", c.CVaR)
	case c.Taus < 1 || c.TargetTaus < 1 || c.ActTaus < 1 || c.Taus > 256 || c.TargetTaus > 256 || c.ActTaus > 256:
		return fmt.Errorf("numbers of quantile fractions are %d, %d and %d; use 1 to 256", c.Taus, c.TargetTaus, c.ActTaus)
	case c.Critics < 1 || c.Critics > 64 || c.Subset < 1 || c.Subset > c.Critics:
		return fmt.Errorf("%d critics with a subset of %d; use 1 to 64, and no larger subset", c.Critics, c.Subset)
	case !(c.Gamma > 0 && c.Gamma <= 1):
		return fmt.Errorf("gamma is %g; use more than 0, up to 1", c.Gamma)
	case !(c.Polyak > 0 && c.Polyak <= 1):
		return fmt.Errorf("polyak is %g; use more than 0, up to 1", c.Polyak)
	case c.Batch < 1 || c.Batch > 1<<16 || c.UTD < 1 || c.UTD > 1000:
		return fmt.Errorf("batches of %d, %d critic updates a step; use at least 1 of each", c.Batch, c.UTD)
	case !(c.InitAlpha > 0) || math.Log(c.InitAlpha) > maxLogAlpha || math.Log(c.InitAlpha) < minLogAlpha:
		return fmt.Errorf("the temperature starts at %g; use %.2g to %.2g", c.InitAlpha, math.Exp(minLogAlpha), math.Exp(maxLogAlpha))
	case !(c.EntropyTarget >= 0 && c.EntropyTarget < 1):
		return fmt.Errorf("the entropy target is %g of log|A|; use 0 to less than 1 (0.3 to 0.5 is usual: close to 1 it is out of reach and drives the temperature up)", c.EntropyTarget)
	case !(c.Offline >= 0 && c.Offline < 1):
		return fmt.Errorf("the offline part of a batch is %g; use 0 to less than 1", c.Offline)
	case len(c.Hidden) == 0:
		return fmt.Errorf("the networks have no hidden layers; give at least one width")
	case c.IQN && c.Cosines < 1:
		return fmt.Errorf("%d cosine features; use at least 1", c.Cosines)
	}
	return nil
}

// actorSpec and criticSpec are the networks for rows of a width.
func (c *Config) actorSpec(width int) nn.Spec {
	return nn.Spec{Kind: nn.MLP, In: width, Out: 1, Trunk: c.Hidden}
}

func (c *Config) criticSpec(width int) nn.Spec {
	if !c.IQN {
		return nn.Spec{Kind: nn.MLP, In: width, Out: 1, Trunk: c.Hidden, LayerNorm: c.LayerNorm}
	}
	head := c.Hidden[len(c.Hidden)-1:]
	trunk := c.Hidden[:max(len(c.Hidden)-1, 1)]
	return nn.Spec{Kind: nn.IQN, In: width, Out: 1, Trunk: trunk, Head: head, Cosines: c.Cosines, LayerNorm: c.LayerNorm}
}

// level is the CVaR level after so many updates: 1 is risk-neutral.
func (c *Config) level(updates int64) float64 {
	if c.Risk == RiskMean {
		return 1
	}
	if c.AnnealSteps <= 0 || updates >= c.AnnealSteps {
		return c.CVaR
	}
	return 1 + float64((c.CVaR-1)*float64(updates)/float64(c.AnnealSteps))
}
