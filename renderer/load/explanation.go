package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"cuelang.org/go/cue"
)

// Explanation is what is known of one field of a site.
type Explanation struct {
	Path string `json:"path"`
	// Value after defaults, as JSON; null: the field is not set.
	Value json.RawMessage `json:"value"`
	// At is where the user wrote it; nil: they did not.
	At *Place `json:"at,omitempty"`
	// Default says that the value is the schema's default.
	Default bool `json:"default"`
	// Doc is the schema's own words, Schema the place in the schema that they are at, or that the value is from.
	Doc    string `json:"doc,omitempty"`
	Schema string `json:"schema,omitempty"`
}

// Explain says what is known of the field that the steps lead to, the site's name first. A field that the schema does not have is
// an error that names the nearest.
func (p *Package) Explain(path []string) (*Explanation, error) {
	v := p.views[path[0]]
	if v == nil {
		return nil, fmt.Errorf("there is no site %q", path[0])
	}
	e := &Explanation{Path: pathText(path), Value: json.RawMessage("null")}
	field, declared := fieldAt(v.schema(), path[1:])
	value := v.valueOf(path)
	if len(path) > 1 && !value.Exists() {
		// The schema declares the fields of any member, also of one that the site does not have.
		for n := 2; n <= len(path); n++ {
			if isMember(path[:n]) && !v.valueOf(path[:n]).Exists() {
				return nil, p.noSuchField(v, path[:n])
			}
		}
		if !declared {
			return nil, p.noSuchField(v, path)
		}
	}
	if value.Exists() {
		text, err := value.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Path, err)
		}
		e.Value = text
		if pos := value.Pos(); inSchema(pos) {
			e.Schema = fmt.Sprintf("%s:%d", filepath.Base(pos.Filename()), pos.Line())
		}
	}
	if at, whole := p.Of(path); whole {
		e.At = &at
	}
	if !declared {
		return e, nil
	}
	if usual, ok := field.Default(); ok && e.At == nil {
		text, err := usual.MarshalJSON()
		e.Default = err == nil && bytes.Equal(text, e.Value)
	}
	var words []string
	for _, doc := range field.Doc() {
		words = append(words, strings.Join(strings.Fields(doc.Text()), " "))
	}
	e.Doc = strings.Join(words, " ")
	if pos := field.Pos(); pos.IsValid() && e.Schema == "" {
		e.Schema = fmt.Sprintf("%s:%d", filepath.Base(pos.Filename()), pos.Line())
	}
	return e, nil
}

// isMember says whether a path leads to something whose name is the user's to choose, or to an element of a list: the schema takes
// any there, so only the site says whether it is.
func isMember(path []string) bool {
	last := path[len(path)-1]
	return number.MatchString(last) || len(path) > 2 && slices.Contains(maps, path[len(path)-2])
}

// noSuchField says which fields or members there are instead.
func (p *Package) noSuchField(v *view, path []string) error {
	parent, name := path[:len(path)-1], path[len(path)-1]
	if here := p.Below(parent); isMember(path) && len(here) > 0 {
		mend := didYouMean(name, here)
		return fmt.Errorf("%s: there is no such member%s (known: %s)", pathText(path), mend, strings.Join(here, ", "))
	}
	mend, _ := suggestField(v.schema(), path)
	if mend == "" {
		return fmt.Errorf("%s: there is no such field, and none below %s", pathText(path), pathText(parent))
	}
	return fmt.Errorf("%s: there is no such field; %s", pathText(path), mend)
}

// valueOf looks a path up in the evaluated site.
func (v *view) valueOf(path []string) cue.Value {
	i := slices.IndexFunc(v.sites, func(s evaluated) bool { return s.name == path[0] })
	if i < 0 {
		return cue.Value{}
	}
	at := v.sites[i].value
	for _, step := range path[1:] {
		next := at.LookupPath(cue.MakePath(cue.Str(step)))
		if !next.Exists() && number.MatchString(step) {
			next = at.LookupPath(cue.ParsePath("[" + step + "]"))
		}
		at = next
	}
	return at
}

// fieldAt finds the schema's declaration of a field, with its comment.
func fieldAt(site cue.Value, path []string) (cue.Value, bool) {
	if len(path) == 0 || !site.Exists() {
		return site, site.Exists()
	}
	parent := descend(site, path[:len(path)-1])
	if parent.Exists() {
		if fields, err := parent.Fields(cue.Optional(true)); err == nil {
			for fields.Next() {
				if fields.Selector().Unquoted() == path[len(path)-1] {
					return fields.Value(), true
				}
			}
		}
	}
	found := descend(site, path)
	return found, found.Exists()
}

// Below names the fields that the schema has below a path, and the members that the site has there.
func (p *Package) Below(path []string) []string {
	v := p.views[path[0]]
	if v == nil {
		return nil
	}
	var names []string
	if !slices.Contains(maps, path[len(path)-1]) { // the names of members are the user's own
		names = fieldsOf(descend(v.schema(), path[1:]))
	}
	if value := v.valueOf(path); value.Exists() {
		if fields, err := value.Fields(); err == nil {
			for fields.Next() {
				if name := fields.Selector().Unquoted(); !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}
