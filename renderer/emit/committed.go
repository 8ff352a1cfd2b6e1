package emit

import (
	"io/fs"
	"path"

	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/inflate"
	"github.com/berth-hpc/berth/renderer/kustomize"
)

// Committed is a site's tree as it lies in the repository at root, whatever rendered it, with the chart in dir of files: what
// Flux sees. Entry are Flux's own entry points. Both are empty where the site was never rendered.
func Committed(root, site string, files fs.FS, dir string) (layers []inflate.Layer, entry []manifest.Object, err error) {
	tree, err := readGenerated(root, site)
	if err != nil || len(tree) == 0 {
		return nil, nil, err
	}
	in, err := ReadInputs(root, site)
	if err != nil {
		return nil, nil, err
	}
	committed, err := kustomize.NewFiles(tree.WithInputs(site, in))
	if err != nil {
		return nil, nil, err
	}
	if entry, err = committed.Build(naming.Cluster(site)); err != nil {
		return nil, nil, err
	}
	var names []string
	built := map[string][]manifest.Object{}
	for _, layer := range compile.LayerNames() {
		folder := path.Join(naming.Overlay(site), layer)
		if tree[path.Join(folder, "kustomization.yaml")] == nil {
			continue
		}
		names = append(names, layer)
		if built[layer], err = committed.Build(folder); err != nil {
			return nil, nil, err
		}
	}
	layers, err = inflate.Layers(names, built, inflate.Chart(files, dir))
	return layers, entry, err
}
