package load

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
)

// passes bounds how often mistakes are taken out to see what they hid. Each pass finds at least one more.
const passes = 12

// CUE's own messages that load rewrites.
const (
	notAllowed  = "field not allowed"
	required    = "field is required but not present"
	disjunction = "%d errors in empty disjunction:"
	userMessage = "%s"
	undecided   = "unresolved disjunction"
)

// rulesField is the schema's hidden field that holds the rules between fields; ofField is #Box's parameter.
const (
	rulesField = "_rules"
	ofField    = "#of"
)

// explain evaluates the sites again and again, each time without the mistakes found before, and finds for each the place in
// the user's files. Later passes only add mistakes of single fields: a rule between fields would see what is missing by now.
func explain(v *view, dir string, names []string) (Problems, error) {
	x := &explainer{removed: make(map[string]bool)}
	for pass := range passes {
		if !x.pass(v, pass == 0) {
			break
		}
		var err error
		if v, err = newView(dir, names, x.cuts, v); err != nil {
			return nil, err
		}
	}
	x.missing(v)
	if len(x.problems) == 0 {
		return nil, fmt.Errorf("%s: CUE refuses the sites and gives no reason; `cue vet -c %s` may say more", dir, dir)
	}
	return x.problems, nil
}

type explainer struct {
	cuts     []cut
	removed  map[string]bool // paths of what was taken out, or was probably meant by what was
	problems Problems
}

// pass collects the errors that one evaluation shows and cuts out what is to blame. It reports whether there may be more.
func (x *explainer) pass(v *view, first bool) bool {
	more := false
	for _, s := range v.sites {
		for _, group := range groups(s.value.Validate(cue.Attributes(true), cue.Definitions(true), cue.Hidden(true))) {
			group.path = s.originOf(group)
			p, meant, where := v.problem(group)
			if first || !group.rule {
				x.problems = append(x.problems, p)
			}
			if meant != nil {
				x.removed[strings.Join(meant, pathSeparator)] = true
			}
			if where != nil && where.remove != nil && strings.Contains(where.path, pathSeparator) {
				at := where.label.Position()
				c := cut{at.Filename, at.Offset, where.path}
				if !slices.Contains(x.cuts, c) {
					x.cuts = append(x.cuts, c)
					x.removed[where.path] = true
					more = true
				}
			}
		}
	}
	return more
}

// missing adds the required fields that the user left out; CUE tells of them only when nothing else is wrong. Where it tells of
// nothing at all so far, a value is still open.
func (x *explainer) missing(v *view) {
	var incomplete Problems
	for _, s := range v.sites {
		for _, group := range groups(s.value.Validate(vetOptions...)) {
			group.own()
			group.path = s.originOf(group)
			if x.isRemoved(group.path) {
				continue
			}
			p, _, _ := v.problem(group)
			switch {
			case group.format == required:
				x.problems = append(x.problems, p)
			case !group.rule:
				incomplete = append(incomplete, p)
			}
		}
	}
	if len(x.problems) == 0 {
		x.problems = incomplete
	}
}

// isRemoved reports whether the path or a part that holds it was taken out.
func (x *explainer) isRemoved(path []string) bool {
	for n := 2; n <= len(path); n++ {
		if x.removed[strings.Join(path[:n], pathSeparator)] {
			return true
		}
	}
	return false
}

// originOf gives a path in a box variant as one in the site that it is derived from: that is where the user wrote it.
func (s evaluated) originOf(g group) []string {
	if strings.HasSuffix(fmt.Sprintf(g.format, g.args...), "as "+ofField+" is incomplete (type _)") || s.literal && strings.HasPrefix(g.format, undecided) {
		return []string{s.name, ofField}
	}
	if s.literal {
		return g.path
	}
	if variant, err := s.value.LookupPath(cue.ParsePath("variant")).String(); err != nil || variant != "box" {
		return g.path
	}
	origin, err := s.value.LookupPath(cue.ParsePath("variantOf")).String()
	if err != nil || !slices.Contains(s.beside, origin) || len(g.path) < 2 || !g.origin && slices.Contains(ownFields, g.path[1]) {
		return g.path
	}
	return append([]string{origin}, g.path[1:]...)
}

// ownFields are what a box variant does not take from the site that it is derived from.
var ownFields = []string{"variant", "variantOf", "network", "storage", "monitoring", "images", "delivery"}

// group is all that CUE says about one path.
type group struct {
	path   []string
	rule   bool // a rule between fields says it
	origin bool // it is about the site that a box variant is derived from
	format string
	args   []any
	all    []errors.Error
}

// groups sorts CUE's errors by path and chooses for each path the one that tells the user most: two values of the user's own
// that contradict each other, else a message of the schema, else whatever CUE says first. A rule that refuses a default is the
// last to speak: CUE tells first what else the field may be.
func groups(err error) []group {
	var out []group
	for _, e := range errors.Errors(err) {
		format, _ := e.Msg()
		if format == disjunction {
			continue
		}
		path := cleanPath(e.Path())
		origin := slices.Contains(e.Path(), ofField)
		i := slices.IndexFunc(out, func(g group) bool { return g.origin == origin && slices.Equal(g.path, path) })
		if i < 0 {
			out = append(out, group{path: path, origin: origin})
			i = len(out) - 1
		}
		out[i].rule = out[i].rule || slices.Contains(e.Path(), rulesField)
		out[i].all = append(out[i].all, e)
	}
	for i := range out {
		g := &out[i]
		best := slices.IndexFunc(g.all, isOwnConflict)
		if best < 0 {
			ruled := !slices.ContainsFunc(g.all, func(e errors.Error) bool { return !slices.Contains(e.Path(), rulesField) })
			for i, e := range g.all {
				if f, _ := e.Msg(); f == userMessage && (best < 0 || ruled) {
					best = i
				}
			}
		}
		best = max(best, 0)
		g.all[0], g.all[best] = g.all[best], g.all[0]
		g.format, g.args = g.all[0].Msg()
	}
	return out
}

// own chooses what CUE itself says, if it says something: of a value that is still open the schema's messages are about all else
// that the value may not be.
func (g *group) own() {
	if i := slices.IndexFunc(g.all, func(e errors.Error) bool { f, _ := e.Msg(); return f != userMessage }); i >= 0 {
		g.all[0], g.all[i] = g.all[i], g.all[0]
		g.format, g.args = g.all[0].Msg()
	}
}

// isOwnConflict reports whether two values that contradict each other both stand in the user's files.
func isOwnConflict(e errors.Error) bool {
	format, _ := e.Msg()
	if !strings.HasPrefix(format, "conflicting values") {
		return false
	}
	own := 0
	for _, p := range e.InputPositions() {
		if inSchema(p) {
			return false
		}
		own++
	}
	return own >= 2
}

// problem words a group for the user and finds its place: where the user wrote the field that the path names, else the
// most specific of the places that CUE gives, else the nearest part of the path that the user wrote.
//
// It also returns the path that the user probably meant, if a field does not exist, and the declaration to blame.
func (v *view) problem(g group) (p Problem, meant []string, blame *entry) {
	p.Path = pathText(g.path)
	for _, pos := range append([]token.Pos{g.all[0].Position()}, g.all[0].InputPositions()...) {
		if inSchema(pos) && g.format != notAllowed { // no rule of the schema says so
			p.Schema = fmt.Sprintf("%s:%d:%d", filepath.Base(pos.Filename()), pos.Line(), pos.Column())
			break
		}
	}
	at, whole := v.index.lookup(g.path)
	if !whole {
		var specific *entry
		for _, e := range g.all {
			for _, pos := range append(errors.Positions(e), e.InputPositions()...) {
				if found := v.entryAt(pos); found != nil && (specific == nil || len(found.path) > len(specific.path)) {
					specific = found
				}
			}
		}
		if specific != nil && strings.Contains(specific.path, pathSeparator) {
			at, whole = specific, true
		}
	}
	meant = v.word(&p, g)
	if at == nil {
		return p, meant, nil
	}
	if whole && p.Mend == "" && g.format == userMessage {
		p.Mend = v.mendLiteral(g.path, at.node)
	}
	pos := at.value
	if g.format == notAllowed || !whole || g.format == required {
		pos = at.label
	}
	p.File, p.Line, p.Column = display(pos.Filename()), pos.Line(), pos.Column()
	if !whole || g.format == required {
		return p, meant, nil
	}
	return p, meant, at
}

func (v *view) entryAt(pos token.Pos) *entry {
	if !pos.IsValid() || inSchema(pos) {
		return nil
	}
	return v.index.at(pos)
}

// inSchema reports whether a position lies in the schema and not in the user's files.
func inSchema(pos token.Pos) bool {
	if !pos.IsValid() {
		return false
	}
	return filepath.Base(filepath.Dir(pos.Filename())) == "cue"
}

// word fills in the message and the mend. For a field that does not exist it returns the path that was probably meant.
func (v *view) word(p *Problem, g group) (meant []string) {
	name := g.path[len(g.path)-1]
	switch {
	case g.format == notAllowed:
		p.Message = fmt.Sprintf("there is no field %q here", name)
		p.Mend, meant = suggestField(v.schema(), g.path)
	case g.format == required:
		p.Message = fmt.Sprintf("%q is missing", name)
		p.Mend = describeField(v.schema(), g.path)
	case name == ofField && !strings.HasPrefix(g.format, undecided):
		p.Message = fmt.Sprintf("%q is missing", name)
		p.Mend = "write the site that this is the box of, for example #of: lab"
	case isIncomplete(g.format) && len(g.args) > 0 && isChoice(g.args[0]):
		p.Message = fmt.Sprintf("can still be any of %v", g.args[0])
		p.Mend = "write one of them"
	case isIncomplete(g.format):
		p.Message = "has no value: it hangs on itself, or on a field that has none"
		p.Mend = "write a value"
	case strings.HasPrefix(g.format, "conflicting values") && len(g.args) >= 2 && isOwnConflict(g.all[0]):
		p.Message = fmt.Sprintf("is set twice, to %v and to %v", g.args[0], g.args[1])
	case strings.HasPrefix(g.format, "conflicting values") && len(g.args) == 2 && isLiteral(g.args[0]) && isLiteral(g.args[1]):
		p.Message = fmt.Sprintf("follows from other fields; %v and %v cannot both be", g.args[0], g.args[1])
		p.Mend = "leave it out"
	case strings.HasPrefix(g.format, "conflicting values") && len(g.args) == 4:
		p.Message = mismatch(g.args)
	default:
		p.Message = strings.TrimSuffix(fmt.Sprintf(g.format, g.args...), ":")
		p.Mend = suggestKnown(p.Message)
	}
	return meant
}

// isIncomplete reports whether CUE says that a value is still open.
func isIncomplete(format string) bool {
	return strings.HasPrefix(format, "incomplete") || strings.HasPrefix(format, undecided) || strings.Contains(format, "is incomplete")
}

// isLiteral reports whether what CUE prints for a value is one literal: a text, a number or a truth value, and no rule.
func isLiteral(value any) bool {
	expr, err := parser.ParseExpr("", fmt.Sprint(value))
	if err != nil {
		return false
	}
	_, ok := expr.(*ast.BasicLit)
	return ok
}

// isChoice reports whether what CUE prints for a value is several literals to choose from.
func isChoice(value any) bool {
	expr, err := parser.ParseExpr("", fmt.Sprint(value))
	if err != nil {
		return false
	}
	either, ok := expr.(*ast.BinaryExpr)
	if !ok || either.Op != token.OR {
		return false
	}
	_, ok = either.Y.(*ast.BasicLit)
	return ok
}

// mismatch words "conflicting values 5 and string (mismatched types int and string)" by what is wanted.
func mismatch(args []any) string {
	got, want := fmt.Sprint(args[0]), fmt.Sprint(args[3])
	if fmt.Sprint(args[0]) == fmt.Sprint(args[2]) || strings.HasPrefix(got, "=~") {
		got, want = fmt.Sprint(args[1]), fmt.Sprint(args[2])
	}
	words := map[string]string{"string": "text in quotes", "int": "a whole number", "number": "a number", "bool": "true or false", "struct": "a group of fields in {}", "list": "a list in []"}
	if w, ok := words[want]; ok {
		want = w
	}
	return fmt.Sprintf("must be %s, not %s", want, got)
}

// cleanPath unquotes a path of CUE's and drops the schema's own steps from it.
func cleanPath(path []string) []string {
	out := make([]string, 0, len(path))
	for _, step := range path {
		if step == rulesField || step == ofField {
			continue
		}
		if text, err := strconv.Unquote(step); err == nil {
			step = text
		}
		out = append(out, step)
	}
	return out
}

// maps are the parts of a site whose members the user names: a number there is a name, elsewhere a list's index.
var maps = []string{"hosts", "pools", "users", "accounts", "groups", "reservations", "partitions", "qos", "receivers", "licenses", "env"}

var number = regexp.MustCompile(`^[0-9]+$`)

// pathText writes a path as CUE source would refer to it.
func pathText(path []string) string {
	var b strings.Builder
	for i, step := range path {
		switch {
		case number.MatchString(step) && i > 0 && (i != 2 || !slices.Contains(maps, path[i-1])):
			b.WriteString("[" + step + "]")
			continue
		case i > 0:
			b.WriteString(".")
		}
		if ast.IsValidIdent(step) {
			b.WriteString(step)
		} else {
			b.WriteString(strconv.Quote(step))
		}
	}
	return b.String()
}
