package load

import (
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
)

// entry is a field or list element that the user wrote: where its value stands, and how to take it out again.
type entry struct {
	path  string // joined by pathSeparator
	label token.Pos
	value token.Pos
	end   token.Pos
	node  ast.Node
	// remove takes the declaration out of the syntax tree.
	remove func()
	// replace puts another value into the declaration.
	replace func(ast.Expr)
}

const pathSeparator = "\x00"

// index knows what the user wrote and where, for the errors to which CUE gives no line of the user's.
type index struct {
	entries []*entry
	byPath  map[string][]*entry
}

// newIndex walks the user's files. References, comprehensions and interpolations are leaves: what they make has no line of
// its own.
func newIndex(files []*ast.File) *index {
	x := &index{byPath: make(map[string][]*entry)}
	for _, f := range files {
		x.decls(nil, f.Decls, func(d ast.Decl) func() {
			return func() { f.Decls = without(f.Decls, d) }
		})
	}
	return x
}

func without[T comparable](list []T, gone T) []T {
	out := make([]T, 0, len(list))
	for _, item := range list {
		if item != gone {
			out = append(out, item)
		}
	}
	return out
}

func (x *index) add(path []string, label token.Pos, value ast.Node, remove func(), replace func(ast.Expr)) {
	e := &entry{path: strings.Join(path, pathSeparator), label: label, value: value.Pos(), end: value.End(), node: value, remove: remove, replace: replace}
	x.entries = append(x.entries, e)
	x.byPath[e.path] = append(x.byPath[e.path], e)
}

func (x *index) decls(path []string, decls []ast.Decl, remover func(ast.Decl) func()) {
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.Field:
			name, _, err := ast.LabelName(d.Label)
			if err != nil {
				continue // a pattern or a computed name
			}
			inner := append(path[:len(path):len(path)], name)
			x.add(inner, d.Label.Pos(), d.Value, remover(d), func(value ast.Expr) { d.Value = value })
			x.value(inner, d.Value)
		case *ast.EmbedDecl:
			x.value(path, d.Expr)
		}
	}
}

func (x *index) value(path []string, e ast.Expr) {
	switch e := e.(type) {
	case *ast.StructLit:
		x.decls(path, e.Elts, func(d ast.Decl) func() {
			return func() { e.Elts = without(e.Elts, d) }
		})
	case *ast.ListLit:
		for i, element := range e.Elts {
			inner := append(path[:len(path):len(path)], strconv.Itoa(i))
			x.add(inner, element.Pos(), element, func() { e.Elts = without(e.Elts, element) }, func(value ast.Expr) { e.Elts[i] = value })
			x.value(inner, element)
		}
	case *ast.BinaryExpr:
		x.value(path, e.X)
		x.value(path, e.Y)
	case *ast.ParenExpr:
		x.value(path, e.X)
	}
}

// at is the innermost entry that contains the position, its label included; nil where there is none.
func (x *index) at(pos token.Pos) *entry {
	p := pos.Position()
	var best *entry
	for _, e := range x.entries {
		from, to := e.label.Position(), e.end.Position()
		if from.Filename != p.Filename || p.Offset < from.Offset || p.Offset >= max(to.Offset, from.Offset+1) {
			continue
		}
		if best == nil || len(e.path) > len(best.path) {
			best = e
		}
	}
	return best
}

// lookup is where the user wrote the path, or the longest part of it; whole says whether it is all of it.
func (x *index) lookup(path []string) (e *entry, whole bool) {
	for n := len(path); n > 0; n-- {
		if found := x.byPath[strings.Join(path[:n], pathSeparator)]; len(found) > 0 {
			return found[len(found)-1], n == len(path)
		}
	}
	return nil, false
}
