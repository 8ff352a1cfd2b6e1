package inflate

import (
	"fmt"
	"sort"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
)

// reference is what one object says that another must exist.
type reference struct {
	from            string
	kind, namespace string
	name            string
}

// Dangling lists references to ConfigMaps, Secrets, claims, service accounts, roles and classes that nothing among the objects
// provides: a pod that names one waits for ever, and no tool before the cluster would say so. provided are objects that come
// from elsewhere (sealed secrets, what Kubernetes makes by itself).
func Dangling(objects, provided []manifest.Object) []string {
	have := map[string]bool{}
	for _, o := range append(append([]manifest.Object{}, objects...), provided...) {
		have[identity(o.Kind(), o.Namespace(), o.Name())] = true
	}
	seen := map[string]bool{}
	var dangling []string
	for _, o := range objects {
		for _, r := range references(o) {
			if have[identity(r.kind, r.namespace, r.name)] || madeByKubernetes(r) {
				continue
			}
			where := r.name
			if r.namespace != "" {
				where = r.namespace + "/" + r.name
			}
			text := fmt.Sprintf("%s refers to %s %s, which no layer makes", r.from, r.kind, where)
			if !seen[text] {
				seen[text] = true
				dangling = append(dangling, text)
			}
		}
	}
	sort.Strings(dangling)
	return dangling
}

func identity(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// madeByKubernetes are objects that every cluster or namespace has.
func madeByKubernetes(r reference) bool {
	switch r.kind {
	case "ServiceAccount":
		return r.name == "default"
	case "ConfigMap":
		return r.name == "kube-root-ca.crt"
	case "PriorityClass":
		return r.name == "system-cluster-critical" || r.name == "system-node-critical"
	case "ClusterRole":
		return r.name == "view" || r.name == "edit" || r.name == "admin" || r.name == "cluster-admin"
	}
	return false
}

// podPaths is where the pod's specification is in each kind that has one.
var podPaths = map[string][]string{
	"Pod": {"spec"}, "Deployment": {"spec", "template", "spec"}, "StatefulSet": {"spec", "template", "spec"},
	"DaemonSet": {"spec", "template", "spec"}, "Job": {"spec", "template", "spec"}, "WorkerPool": {"spec", "template", "spec"},
	"CronJob": {"spec", "jobTemplate", "spec", "template", "spec"},
}

func references(o manifest.Object) []reference {
	var found []reference
	add := func(kind, namespace string, name any) {
		if text, ok := name.(string); ok && text != "" {
			found = append(found, reference{from: o.ID(), kind: kind, namespace: namespace, name: text})
		}
	}
	content := o.Content()
	switch o.Kind() {
	case "HelmRelease":
		for _, source := range list(at(content, "spec", "valuesFrom")) {
			add(text(source["kind"]), o.Namespace(), source["name"])
		}
	case "RoleBinding", "ClusterRoleBinding":
		namespace := o.Namespace()
		if text(at(content, "roleRef", "kind")) == "ClusterRole" {
			namespace = ""
		}
		add(text(at(content, "roleRef", "kind")), namespace, at(content, "roleRef", "name"))
		for _, subject := range list(content["subjects"]) {
			if subject["kind"] == "ServiceAccount" {
				add("ServiceAccount", text(subject["namespace"]), subject["name"])
			}
		}
	case "PersistentVolumeClaim":
		add("PersistentVolume", "", at(content, "spec", "volumeName"))
	}
	if path, ok := podPaths[o.Kind()]; ok {
		if pod, ok := at(content, path...).(map[string]any); ok {
			podReferences(pod, o.Namespace(), add)
		}
	}
	return found
}

func podReferences(pod map[string]any, namespace string, add func(kind, namespace string, name any)) {
	add("ServiceAccount", namespace, pod["serviceAccountName"])
	add("PriorityClass", "", pod["priorityClassName"])
	add("RuntimeClass", "", pod["runtimeClassName"])
	for _, volume := range list(pod["volumes"]) {
		sourceReferences(volume, namespace, add)
		for _, source := range list(at(volume, "projected", "sources")) {
			sourceReferences(source, namespace, add)
		}
		add("PersistentVolumeClaim", namespace, at(volume, "persistentVolumeClaim", "claimName"))
	}
	for _, key := range []string{"initContainers", "containers"} {
		for _, container := range list(pod[key]) {
			for _, variable := range list(container["env"]) {
				from, _ := variable["valueFrom"].(map[string]any)
				keyReference(from, namespace, add)
			}
			for _, source := range list(container["envFrom"]) {
				if at(source, "configMapRef", "optional") != true {
					add("ConfigMap", namespace, at(source, "configMapRef", "name"))
				}
				if at(source, "secretRef", "optional") != true {
					add("Secret", namespace, at(source, "secretRef", "name"))
				}
			}
		}
	}
}

func keyReference(from map[string]any, namespace string, add func(kind, namespace string, name any)) {
	if at(from, "configMapKeyRef", "optional") != true {
		add("ConfigMap", namespace, at(from, "configMapKeyRef", "name"))
	}
	if at(from, "secretKeyRef", "optional") != true {
		add("Secret", namespace, at(from, "secretKeyRef", "name"))
	}
}

func sourceReferences(source map[string]any, namespace string, add func(kind, namespace string, name any)) {
	if at(source, "configMap", "optional") != true {
		add("ConfigMap", namespace, at(source, "configMap", "name"))
	}
	if at(source, "secret", "optional") != true {
		add("Secret", namespace, at(source, "secret", "secretName"))
		add("Secret", namespace, at(source, "secret", "name")) // in a projected volume
	}
}

func at(node any, path ...string) any {
	for _, key := range path {
		m, ok := node.(map[string]any)
		if !ok {
			return nil
		}
		node = m[key]
	}
	return node
}

func list(node any) []map[string]any {
	items, _ := node.([]any)
	var out []map[string]any
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func text(node any) string {
	s, _ := node.(string)
	return s
}
