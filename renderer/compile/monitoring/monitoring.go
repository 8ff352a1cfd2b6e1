// Package monitoring makes the monitoring layer: Prometheus, Alertmanager and Grafana by the kube-prometheus-stack chart, with
// the flows they need and no others.
package monitoring

import (
	"fmt"
	"sort"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-hpc/berth/renderer/compile/flux"
	"github.com/berth-hpc/berth/renderer/compile/foundation"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/site"
)

// Objects are the layer's objects: none if the site has no monitoring, and none where charts from elsewhere cannot be fetched.
func Objects(s *site.Site) ([]manifest.Object, error) {
	if !s.Monitoring.Enabled || s.Delivery.Mode != "helm" {
		return nil, nil
	}
	namespace := s.Namespaces.Monitoring
	objects, err := manifest.All(foundation.AllowAPIServer(s, namespace), insidePolicy(namespace), scrapePolicy(s), receiverPolicy(s))
	if err != nil {
		return nil, err
	}
	alertmanager, err := alertmanagerValues(s)
	if err != nil {
		return nil, err
	}
	release, err := flux.UpstreamRelease(s, flux.Upstream{
		Name: "kube-prometheus-stack", Namespace: namespace,
		Repository: "https://prometheus-community.github.io/helm-charts", Chart: "kube-prometheus-stack", Version: "79.5.0",
		Values: map[string]any{
			"grafana":      map[string]any{"enabled": s.Monitoring.Grafana, "grafana.ini": map[string]any{"analytics": map[string]any{"check_for_updates": false, "reporting_enabled": false}}},
			"alertmanager": alertmanager,
			// The node exporter needs the host's network and processes, which this namespace's pod security forbids.
			"nodeExporter":                 map[string]any{"enabled": false},
			"additionalPrometheusRulesMap": map[string]any{"berth": map[string]any{"groups": ruleGroups(s)}},
			"prometheus": map[string]any{"additionalPodMonitors": podMonitors(s), "prometheusSpec": map[string]any{
				"retention": s.Monitoring.Retention,
				// Monitors of every namespace count, not only those of this release.
				"podMonitorSelectorNilUsesHelmValues":     false,
				"serviceMonitorSelectorNilUsesHelmValues": false,
				"ruleSelectorNilUsesHelmValues":           false,
				"storageSpec": map[string]any{"volumeClaimTemplate": map[string]any{"spec": map[string]any{
					"storageClassName": s.Storage.Class,
					"accessModes":      []string{"ReadWriteOnce"},
					"resources":        map[string]any{"requests": map[string]any{"storage": s.Monitoring.Size}},
				}}},
			}},
		},
	})
	return append(objects, release...), err
}

// slackDirectory is where the chart mounts the Secrets that Alertmanager may read.
const slackDirectory = "/etc/alertmanager/secrets"

// alertmanagerValues routes every alert to every receiver that the site names. Without one, alerts are shown and sent nowhere.
func alertmanagerValues(s *site.Site) (map[string]any, error) {
	names := make([]string, 0, len(s.Monitoring.Receivers))
	for name := range s.Monitoring.Receivers {
		names = append(names, name)
	}
	sort.Strings(names)
	receivers := []any{map[string]any{"name": "none"}}
	routes := []any{map[string]any{"receiver": "none", "matchers": []string{`alertname = "Watchdog"`}}}
	var secrets []string
	for _, name := range names {
		r := s.Monitoring.Receivers[name]
		receiver := map[string]any{"name": name}
		switch {
		case r.Webhook != "":
			receiver["webhook_configs"] = []any{map[string]any{"url": r.Webhook, "send_resolved": true}}
		case r.Slack != "":
			receiver["slack_configs"] = []any{map[string]any{"api_url_file": fmt.Sprintf("%s/%s/url", slackDirectory, r.Slack), "send_resolved": true}}
			secrets = append(secrets, r.Slack)
		case r.Email != "":
			continue // Named by render: mail needs a relay, and the site has no place to say which.
		default:
			return nil, fmt.Errorf("monitoring.receivers.%s: set exactly one of webhook, slack or email", name)
		}
		receivers = append(receivers, receiver)
		routes = append(routes, map[string]any{"receiver": name, "continue": true})
	}
	values := map[string]any{"config": map[string]any{
		"route":     map[string]any{"receiver": "none", "group_by": []string{"alertname", "namespace"}, "routes": routes},
		"receivers": receivers,
	}}
	if len(secrets) > 0 {
		values["alertmanagerSpec"] = map[string]any{"secrets": secrets}
	}
	return values, nil
}

func policy(name, namespace string, spec networkingv1.NetworkPolicySpec) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: naming.Labels(name)},
		Spec:       spec,
	}
}

func insidePolicy(namespace string) *networkingv1.NetworkPolicy {
	inside := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	return policy("allow-inside", namespace, networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: inside}},
		Egress:      []networkingv1.NetworkPolicyEgressRule{{To: inside}},
	})
}

// scrapePolicy lets Prometheus read the metrics of pods and of the hosts' kubelets (10250).
func scrapePolicy(s *site.Site) *networkingv1.NetworkPolicy {
	return policy("allow-scrape", s.Namespaces.Monitoring, networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "prometheus"}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		Egress: []networkingv1.NetworkPolicyEgressRule{
			{To: foundation.Ranges(s.Network.Pods)},
			{To: foundation.Ranges(s.Network.LAN), Ports: foundation.Ports(corev1.ProtocolTCP, 10250)},
		},
	})
}

// receiverPolicy lets Alertmanager send what the site's receivers are for; without any it may send nothing.
func receiverPolicy(s *site.Site) *networkingv1.NetworkPolicy {
	spec := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "alertmanager"}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
	}
	if len(s.Monitoring.Receivers) > 0 {
		spec.Egress = []networkingv1.NetworkPolicyEgressRule{{Ports: foundation.Ports(corev1.ProtocolTCP, 80, 443)}}
	}
	return policy("allow-receivers", s.Namespaces.Monitoring, spec)
}
