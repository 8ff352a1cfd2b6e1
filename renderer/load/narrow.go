package load

import (
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/token"
)

// narrow takes out of a package the sites that are not named and that nothing which stays refers to: CUE evaluates all that a
// package holds, and a campus beside a laptop costs more than the laptop. A label that is computed, or has an alias, stays. The
// syntax trees of the files change.
func narrow(instance *build.Instance, names []string) {
	fields := map[string][]ast.Node{} // by name, what could go
	var stays []ast.Node
	for _, file := range instance.Files {
		for _, d := range file.Decls {
			if name, ok := removable(d); ok && !slices.Contains(names, name) {
				fields[name] = append(fields[name], d)
			} else {
				stays = append(stays, d)
			}
		}
	}
	for len(stays) > 0 {
		node := stays[len(stays)-1]
		stays = stays[:len(stays)-1]
		ast.Walk(node, func(n ast.Node) bool {
			if ident, ok := n.(*ast.Ident); ok {
				stays = append(stays, fields[ident.Name]...)
				delete(fields, ident.Name)
			}
			return true
		}, nil)
	}
	for _, file := range instance.Files {
		file.Decls = slices.DeleteFunc(slices.Clone(file.Decls), func(d ast.Decl) bool {
			name, ok := removable(d)
			return ok && slices.Contains(fields[name], ast.Node(d))
		})
	}
}

// removable is the name of a regular field, or of a let clause: CUE refuses one that nothing uses.
func removable(d ast.Decl) (name string, ok bool) {
	if let, ok := d.(*ast.LetClause); ok {
		return let.Ident.Name, true
	}
	field, ok := d.(*ast.Field)
	if !ok || field.Constraint != token.ILLEGAL || field.Alias != nil {
		return "", false
	}
	switch field.Label.(type) {
	case *ast.Ident, *ast.BasicLit:
	default:
		return "", false
	}
	name, _, err := ast.LabelName(field.Label)
	return name, err == nil && !strings.HasPrefix(name, "_") && !strings.HasPrefix(name, "#")
}
