// Package inflate shows what Flux will apply: kustomize over each rendered layer, and for Helm releases of our chart what the
// Helm SDK makes of them, all in this process and without a network.
package inflate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/berth-hpc/berth/renderer/compile/helmchart"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/kustomize"
)

// Layer is one layer as it reaches the cluster.
type Layer struct {
	Name    string
	Objects []manifest.Object
	// Opaque are Helm releases of charts that are not in the repository: their objects are known to Flux alone.
	Opaque []string
}

// RenderChart gives the objects of our chart with values (YAML).
type RenderChart func(release helmchart.Release, values []byte) ([]manifest.Object, error)

// Chart renders our chart, in dir of files, as Helm would install it.
func Chart(files fs.FS, dir string) RenderChart {
	return func(release helmchart.Release, values []byte) ([]manifest.Object, error) {
		loaded, err := helmchart.Load(files, dir)
		if err != nil {
			return nil, err
		}
		return helmchart.Render(loaded, release, values)
	}
}

// Layers inflates built layers, in the order of names.
func Layers(names []string, built map[string][]manifest.Object, chart RenderChart) ([]Layer, error) {
	var layers []Layer
	for _, name := range names {
		layer := Layer{Name: name}
		for _, o := range built[name] {
			if o.Kind() != helmv2.HelmReleaseKind {
				layer.Objects = append(layer.Objects, o)
				continue
			}
			var release helmv2.HelmRelease
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Content(), &release); err != nil {
				return nil, fmt.Errorf("layer %s: %s: %w", name, o.ID(), err)
			}
			layer.Objects = append(layer.Objects, o)
			if release.Spec.ReleaseName != naming.ReleaseName {
				layer.Opaque = append(layer.Opaque, o.Name())
				continue
			}
			objects, err := inflateRelease(&release, built[name], chart)
			if err != nil {
				return nil, fmt.Errorf("layer %s: %w", name, err)
			}
			layer.Objects = append(layer.Objects, objects...)
		}
		layers = append(layers, layer)
	}
	return layers, nil
}

// inflateRelease renders a release with its values as helm-controller merges them: each source in order, then spec.values.
func inflateRelease(release *helmv2.HelmRelease, objects []manifest.Object, chart RenderChart) ([]manifest.Object, error) {
	merged := map[string]any{}
	for _, reference := range release.Spec.ValuesFrom {
		text, err := configMapKey(objects, release.Namespace, reference.Name, reference.GetValuesKey())
		if err != nil {
			return nil, fmt.Errorf("HelmRelease %s: valuesFrom: %w", release.Name, err)
		}
		var values map[string]any
		if err := yaml.Unmarshal([]byte(text), &values); err != nil {
			return nil, fmt.Errorf("HelmRelease %s: values in ConfigMap %s: %w", release.Name, reference.Name, err)
		}
		merge(merged, values)
	}
	merge(merged, release.GetValues())
	text, err := yaml.Marshal(merged)
	if err != nil {
		return nil, err
	}
	made, err := chart(helmchart.Release{Name: release.Spec.ReleaseName, Namespace: release.Spec.TargetNamespace}, text)
	if err != nil {
		return nil, err
	}
	for _, renderer := range release.Spec.PostRenderers {
		if renderer.Kustomize == nil {
			continue
		}
		if made, err = postRender(made, renderer.Kustomize); err != nil {
			return nil, fmt.Errorf("a patch of what the chart makes: %w", err)
		}
	}
	return made, nil
}

// postRender applies a release's patches as helm-controller does, with kustomize.
func postRender(objects []manifest.Object, with *helmv2.Kustomize) ([]manifest.Object, error) {
	encoded, err := json.Marshal(with.Patches)
	if err != nil {
		return nil, err
	}
	var patches []types.Patch
	if err := json.Unmarshal(encoded, &patches); err != nil {
		return nil, err
	}
	return kustomize.Patch(objects, patches)
}

func configMapKey(objects []manifest.Object, namespace, name, key string) (string, error) {
	for _, o := range objects {
		if o.Kind() != "ConfigMap" || o.Name() != name || o.Namespace() != namespace {
			continue
		}
		data, _ := o.Content()["data"].(map[string]any)
		text, ok := data[key].(string)
		if !ok {
			return "", fmt.Errorf("ConfigMap %s has no key %s", name, key)
		}
		return text, nil
	}
	return "", fmt.Errorf("ConfigMap %s/%s is not in the layer", namespace, name)
}

// merge lays values over base, maps key by key, everything else whole.
func merge(base, values map[string]any) {
	for key, value := range values {
		below, isMap := value.(map[string]any)
		if there, ok := base[key].(map[string]any); ok && isMap {
			merge(there, below)
			continue
		}
		base[key] = value
	}
}

// YAML is all objects of the layers as one stream, each layer under a comment with its name.
func YAML(layers []Layer) ([]byte, error) {
	var out bytes.Buffer
	for _, layer := range layers {
		fmt.Fprintf(&out, "# Layer %s\n", layer.Name)
		for _, release := range layer.Opaque {
			fmt.Fprintf(&out, "# The chart of HelmRelease %s is fetched by Flux; its objects are not shown, nor whether its templates draw lots at each render.\n", release)
		}
		for _, o := range layer.Objects {
			text, err := o.YAML()
			if err != nil {
				return nil, err
			}
			out.WriteString("---\n")
			out.Write(text)
		}
	}
	return out.Bytes(), nil
}
