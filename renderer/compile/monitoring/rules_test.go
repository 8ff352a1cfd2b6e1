package monitoring

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-hpc/berth/components/advisor/service"
	"github.com/berth-hpc/berth/components/autoscaler/scaler"
	"github.com/berth-hpc/berth/renderer/site"
)

func lab(mode string) *site.Site {
	s := &site.Site{}
	s.Namespaces.Slurm, s.Advisor.Mode = "slurm", mode
	s.Advisor.Guardrails.AbstainAlertShare, s.Advisor.Guardrails.SnapshotTTLSeconds = 0.35, 42
	return s
}

// An alert on a metric that nobody exposes never fires, and nothing says so.
func TestAlertsAreOnMetricsThatExist(t *testing.T) {
	answer := httptest.NewRecorder()
	service.New("", nil).Metrics().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	registry := prometheus.NewRegistry()
	if _, err := scaler.NewMetrics(registry); err != nil {
		t.Fatal(err)
	}
	described := make(chan *prometheus.Desc, 1000)
	registry.Describe(described)
	close(described)
	exposed := answer.Body.String()
	for d := range described {
		exposed += d.String()
	}
	named := 0
	for _, group := range ruleGroups(lab("live")) {
		for _, rule := range group.(map[string]any)["rules"].([]any) {
			expression := rule.(map[string]any)["expr"].(string)
			for _, metric := range regexp.MustCompile(`\b(advisor|berth)_[a-z_]+`).FindAllString(expression, -1) {
				if named++; !strings.Contains(exposed, metric) {
					t.Errorf("%s: nothing exposes %s", rule.(map[string]any)["alert"], metric)
				}
			}
		}
	}
	if named < 8 {
		t.Errorf("only %d names of metrics were found in the alerts", named)
	}
}

// The alerts have the site's own lines, and a site without an advisor none about one.
func TestAlertsFollowTheSite(t *testing.T) {
	text := fmt.Sprint(ruleGroups(lab("shadow")))
	for _, want := range []string{">= 0.35 and", "> 42 "} {
		if !strings.Contains(strings.NewReplacer("]", " ", "for:", " for:").Replace(text), want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if text := fmt.Sprint(ruleGroups(lab("off")), podMonitors(lab("off"))); strings.Contains(text, "dvisor") || strings.Contains(text, "controller") {
		t.Errorf("a site without an advisor watches one: %s", text)
	}
}
