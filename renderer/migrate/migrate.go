// Package migrate rewrites sites that were written for an earlier version of the schema. It changes what a version changed and
// nothing else: comments, order and expressions stay. It evaluates nothing and writes no file.
package migrate

import (
	"fmt"
	"strconv"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"
)

// Current is the version of the schema that this berth has, as cue/site.cue says too.
const Current = 1

// versionField is the field of a site that names its version.
const versionField = "schemaVersion"

// rename is one field that a version gave another name, by its path in a site.
type rename struct {
	parent   string // the field that holds it
	from, to string
}

// steps are what each version changed against the one before it: steps[0] leads from version 0 to 1.
var steps = [Current][]rename{
	// Version 0 had one interval, at which Flux looked at the repository. Version 1 calls that sourceInterval; its interval is the
	// one at which Flux puts right what drifted.
	{{"delivery", "interval", "sourceInterval"}},
}

// Change is one thing that was rewritten.
type Change struct {
	Site   string `json:"site"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	What   string `json:"what"`
}

// File rewrites the sites of one file of package clusters. Each is taken for the version that it names, or else for version from.
// The result is nil where nothing changes.
func File(name string, text []byte, from int) ([]byte, []Change, error) {
	file, err := parser.ParseFile(name, text, parser.ParseComments)
	if err != nil {
		return nil, nil, err
	}
	var changes []Change
	for _, d := range file.Decls {
		field, is := d.(*ast.Field)
		if !is || !isSite(field.Value) {
			continue
		}
		found, err := site(name, field, from)
		if err != nil {
			return nil, nil, err
		}
		changes = append(changes, found...)
	}
	if len(changes) == 0 {
		return nil, nil, nil
	}
	out, err := format.Node(file)
	return out, changes, err
}

// isSite reports whether a value is made of site.#Site.
func isSite(value ast.Expr) bool {
	switch value := value.(type) {
	case *ast.BinaryExpr:
		return isSite(value.X) || isSite(value.Y)
	case *ast.SelectorExpr:
		name, _, _ := ast.LabelName(value.Sel)
		return name == "#Site"
	}
	return false
}

func site(file string, s *ast.Field, from int) ([]Change, error) {
	name, _, err := ast.LabelName(s.Label)
	if err != nil {
		return nil, fmt.Errorf("%s:%d: a site's name cannot be computed: %w", file, s.Pos().Line(), err)
	}
	var changes []Change
	change := func(at *ast.Field, what string) {
		p := at.Label.Pos()
		changes = append(changes, Change{name, p.Line(), p.Column(), what})
	}
	version := from
	named := fieldsOf(s.Value, versionField)
	for _, f := range named {
		literal, is := f.Value.(*ast.BasicLit)
		n, err := 0, error(nil)
		if is {
			n, err = strconv.Atoi(literal.Value)
		}
		if !is || err != nil {
			return nil, fmt.Errorf("%s:%d: %s.%s: is not a number", file, f.Pos().Line(), name, versionField)
		}
		version = n
	}
	if version < 0 || version > Current {
		return nil, fmt.Errorf("%s:%d: %s is written for version %d of the schema, and this berth has %d; use a newer berth", file, s.Pos().Line(), name, version, Current)
	}
	if version == Current {
		return nil, nil
	}
	for _, step := range steps[version:] {
		for _, r := range step {
			for _, parent := range fieldsOf(s.Value, r.parent) {
				old := fieldsOf(parent.Value, r.from)
				if taken := fieldsOf(parent.Value, r.to); len(old) > 0 && len(taken) > 0 {
					return nil, fmt.Errorf("%s:%d: %s.%s has both %s and %s; it is not of version %d", file, old[0].Pos().Line(), name, r.parent, r.from, r.to, version)
				}
				for _, f := range old {
					change(f, fmt.Sprintf("%s.%s is now %s.%s", r.parent, r.from, r.parent, r.to))
					relabel(f, r.to)
				}
			}
		}
	}
	for _, f := range named {
		change(f, fmt.Sprintf("%s is now %d", versionField, Current))
		f.Value.(*ast.BasicLit).Value = strconv.Itoa(Current)
	}
	return changes, nil
}

// relabel gives a field another name, and leaves its comments and its place.
func relabel(f *ast.Field, name string) {
	switch label := f.Label.(type) {
	case *ast.Ident:
		label.Name = name
	case *ast.BasicLit:
		label.Value = strconv.Quote(name)
	}
}

// fieldsOf are the fields of a name that a value writes itself, wherever its parts are joined by &.
func fieldsOf(value ast.Expr, name string) []*ast.Field {
	var found []*ast.Field
	switch value := value.(type) {
	case *ast.BinaryExpr:
		found = append(fieldsOf(value.X, name), fieldsOf(value.Y, name)...)
	case *ast.ParenExpr:
		found = fieldsOf(value.X, name)
	case *ast.StructLit:
		for _, d := range value.Elts {
			switch d := d.(type) {
			case *ast.Field:
				if label, _, err := ast.LabelName(d.Label); err == nil && label == name {
					found = append(found, d)
				}
			case *ast.EmbedDecl:
				found = append(found, fieldsOf(d.Expr, name)...)
			}
		}
	}
	return found
}
