// Package explain finds what a field of a site turns into, and which fields a rendered line comes from. It believes no table: it
// gives a field another value, renders again in memory, and looks what became different. It writes nothing.
package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/site"
)

// Explainer asks about one site of a package. It remembers what it found: each field is rendered once.
type Explainer struct {
	opened  *load.Package
	site    *site.Site
	preview *emit.Preview
	tree    map[string]any // the site as plain maps and lists
	base    map[string]object
	lines   lines
	names   []any // of hosts, pools, accounts and so on: values of fields that refer to them

	touched map[string][]Place        // by the leaf's path
	written map[string]map[string]any // variants of the site, by the changed paths
}

// New renders the named site as it is in the repository at root.
func New(opened *load.Package, name, root string, parts compile.Parts) (*Explainer, error) {
	i := slices.IndexFunc(opened.Sites, func(s *site.Site) bool { return s.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no site %q", name)
	}
	e := &Explainer{opened: opened, site: opened.Sites[i], touched: map[string][]Place{}, written: map[string]map[string]any{}}
	var err error
	if e.tree, err = plain(e.site); err != nil {
		return nil, err
	}
	for _, key := range []string{"hosts", "pools", "accounts", "users", "groups"} {
		members, _ := e.tree[key].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			e.names = append(e.names, name)
		}
	}
	if e.preview, err = emit.NewPreview(root, name, parts); err != nil {
		return nil, err
	}
	if e.base, err = objects(e.preview, e.site); err != nil {
		return nil, err
	}
	generated, err := e.preview.Tree(e.site)
	if err != nil {
		return nil, err
	}
	e.lines, err = linesOf(generated)
	return e, err
}

// plain is the site as JSON has it.
func plain(s *site.Site) (map[string]any, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(text, &out)
}

// derived are filled in by the loader from other fields.
var derived = []string{"model", "speed", "gpuMemory"}

// Leaves are the paths of all single values at or below a path, without the site's name; a list is one value. The site has none
// below a field that is not set.
func (e *Explainer) Leaves(path []string) [][]string {
	var node any = e.tree
	for i, step := range path {
		m, ok := node.(map[string]any)
		if !ok { // into a list
			return [][]string{path[:i]}
		}
		node = m[step]
	}
	return leaves(node, path)
}

func leaves(node any, at []string) [][]string {
	m, ok := node.(map[string]any)
	if !ok {
		if node == nil || len(at) == 3 && at[0] == "pools" && slices.Contains(derived, at[2]) {
			return nil
		}
		return [][]string{at}
	}
	var out [][]string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, leaves(m[key], append(at[:len(at):len(at)], key))...)
	}
	return out
}

func get(node any, path []string) any {
	for _, step := range path {
		m, _ := node.(map[string]any)
		node = m[step]
	}
	return node
}

// Places are what the field that the steps lead to, or the fields below it, turn into, those included that other fields take from
// it. The site's name is not among the steps.
func (e *Explainer) Places(path []string) ([]Place, error) {
	own := e.Leaves(path)
	followers, err := e.followers(own)
	if err != nil {
		return nil, err
	}
	found := map[Place]bool{}
	for _, leaf := range append(own, followers...) {
		for _, place := range e.Touched(leaf) {
			found[place] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), before), nil
}

// Touched are the lines, as they are now, that another value of a leaf changes.
func (e *Explainer) Touched(leaf []string) []Place {
	key := load.PathText(leaf)
	if known, ok := e.touched[key]; ok {
		return known
	}
	found := map[Place]bool{}
	value := get(e.tree, leaf)
	others, listed := e.others(leaf, value)
	unchanged := 0
	for other := range others {
		changed, err := e.variant(leaf, other)
		if err != nil {
			continue
		}
		after, err := objects(e.preview, changed)
		if err != nil {
			continue
		}
		differ := compare(e.base, after)
		for _, place := range differ {
			found[e.lines.place(place)] = true
		}
		if len(differ) == 0 {
			unchanged++
		}
		// Of a choice, each value may change other lines; of a number or a text, any other value changes the same ones.
		if !listed && (len(differ) > 0 || unchanged == enough) {
			break
		}
	}
	e.touched[key] = slices.SortedFunc(maps.Keys(found), before)
	return e.touched[key]
}

// enough values that change nothing show that a field renders nothing.
const enough = 3

// variant is the site with another value of one leaf.
func (e *Explainer) variant(leaf []string, value any) (*site.Site, error) {
	root, err := plain(e.site)
	if err != nil {
		return nil, err
	}
	parent, _ := get(root, leaf[:len(leaf)-1]).(map[string]any)
	parent[leaf[len(leaf)-1]] = value
	text, err := json.Marshal(root)
	if err != nil {
		return nil, err
	}
	changed := &site.Site{Name: e.site.Name}
	if err := json.Unmarshal(text, changed); err != nil {
		return nil, err
	}
	load.Derive(changed)
	return changed, nil
}

// full is a path with the site's name.
func (e *Explainer) full(path []string) []string { return append([]string{e.site.Name}, path...) }

// with is the site as if other values of the leaves were written.
func (e *Explainer) with(changed [][]string) (map[string]any, error) {
	var key strings.Builder
	var changes []load.Change
	for _, leaf := range changed {
		others, _ := e.others(leaf, get(e.tree, leaf))
		for other := range others {
			key.WriteString(load.PathText(leaf) + "\n")
			changes = append(changes, load.Change{Path: e.full(leaf), Value: other})
			break
		}
	}
	if known, ok := e.written[key.String()]; ok {
		return known, nil
	}
	variant, err := e.opened.With(e.site.Name, changes...)
	if err == nil {
		e.written[key.String()] = variant
	}
	return variant, err
}

// followers are the leaves that take their value from one of these: a default that is another field, or a value that the schema
// makes of others.
func (e *Explainer) followers(of [][]string) ([][]string, error) {
	now, err := e.with(nil)
	if err != nil {
		return nil, err
	}
	then, err := e.with(of)
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, leaf := range of {
		own[load.PathText(leaf)] = true
	}
	var found [][]string
	for _, leaf := range leaves(now, nil) {
		after := get(then, leaf)
		if own[load.PathText(leaf)] || after == nil || reflect.DeepEqual(get(now, leaf), after) || get(e.tree, leaf) == nil {
			continue
		}
		found = append(found, leaf)
	}
	return found, nil
}

// Sources are the fields that the site's author wrote and that a leaf which they did not write takes its value from; none: it is the
// schema's own value.
func (e *Explainer) Sources(leaf []string) ([][]string, error) {
	if _, written := e.opened.Of(e.full(leaf)); written {
		return nil, nil
	}
	var all [][]string
	for _, path := range e.opened.Written(e.site.Name) {
		if get(e.tree, path[1:]) != nil {
			all = append(all, path[1:])
		}
	}
	return e.sources(leaf, all)
}

// sources halves the fields until single ones are left that matter.
func (e *Explainer) sources(leaf []string, among [][]string) ([][]string, error) {
	if len(among) == 0 {
		return nil, nil
	}
	now, err := e.with(nil)
	if err != nil {
		return nil, err
	}
	then, err := e.with(among)
	if err != nil || reflect.DeepEqual(get(now, leaf), get(then, leaf)) {
		return nil, err
	}
	if len(among) == 1 {
		if get(then, leaf) == nil { // made an error, not another value
			return nil, nil
		}
		return among, nil
	}
	half := len(among) / 2
	first, err := e.sources(leaf, among[:half])
	if err != nil {
		return nil, err
	}
	second, err := e.sources(leaf, among[half:])
	return append(first, second...), err
}
