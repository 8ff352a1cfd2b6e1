package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/site"
)

// object is one rendered object, by a name that does not change with its content.
type object struct {
	id, kind, name, layer string
	content               map[string]any
}

// EntryPoints is the layer's name of Flux's own objects, which lead to all others.
const EntryPoints = "entry points"

// objects are all that a variant renders.
func objects(preview *emit.Preview, s *site.Site) (map[string]object, error) {
	layers, entry, err := preview.Layers(s)
	if err != nil {
		return nil, err
	}
	out := map[string]object{}
	add := func(o manifest.Object, layer string) {
		out[digest.ReplaceAllString(o.ID(), "${1}…")] = object{o.ID(), o.Kind(), digest.ReplaceAllString(o.Name(), "${1}…"), layer, o.Content()}
	}
	for _, layer := range layers {
		for _, o := range layer.Objects {
			add(o, layer.Name)
		}
	}
	for _, o := range entry {
		add(o, EntryPoints)
	}
	return out, nil
}

// digest is a value, or the end of a name, that is computed of others: it repeats changes elsewhere.
var digest = regexp.MustCompile(`^(.*-)?[0-9a-f]{10,64}$`)

// compare gives the places of before that are otherwise in after. An object whose namespace or name alone changed is the same one.
func compare(before, after map[string]object) []Place {
	var gone, fresh []string
	for _, id := range slices.Sorted(maps.Keys(before)) {
		if _, there := after[id]; !there {
			gone = append(gone, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(after)) {
		if _, there := before[id]; !there {
			fresh = append(fresh, id)
		}
	}
	c := &comparison{}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		from := before[id]
		to, there := after[id]
		if !there {
			to, there = renamed(from, gone, fresh, before, after)
		}
		c.object = from
		if !there {
			c.add("", from.content)
			continue
		}
		c.walk(from.content, to.content, "")
	}
	return c.found
}

// renamed finds the one new object that an object which is gone became.
func renamed(from object, gone, fresh []string, before, after map[string]object) (object, bool) {
	for _, same := range []func(object) bool{
		func(o object) bool { return o.kind == from.kind && o.name == from.name },
		func(o object) bool { return o.kind == from.kind && o.layer == from.layer },
	} {
		var to []object
		for _, id := range fresh {
			if same(after[id]) {
				to = append(to, after[id])
			}
		}
		was := 0
		for _, id := range gone {
			if same(before[id]) {
				was++
			}
		}
		if len(to) == 1 && was == 1 {
			return to[0], true
		}
	}
	return object{}, false
}

type comparison struct {
	object object
	found  []Place
}

func (c *comparison) add(field string, value any) {
	c.found = append(c.found, Place{Layer: c.object.layer, Object: c.object.id, Field: field, Text: brief(value)})
}

// walk compares two values at a field.
func (c *comparison) walk(from, to any, field string) {
	switch a := from.(type) {
	case map[string]any:
		b, ok := to.(map[string]any)
		if !ok {
			c.add(field, from)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(a)) {
			inner := below(field, key)
			if value, there := b[key]; there {
				c.walk(a[key], value, inner)
			} else {
				c.add(inner, a[key])
			}
		}
	case []any:
		b, ok := to.([]any)
		if !ok {
			c.add(field, from)
			return
		}
		c.list(a, b, field)
	default:
		if !reflect.DeepEqual(from, to) {
			c.scalar(from, to, field)
		}
	}
}

func below(field, key string) string { return strings.TrimPrefix(field+"."+key, ".") }

// list compares lists whose members have names by these, of equal length place by place, and others by what they have in common.
func (c *comparison) list(a, b []any, field string) {
	names, others := namesOf(a), namesOf(b)
	switch {
	case names != nil && others != nil:
		for i, item := range a {
			if j := slices.Index(others, names[i]); j >= 0 {
				c.walk(item, b[j], fmt.Sprintf("%s[%d]", field, i))
			} else {
				c.add(fmt.Sprintf("%s[%d]", field, i), item)
			}
		}
	case len(a) == len(b):
		for i := range a {
			c.walk(a[i], b[i], fmt.Sprintf("%s[%d]", field, i))
		}
	default:
		for _, op := range difflib.NewMatcher(texts(a), texts(b)).GetOpCodes() {
			for i := op.I1; i < op.I2 && op.Tag != 'e'; i++ {
				c.add(fmt.Sprintf("%s[%d]", field, i), a[i])
			}
		}
	}
}

// namesOf are the members' names; nil where one has none, or two share one.
func namesOf(list []any) []string {
	var names []string
	for _, item := range list {
		m, _ := item.(map[string]any)
		name, ok := m["name"].(string)
		if !ok || slices.Contains(names, name) {
			return nil
		}
		names = append(names, digest.ReplaceAllString(name, "${1}…"))
	}
	return names
}

func texts(list []any) []string {
	var out []string
	for _, item := range list {
		text, _ := json.Marshal(item)
		out = append(out, string(text))
	}
	return out
}

func (c *comparison) scalar(from, to any, field string) {
	a, aText := from.(string)
	b, bText := to.(string)
	if aText && bText && digest.MatchString(a) && digest.MatchString(b) {
		return
	}
	if !aText || !bText || !strings.Contains(a, "\n") {
		c.add(field, from)
		return
	}
	lines := strings.Split(a, "\n")
	for _, op := range difflib.NewMatcher(lines, strings.Split(b, "\n")).GetOpCodes() {
		for i := op.I1; i < op.I2 && op.Tag != 'e'; i++ {
			c.found = append(c.found, Place{Layer: c.object.layer, Object: c.object.id, Field: field, Line: i + 1, Text: lines[i]})
		}
	}
}

// longest is how much of a value is shown, in bytes of JSON.
const longest = 160

// brief is a value on one line.
func brief(value any) string {
	if text, ok := value.(string); ok && !strings.Contains(text, "\n") {
		return text
	}
	text, _ := json.Marshal(value)
	if len(text) > longest {
		return strings.ToValidUTF8(string(text[:longest]), "") + "…"
	}
	return string(text)
}
