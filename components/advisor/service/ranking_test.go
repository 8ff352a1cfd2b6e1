package service

import (
	"fmt"
	"testing"
	"time"
)

func reranking(advisor, rerank Mode) string {
	return fmt.Sprintf(`{"mode":%q,"topology":%q,"maxBoost":1000,"snapshotTtlSeconds":30,"rerank":{"mode":%q,"updatesPerMinute":5,"leaseSeconds":90}}`,
		advisor, topology, rerank)
}

// A ranking has every waiting job with what the policy would give it; held and running jobs are not in it.
func TestRanking(t *testing.T) {
	s, now := newService(t, reranking(Live, Live))
	if r := s.Ranking(); r.Mode != Off {
		t.Errorf("a ranking without a snapshot: %+v", r)
	}
	d := whole(start, 30, 10, 20)
	d.Jobs[2].Held = true
	if err := s.Snapshot(d); err != nil {
		t.Fatal(err)
	}
	r := s.Ranking()
	if r.Mode != Live || r.Abstain != "" || r.Bound != 1000 || r.PerMinute != 5 || r.Lease != 90*time.Second || r.Checkpoint != "builtin:saf" {
		t.Errorf("%+v", r)
	}
	// The shorter passes one of two; the longer nobody.
	if len(r.Jobs) != 2 || r.Jobs[0].Job.ID != 1 || r.Jobs[0].Points != 0 || r.Jobs[1].Job.ID != 2 || r.Jobs[1].Points != 500 {
		t.Errorf("%+v", r.Jobs)
	}
	*now = start.Add(31 * time.Second)
	if r := s.Ranking(); r.Abstain != ReasonStale || r.Jobs != nil {
		t.Errorf("a ranking of an old snapshot: %+v", r)
	}
}

// Waiting jobs are ranked no more freely than the advisor itself is allowed to advise.
func TestRankingMode(t *testing.T) {
	for _, c := range []struct{ advisor, rerank, want Mode }{
		{Off, Live, Off}, {Shadow, Off, Off}, {Shadow, Shadow, Shadow}, {Shadow, Live, Shadow}, {Live, Shadow, Shadow}, {Live, Live, Live}, {Live, "", Off},
	} {
		s, _ := newService(t, reranking(c.advisor, c.rerank))
		if err := s.Snapshot(whole(start, 30)); err != nil {
			t.Fatal(err)
		}
		if r := s.Ranking(); r.Mode != c.want {
			t.Errorf("advisor %s and rerank %s give %s, want %s", c.advisor, c.rerank, r.Mode, c.want)
		}
	}
}
