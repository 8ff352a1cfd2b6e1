package box

import "encoding/json"

// pauseImage holds the namespaces of each pod; dnsImage is the cluster's DNS.
// Both are one static program, imported into the box's containerd.
const (
	pauseImage = "localhost/berth-lab/pause:box"
	dnsImage   = "localhost/berth-lab/dns:box"
)

const corefile = `.:53 {
    errors
    health :8080 {
        lameduck 0s
    }
    ready :8181
    cache 5 {
        disable success cluster.local
        disable denial cluster.local
    }
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 5
    }
}
`

// baseObjects are what every cluster has and what a bare API server lacks:
// cluster DNS, where and labelled as everywhere, and the namespace of Flux,
// whose controllers run beside the cluster.
func baseObjects() (string, error) {
	const system = "kube-system"
	labels := object{"k8s-app": "kube-dns"}
	meta := func(name string) object { return object{"name": name, "namespace": system, "labels": labels} }
	role := "system:coredns"
	probe := func(path string, port int) object {
		return object{"httpGet": object{"path": path, "port": port}, "periodSeconds": 1, "failureThreshold": 60}
	}
	objects := list{
		object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "flux-system"}},
		object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("coredns")},
		object{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": object{"name": role}, "rules": list{
			object{"apiGroups": list{""}, "resources": list{"endpoints", "services", "pods", "namespaces"}, "verbs": list{"list", "watch"}},
			object{"apiGroups": list{"discovery.k8s.io"}, "resources": list{"endpointslices"}, "verbs": list{"list", "watch"}},
		}},
		object{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": object{"name": role},
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
			"subjects": list{object{"kind": "ServiceAccount", "name": "coredns", "namespace": system}},
		},
		object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("coredns"), "data": object{"Corefile": corefile}},
		object{"apiVersion": "v1", "kind": "Service", "metadata": meta("kube-dns"), "spec": object{
			"clusterIP": dnsIP, "selector": labels,
			"ports": list{
				object{"name": "dns", "port": 53, "protocol": "UDP"},
				object{"name": "dns-tcp", "port": 53, "protocol": "TCP"},
			},
		}},
		object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("coredns"), "spec": object{
			"replicas": 1, "selector": object{"matchLabels": labels},
			"template": object{
				"metadata": object{"labels": labels},
				"spec": object{
					"serviceAccountName": "coredns", "dnsPolicy": "Default", "priorityClassName": "system-cluster-critical",
					"terminationGracePeriodSeconds": 1,
					"containers": list{object{
						"name": "coredns", "image": dnsImage, "imagePullPolicy": "Never",
						"args":           list{"-conf", "/etc/coredns/Corefile"},
						"ports":          list{object{"containerPort": 53, "protocol": "UDP"}, object{"containerPort": 53, "protocol": "TCP"}},
						"readinessProbe": probe("/ready", 8181), "startupProbe": probe("/health", 8080),
						"securityContext": object{
							"runAsNonRoot": true, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
							"capabilities": object{"drop": list{"ALL"}},
						},
						"volumeMounts": list{object{"name": "config", "mountPath": "/etc/coredns", "readOnly": true}},
					}},
					"volumes": list{object{"name": "config", "configMap": object{"name": "coredns"}}},
				},
			},
		}},
	}
	text, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": objects})
	return string(text), err
}
