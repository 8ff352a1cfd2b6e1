package diff

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// immutable are, by kind, the fields that Kubernetes does not change on a living object (ValidateUpdate of each kind's
// strategy in Kubernetes 1.34; of our own kinds, by their schemas). For a StatefulSet and a claim it is the other way round: all of spec
// but a few fields.
var immutable = map[string][]string{
	"Deployment":         {"spec.selector"},
	"DaemonSet":          {"spec.selector"},
	"Job":                {"spec.selector", "spec.template", "spec.completionMode"},
	"Service":            {"spec.clusterIP", "spec.clusterIPs"},
	"PersistentVolume":   {"spec.nfs", "spec.hostPath", "spec.local", "spec.csi", "spec.nodeAffinity", "spec.volumeMode"},
	"StorageClass":       {"provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"},
	"PriorityClass":      {"value", "preemptionPolicy"},
	"RuntimeClass":       {"handler"},
	"RoleBinding":        {"roleRef"},
	"ClusterRoleBinding": {"roleRef"},
	"SlurmConfig":        {"spec.clusterName"},
	"WorkerPool":         {"spec.nodePrefix"},
	"CustomResourceDefinition": {
		"spec.scope", "spec.group", "spec.names.kind", "spec.names.plural",
	},
}

// mutable are the fields of spec that may change where all others may not.
var mutable = map[string][]string{
	"StatefulSet":           {"replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "persistentVolumeClaimRetentionPolicy", "minReadySeconds"},
	"PersistentVolumeClaim": {"resources", "volumeAttributesClassName"},
}

// frozen names the immutable fields in which two states of one object differ.
func frozen(from, to placed) []string {
	var fields []string
	for _, path := range immutable[to.Kind()] {
		steps := strings.Split(path, ".")
		if !reflect.DeepEqual(at(from.Content(), steps...), at(to.Content(), steps...)) {
			fields = append(fields, path)
		}
	}
	if allowed := mutable[to.Kind()]; allowed != nil {
		a, _ := at(from.Content(), "spec").(map[string]any)
		b, _ := at(to.Content(), "spec").(map[string]any)
		for key := range merged(a, b) {
			if !slices.Contains(allowed, key) && !reflect.DeepEqual(a[key], b[key]) {
				fields = append(fields, "spec."+key)
			}
		}
	}
	if to.Kind() == "PersistentVolumeClaim" && (shrinks(from, to) || static(from) && resizes(from, to)) {
		fields = append(fields, "spec.resources.requests.storage")
	}
	if (to.Kind() == "ConfigMap" || to.Kind() == "Secret") && at(from.Content(), "immutable") == true {
		for _, key := range []string{"data", "binaryData", "stringData"} {
			if !reflect.DeepEqual(from.Content()[key], to.Content()[key]) {
				fields = append(fields, key)
			}
		}
	}
	slices.Sort(fields)
	return fields
}

// shrinks says whether a claim asks for less than before: Kubernetes only lets claims grow.
func shrinks(from, to placed) bool {
	a, b := claimed(from), claimed(to)
	return b.Cmp(a) < 0
}

// resizes says whether a claim asks for another size than before.
func resizes(from, to placed) bool {
	a, b := claimed(from), claimed(to)
	return b.Cmp(a) != 0
}

func claimed(o placed) resource.Quantity {
	text, _ := at(o.Content(), "spec", "resources", "requests", "storage").(string)
	quantity, _ := resource.ParseQuantity(text)
	return quantity
}

// static says whether a claim is for a volume that an administrator made. Only one that a storage class provisioned can grow.
func static(o placed) bool {
	class, named := at(o.Content(), "spec", "storageClassName").(string)
	return at(o.Content(), "spec", "volumeName") != nil || named && class == ""
}

func (r *Report) immutable(before, after map[string]placed) {
	for _, id := range slices.Sorted(maps.Keys(after)) {
		from, both := before[id]
		if !both {
			continue
		}
		if fields := frozen(from, after[id]); len(fields) > 0 {
			r.add(Replace, id, "%s cannot change on a living object: Kubernetes refuses the apply until the object is deleted and made anew", strings.Join(fields, ", "))
		}
	}
}
