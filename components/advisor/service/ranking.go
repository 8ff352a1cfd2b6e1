package service

import (
	"time"

	"github.com/berth-hpc/berth/components/advisor/snapshot"
)

// Ranking is what the policy thinks of all jobs that wait, at one moment.
type Ranking struct {
	// Mode is how much may be done with it: the site's switch, and no more than the advisor's own mode.
	Mode       Mode
	Checkpoint string
	// Abstain is why there is no ranking; "" if there is one.
	Abstain Reason
	// Bound is the largest site factor, PerMinute how many may be written in a minute, Lease how long they hold.
	Bound, PerMinute int
	Lease            time.Duration
	Jobs             []Ranked
}

// Ranked is a waiting job, not a held one, and the site factor that the policy would give it; 0 where it abstains.
type Ranked struct {
	Job    *snapshot.Job
	Points int
}

// Ranking asks the policy about every waiting job. It counts as no decision.
func (s *Service) Ranking() Ranking {
	c := s.current.Load()
	settings := &c.settings
	r := Ranking{
		Mode: settings.Rerank.Mode, Checkpoint: c.loaded.Digest, Bound: settings.MaxBoost,
		PerMinute: settings.Rerank.UpdatesPerMinute, Lease: time.Duration(settings.Rerank.LeaseSeconds) * time.Second,
	}
	if settings.Mode == Off || r.Mode == Live && settings.Mode != Live {
		r.Mode = settings.Mode
	}
	if r.Mode == Off || c.snap == nil {
		r.Mode = Off
		return r
	}
	at := c.situation(s.now())
	if at.age > settings.ttl() {
		r.Abstain = ReasonStale
		return r
	}
	for i := range c.snap.Jobs {
		j := &c.snap.Jobs[i]
		if !j.Pending() || j.Held {
			continue
		}
		request := j.Request()
		ranked := Ranked{Job: j}
		if at.before(&request) == "" {
			advice := c.prepared.Decide(&request)
			if at.after(advice, 0) == "" {
				ranked.Points = points(advice, settings.MaxBoost)
			}
		}
		r.Jobs = append(r.Jobs, ranked)
	}
	return r
}

// Reranked counts a round: places that the order would change, and site factors that were written.
func (s *Service) Reranked(order, written int) {
	s.metrics.rerankOrder.Set(float64(order))
	s.metrics.rerankWritten.Add(float64(written))
}
