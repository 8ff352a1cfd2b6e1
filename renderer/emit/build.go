package emit

import (
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
)

// Build runs kustomize over one folder of a tree, in memory, as Flux's kustomize-controller does: files outside of the folder
// may be referred to, plugins may not.
func Build(tree Tree, folder string) ([]manifest.Object, error) {
	files := filesys.MakeFsInMemory()
	for _, name := range tree.Paths() {
		if err := files.WriteFile("/"+name, tree[name]); err != nil {
			return nil, err
		}
	}
	return buildFolder(files, folder)
}

func buildFolder(files filesys.FileSystem, folder string) ([]manifest.Object, error) {
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsNone
	resources, err := krusty.MakeKustomizer(options).Run(files, "/"+folder)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", folder, strings.ReplaceAll(err.Error(), "'/"+folder, "'"+folder))
	}
	var objects []manifest.Object
	for _, resource := range resources.Resources() {
		content, err := resource.Map()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		o, err := manifest.New(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// WithInputs is the generated tree together with the user's patches and sealed secrets: what lies in the repository.
func (t Tree) WithInputs(site string, in Inputs) Tree {
	all := Tree{}
	for name, text := range t {
		all[name] = text
	}
	for layer, files := range in.Patches {
		for name, text := range files {
			all[path.Join(naming.Patches(site, layer), name)] = text
		}
	}
	for name, text := range in.Secrets {
		all[path.Join(naming.Secrets(site), name)] = text
	}
	return all
}

// BuildAll runs kustomize over every layer, and over the entry points, so that what is written is known to build. The result
// is what Flux applies, layer name to objects; the entry points are under the empty name.
func BuildAll(tree Tree, site string, layers []string) (map[string][]manifest.Object, error) {
	files := filesys.MakeFsInMemory()
	for _, name := range tree.Paths() {
		if err := files.WriteFile("/"+name, tree[name]); err != nil {
			return nil, err
		}
	}
	built := map[string][]manifest.Object{}
	folders := map[string]string{"": naming.Cluster(site)}
	for _, layer := range layers {
		folders[layer] = path.Join(naming.Overlay(site), layer)
	}
	for layer, folder := range folders {
		objects, err := buildFolder(files, folder)
		if err != nil {
			return nil, err
		}
		built[layer] = objects
	}
	return built, nil
}
