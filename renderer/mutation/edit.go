package mutation

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
)

// place is a field or list element that is written in a file, and the ways to change it.
type place struct {
	path   []string // without the site's name
	value  ast.Expr
	set    func(ast.Expr)
	remove func()
	copy   func(label string) // nil for list elements
}

// places are those of a site in one file.
type places []place

func newPlaces(file *ast.File, site string) places {
	var all places
	all.decls(nil, &file.Decls)
	var own places
	for _, p := range all {
		if p.path[0] == site && len(p.path) > 1 {
			p.path = p.path[1:]
			own = append(own, p)
		}
	}
	return own
}

func (ps *places) decls(path []string, decls *[]ast.Decl) {
	for _, d := range *decls {
		switch d := d.(type) {
		case *ast.Field:
			name, _, err := ast.LabelName(d.Label)
			if err != nil {
				continue
			}
			inner := append(path[:len(path):len(path)], name)
			*ps = append(*ps, place{
				path: inner, value: d.Value,
				set: func(e ast.Expr) { d.Value = e },
				remove: func() {
					*decls = slices.DeleteFunc(slices.Clone(*decls), func(other ast.Decl) bool { return other == d })
				},
				copy: func(label string) {
					*decls = append(*decls, &ast.Field{Label: ast.NewString(label), Value: reparsed(d.Value)})
				},
			})
			ps.expression(inner, d.Value)
		case *ast.EmbedDecl:
			ps.expression(path, d.Expr)
		}
	}
}

func (ps *places) expression(path []string, e ast.Expr) {
	switch e := e.(type) {
	case *ast.StructLit:
		ps.decls(path, &e.Elts)
	case *ast.BinaryExpr:
		ps.expression(path, e.X)
		ps.expression(path, e.Y)
	case *ast.ListLit:
		for i, element := range e.Elts {
			inner := append(path[:len(path):len(path)], strconv.Itoa(i))
			*ps = append(*ps, place{
				path: inner, value: element,
				set: func(to ast.Expr) { e.Elts[i] = to },
				remove: func() {
					e.Elts = slices.DeleteFunc(slices.Clone(e.Elts), func(other ast.Expr) bool { return other == element })
				},
			})
			ps.expression(inner, element)
		}
	}
}

// members are the names that a site writes below a path, in the order of the file.
func (ps places) members(path ...string) []string {
	var names []string
	for _, p := range ps {
		if len(p.path) == len(path)+1 && slices.Equal(p.path[:len(path)], path) && !slices.Contains(names, p.path[len(path)]) {
			names = append(names, p.path[len(path)])
		}
	}
	return names
}

// editor changes one file of a site.
type editor struct {
	random   *rand.Rand
	file     *ast.File
	site     string
	names    places // of the site that has the names
	settings []setting
}

// edit makes one change and says what it was.
func (e *editor) edit() string {
	changes := []func(places) string{ // set more often than the others: most of what it does is right
		e.set, e.set, e.set, e.set, e.set, e.set, e.set, e.number, e.number, e.text, e.text, e.remove, e.copy, e.exchange, e.typo, e.retype, e.reorder, e.helper,
	}
	for range 10 {
		if said := changes[e.random.IntN(len(changes))](newPlaces(e.file, e.site)); said != "" {
			return said
		}
	}
	return "nothing"
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// chosen picks a place that holds; ok is false where none does.
func (e *editor) chosen(all places, holds func(place) bool) (p place, ok bool) {
	var some places
	for _, p := range all {
		if holds(p) {
			some = append(some, p)
		}
	}
	if len(some) == 0 {
		return p, false
	}
	return pick(e.random, some), true
}

var named = regexp.MustCompile(`@(host|pool|account|user|qos|group|partition)`)

// set writes a field of the settings, over the one that is there or as a line of its own.
func (e *editor) set(all places) string {
	s := pick(e.random, e.settings)
	values := s.right
	if e.random.IntN(12) == 0 {
		values = s.wrong
	}
	value := named.ReplaceAllStringFunc(pick(e.random, values), func(kind string) string {
		path := map[string][]string{"@qos": {"slurm", "qos"}, "@partition": {"slurm", "partitions"}}[kind]
		if path == nil {
			path = []string{kind[1:] + "s"}
		}
		if names := e.names.members(path...); len(names) > 0 {
			return strconv.Quote(pick(e.random, names))
		}
		return `"none"`
	})
	var path []string
	for _, step := range s.path {
		if step == "*" {
			names := e.names.members(path...)
			if len(names) == 0 {
				return ""
			}
			step = pick(e.random, names)
		}
		path = append(path, step)
	}
	what := strings.Join(path, ".") + " = " + value
	for _, p := range all {
		if slices.Equal(p.path, path) {
			if expression, err := parser.ParseExpr("value", value); err == nil {
				p.set(expression)
				return "set " + what
			}
			return ""
		}
	}
	var line strings.Builder
	line.WriteString(strconv.Quote(e.site) + ": ")
	for _, step := range path {
		line.WriteString(strconv.Quote(step) + ": ")
	}
	added, err := parser.ParseFile("added", line.String()+value+"\n")
	if err != nil {
		return ""
	}
	e.file.Decls = append(e.file.Decls, added.Decls...)
	return "add " + what
}

// number moves a number a little, or far.
func (e *editor) number(all places) string {
	p, ok := e.chosen(all, func(p place) bool { l, ok := p.value.(*ast.BasicLit); return ok && l.Kind == token.INT })
	if !ok {
		return ""
	}
	old, err := strconv.Atoi(strings.ReplaceAll(p.value.(*ast.BasicLit).Value, "_", ""))
	if err != nil {
		return ""
	}
	value := pick(e.random, []int{old + 1, old + 1, max(old-1, 0), max(old-1, 0), old * 2, max(old/2, 1), old + 100, 0, 1, -old, 1 << 31, 1 << 53})
	p.set(ast.NewLit(token.INT, strconv.Itoa(value)))
	return fmt.Sprintf("%s: %d becomes %d", strings.Join(p.path, "."), old, value)
}

// text changes a text by a character or a unit, or makes it another text of the site.
func (e *editor) text(all places) string {
	isText := func(p place) bool { l, ok := p.value.(*ast.BasicLit); return ok && l.Kind == token.STRING }
	p, ok := e.chosen(all, isText)
	if !ok {
		return ""
	}
	old, err := strconv.Unquote(p.value.(*ast.BasicLit).Value)
	if err != nil {
		return ""
	}
	value := old
	switch e.random.IntN(8) {
	case 0:
		other, _ := e.chosen(all, isText)
		value, _ = strconv.Unquote(other.value.(*ast.BasicLit).Value)
	case 1:
		value = strings.NewReplacer("Gi", "Mi", "Ti", "Gi", ":00", ":30").Replace(old)
	case 2:
		value = strings.NewReplacer("Gi", "GB", "0", "1").Replace(old)
	case 3:
		value = strings.ToUpper(old)
	case 4:
		value = old + pick(e.random, []string{"0", "x", "-", " ", ".", "/", "é"})
	case 5:
		value = old[:len(old)/2]
	case 6:
		value = strings.Map(func(c rune) rune {
			if c >= '1' && c <= '8' {
				return c + 1
			}
			return c
		}, old)
	case 7:
		value = strings.Replace(old, "192.168.1.20", "192.168.1.21", 1)
	}
	if value == old {
		return ""
	}
	p.set(ast.NewString(value))
	return fmt.Sprintf("%s: %q becomes %q", strings.Join(p.path, "."), old, value)
}

func (e *editor) remove(all places) string {
	if len(all) == 0 {
		return ""
	}
	p := pick(e.random, all)
	p.remove()
	return strings.Join(p.path, ".") + " is removed"
}

// copy gives a member of a map, or a field, a second name.
func (e *editor) copy(all places) string {
	p, ok := e.chosen(all, func(p place) bool { return p.copy != nil && len(p.path) <= 3 })
	if !ok {
		return ""
	}
	label := pick(e.random, []string{"twin", p.path[len(p.path)-1] + "2", "x-1", "default"})
	p.copy(label)
	return fmt.Sprintf("%s is there again as %s", strings.Join(p.path, "."), label)
}

// exchange gives a field the value of a field with the same name elsewhere.
func (e *editor) exchange(all places) string {
	if len(all) == 0 {
		return ""
	}
	from := pick(e.random, all)
	to, ok := e.chosen(all, func(p place) bool {
		return p.path[len(p.path)-1] == from.path[len(from.path)-1] && !slices.Equal(p.path, from.path)
	})
	if !ok {
		return ""
	}
	to.set(reparsed(from.value))
	return fmt.Sprintf("%s becomes what %s is", strings.Join(to.path, "."), strings.Join(from.path, "."))
}

// typo writes a field's name wrong.
func (e *editor) typo(all places) string {
	p, ok := e.chosen(all, func(p place) bool { return p.copy != nil && len(p.path[len(p.path)-1]) > 2 })
	if !ok {
		return ""
	}
	name := []rune(p.path[len(p.path)-1])
	i := e.random.IntN(len(name) - 1)
	name[i], name[i+1] = name[i+1], name[i]
	p.copy(string(name))
	p.remove()
	return fmt.Sprintf("%s is written %s", strings.Join(p.path, "."), string(name))
}

// retype gives a field a value of another type.
func (e *editor) retype(all places) string {
	if len(all) == 0 {
		return ""
	}
	p := pick(e.random, all)
	text := pick(e.random, []string{`""`, `"x"`, "0", "1.5", "true", "null", "[]", `["x"]`, "{}", "{x: 1}", "string", "int", "_", "_|_", `"8" | "9"`, ">=1", `*1 | int`})
	expression, err := parser.ParseExpr("value", text)
	if err != nil {
		return ""
	}
	p.set(expression)
	return fmt.Sprintf("%s becomes %s", strings.Join(p.path, "."), text)
}

// helper adds a field beside the site, as people do for what several fields share.
func (e *editor) helper(places) string {
	text := pick(e.random, []string{"_shared: 3", "_shared: {memory: \"4Gi\"}", "#Pool: {max: 2, ...}", "_shared: 1 & 2", "#Pool: {max: 1 & 2}", "_shared: string"})
	added, err := parser.ParseFile("added", text+"\n")
	if err != nil {
		return ""
	}
	e.file.Decls = append(e.file.Decls, added.Decls...)
	return "add " + text
}

// reorder shuffles the fields of the file's structs, which changes nothing.
func (e *editor) reorder(places) string {
	ast.Walk(e.file, func(n ast.Node) bool {
		if s, ok := n.(*ast.StructLit); ok && len(s.Elts) > 1 {
			e.random.Shuffle(len(s.Elts), func(i, j int) { s.Elts[i], s.Elts[j] = s.Elts[j], s.Elts[i] })
		}
		return true
	}, nil)
	return "fields in another order"
}

// reparsed is a copy of an expression that shares no node with it.
func reparsed(e ast.Expr) ast.Expr {
	text, err := format.Node(e)
	if err != nil {
		return ast.NewIdent("_")
	}
	expression, err := parser.ParseExpr("copy", text)
	if err != nil {
		return ast.NewIdent("_")
	}
	return expression
}
