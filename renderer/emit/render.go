package emit

import (
	"errors"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/inflate"
	"github.com/berth-hpc/berth/renderer/kustomize"
	"github.com/berth-hpc/berth/renderer/site"
)

// Rendered is a site as it would be written, known to build.
type Rendered struct {
	Compiled *compile.Result
	Inputs   Inputs
	Tree     Tree
	// Inflated is what reaches the cluster, layer by layer: kustomize and Helm have run, patches are applied.
	Inflated []inflate.Layer
	// Notes are what a person should know and no rule forbids.
	Notes []string
}

// Render compiles a site with the patches and sealed secrets of the repository at root, and builds every layer in memory: what
// it returns is known to build, and every reference in it to lead somewhere. It writes nothing.
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
	r := &Rendered{Compiled: result, Inputs: in, Tree: tree}
	if err := r.build(parts); err != nil {
		return nil, err
	}
	if err := r.checkReferences(); err != nil {
		return nil, err
	}
	if in.Secrets == nil {
		r.Notes = append(r.Notes, fmt.Sprintf("no sealed secrets in %s yet: berth secrets init %s makes them", naming.Secrets(s.Name), s.Name))
	}
	return r, nil
}

// LayerNames are the site's layers, in the order in which each depends on the one before.
func (r *Rendered) LayerNames() []string { return layerNames(r.Compiled) }

// build runs over every layer what Flux will run.
func (r *Rendered) build(parts compile.Parts) error {
	s := r.Compiled.Site
	files, err := kustomize.NewFiles(r.Tree.WithInputs(s.Name, r.Inputs))
	if err != nil {
		return err
	}
	if _, err := files.Build(naming.Cluster(s.Name)); err != nil {
		return err
	}
	built := map[string][]manifest.Object{}
	for _, layer := range r.LayerNames() {
		if built[layer], err = files.Build(path.Join(naming.Overlay(s.Name), layer)); err != nil {
			return fmt.Errorf("%w\n(if a patch in %s is meant: its object must be in this layer)", err, naming.Patches(s.Name, layer))
		}
	}
	if r.Inflated, err = inflate.Layers(r.LayerNames(), built, inflate.Chart(parts.Chart, parts.ChartDir)); err != nil {
		return fmt.Errorf("%s: %w\n(if a patch in %s says so, mend it; else it is Berth's mistake)", s.Name, err, path.Dir(naming.Patches(s.Name, "any")))
	}
	return nil
}

// checkReferences refuses a tree in which a pod would wait for something that nobody makes.
func (r *Rendered) checkReferences() error {
	var objects []manifest.Object
	for _, layer := range r.Inflated {
		objects = append(objects, layer.Objects...)
	}
	var provided []manifest.Object
	if r.Inputs.Secrets == nil {
		// Before the first secrets init the declared names stand for the secrets.
		var err error
		if provided, err = declaredSecrets(r.Compiled.Site); err != nil {
			return err
		}
	}
	dangling := inflate.Dangling(objects, provided)
	if len(dangling) == 0 {
		return nil
	}
	return errors.New(r.Compiled.Site.Name + ": " + strings.Join(dangling, "\n"+r.Compiled.Site.Name+": "))
}

// declaredSecrets are the Secrets that secrets init makes, by name only.
func declaredSecrets(s *site.Site) ([]manifest.Object, error) {
	var typed []any
	for _, one := range []struct{ namespace, name string }{
		{s.Namespaces.Slurm, s.Secrets.Names.AuthKey}, {s.Namespaces.Workers, s.Secrets.Names.AuthKey},
		{s.Namespaces.Slurm, s.Secrets.Names.JWTKey}, {s.Namespaces.Slurm, s.Secrets.Names.Database},
		{s.Namespaces.Workers, s.Secrets.Names.SSHHost},
	} {
		typed = append(typed, &corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: one.namespace, Name: one.name},
		})
	}
	return manifest.All(typed...)
}
