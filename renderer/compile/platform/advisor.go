package platform

import (
	"fmt"

	"github.com/berth-hpc/berth/renderer/compile/slurmconf"
	"github.com/berth-hpc/berth/renderer/compile/values"
	"github.com/berth-hpc/berth/renderer/site"
)

// advisor are the settings of the advisor beside slurmctld. It sees the nodes in the site's order, fastest cards first.
func advisor(s *site.Site) (values.Advisor, error) {
	a := values.Advisor{
		Mode: s.Advisor.Mode, Checkpoint: s.Advisor.Checkpoint, Topology: s.Advisor.Topology, NodeOrder: []string{},
		MaxBoost: s.Advisor.Guardrails.MaxBoost, SnapshotTTLSeconds: s.Advisor.Guardrails.SnapshotTTLSeconds,
		ValueAbstain: s.Advisor.Guardrails.ValueAbstain, AbstainAlertShare: s.Advisor.Guardrails.AbstainAlertShare,
		Rerank: values.Rerank(s.Advisor.Rerank), Placement: values.Placement(s.Placement),
	}
	for _, pool := range slurmconf.PoolOrder(s.Pools) {
		a.NodeOrder = append(a.NodeOrder, slurmconf.NodePrefix+"-"+pool+"-")
	}
	w := s.Advisor.Watch
	if w == nil {
		return a, nil
	}
	a.Watch = &values.Watch{QOS: w.QOS, Partitions: w.Partitions, ViolationShare: w.ViolationShare, MinJobs: w.MinJobs}
	for _, span := range []struct {
		field, text string
		seconds     *float64
	}{
		{"p95Wait", w.P95Wait, &a.Watch.P95WaitSeconds}, {"targetWait", w.TargetWait, &a.Watch.TargetWaitSeconds},
		{"window", w.Window, &a.Watch.WindowSeconds},
	} {
		if span.text == "" {
			continue
		}
		t, err := slurmconf.ParseTime(span.text)
		if err != nil {
			return a, fmt.Errorf("advisor.watch.%s: %w", span.field, err)
		}
		if t.IsUnlimited() {
			return a, fmt.Errorf("advisor.watch.%s: no time is unlimited here; write for example 10m", span.field)
		}
		*span.seconds = t.Duration().Seconds()
	}
	return a, nil
}
