// Package live reads a site's objects from a cluster, so that they can be compared with those that a push would bring. It only
// reads.
package live

import (
	"context"
	"fmt"
	"strings"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/renderer/compile/flux"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/diff"
	"github.com/berth-hpc/berth/renderer/inflate"
)

// State is what the cluster has of the wanted state: each wanted object that is there, reduced to the fields that are wanted (a
// cluster fills in many more), and what Flux or Berth made before and nobody wants any more. What may not be read counts as
// being as it is wanted.
func State(ctx context.Context, cluster client.Reader, want diff.State) (diff.State, error) {
	state := diff.State{Name: "the cluster"}
	wanted := map[string]bool{}
	for _, layer := range want.Layers {
		found := inflate.Layer{Name: layer.Name}
		for _, o := range layer.Objects {
			wanted[o.ID()] = true
			there, ok, err := read(ctx, cluster, o)
			if err != nil {
				return state, err
			}
			if ok {
				found.Objects = append(found.Objects, there)
			}
		}
		left, err := leftovers(ctx, cluster, want, layer.Name, wanted)
		if err != nil {
			return state, err
		}
		found.Objects = append(found.Objects, left...)
		state.Layers = append(state.Layers, found)
	}
	for _, o := range want.Entry {
		there, ok, err := read(ctx, cluster, o)
		if err != nil {
			return state, err
		}
		if ok {
			state.Entry = append(state.Entry, there)
		}
	}
	empty := true
	for _, layer := range state.Layers {
		empty = empty && len(layer.Objects) == 0
	}
	if empty {
		state.Layers = nil
	}
	return state, nil
}

// Applied is the commit that Slurm's layer was applied at last; empty: none, or nobody may know.
func Applied(ctx context.Context, cluster client.Reader, want diff.State) (string, error) {
	if want.Site == nil {
		return "", nil
	}
	var k kustomizev1.Kustomization
	err := cluster.Get(ctx, client.ObjectKey{Namespace: want.Site.Namespaces.Flux, Name: flux.KustomizationName("slurm")}, &k)
	if err != nil {
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || apierrors.IsForbidden(err) {
			return "", nil
		}
		return "", err
	}
	_, commit, _ := strings.Cut(k.Status.LastAppliedRevision, "sha1:") // main@sha1:<commit>
	return commit, nil
}

// read is one wanted object as the cluster has it.
func read(ctx context.Context, cluster client.Reader, o manifest.Object) (manifest.Object, bool, error) {
	if o.Kind() == "Secret" { // sealed here and open there: there is nothing to compare without the key
		return o, true, nil
	}
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(schema.FromAPIVersionAndKind(o.APIVersion(), o.Kind()))
	err := cluster.Get(ctx, client.ObjectKey{Namespace: o.Namespace(), Name: o.Name()}, there)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return manifest.Object{}, false, nil
	case apierrors.IsForbidden(err):
		return o, true, nil
	case err != nil:
		return manifest.Object{}, false, fmt.Errorf("%s: %w", o.ID(), err)
	}
	content, _ := reduce(there.Object, o.Content()).(map[string]any)
	reduced, err := manifest.New(content)
	return reduced, err == nil, err
}

// reduce keeps of a live value the fields that the wanted one has. A list of another length is kept whole: it is a difference.
func reduce(live, want any) any {
	switch w := want.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok {
			return live
		}
		out := map[string]any{}
		for key, value := range w {
			found, there := l[key]
			if !there && isEmpty(value) { // the API leaves out what is empty
				found, there = value, true
			}
			if there {
				out[key] = reduce(found, value)
			}
		}
		return out
	case []any:
		l, ok := live.([]any)
		if !ok || len(l) != len(w) {
			return live
		}
		out := make([]any, len(w))
		for i := range w {
			out[i] = reduce(l[i], w[i])
		}
		return out
	}
	if same(live, want) {
		return want
	}
	return live
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return v == nil || v == "" || v == false || v == float64(0)
}

// same compares numbers and quantities by what they are worth: a cluster writes 1000m as 1.
func same(live, want any) bool {
	a, b := fmt.Sprint(live), fmt.Sprint(want)
	if a == b {
		return true
	}
	x, errX := resource.ParseQuantity(a)
	y, errY := resource.ParseQuantity(b)
	return errX == nil && errY == nil && x.Cmp(y) == 0
}

// leftovers are what a layer's Kustomization made, and the pools of ours, that are not wanted any more.
func leftovers(ctx context.Context, cluster client.Reader, want diff.State, layer string, wanted map[string]bool) ([]manifest.Object, error) {
	if want.Site == nil {
		return nil, nil
	}
	var found []manifest.Object
	add := func(apiVersion, kind, namespace, name string) error {
		there := &unstructured.Unstructured{}
		there.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
		err := cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, there)
		if err != nil {
			if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || apierrors.IsForbidden(err) {
				return nil
			}
			return err
		}
		o, err := manifest.New(there.Object)
		if err == nil && !wanted[o.ID()] {
			wanted[o.ID()] = true
			found = append(found, o)
		}
		return err
	}
	var k kustomizev1.Kustomization
	err := cluster.Get(ctx, client.ObjectKey{Namespace: want.Site.Namespaces.Flux, Name: flux.KustomizationName(layer)}, &k)
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return nil, err
	}
	if err == nil && k.Status.Inventory != nil {
		for _, entry := range k.Status.Inventory.Entries {
			// namespace_name_group_kind; a name has no _.
			parts := strings.Split(entry.ID, "_")
			if len(parts) != 4 {
				continue
			}
			version := entry.Version
			if parts[2] != "" {
				version = parts[2] + "/" + version
			}
			if err := add(version, parts[3], parts[0], parts[1]); err != nil {
				return nil, err
			}
		}
	}
	if layer != "slurm" {
		return found, nil
	}
	var pools v1alpha1.WorkerPoolList
	err = cluster.List(ctx, &pools, client.InNamespace(want.Site.Namespaces.Workers))
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsForbidden(err) {
		return nil, err
	}
	for _, pool := range pools.Items {
		if err := add(v1alpha1.GroupVersion.String(), "WorkerPool", pool.Namespace, pool.Name); err != nil {
			return nil, err
		}
	}
	return found, nil
}
