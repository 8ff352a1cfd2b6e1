package emit

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"path"
	"slices"

	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/compile/helmchart"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/inflate"
	"github.com/berth-hpc/berth/renderer/kustomize"
	"github.com/berth-hpc/berth/renderer/site"
)

// Preview renders variants of one site again and again, to see what a change of a field changes. It builds a layer once for the
// same objects, and checks nothing: a variant need not be a site that render would write.
type Preview struct {
	parts  compile.Parts
	inputs Inputs
	chart  inflate.RenderChart
	built  map[[sha256.Size]byte]inflate.Layer
}

// NewPreview takes the patches and sealed secrets of the repository at root.
func NewPreview(root, site string, parts compile.Parts) (*Preview, error) {
	in, err := ReadInputs(root, site)
	if err != nil {
		return nil, err
	}
	loaded, err := helmchart.Load(parts.Chart, parts.ChartDir)
	if err != nil {
		return nil, err
	}
	chart, err := helmchart.NewRepeated(loaded)
	if err != nil {
		return nil, err
	}
	return &Preview{parts: parts, inputs: in, chart: chart.Render, built: map[[sha256.Size]byte]inflate.Layer{}}, nil
}

// Patches are the user's patch files, layer to file names.
func (p *Preview) Patches() map[string][]string {
	found := map[string][]string{}
	for layer, files := range p.inputs.Patches {
		found[layer] = Tree(files).Paths()
	}
	return found
}

// WithoutPatch is a preview that leaves one patch file out.
func (p *Preview) WithoutPatch(layer, file string) *Preview {
	in := p.inputs
	in.Patches = maps.Clone(in.Patches)
	in.Patches[layer] = maps.Clone(in.Patches[layer])
	delete(in.Patches[layer], file)
	return &Preview{parts: p.parts, inputs: in, chart: p.chart, built: map[[sha256.Size]byte]inflate.Layer{}}
}

// Layers are what of the variant reaches the cluster, and Flux's entry points.
func (p *Preview) Layers(s *site.Site) (layers []inflate.Layer, entry []manifest.Object, err error) {
	result, err := compile.Compile(s, p.parts)
	if err != nil {
		return nil, nil, err
	}
	for _, layer := range result.Layers {
		built, err := p.layer(s.Name, layer)
		if err != nil {
			return nil, nil, err
		}
		layers = append(layers, built)
	}
	for _, name := range sortedNames(result.Entry) {
		entry = append(entry, result.Entry[name])
	}
	return layers, entry, nil
}

func (p *Preview) layer(site string, layer compile.Layer) (inflate.Layer, error) {
	sum := sha256.New()
	for _, o := range layer.Objects {
		if err := json.NewEncoder(sum).Encode(o.Content()); err != nil {
			return inflate.Layer{}, err
		}
	}
	key := [sha256.Size]byte(sum.Sum([]byte{}))
	if built, ok := p.built[key]; ok && built.Name == layer.Name {
		return built, nil
	}
	tree := Tree{}
	if err := addLayer(tree, site, layer, p.inputs); err != nil {
		return inflate.Layer{}, err
	}
	files, err := kustomize.NewFiles(tree.WithInputs(site, p.inputs))
	if err != nil {
		return inflate.Layer{}, err
	}
	objects, err := files.Build(path.Join(naming.Overlay(site), layer.Name))
	if err != nil {
		return inflate.Layer{}, err
	}
	inflated, err := inflate.Layers([]string{layer.Name}, map[string][]manifest.Object{layer.Name: objects}, p.chart)
	if err != nil {
		return inflate.Layer{}, err
	}
	p.built[key] = inflated[0]
	return inflated[0], nil
}

// Tree is what render would write of the site.
func (p *Preview) Tree(s *site.Site) (Tree, error) {
	result, err := compile.Compile(s, p.parts)
	if err != nil {
		return nil, err
	}
	return Generate(result, p.inputs)
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
