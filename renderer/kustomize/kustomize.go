// Package kustomize runs kustomize in this process over files in memory, the way Flux's kustomize-controller runs it: files
// outside of a folder may be referred to, plugins may not. It never reads the disk.
package kustomize

import (
	"fmt"
	"sort"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
)

// Files is a set of files in memory that folders are built from.
type Files struct{ system filesys.FileSystem }

// NewFiles takes files by slash-separated path.
func NewFiles(contents map[string][]byte) (Files, error) {
	system := filesys.MakeFsInMemory()
	names := make([]string, 0, len(contents))
	for name := range contents {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if err := system.WriteFile("/"+name, contents[name]); err != nil {
			return Files{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return Files{system}, nil
}

// Build gives the objects of one folder. An error speaks of paths as the files have them.
func (f Files) Build(folder string) ([]manifest.Object, error) {
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsNone
	resources, err := krusty.MakeKustomizer(options).Run(f.system, "/"+folder)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", folder, strings.ReplaceAll(err.Error(), "/"+folder, folder))
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

// Patch lays patches over objects. A patch that matches nothing is an error.
func Patch(objects []manifest.Object, patches []types.Patch) ([]manifest.Object, error) {
	k := types.Kustomization{
		TypeMeta: types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind}, Patches: patches,
	}
	files := map[string][]byte{}
	for i, o := range objects {
		text, err := o.YAML()
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%05d.yaml", i)
		files["patched/"+name] = text
		k.Resources = append(k.Resources, name)
	}
	text, err := yaml.Marshal(k)
	if err != nil {
		return nil, err
	}
	files["patched/kustomization.yaml"] = text
	built, err := NewFiles(files)
	if err != nil {
		return nil, err
	}
	return built.Build("patched")
}
