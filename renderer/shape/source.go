package shape

import (
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/token"
)

// declaredKind is the kind that is declared for a value that cannot be computed yet.
func declaredKind(v cue.Value) string {
	_, args := v.Expr()
	for _, arg := range args {
		if name := kindName(arg.IncompleteKind()); name != "" {
			return name
		}
	}
	return ""
}

func text(node ast.Node) string {
	b, err := format.Node(node)
	if err != nil {
		return ""
	}
	return string(b)
}

// marked is the default of a disjunction that refers to another field, as the schema writes it.
func marked(v cue.Value) string {
	found := ""
	for _, source := range sources(v) {
		ast.Walk(source, func(n ast.Node) bool {
			if unary, is := n.(*ast.UnaryExpr); is && unary.Op == token.MUL && found == "" {
				found = text(unary.X)
			}
			return true
		}, nil)
	}
	return found
}

// ellipsis reports whether a struct says that it takes further fields.
func ellipsis(v cue.Value) bool {
	for _, source := range sources(v) {
		if field, is := source.(*ast.Field); is {
			source = field.Value
		}
		if literal, is := source.(*ast.StructLit); is && slices.ContainsFunc(literal.Elts, func(d ast.Decl) bool { _, is := d.(*ast.Ellipsis); return is }) {
			return true
		}
	}
	return false
}

// sources are the places where the schema writes a value.
func sources(v cue.Value) []ast.Node {
	var out []ast.Node
	add := func(v cue.Value) {
		if source := v.Source(); source != nil {
			out = append(out, source)
		}
	}
	add(v)
	if op, args := v.Expr(); op == cue.AndOp {
		for _, arg := range args {
			add(arg)
		}
	}
	return out
}

// docOf is the comment at a field, on one line.
func docOf(v cue.Value) string {
	var out []string
	for _, group := range v.Doc() {
		if line := strings.Join(strings.Fields(group.Text()), " "); line != "" && !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return strings.Join(out, " ")
}
