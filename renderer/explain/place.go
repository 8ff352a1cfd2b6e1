package explain

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/emit"
)

// Place is one line of one field of one object, or a whole field.
type Place struct {
	Layer  string `json:"layer"`
	Object string `json:"object"`          // "SlurmConfig slurm/slurm"
	Field  string `json:"field,omitempty"` // "spec.files.slurm.conf"; empty: the whole object
	Line   int    `json:"line,omitempty"`  // of a field of several lines, from 1
	Text   string `json:"text"`            // the line, or the field's value, as it is now
	// File and FileLine are where that is in the rendered tree; empty where the chart makes the object in the cluster.
	File     string `json:"file,omitempty"`
	FileLine int    `json:"fileLine,omitempty"`
}

// String is the place for people.
func (p Place) String() string {
	var b strings.Builder
	if p.File != "" {
		fmt.Fprintf(&b, "%s:%d: ", p.File, p.FileLine)
	}
	b.WriteString(p.Object)
	if p.Field == "" {
		b.WriteString(": the whole object")
		return b.String()
	}
	b.WriteString(": " + p.Field)
	if p.Line > 0 {
		fmt.Fprintf(&b, " line %d", p.Line)
	}
	b.WriteString(": " + strings.TrimSpace(p.Text))
	return b.String()
}

// Holds says whether a place is at or below another.
func (p Place) Holds(other Place) bool {
	if p.Object != other.Object {
		return false
	}
	if p.Field == other.Field {
		return p.Line == 0 || other.Line == 0 || p.Line == other.Line
	}
	rest, below := strings.CutPrefix(other.Field, p.Field)
	return p.Field == "" || below && (rest[0] == '.' || rest[0] == '[')
}

// before orders places.
func before(a, b Place) int {
	return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Field, b.Field), a.Line-b.Line)
}

// lines knows where in the rendered tree each object's fields are.
type lines map[string]document

type document struct {
	file string
	root *yaml.Node
}

func linesOf(tree emit.Tree) (lines, error) {
	found := lines{}
	for _, path := range tree.Paths() {
		objects, err := manifest.Parse(tree[path])
		if err != nil || len(objects) != 1 {
			continue // a kustomization.yaml is no object
		}
		var node yaml.Node
		if err := yaml.Unmarshal(tree[path], &node); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(node.Content) == 1 {
			found[objects[0].ID()] = document{path, node.Content[0]}
		}
	}
	return found, nil
}

// place fills in where a place is in the tree.
func (l lines) place(p Place) Place {
	d, ok := l[p.Object]
	if !ok {
		return p
	}
	if p.Field == "" {
		p.File, p.FileLine = d.file, d.root.Line
		return p
	}
	node, line := find(d.root, p.Field)
	if node == nil {
		return p // a patch's
	}
	p.File, p.FileLine = d.file, line
	if p.Line > 0 && node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		p.FileLine = node.Line + p.Line
	}
	return p
}

// find follows a field as comparison.walk writes it: keys may hold dots, so the longest key that fits is taken. It gives the value
// and the line of its key.
func find(node *yaml.Node, field string) (*yaml.Node, int) {
	line := node.Line
	for field != "" {
		switch node.Kind {
		case yaml.MappingNode:
			var value *yaml.Node
			longest := -1
			for i := 0; i+1 < len(node.Content); i += 2 {
				key := node.Content[i].Value
				rest, ok := strings.CutPrefix(field, key)
				if ok && len(key) > longest && (rest == "" || rest[0] == '.' || rest[0] == '[') {
					value, line, longest = node.Content[i+1], node.Content[i].Line, len(key)
				}
			}
			if value == nil {
				return nil, 0
			}
			node, field = value, strings.TrimPrefix(field[longest:], ".")
		case yaml.SequenceNode:
			index, rest, ok := strings.Cut(strings.TrimPrefix(field, "["), "]")
			i, err := strconv.Atoi(index)
			if !ok || err != nil || i >= len(node.Content) {
				return nil, 0
			}
			node, field = node.Content[i], strings.TrimPrefix(rest, ".")
			line = node.Line
		default:
			return nil, 0
		}
	}
	return node, line
}
