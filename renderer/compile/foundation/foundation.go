// Package foundation makes what every other layer stands on: namespaces with their pod-security labels, our custom resource
// definitions, priority and runtime classes, and the policy that denies every flow nobody declared.
package foundation

import (
	"fmt"
	"sort"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/site"
)

// Pod security levels of Kubernetes.
const (
	Restricted = "restricted"
	Baseline   = "baseline"
	Privileged = "privileged"
)

// Priorities of pods. Workers have the highest of the site: a foreign pod must not push out one whose job is hours old.
const (
	workerPriority  = 1_000_000
	controlPriority = 900_000
)

// Objects are the layer's objects. crds are our custom resource definitions, file name to YAML.
func Objects(s *site.Site, crds map[string][]byte) ([]manifest.Object, error) {
	var typed []any
	for _, n := range namespaces(s) {
		typed = append(typed, Namespace(n.name, n.level), DefaultDeny(n.name))
	}
	typed = append(typed,
		priorityClass(naming.WorkerPriority, workerPriority, "Slurm's worker pods: the highest class of the site, because each may carry hours of work."),
		priorityClass(naming.ControlPriority, controlPriority, "Slurm's controller, database, accounting, REST, login and autoscaler."),
	)
	if UsesRuntimeClass(s) {
		typed = append(typed, &nodev1.RuntimeClass{
			TypeMeta:   metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"},
			ObjectMeta: metav1.ObjectMeta{Name: naming.RuntimeClass, Labels: naming.Labels("runtime-class")},
			Handler:    naming.RuntimeClass,
		})
	}
	typed = append(typed, poolsFirst(s)...)
	objects, err := manifest.All(typed...)
	if err != nil {
		return nil, err
	}
	definitions, err := parseCRDs(crds)
	if err != nil {
		return nil, err
	}
	return append(objects, definitions...), nil
}

// UsesRuntimeClass says whether the site's GPU workers need the NVIDIA container runtime. The box has device files only.
func UsesRuntimeClass(s *site.Site) bool {
	if s.Variant == "box" {
		return false
	}
	for _, pool := range s.Pools {
		if pool.GPUs > 0 {
			return true
		}
	}
	return false
}

type namespaceLevel struct{ name, level string }

func namespaces(s *site.Site) []namespaceLevel {
	list := []namespaceLevel{
		{s.Namespaces.Slurm, Restricted},
		// slurmd and sshd change to the user whose work they start, which "restricted" forbids.
		{s.Namespaces.Workers, Baseline},
	}
	if s.Monitoring.Enabled {
		list = append(list, namespaceLevel{s.Namespaces.Monitoring, Baseline})
	}
	if s.Advisor.Mode != "off" {
		list = append(list, namespaceLevel{s.Namespaces.Advisor, Restricted})
	}
	return list
}

// Namespace is a namespace whose pods are held to a pod-security level, enforced and warned about alike.
func Namespace(name, level string) *corev1.Namespace {
	labels := naming.Labels("namespace")
	for _, mode := range []string{"enforce", "warn"} {
		labels["pod-security.kubernetes.io/"+mode] = level
		labels["pod-security.kubernetes.io/"+mode+"-version"] = "latest"
	}
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
	}
}

// DefaultDeny denies every pod of the namespace every flow; what may flow is declared beside each component.
func DefaultDeny(namespace string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "default-deny", Namespace: namespace, Labels: naming.Labels("default-deny")},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}
}

func priorityClass(name string, value int32, description string) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{
		TypeMeta:    metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"},
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: naming.Labels("priority-class")},
		Value:       value,
		Description: description,
	}
}

// parsed are definitions by their text: the same few are asked for again whenever a variant of a site is rendered.
var parsed sync.Map

func parseCRDs(crds map[string][]byte) ([]manifest.Object, error) {
	names := make([]string, 0, len(crds))
	for name := range crds {
		names = append(names, name)
	}
	sort.Strings(names)
	var objects []manifest.Object
	for _, name := range names {
		if known, ok := parsed.Load(string(crds[name])); ok {
			objects = append(objects, known.([]manifest.Object)...)
			continue
		}
		found, err := manifest.Parse(crds[name])
		if err != nil {
			return nil, fmt.Errorf("custom resource definition %s: %w", name, err)
		}
		for _, o := range found {
			if o.Kind() != "CustomResourceDefinition" {
				return nil, fmt.Errorf("%s holds %s; only custom resource definitions belong there", name, o.ID())
			}
		}
		parsed.Store(string(crds[name]), found)
		objects = append(objects, found...)
	}
	return objects, nil
}
