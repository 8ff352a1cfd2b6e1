package scaler

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// hostProblem says why no worker should be on a host; "": it may. A host that does not answer may still run its jobs, so
// this is a reason to send no new ones there, and never one to delete a pod.
func hostProblem(hosts map[string]*corev1.Node, name string) string {
	if name == "" {
		return ""
	}
	host := hosts[name]
	if host == nil {
		return fmt.Sprintf("host %s has left the cluster", name)
	}
	for _, taint := range host.Spec.Taints {
		if taint.Key == corev1.TaintNodeOutOfService {
			return fmt.Sprintf("host %s is out of service", name)
		}
	}
	if host.Spec.Unschedulable {
		return fmt.Sprintf("host %s is cordoned", name)
	}
	for _, condition := range host.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return fmt.Sprintf("host %s does not answer", name)
		}
	}
	return ""
}

// blocked says, by node name, why no host can take its pod: its hosts are all unusable, or its old pod does not end
// because its kubelet is dead. Such a pod is never deleted by force: its jobs may still run. It goes when Kubernetes
// itself is told so, by the end of the Node object or by the taint node.kubernetes.io/out-of-service.
func blocked(view *view, pool *poolView) map[string]string {
	reasons := map[string]string{}
	byLabel := map[string]string{} // what hosts are pinned by, to their names
	for name, host := range view.hosts {
		byLabel[host.Labels[corev1.LabelHostname]] = name
	}
	anywhere := "" // of a pool without hosts of its own
	if len(pool.object.Spec.Hosts) == 0 {
		anywhere = noHost(view, matching(view, pool))
	}
	for _, name := range pool.names() {
		if pod := pool.pods[name]; pod != nil && pod.DeletionTimestamp != nil {
			if why := hostProblem(view.hosts, pod.Spec.NodeName); why != "" && !strings.HasSuffix(why, "is cordoned") {
				reasons[name] = why + ", and its last pod has not ended there"
				continue
			}
		}
		why := anywhere
		if hosts := hostsOf(pool, name); len(hosts) > 0 {
			named := make([]string, 0, len(hosts))
			for _, host := range hosts {
				if known, ok := byLabel[host]; ok {
					host = known
				}
				named = append(named, host)
			}
			why = noHost(view, named)
		}
		if why != "" {
			reasons[name] = why
		}
	}
	return reasons
}

// hostsOf are the hosts that a node's pod may run on, as its pool names them; none: any.
func hostsOf(pool *poolView, node string) []string {
	hosts := pool.object.Spec.Hosts
	if len(hosts) != int(pool.object.Spec.Max) {
		return hosts
	}
	if index := slices.Index(pool.names(), node); index >= 0 {
		return hosts[index : index+1]
	}
	return hosts
}

// matching are the hosts that the pool's template may run on.
func matching(view *view, pool *poolView) []string {
	template := pool.template
	if template == nil {
		template = &pool.object.Spec.Template
	}
	selector := labels.SelectorFromSet(template.Spec.NodeSelector)
	var names []string
	for name, host := range view.hosts {
		if selector.Matches(labels.Set(host.Labels)) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// noHost says why none of the hosts can take a pod; "": one can, or there is none to speak of.
func noHost(view *view, hosts []string) string {
	var reasons []string
	for _, host := range hosts {
		why := hostProblem(view.hosts, host)
		if why == "" {
			return ""
		}
		if !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	if len(reasons) > 3 {
		reasons = append(reasons[:3], fmt.Sprintf("and %d more", len(reasons)-3))
	}
	return strings.Join(reasons, ", ")
}
