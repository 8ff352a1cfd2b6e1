package live

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Object names a live object, and a field of it or none. Kind is as kubectl takes it: pod, pods, replicasets.apps.
type Object struct{ Kind, Namespace, Name, Field string }

func (o Object) String() string {
	text := strings.ToLower(o.Kind) + "/" + o.Namespace + "/" + o.Name
	if o.Field != "" {
		text += " " + o.Field
	}
	return text
}

// Owner is the object whose controller made another. A field of a pod, or of what makes pods, becomes the field of the owner's pod
// template.
func Owner(ctx context.Context, cluster client.Client, of Object) (Object, error) {
	resource, group, _ := strings.Cut(strings.ToLower(of.Kind), ".")
	kind, err := cluster.RESTMapper().KindFor(schema.GroupVersionResource{Group: group, Resource: resource})
	if err != nil {
		return Object{}, fmt.Errorf("%s: %w", of, err)
	}
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(kind)
	if err := cluster.Get(ctx, client.ObjectKey{Namespace: of.Namespace, Name: of.Name}, there); err != nil {
		return Object{}, fmt.Errorf("%s: %w", of, err)
	}
	owner := metav1.GetControllerOf(there)
	if owner == nil {
		return Object{}, fmt.Errorf("%s is not rendered, and no controller made it: neither Git nor Berth knows of it", of)
	}
	group, _, _ = strings.Cut(owner.APIVersion, "/")
	if !strings.Contains(owner.APIVersion, "/") {
		group = ""
	}
	next := Object{Kind: strings.TrimSuffix(strings.ToLower(owner.Kind)+"."+group, "."), Namespace: of.Namespace, Name: owner.Name, Field: of.Field}
	if of.Field != "" && kind.Kind == "Pod" {
		next.Field = "spec.template." + of.Field
	}
	return next, nil
}
