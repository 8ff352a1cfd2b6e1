// Package edit changes what a person wrote in a site's file, and nothing else of it: it finds the place in CUE's syntax tree and
// puts text there, so that comments, order and spaces stay. It evaluates nothing; whoever writes the result vets it first.
package edit

import (
	"fmt"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
)

// Append adds strings to the list at the path in a file's text, the site's name first in the path. Where the file has the list as
// a literal they become its last elements; where it has the struct that should hold the list, the list becomes its last
// field; else a declaration of the whole path goes to the end of the file.
func Append(name string, text []byte, path, values []string) ([]byte, error) {
	file, err := parser.ParseFile(name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var quoted []string
	for _, value := range values {
		quoted = append(quoted, literal.String.Quote(value))
	}
	place := find(file.Decls, path)
	last := path[len(path)-1]
	switch {
	case place.list != nil && place.list.Lbrack.IsValid():
		after := token.NoPos
		if n := len(place.list.Elts); n > 0 {
			after = place.list.Elts[n-1].End()
		}
		return insert(text, after, place.list.Rbrack, quoted), nil
	case place.list == nil && place.holder != nil && place.holder.Lbrace.IsValid():
		after := token.NoPos
		if n := len(place.holder.Elts); n > 0 {
			after = place.holder.Elts[n-1].End()
		}
		return insert(text, after, place.holder.Rbrace, []string{label(last) + ": [" + strings.Join(quoted, ", ") + "]"}), nil
	}
	var labels []string
	for _, step := range path {
		labels = append(labels, label(step))
	}
	end := ""
	if len(text) > 0 && text[len(text)-1] != '\n' {
		end = "\n"
	}
	return append(text[:len(text):len(text)], fmt.Sprintf("%s%s: [%s]\n", end, strings.Join(labels, ": "), strings.Join(quoted, ", "))...), nil
}

// label is a field's name as CUE wants it.
func label(name string) string {
	if ast.IsValidIdent(name) {
		return name
	}
	return literal.String.Quote(name)
}

// place is what a file has of a path: its list, or the struct that would hold it.
type place struct {
	list   *ast.ListLit
	holder *ast.StructLit
}

// find looks for the path in declarations; the last that has it counts.
func find(decls []ast.Decl, path []string) place {
	var best place
	for _, d := range decls {
		var found place
		switch d := d.(type) {
		case *ast.Field:
			name, _, err := ast.LabelName(d.Label)
			if err != nil || name != path[0] {
				continue
			}
			found = within(d.Value, path[1:])
		case *ast.EmbedDecl:
			found = within(d.Expr, path)
		}
		switch {
		case found.list != nil:
			best = found
		case found.holder != nil && best.list == nil:
			best.holder = found.holder
		}
	}
	return best
}

// within looks for the path in a value.
func within(e ast.Expr, path []string) place {
	switch e := e.(type) {
	case *ast.StructLit:
		if len(path) == 0 {
			return place{}
		}
		found := find(e.Elts, path)
		if found.list == nil && found.holder == nil && len(path) == 1 {
			found.holder = e
		}
		return found
	case *ast.ListLit:
		if len(path) == 0 {
			return place{list: e}
		}
	case *ast.BinaryExpr:
		if e.Op != token.AND {
			return place{}
		}
		if found := within(e.Y, path); found.list != nil || found.holder != nil {
			return found
		}
		return within(e.X, path)
	case *ast.ParenExpr:
		return within(e.X, path)
	}
	return place{}
}

// insert puts elements between the end of the last one and the bracket that closes them: in lines of their own where the bracket
// is in one, else behind the last with commas. after is no position where there is no element yet.
func insert(text []byte, after, bracket token.Pos, elements []string) []byte {
	at := bracket.Offset()
	start := at
	for start > 0 && text[start-1] != '\n' {
		start--
	}
	indent := string(text[start:at])
	if strings.TrimSpace(indent) == "" && start > 0 {
		var lines strings.Builder
		for _, element := range elements {
			lines.WriteString(indent + "\t" + element + ",\n")
		}
		return splice(text, start, lines.String())
	}
	joined := strings.Join(elements, ", ")
	if after == token.NoPos {
		return splice(text, at, joined)
	}
	return splice(text, after.Offset(), ", "+joined)
}

func splice(text []byte, at int, add string) []byte {
	out := append([]byte{}, text[:at]...)
	out = append(out, add...)
	return append(out, text[at:]...)
}
