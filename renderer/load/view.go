package load

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
)

// view is one evaluation of the package.
type view struct {
	index    *index
	sites    []evaluated // the wanted ones, in the order of their names
	root     cue.Value
	context  *cue.Context
	instance *build.Instance
}

// cut is a declaration that is taken out before evaluation, by where it stands: each view parses the files afresh.
type cut struct {
	file   string
	offset int
	path   string
}

// newView reads the package, makes the cuts and evaluates the named sites, or all. An earlier view of the same package, if there
// is one, lends what it imports: compiling the schema costs more than most sites.
func newView(dir string, names []string, cuts []cut, earlier *view) (*view, error) {
	instance, err := read(dir)
	if err != nil {
		return nil, err
	}
	v := &view{context: cuecontext.New(), instance: instance, index: newIndex(instance.Files)}
	if earlier != nil {
		v.context, instance.Imports = earlier.context, earlier.instance.Imports
	}
	if len(cuts) > 0 {
		for _, c := range cuts {
			for _, e := range v.index.byPath[c.path] {
				if p := e.label.Position(); p.Filename == c.file && p.Offset == c.offset {
					e.remove()
				}
			}
		}
		v.index = newIndex(instance.Files)
	}
	if len(names) > 0 {
		narrow(instance, names)
	}
	v.root = v.context.BuildInstance(instance)
	all, err := sitesOf(v.root)
	if err != nil {
		return nil, problemsOf(dir, err)
	}
	for _, n := range names {
		if !slices.ContainsFunc(all, func(s evaluated) bool { return s.name == n }) {
			return nil, unknown(dir, n)
		}
	}
	for _, s := range all {
		if len(names) == 0 || slices.Contains(names, s.name) {
			for _, of := range v.index.byPath[s.name+pathSeparator+ofField] {
				switch of.node.(type) {
				case *ast.BasicLit, *ast.BinaryExpr, *ast.StructLit, *ast.ListLit:
					s.literal = true
				}
			}
			v.sites = append(v.sites, s)
		}
	}
	return v, nil
}

// unknown says which sites there are instead of the one that is asked for.
func unknown(dir, name string) error {
	v, err := newView(dir, nil, nil, nil)
	if err != nil {
		return err
	}
	var known []string
	for _, s := range v.sites {
		known = append(known, s.name)
	}
	return fmt.Errorf("%s: there is no site %q%s (known: %s)", dir, name, didYouMean(name, known), strings.Join(known, ", "))
}

// schema is #Site as the package imports it; it does not exist where nothing imports the schema.
func (v *view) schema() cue.Value { return schemaOf(v.context, v.instance) }
