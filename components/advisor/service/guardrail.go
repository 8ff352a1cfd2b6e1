package service

import (
	"math"
	"sync"
	"time"

	"github.com/berth-hpc/berth/components/advisor/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Reason is why the advisor abstains; "" where it does not.
type Reason string

// Reasons, in the order in which they are looked at.
const (
	ReasonOff        Reason = "mode_off"
	ReasonRate       Reason = "rate"
	ReasonStale      Reason = "stale_snapshot"
	ReasonTopology   Reason = "topology"
	ReasonRange      Reason = "out_of_range"
	ReasonValue      Reason = "low_value"
	ReasonNotANumber Reason = "not_a_number"
	ReasonBudget     Reason = "budget_exceeded"
)

// Reasons are all of them.
var Reasons = []Reason{ReasonOff, ReasonRate, ReasonStale, ReasonTopology, ReasonRange, ReasonValue, ReasonNotANumber, ReasonBudget}

// situation is what is known before the policy is asked.
type situation struct {
	settings *Settings
	loaded   *policy.Loaded
	// misordered: the nodes are in another order than the topology.
	misordered bool
	age        time.Duration // of the snapshot; negative: there is none
	waiting    int
}

// before gives the reason not to ask the policy at all.
func (s *situation) before(r *workload.Request) Reason {
	switch {
	case s.settings.Mode == Off:
		return ReasonOff
	case s.age < 0 || s.age > s.settings.ttl():
		return ReasonStale
	case s.loaded.Checkpoint.Topology != "" && (s.misordered || s.loaded.Checkpoint.Topology != s.settings.Topology):
		return ReasonTopology
	case !s.loaded.InRange(r, s.waiting):
		return ReasonRange
	}
	return ""
}

// after gives the reason not to give the policy's advice, which took so long.
func (s *situation) after(a policy.Advice, took time.Duration) Reason {
	line := s.loaded.AbstainBelow()
	if s.settings.ValueAbstain != nil {
		line = *s.settings.ValueAbstain
	}
	switch {
	case math.IsNaN(a.Score) || math.IsInf(a.Score, 0) || math.IsNaN(a.Value) || math.IsInf(a.Value, 0):
		return ReasonNotANumber
	case a.Value < line:
		return ReasonValue
	case took > s.settings.budget():
		return ReasonBudget
	}
	return ""
}

// limiter lets so many through in each second.
type limiter struct {
	mu     sync.Mutex
	second int64
	count  int
}

func (l *limiter) admits(now time.Time, limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := now.Unix(); s != l.second {
		l.second, l.count = s, 0
	}
	l.count++
	return l.count <= limit
}

// shares counts advice and abstentions over the last ten minutes, in minutes.
type shares struct {
	mu      sync.Mutex
	minute  int64
	advised [10]int
	silent  [10]int
}

func (s *shares) add(now time.Time, abstained bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	i := s.minute % int64(len(s.silent))
	if abstained {
		s.silent[i]++
	} else {
		s.advised[i]++
	}
}

func (s *shares) turn(now time.Time) {
	m := now.Unix() / 60
	if m-s.minute > int64(len(s.silent)) || m < s.minute {
		s.advised, s.silent, s.minute = [10]int{}, [10]int{}, m
	}
	for s.minute < m {
		s.minute++
		i := s.minute % int64(len(s.silent))
		s.advised[i], s.silent[i] = 0, 0
	}
}

// abstained is the share of abstentions, and of how many.
func (s *shares) abstained(now time.Time) (share float64, of int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	silent := 0
	for i := range s.silent {
		silent += s.silent[i]
		of += s.silent[i] + s.advised[i]
	}
	if of == 0 {
		return 0, 0
	}
	return float64(silent) / float64(of), of
}
