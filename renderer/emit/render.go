package emit

import (
	"fmt"

	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/site"
)

// Rendered is a site as it would be written, known to build.
type Rendered struct {
	Compiled *compile.Result
	Inputs   Inputs
	Tree     Tree
	// Built is what kustomize makes of each layer: Flux applies exactly this. The entry points are under the empty name.
	Built map[string][]manifest.Object
	// Notes are what a person should know and no rule forbids.
	Notes []string
}

// Render compiles a site with the patches and sealed secrets of the repository at root, and builds every layer in memory. It
// writes nothing.
func Render(root string, s *site.Site, parts compile.Parts) (*Rendered, error) {
	result, err := compile.Compile(s, parts)
	if err != nil {
		return nil, err
	}
	in, err := ReadInputs(root, s.Name)
	if err != nil {
		return nil, err
	}
	tree, err := Generate(result, in)
	if err != nil {
		return nil, err
	}
	built, err := BuildAll(tree.WithInputs(s.Name, in), s.Name, layerNames(result))
	if err != nil {
		return nil, err
	}
	r := &Rendered{Compiled: result, Inputs: in, Tree: tree, Built: built}
	if in.Secrets == nil {
		r.Notes = append(r.Notes, fmt.Sprintf("no sealed secrets in %s yet: berth secrets init %s makes them", naming.Secrets(s.Name), s.Name))
	}
	return r, nil
}

// LayerNames are the site's layers, in the order in which each depends on the one before.
func (r *Rendered) LayerNames() []string { return layerNames(r.Compiled) }
