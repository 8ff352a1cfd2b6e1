package emit

import (
	"bytes"
	"fmt"
	"path"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
)

// readPatches reads the user's patch files of a layer. A file holds a strategic merge patch, which names its object itself, or
// one entry of kustomize's patches list (target and patch). Patches of objects that lie in the layer are kustomize's; patches of
// objects that our chart makes inside the cluster go with the Helm release, which applies them to what the chart renders.
func readPatches(site string, layer compile.Layer, files map[string][]byte) (forKustomize, forRelease []types.Patch, err error) {
	for _, file := range Tree(files).Paths() {
		where := path.Join(naming.Patches(site, layer.Name), file)
		for _, document := range documents(files[file]) {
			var head struct {
				Kind     string                `json:"kind"`
				Metadata struct{ Name string } `json:"metadata"`
				Target   *types.Selector       `json:"target"`
				Patch    string                `json:"patch"`
			}
			if err := yaml.Unmarshal(document, &head); err != nil {
				return nil, nil, fmt.Errorf("%s: not a patch: %w; %s", where, err, patchForms)
			}
			patch := types.Patch{Patch: string(document)}
			kind, name := head.Kind, head.Metadata.Name
			if kind == "" {
				if head.Target == nil || head.Patch == "" {
					return nil, nil, fmt.Errorf("%s: neither a kind: nor a target: with a patch:; %s", where, patchForms)
				}
				patch = types.Patch{Target: head.Target, Patch: head.Patch}
				kind, name = head.Target.Kind, head.Target.Name
			}
			if inLayer(layer, kind, name) || !hasRelease(layer) {
				forKustomize = append(forKustomize, patch)
			} else {
				forRelease = append(forRelease, patch)
			}
		}
	}
	return forKustomize, forRelease, nil
}

const patchForms = "write a part of the object to change (apiVersion, kind, metadata.name and what differs), or target: and patch:"

func documents(text []byte) [][]byte {
	var out [][]byte
	for _, document := range bytes.Split(append([]byte("\n"), text...), []byte("\n---")) {
		var content any
		if yaml.Unmarshal(document, &content) == nil && content == nil {
			continue
		}
		out = append(out, bytes.TrimPrefix(document, []byte("\n")))
	}
	return out
}

// inLayer says whether a patch's target may be one of the layer's own objects; a target without a name may be any of its kind.
func inLayer(layer compile.Layer, kind, name string) bool {
	for _, o := range layer.Objects {
		if o.Kind() == kind && (name == "" || o.Name() == name) {
			return true
		}
	}
	return false
}

func hasRelease(layer compile.Layer) bool {
	return inLayer(layer, helmv2.HelmReleaseKind, naming.ReleaseName)
}

// withPostRenderer gives our chart's release the patches.
func withPostRenderer(objects []manifest.Object, patches []types.Patch) ([]manifest.Object, error) {
	if len(patches) == 0 {
		return objects, nil
	}
	text, err := yaml.Marshal(patches)
	if err != nil {
		return nil, err
	}
	var list []any
	if err := yaml.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	out := append([]manifest.Object{}, objects...)
	for i, o := range out {
		if o.Kind() == helmv2.HelmReleaseKind && o.Name() == naming.ReleaseName {
			out[i] = o.With([]any{map[string]any{"kustomize": map[string]any{"patches": list}}}, "spec", "postRenderers")
		}
	}
	return out, nil
}
