package load

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
)

// Change gives a field of a site another value.
type Change struct {
	Path  []string // the site's name first
	Value any      // as JSON has it
}

// With evaluates the site as if its author had written other values, in the lines that they wrote or in lines of their own, and gives
// it as plain maps and lists. What a change makes an error is left out: a variant need not be right, and the rules between fields are
// not asked.
func (p *Package) With(site string, changes ...Change) (map[string]any, error) {
	return bounded(p.dir, func() (map[string]any, error) { return p.with(site, changes) })
}

func (p *Package) with(site string, changes []Change) (map[string]any, error) {
	instance, err := read(p.dir)
	if err != nil {
		return nil, err
	}
	dropRules(instance)
	context, written := cuecontext.New(), newIndex(instance.Files)
	for _, c := range changes {
		path := p.origin(c.Path)
		value, err := literal(context, c.Value)
		if err != nil {
			return nil, err
		}
		entries := written.byPath[strings.Join(path, pathSeparator)]
		for _, e := range entries {
			e.replace(value)
		}
		if len(entries) > 0 {
			continue
		}
		for i := len(path) - 1; i > 0; i-- {
			value = ast.NewStruct(ast.NewString(path[i]), value)
		}
		instance.Files[0].Decls = append(instance.Files[0].Decls, &ast.Field{Label: ast.NewString(path[0]), Value: value})
	}
	narrow(instance, []string{site})
	root := context.BuildInstance(instance).LookupPath(cue.MakePath(cue.Str(site)))
	out := map[string]any{}
	for _, name := range fieldsOf(p.views[site].schema()) {
		if value, ok := plain(root.LookupPath(cue.MakePath(cue.Str(name)))); ok {
			out[name] = value
		}
	}
	return out, nil
}

// dropRules takes the rules between fields out of the schema. A box variant takes nothing from a site that breaks one.
func dropRules(instance *build.Instance) {
	for _, imported := range instance.Imports {
		for _, file := range imported.Files {
			for _, d := range file.Decls {
				field, ok := d.(*ast.Field)
				if !ok {
					continue
				}
				site, ok := field.Value.(*ast.StructLit)
				if name, _, err := ast.LabelName(field.Label); !ok || err != nil || name != "#Site" {
					continue
				}
				site.Elts = slices.DeleteFunc(site.Elts, func(d ast.Decl) bool {
					rules, ok := d.(*ast.Field)
					if !ok {
						return false
					}
					name, _, err := ast.LabelName(rules.Label)
					return err == nil && name == rulesField
				})
			}
		}
	}
}

// literal writes a value of JSON as CUE.
func literal(context *cue.Context, value any) (ast.Expr, error) {
	encoded := context.Encode(numbered(value))
	if err := encoded.Err(); err != nil {
		return nil, err
	}
	expr, _ := encoded.Syntax(cue.Final()).(ast.Expr)
	return expr, nil
}

// numbered makes whole numbers of JSON whole numbers: CUE tells 1.0 from 1.
func numbered(value any) any {
	switch v := value.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = numbered(v[i])
		}
		return out
	}
	return value
}

// plain is a value as maps and lists, without the parts that are in error.
func plain(v cue.Value) (any, bool) {
	if !v.Exists() {
		return nil, false
	}
	if v.IncompleteKind() != cue.StructKind {
		text, err := v.MarshalJSON()
		var out any
		return out, err == nil && json.Unmarshal(text, &out) == nil
	}
	fields, err := v.Fields(cue.Final())
	if err != nil {
		return nil, false
	}
	out := map[string]any{}
	for fields.Next() {
		if value, ok := plain(fields.Value()); ok {
			out[fields.Selector().Unquoted()] = value
		}
	}
	return out, true
}

// origin is where the author of a site writes a path: a box variant's in the site that it is derived from.
func (p *Package) origin(path []string) []string {
	v := p.views[path[0]]
	i := slices.IndexFunc(v.sites, func(s evaluated) bool { return s.name == path[0] })
	return v.sites[i].originOf(group{path: path})
}

// Written are the paths of all single values that the site's author wrote, the site's name first.
func (p *Package) Written(site string) [][]string {
	v := p.views[site]
	if v == nil {
		return nil
	}
	holds := map[string]bool{} // paths that something lies below
	for _, e := range v.index.entries {
		if i := strings.LastIndex(e.path, pathSeparator); i > 0 {
			holds[e.path[:i]] = true
		}
	}
	var found [][]string
	seen := map[string]bool{}
	for _, e := range v.index.entries {
		path := strings.Split(e.path, pathSeparator)
		_, list := e.node.(*ast.ListLit)
		_, empty := e.node.(*ast.StructLit)
		if len(path) < 2 || empty || holds[e.path] && !list || v.index.inList(path) {
			continue
		}
		path[0] = site // of the site itself, or of the one that it is the box of
		at := strings.Join(p.origin(path), pathSeparator)
		if at == e.path && !seen[at] {
			seen[at] = true
			found = append(found, path)
		}
	}
	return found
}

// inList says whether a path leads into a list that the author wrote; a list is one value.
func (x *index) inList(path []string) bool {
	for n := 1; n < len(path); n++ {
		for _, e := range x.byPath[strings.Join(path[:n], pathSeparator)] {
			if _, list := e.node.(*ast.ListLit); list {
				return true
			}
		}
	}
	return false
}

// Alternatives are the values that a field can have where the schema lists them; nil where it takes more than it lists.
func (p *Package) Alternatives(path []string) []any {
	field := descend(p.views[path[0]].schema(), path[1:])
	if !field.Exists() {
		return nil
	}
	listed, _ := alternatives(field)
	return listed
}

func alternatives(v cue.Value) (listed []any, all bool) {
	op, args := v.Expr()
	if op == cue.OrOp {
		for _, arg := range args {
			more, every := alternatives(arg)
			if !every {
				return nil, false
			}
			listed = append(listed, more...)
		}
		return listed, true
	}
	if v.Err() != nil { // the message for everything else
		return nil, true
	}
	if !v.IsConcrete() || v.Kind() == cue.StructKind || v.Kind() == cue.ListKind {
		return nil, false
	}
	var value any
	text, err := v.MarshalJSON()
	if err != nil || json.Unmarshal(text, &value) != nil {
		return nil, false
	}
	return []any{value}, true
}

// Admits says whether the schema takes a value for a field, the rules between fields aside.
func (p *Package) Admits(path []string, value any) bool {
	v := p.views[path[0]]
	field := descend(v.schema(), path[1:])
	if !field.Exists() {
		return false
	}
	encoded := v.context.Encode(numbered(value))
	return field.Unify(encoded).Validate(cue.Concrete(true)) == nil
}
