package explain

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/load"
)

// Query names rendered lines. What is empty does not limit it.
type Query struct {
	Kind, Namespace, Name string // an object; Kind in small letters, as kubectl takes it
	Field                 string // at or below this field
	Text                  string // lines that hold this text
	File                  string // a file of the rendered tree
	FileLine              int    // and its line
}

// Origin is a field of the site, or a patch, that some of the lines come from.
type Origin struct {
	// Path of the field, without the site's name; empty: a patch's.
	Path  []string `json:"-"`
	Field string   `json:"field,omitempty"`
	Value any      `json:"value,omitempty"`
	// Patch is the patch file.
	Patch string `json:"patch,omitempty"`
	// Sources are the fields that it takes its value from, where the author wrote only these.
	Sources [][]string `json:"-"`
	// Whole says that it decides only whether the objects are there.
	Whole  bool    `json:"whole"`
	Places []Place `json:"places"`
}

// Trace finds the lines that a query names, and what of the site each comes from. No origin: Berth writes them always.
func (e *Explainer) Trace(q Query) (wanted []Place, origins []Origin, err error) {
	wanted = e.Lines(q)
	if len(wanted) == 0 {
		return nil, nil, fmt.Errorf("nothing that is rendered is %s", q)
	}
	for _, leaf := range e.Leaves(nil) {
		hit, whole := overlap(e.Touched(leaf), wanted)
		if len(hit) == 0 {
			continue
		}
		o := Origin{Path: leaf, Field: load.PathText(e.full(leaf)), Value: get(e.tree, leaf), Places: hit, Whole: whole}
		if o.Sources, err = e.Sources(leaf); err != nil {
			return nil, nil, err
		}
		origins = append(origins, o)
	}
	patches := e.preview.Patches()
	for _, layer := range slices.Sorted(maps.Keys(patches)) {
		for _, file := range patches[layer] {
			without, err := objects(e.preview.WithoutPatch(layer, file), e.site)
			if err != nil {
				continue // another patch needs it
			}
			if hit, whole := overlap(compare(e.base, without), wanted); len(hit) > 0 {
				origins = append(origins, Origin{Patch: path.Join(naming.Patches(e.site.Name, layer), file), Places: hit, Whole: whole})
			}
		}
	}
	slices.SortStableFunc(origins, func(a, b Origin) int { // those of the lines themselves first
		switch {
		case a.Whole == b.Whole:
			return 0
		case a.Whole:
			return 1
		}
		return -1
	})
	return wanted, origins, nil
}

// overlap are the wanted places that are among, or below, the touched ones. Whole says that all are so with their whole object.
func overlap(touched, wanted []Place) (hit []Place, whole bool) {
	whole = true
	for _, w := range wanted {
		found := false
		for _, t := range touched {
			if t.Holds(w) {
				found = true
				whole = whole && t.Field == ""
			}
		}
		if found {
			hit = append(hit, w)
		}
	}
	return hit, whole
}

// String words a query for people.
func (q Query) String() string {
	var parts []string
	if q.Kind != "" {
		parts = append(parts, strings.TrimPrefix(q.Kind+" "+strings.TrimPrefix(q.Namespace+"/"+q.Name, "/"), " "))
	}
	if q.Field != "" {
		parts = append(parts, "field "+q.Field)
	}
	if q.File != "" {
		parts = append(parts, strings.TrimSuffix(fmt.Sprintf("%s:%d", q.File, q.FileLine), ":0"))
	}
	if q.Text != "" {
		parts = append(parts, fmt.Sprintf("a line with %q", q.Text))
	}
	return strings.Join(parts, ", ")
}

// Lines are the rendered lines that a query names.
func (e *Explainer) Lines(q Query) []Place {
	var found []Place
	for _, id := range slices.Sorted(maps.Keys(e.base)) {
		o := e.base[id]
		if !q.names(o) {
			continue
		}
		every(o, o.content, "", func(p Place) {
			p = e.lines.place(p)
			switch {
			case q.Field != "" && !(Place{Object: p.Object, Field: q.Field}).Holds(p):
			case q.Text != "" && !strings.Contains(p.Text, q.Text):
			case q.File != "" && p.File != q.File, q.FileLine > 0 && p.FileLine != q.FileLine:
			default:
				found = append(found, p)
			}
		})
	}
	slices.SortFunc(found, before)
	return found
}

func (q Query) names(o object) bool {
	metadata, _ := o.content["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	name, _ := metadata["name"].(string)
	kind := strings.ToLower(o.kind)
	asked, _, _ := strings.Cut(strings.ToLower(q.Kind), ".") // deployments.apps
	return (q.Kind == "" || asked == kind || asked == kind+"s" || asked == strings.TrimSuffix(kind, "y")+"ies") &&
		(q.Namespace == "" || q.Namespace == namespace) && (q.Name == "" || q.Name == name)
}

// every visits each line of each scalar of an object.
func every(o object, node any, field string, visit func(Place)) {
	switch n := node.(type) {
	case map[string]any:
		for key, value := range n {
			every(o, value, below(field, key), visit)
		}
	case []any:
		for i, value := range n {
			every(o, value, fmt.Sprintf("%s[%d]", field, i), visit)
		}
	case string:
		if !strings.Contains(n, "\n") {
			visit(Place{Layer: o.layer, Object: o.id, Field: field, Text: n})
			return
		}
		for i, line := range strings.Split(n, "\n") {
			visit(Place{Layer: o.layer, Object: o.id, Field: field, Line: i + 1, Text: line})
		}
	default:
		visit(Place{Layer: o.layer, Object: o.id, Field: field, Text: brief(n)})
	}
}
