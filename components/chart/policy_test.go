package chart

import (
	"fmt"
	"io/fs"
	"sort"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// flowTable is files/flows.yaml.
type flowTable struct {
	Roles map[string]struct {
		Namespace string `json:"namespace"`
		Listens   []any  `json:"listens"`
	} `json:"roles"`
	Flows   []flow `json:"flows"`
	Outside []flow `json:"outside"`
}

type flow struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Ports []any  `json:"ports"`
	Why   string `json:"why"`
}

func readFlows(t *testing.T) flowTable {
	t.Helper()
	data, err := fs.ReadFile(Files, Dir+"/files/flows.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var table flowTable
	if err := yaml.UnmarshalStrict(data, &table); err != nil {
		t.Fatal(err)
	}
	return table
}

// portsOf resolves "srun" to the first and last port of the values' default range and "any" to one that no role names.
func portsOf(t *testing.T, ports []any) []int32 {
	t.Helper()
	var numbers []int32
	for _, port := range ports {
		switch p := port.(type) {
		case float64:
			numbers = append(numbers, int32(p))
		case string:
			if p != "srun" {
				t.Fatalf("port %q is neither a number nor srun", p)
			}
			numbers = append(numbers, 60001, 60200)
		}
	}
	return numbers
}

// podIn says whether a peer selects the pods with these labels of a namespace.
func podIn(t *testing.T, peer networkingv1.NetworkPolicyPeer, namespace string, pod labels.Set) bool {
	t.Helper()
	if peer.NamespaceSelector == nil || peer.PodSelector == nil {
		return false
	}
	namespaces, err := metav1.LabelSelectorAsSelector(peer.NamespaceSelector)
	if err != nil {
		t.Fatal(err)
	}
	pods, err := metav1.LabelSelectorAsSelector(peer.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	return namespaces.Matches(labels.Set{"kubernetes.io/metadata.name": namespace}) && pods.Matches(pod)
}

func portIn(rules []networkingv1.NetworkPolicyPort, port int32) bool {
	if len(rules) == 0 {
		return true
	}
	for _, rule := range rules {
		last := rule.Port.IntVal
		if rule.EndPort != nil {
			last = *rule.EndPort
		}
		if rule.Port.IntVal <= port && port <= last {
			return true
		}
	}
	return false
}

// The rendered policies, evaluated as Kubernetes evaluates them (both ends must allow), let through the table's flows and
// nothing else: for every pair of roles, on every port that any role listens on and on one that none does.
func TestFlowsAreThePolicies(t *testing.T) {
	table := readFlows(t)
	policies := map[string]*networkingv1.NetworkPolicy{}
	pods := map[string]labels.Set{}
	namespace := map[string]string{}
	for key, object := range objects(t, nil) {
		if object.GetKind() == "NetworkPolicy" {
			policy := decode[networkingv1.NetworkPolicy](t, object)
			policies[strings.TrimPrefix(policy.Name, "slurm-")] = &policy
		}
		if object.GetKind() == "Job" { // the platform has gone or will go: no role
			continue
		}
		for _, pod := range podTemplates(t, object) {
			role := pod.Labels["app.kubernetes.io/component"]
			pods[role], namespace[role] = pod.Labels, object.GetNamespace()
			if _, known := table.Roles[role]; !known {
				t.Errorf("%s: role %q is not in flows.yaml", key, role)
			}
		}
	}
	ports := map[int32]bool{4242: true}
	for role, of := range table.Roles {
		for _, port := range portsOf(t, of.Listens) {
			ports[port] = true
		}
		if pods[role] == nil || policies[role] == nil {
			t.Fatalf("role %q has no pod or no policy", role)
		}
	}
	want := map[string]bool{}
	for _, f := range table.Flows {
		for port := range ports {
			for _, p := range f.Ports {
				if p == "any" {
					want[fmt.Sprint(f.From, ">", f.To, ":", port)] = true
				}
			}
		}
		if f.Ports[0] != "any" {
			for _, port := range portsOf(t, f.Ports) {
				want[fmt.Sprint(f.From, ">", f.To, ":", port)] = true
			}
		}
		if f.Why == "" {
			t.Errorf("%s to %s: no reason", f.From, f.To)
		}
	}
	for from := range table.Roles {
		for to := range table.Roles {
			for port := range ports {
				out, in := false, false
				for _, rule := range policies[from].Spec.Egress {
					for _, peer := range rule.To {
						out = out || podIn(t, peer, namespace[to], pods[to]) && portIn(rule.Ports, port)
					}
				}
				for _, rule := range policies[to].Spec.Ingress {
					for _, peer := range rule.From {
						in = in || podIn(t, peer, namespace[from], pods[from]) && portIn(rule.Ports, port)
					}
				}
				key := fmt.Sprint(from, ">", to, ":", port)
				if out != in {
					t.Errorf("%s: egress says %v, ingress says %v", key, out, in)
				}
				if out && in != want[key] || !out && want[key] {
					t.Errorf("%s: policies say %v, the table %v", key, out && in, want[key])
				}
			}
		}
	}
}

// The world outside: each line of the table gives exactly its address blocks.
func TestOutsideFlows(t *testing.T) {
	found := map[string][]string{}
	values := map[string]any{"network": map[string]any{
		"lan": "192.168.7.0/24", "apiServer": "192.168.7.1/32", "egress": []any{"0.0.0.0/0", "10.9.0.0/16"},
		"dns": map[string]any{"namespace": "", "cidrs": []any{"169.254.20.10/32"}},
	}}
	for _, object := range objects(t, values) {
		if object.GetKind() != "NetworkPolicy" {
			continue
		}
		policy := decode[networkingv1.NetworkPolicy](t, object)
		role := strings.TrimPrefix(policy.Name, "slurm-")
		add := func(direction string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
			for _, peer := range peers {
				if peer.IPBlock == nil {
					continue
				}
				line := direction + " " + peer.IPBlock.CIDR
				for _, except := range peer.IPBlock.Except {
					line += " -" + except
				}
				for _, port := range ports {
					line += fmt.Sprintf(" %s/%d", *port.Protocol, port.Port.IntVal)
				}
				found[role] = append(found[role], line)
			}
		}
		for _, rule := range policy.Spec.Ingress {
			add("in", rule.From, rule.Ports)
		}
		for _, rule := range policy.Spec.Egress {
			add("out", rule.To, rule.Ports)
		}
		sort.Strings(found[role])
	}
	const dns, api = "out 169.254.20.10/32 UDP/53 TCP/53", "out 192.168.7.1/32 TCP/6443"
	world := []string{"out 0.0.0.0/0 -10.42.0.0/16 -10.43.0.0/16", "out 10.9.0.0/16"}
	want := map[string][]string{
		"controller": {dns, api}, "autoscaler": {dns, api}, "accounting": {dns}, "rest": {dns},
		"worker": append(world[:2:2], dns), "login": append([]string{"in 192.168.7.0/24 TCP/2222"}, append(world[:2:2], dns)...),
	}
	roles := readFlows(t).Roles
	roles["removal"] = roles["autoscaler"] // a hook has no row in the table
	want["removal"] = []string{api}
	for role := range roles {
		sort.Strings(want[role])
		if got := strings.Join(found[role], "\n"); got != strings.Join(want[role], "\n") {
			t.Errorf("%s:\n%s\nwant:\n%s", role, got, strings.Join(want[role], "\n"))
		}
	}
}

// Without a lab network nobody comes in from outside, and without egress ranges nothing leaves.
func TestClosedWorld(t *testing.T) {
	for key, object := range objects(t, map[string]any{"network": map[string]any{"lan": ""}}) {
		if object.GetKind() != "NetworkPolicy" {
			continue
		}
		policy := decode[networkingv1.NetworkPolicy](t, object)
		for _, rule := range policy.Spec.Ingress {
			for _, peer := range rule.From {
				if peer.IPBlock != nil {
					t.Errorf("%s lets in %s", key, peer.IPBlock.CIDR)
				}
			}
		}
	}
}

// Metrics are read by the site's Prometheus alone, and by nobody where there is none.
func TestOnlyPrometheusReadsMetrics(t *testing.T) {
	prometheus := labels.Set{"app.kubernetes.io/name": "prometheus"}
	for namespace, want := range map[string]string{"monitoring": "autoscaler:8080 controller:8081", "": ""} {
		var open []string
		for _, object := range objects(t, map[string]any{"namespaces": map[string]any{"monitoring": namespace}}) {
			if object.GetKind() != "NetworkPolicy" {
				continue
			}
			policy := decode[networkingv1.NetworkPolicy](t, object)
			for _, rule := range policy.Spec.Ingress {
				for _, peer := range rule.From {
					if podIn(t, peer, "monitoring", labels.Set{"app.kubernetes.io/name": "grafana"}) || podIn(t, peer, "elsewhere", prometheus) {
						t.Errorf("%s lets in a stranger: %v", policy.Name, peer)
					}
					if podIn(t, peer, "monitoring", prometheus) {
						open = append(open, fmt.Sprintf("%s:%d", strings.TrimPrefix(policy.Name, "slurm-"), rule.Ports[0].Port.IntVal))
					}
				}
			}
		}
		sort.Strings(open)
		if got := strings.Join(open, " "); got != want {
			t.Errorf("namespaces.monitoring %q opens %q, want %q", namespace, got, want)
		}
	}
}

func TestDefaultDeny(t *testing.T) {
	found := objects(t, map[string]any{"network": map[string]any{"defaultDeny": true}})
	for _, namespace := range []string{"slurm", "slurm-workers"} {
		object := found["NetworkPolicy/"+namespace+"/default-deny"]
		if object == nil {
			t.Fatalf("no default-deny in %s", namespace)
		}
		spec := decode[networkingv1.NetworkPolicy](t, object).Spec
		if len(spec.Ingress)+len(spec.Egress) != 0 || len(spec.PolicyTypes) != 2 || len(spec.PodSelector.MatchLabels) != 0 {
			t.Errorf("%s: not a default deny: %+v", namespace, spec)
		}
	}
}
