// Package manifest holds one Kubernetes object as it is written to a file: typed Go in, canonical YAML out. It never reads
// or writes files.
package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Object is a Kubernetes object without what only a cluster can say (status, creation time).
type Object struct {
	content map[string]any
}

// New makes an Object of a typed value (with its TypeMeta set) or of a map. A value that has no kind, no apiVersion or no
// name is an error.
func New(value any) (Object, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return Object{}, fmt.Errorf("encode %T: %w", value, err)
	}
	content := map[string]any{}
	// UseNumber would leave json.Number in the tree; YAML needs plain numbers, and every number here is far below 2^53.
	if err := json.Unmarshal(raw, &content); err != nil {
		return Object{}, fmt.Errorf("encode %T: %w", value, err)
	}
	delete(content, "status")
	prune(content)
	o := Object{content: content}
	if o.Kind() == "" || o.APIVersion() == "" || o.Name() == "" {
		return Object{}, fmt.Errorf("an object needs apiVersion, kind and metadata.name; got %q %q %q", o.APIVersion(), o.Kind(), o.Name())
	}
	return o, nil
}

// All makes Objects of several values, in their order.
func All(values ...any) ([]Object, error) {
	objects := make([]Object, 0, len(values))
	for _, v := range values {
		o, err := New(v)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// Parse reads all objects of a YAML stream; documents that are empty or hold only comments are left out.
func Parse(stream []byte) ([]Object, error) {
	var objects []Object
	documents := bytes.Split(append([]byte("\n"), stream...), []byte("\n---"))
	for i, document := range documents {
		if i+1 < len(documents) {
			// The line break before the marker is the document's: a text that ends it has it.
			document = append(document[:len(document):len(document)], '\n')
		}
		content := map[string]any{}
		if err := yaml.Unmarshal(document, &content); err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		if len(content) == 0 {
			continue
		}
		o, err := New(content)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// prune takes out null values everywhere: appliers disagree on what a null means, so none is ever written. It also drops the
// empty creation time that typed objects carry.
func prune(node any) {
	switch n := node.(type) {
	case map[string]any:
		for key, value := range n {
			if value == nil {
				delete(n, key)
				continue
			}
			prune(value)
		}
		if metadata, ok := n["metadata"].(map[string]any); ok {
			delete(metadata, "creationTimestamp")
			if len(metadata) == 0 {
				delete(n, "metadata")
			}
		}
	case []any:
		for _, value := range n {
			prune(value)
		}
	}
}

// APIVersion is the object's group and version.
func (o Object) APIVersion() string { return o.text("apiVersion") }

// Kind is the object's kind.
func (o Object) Kind() string { return o.text("kind") }

// Name is metadata.name.
func (o Object) Name() string { return o.text("metadata", "name") }

// Namespace is metadata.namespace, empty for cluster-wide objects.
func (o Object) Namespace() string { return o.text("metadata", "namespace") }

// Annotations are metadata.annotations.
func (o Object) Annotations() map[string]string {
	found, _, _ := unstructured.NestedStringMap(o.content, "metadata", "annotations")
	return found
}

// Content is the object's tree. Callers do not change it.
func (o Object) Content() map[string]any { return o.content }

// With is a copy of the object with a value set at a path.
func (o Object) With(value any, at ...string) Object {
	content := runtime.DeepCopyJSON(o.content)
	node := content
	for _, key := range at[:len(at)-1] {
		below, ok := node[key].(map[string]any)
		if !ok {
			below = map[string]any{}
			node[key] = below
		}
		node = below
	}
	node[at[len(at)-1]] = value
	return Object{content: content}
}

// WithNamespace is a copy of the object in another namespace.
func (o Object) WithNamespace(namespace string) Object {
	return o.With(namespace, "metadata", "namespace")
}

// ID names the object for people: Deployment slurm/slurm-rest.
func (o Object) ID() string {
	if o.Namespace() == "" {
		return o.Kind() + " " + o.Name()
	}
	return o.Kind() + " " + o.Namespace() + "/" + o.Name()
}

func (o Object) text(path ...string) string {
	s, _, _ := unstructured.NestedString(o.content, path...)
	return s
}

// YAML is the object's text: keys sorted, so that the same object is the same bytes.
func (o Object) YAML() ([]byte, error) { return yaml.Marshal(o.content) }

// kindOrder puts what others need in front. Kinds that are not named come after those in the list, workloads last.
var kindOrder = map[string]int{
	"Namespace": 1, "CustomResourceDefinition": 2, "PriorityClass": 3, "RuntimeClass": 4, "StorageClass": 5, "PersistentVolume": 6,
	"PersistentVolumeClaim": 7, "ServiceAccount": 8, "ClusterRole": 9, "ClusterRoleBinding": 10, "Role": 11, "RoleBinding": 12,
	"NetworkPolicy": 13, "ConfigMap": 14, "Secret": 15, "Service": 16,
	"StatefulSet": 50, "Deployment": 51, "DaemonSet": 52, "Job": 53, "CronJob": 54,
}

// Sort orders objects by what needs what, then by kind, namespace and name.
func Sort(objects []Object) {
	rank := func(o Object) int {
		if r, ok := kindOrder[o.Kind()]; ok {
			return r
		}
		return 30
	}
	sort.SliceStable(objects, func(i, j int) bool {
		a, b := objects[i], objects[j]
		if rank(a) != rank(b) {
			return rank(a) < rank(b)
		}
		return a.ID() < b.ID()
	})
}

// FileNames gives each object a file name of its own, kind-name.yaml, with the namespace added where two would collide.
func FileNames(objects []Object) (map[string]Object, error) {
	count := map[string]int{}
	short := func(o Object) string { return fileName(o.Kind() + "-" + o.Name()) }
	for _, o := range objects {
		count[short(o)]++
	}
	files := make(map[string]Object, len(objects))
	for _, o := range objects {
		name := short(o)
		if count[name] > 1 && o.Namespace() != "" {
			name = fileName(o.Kind() + "-" + o.Namespace() + "-" + o.Name())
		}
		if other, taken := files[name]; taken {
			return nil, fmt.Errorf("%s and %s are the same object, or need the same file %s", other.ID(), o.ID(), name)
		}
		files[name] = o
	}
	return files, nil
}

func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == ':' || r == '/' {
			return '-'
		}
		return r
	}, strings.ToLower(name)) + ".yaml"
}
