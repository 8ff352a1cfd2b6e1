package shape

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// worthSharing is the length from which a part of a schema that occurs again is written once, in bytes.
const worthSharing = 160

// share takes the parts that occur more than once out of a JSON Schema, puts references there, and returns the parts by the
// name of the first property, in order of names, that has one.
func share(root map[string]any) map[string]any {
	s := sharing{count: map[string]int{}, names: map[string]string{}, parts: map[string]any{}}
	s.tally(root)
	for _, key := range slices.Sorted(maps.Keys(root)) {
		s.replace(root[key], key)
	}
	return s.parts
}

type sharing struct {
	count map[string]int    // by the part's text
	names map[string]string // the part's text to its name
	parts map[string]any
}

// core is the part of a property's schema that does not hang on the property.
func core(part map[string]any) (map[string]any, string) {
	c := maps.Clone(part)
	delete(c, "description")
	delete(c, "default")
	text, _ := json.Marshal(c) // of maps, lists, texts and numbers
	return c, string(text)
}

// tally counts the parts that are schemas of objects, lists and choices.
func (s *sharing) tally(value any) {
	switch value := value.(type) {
	case map[string]any:
		if value["properties"] != nil || value["items"] != nil || value["additionalProperties"] != nil || value["anyOf"] != nil {
			_, text := core(value)
			s.count[text]++
		}
		for _, inner := range value {
			s.tally(inner)
		}
	case []any:
		for _, one := range value {
			s.tally(one)
		}
	}
}

// replace puts references into a schema, from the outside inwards.
func (s *sharing) replace(value any, name string) {
	switch value := value.(type) {
	case map[string]any:
		if c, text := core(value); s.count[text] > 1 && len(text) >= worthSharing {
			known, is := s.names[text]
			if !is {
				known = s.free(name)
				s.names[text], s.parts[known] = known, c
				for _, key := range slices.Sorted(maps.Keys(c)) {
					s.replace(c[key], key)
				}
			}
			for key := range c {
				delete(value, key)
			}
			value["$ref"] = "#/$defs/" + known
			return
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			s.replace(value[key], key)
		}
	case []any:
		for _, one := range value {
			s.replace(one, name)
		}
	}
}

func (s *sharing) free(name string) string {
	if name == "" {
		name = "part"
	}
	for n := 2; ; n++ {
		if _, taken := s.parts[name]; !taken {
			return name
		}
		name += strconv.Itoa(n)
	}
}
