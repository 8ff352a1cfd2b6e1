package monitoring

import (
	"fmt"
	"strconv"

	"github.com/berth-hpc/berth/renderer/site"
)

// podMonitors name what Prometheus scrapes of the platform. They go through the upstream chart's values: an object of Prometheus'
// own kinds beside it would be refused by a cluster in which the chart has not yet made these kinds.
func podMonitors(s *site.Site) []any {
	monitor := func(role, port string) map[string]any {
		return map[string]any{
			"name":                "slurm-" + role,
			"namespaceSelector":   map[string]any{"matchNames": []string{s.Namespaces.Slurm}},
			"selector":            map[string]any{"matchLabels": map[string]string{"app.kubernetes.io/component": role}},
			"podMetricsEndpoints": []any{map[string]any{"port": port, "interval": "30s"}},
		}
	}
	monitors := []any{monitor("autoscaler", "http")}
	if s.Advisor.Mode != "off" {
		monitors = append(monitors, monitor("controller", "metrics"))
	}
	return monitors
}

// ruleGroups are the alerts of the platform, with the site's own lines in them.
func ruleGroups(s *site.Site) []any {
	groups := []any{map[string]any{"name": "berth-autoscaler", "rules": []any{
		alert("SlurmAutoscalerBlind", "10m", "max(berth_autoscaler_slurm_answers) == 0 or absent(berth_autoscaler_slurm_answers)",
			"The autoscaler has had no list of nodes from slurmctld for ten minutes",
			"No worker comes or goes meanwhile. kubectl -n "+s.Namespaces.Slurm+" logs deploy/slurm-autoscaler says why."),
	}}}
	if s.Advisor.Mode != "off" {
		groups = append(groups, map[string]any{"name": "berth-advisor", "rules": advisorRules(s)})
	}
	return groups
}

// judged is how many submissions of an hour make a judgement on the advisor's abstentions.
const judged = 10

func advisorRules(s *site.Site) []any {
	share := strconv.FormatFloat(s.Advisor.Guardrails.AbstainAlertShare, 'f', -1, 64)
	const abstained, all = "sum(increase(advisor_abstentions_total[1h]))", "(sum(increase(advisor_abstentions_total[1h])) + sum(increase(advisor_decisions_total[1h])))"
	look := fmt.Sprintf("kubectl -n %s logs slurm-controller-0 -c advisor", s.Namespaces.Slurm)
	return []any{
		alert("SlurmAdvisorAbstains", "5m", fmt.Sprintf("%s / %s >= %s and %s >= %d", abstained, all, share, all, judged),
			fmt.Sprintf("The advisor gave no advice on %s or more of the last hour's jobs", share),
			"advisor_abstentions_total says by which reason. No guardrail needs switching off: a checkpoint brings its own line for values, "+
				"and out_of_range or topology mean that it was trained for another cluster or other jobs."),
		alert("SlurmAdvisorDemoted", "1m", "max(advisor_demoted) == 1",
			"The advisor has made itself shadow: waits have crossed the line of advisor.watch",
			"It stays so until the advisor's settings in the site change. "+look+" says which line."),
		alert("SlurmAdvisorSnapshotStale", "5m", fmt.Sprintf("min(advisor_snapshot_age_seconds) < 0 or max(advisor_snapshot_age_seconds) > %d", s.Advisor.Guardrails.SnapshotTTLSeconds),
			"The advisor's picture of the cluster is stale, so it abstains",
			"It comes from slurmrestd. "+look+" says why it does not."),
		alert("SlurmAdvisorRefuses", "5m", "max(advisor_refusing) == 1",
			"The advisor refuses settings or a checkpoint that the site gives it, and goes on with those before",
			look+" says why."),
		alert("SlurmAdvisorMissing", "10m", "absent(advisor_live)",
			"Prometheus sees no advisor, which the site wants",
			"Jobs are accepted as they come. "+look+" and kubectl -n "+s.Namespaces.Slurm+" get pods say more."),
	}
}

func alert(name, after, expression, summary, description string) map[string]any {
	return map[string]any{
		"alert": name, "expr": expression, "for": after,
		"labels":      map[string]string{"severity": "warning"},
		"annotations": map[string]string{"summary": summary, "description": description},
	}
}
