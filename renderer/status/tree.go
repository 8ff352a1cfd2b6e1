package status

import (
	"context"
	"fmt"
	"slices"
	"strings"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/renderer/compile/flux"
	"github.com/berth-hpc/berth/renderer/site"
)

// ReadTree adds to each layer the objects that Flux keeps for it, those of our chart's release and the workers' pods among them.
func (r *Report) ReadTree(ctx context.Context, cluster client.Reader, s *site.Site) error {
	pods := map[string][]string{} // by WorkerPool
	var workers corev1.PodList
	if err := cluster.List(ctx, &workers, client.InNamespace(s.Namespaces.Workers)); err != nil {
		return err
	}
	for _, pod := range workers.Items {
		if owner := metav1.GetControllerOf(&pod); owner != nil && owner.Kind == "WorkerPool" {
			pods[owner.Name] = append(pods[owner.Name], fmt.Sprintf("Pod %s/%s (%s)", pod.Namespace, pod.Name, pod.Status.Phase))
		}
	}
	for i := range r.Layers {
		var k kustomizev1.Kustomization
		if err := cluster.Get(ctx, client.ObjectKey{Namespace: s.Namespaces.Flux, Name: flux.KustomizationName(r.Layers[i].Name)}, &k); err != nil {
			return err
		}
		if k.Status.Inventory == nil {
			continue
		}
		for _, entry := range k.Status.Inventory.Entries {
			kind, namespace, name := inventoryEntry(entry.ID)
			owned := Owned{Object: identity(kind, namespace, name)}
			switch kind {
			case "WorkerPool":
				owned.Made = pods[name]
			case helmv2.HelmReleaseKind:
				var release helmv2.HelmRelease
				if err := cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &release); err != nil && !absent(err) {
					return err
				}
				if release.Status.Inventory != nil {
					for _, made := range release.Status.Inventory.Entries {
						owned.Made = append(owned.Made, identity(inventoryEntry(made.ID)))
					}
				}
			}
			slices.Sort(owned.Made)
			r.Layers[i].Objects = append(r.Layers[i].Objects, owned)
		}
		slices.SortFunc(r.Layers[i].Objects, func(a, b Owned) int { return strings.Compare(a.Object, b.Object) })
	}
	return nil
}

// inventoryEntry reads Flux's namespace_name_group_kind. A name of RBAC may hold a colon, which Flux writes as two underscores.
func inventoryEntry(id string) (kind, namespace, name string) {
	parts := strings.Split(strings.ReplaceAll(id, "__", ":"), "_")
	if len(parts) != 4 {
		return "", "", id
	}
	return parts[3], parts[0], parts[1]
}

func identity(kind, namespace, name string) string {
	return kind + " " + strings.TrimPrefix(namespace+"/"+name, "/")
}
