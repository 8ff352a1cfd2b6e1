// Package gpu makes what gives worker pods whole cards: NVIDIA's GPU operator, with driver and container toolkit left to the
// hosts, and its device plugin told to share nothing. A card is divided by one hand, Slurm's, inside the worker that owns it.
package gpu

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-hpc/berth/renderer/compile/flux"
	"github.com/berth-hpc/berth/renderer/compile/foundation"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/site"
)

const (
	pluginConfig    = "device-plugin-config"
	pluginConfigKey = "whole-cards"
	exporterPort    = 9400
)

// Wanted says whether any pool of the site has cards.
func Wanted(s *site.Site) bool {
	for _, pool := range s.Pools {
		if pool.GPUs > 0 {
			return true
		}
	}
	return false
}

// Objects are the layer's objects: none without cards, and none where charts from elsewhere cannot be fetched.
func Objects(s *site.Site) ([]manifest.Object, error) {
	if !Wanted(s) || s.Delivery.Mode != "helm" {
		return nil, nil
	}
	config, err := yaml.Marshal(map[string]any{
		"version": "v1",
		"flags":   map[string]any{"migStrategy": "none", "failOnInitError": true},
		// No "sharing": every device is one whole card.
	})
	if err != nil {
		return nil, err
	}
	objects, err := manifest.All(
		// The operator's pods load kernel modules' devices into containers; Kubernetes allows that to privileged pods only.
		foundation.Namespace(naming.GPUNamespace, foundation.Privileged),
		foundation.DefaultDeny(naming.GPUNamespace),
		foundation.AllowAPIServer(s, naming.GPUNamespace),
		scrapePolicy(s),
		&corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: pluginConfig, Namespace: naming.GPUNamespace, Labels: naming.Labels(pluginConfig)},
			Data:       map[string]string{pluginConfigKey: string(config)},
		},
	)
	if err != nil {
		return nil, err
	}
	release, err := flux.UpstreamRelease(s, flux.Upstream{
		Name: "gpu-operator", Namespace: naming.GPUNamespace,
		Repository: "https://helm.ngc.nvidia.com/nvidia", Chart: "gpu-operator", Version: "v25.10.1",
		Values: map[string]any{
			"driver":       map[string]any{"enabled": false},
			"toolkit":      map[string]any{"enabled": false},
			"devicePlugin": map[string]any{"config": map[string]any{"name": pluginConfig, "default": pluginConfigKey}},
			"operator":     map[string]any{"runtimeClass": naming.RuntimeClass},
			"mig":          map[string]any{"strategy": "none"},
			"dcgmExporter": map[string]any{"enabled": s.Monitoring.Enabled},
		},
	})
	return append(objects, release...), err
}

// scrapePolicy lets monitoring read the cards' metrics, if the site has monitoring.
func scrapePolicy(s *site.Site) *networkingv1.NetworkPolicy {
	policy := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "allow-metrics", Namespace: naming.GPUNamespace, Labels: naming.Labels("allow-metrics")},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "nvidia-dcgm-exporter"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	if s.Monitoring.Enabled {
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
			From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.Namespaces.Monitoring}}}},
			Ports: foundation.Ports(corev1.ProtocolTCP, exporterPort),
		}}
	}
	return policy
}
