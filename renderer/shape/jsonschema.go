package shape

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Dialect is the JSON Schema that JSONSchema writes.
const Dialect = "https://json-schema.org/draft/2020-12/schema"

// JSONSchema is the shape as a JSON Schema document, keys sorted, with a line break at the end.
func (t *Type) JSONSchema(title string) ([]byte, error) {
	root := t.jsonSchema()
	if shared := share(root); len(shared) > 0 {
		root["$defs"] = shared
	}
	root["$schema"], root["title"] = Dialect, title
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(root)
	return out.Bytes(), err
}

func (t *Type) jsonSchema() map[string]any {
	s := map[string]any{}
	if t.Kind != "" {
		s["type"] = t.Kind
	}
	if t.Message != "" {
		s["description"] = t.Message
	}
	if one := t.orNull(); one != nil {
		s = one.jsonSchema()
		s["type"] = []any{one.Kind, "null"}
		return s
	}
	if len(t.Alternatives) > 0 {
		var any []any
		for _, one := range t.Alternatives {
			any = append(any, one.jsonSchema())
		}
		s["anyOf"] = any
	}
	if t.Enum != nil && t.Kind != "null" {
		s["enum"] = t.Enum
	}
	for key, limit := range map[string]*float64{"minimum": t.Min, "maximum": t.Max, "exclusiveMinimum": t.Above, "exclusiveMaximum": t.Below} {
		if limit != nil {
			s[key] = *limit
		}
	}
	if t.Format == "ipv4" {
		s["format"] = "ipv4"
	}
	t.texts(s)
	switch t.Kind {
	case "object":
		t.object(s)
	case "array":
		if t.Elements != nil {
			s["items"] = t.Elements.jsonSchema()
		}
		if t.MinLength > 0 {
			s["minItems"] = t.MinLength
		}
	}
	return s
}

// orNull is the other form of a value that may be left empty, which YAML reads as null.
func (t *Type) orNull() *Type {
	if len(t.Alternatives) != 2 || t.Message != "" {
		return nil
	}
	for i, one := range t.Alternatives {
		if other := t.Alternatives[1-i]; one.Kind == "null" && other.Kind != "" && other.Enum == nil {
			return other
		}
	}
	return nil
}

// texts writes the forms of a text: the first as pattern, further ones as allOf.
func (t *Type) texts(s map[string]any) {
	var all []any
	for i, p := range t.Patterns {
		if i == 0 {
			s["pattern"] = p
		} else {
			all = append(all, map[string]any{"pattern": p})
		}
	}
	for _, p := range t.NotPatterns {
		all = append(all, map[string]any{"not": map[string]any{"pattern": p}})
	}
	if t.Not != nil {
		all = append(all, map[string]any{"not": map[string]any{"enum": t.Not}})
	}
	if all != nil {
		s["allOf"] = all
	}
}

func (t *Type) object(s map[string]any) {
	properties, required := map[string]any{}, []string{}
	for _, f := range t.Fields {
		p := f.Type.jsonSchema()
		message, _ := p["description"].(string)
		if about := strings.Join(slices.DeleteFunc([]string{f.Doc, message}, func(s string) bool { return s == "" }), "\n\n"); about != "" {
			p["description"] = about
		}
		if f.Default != "" {
			var value any
			if json.Unmarshal([]byte(f.Default), &value) == nil { // others refer to another field
				p["default"] = value
			}
		}
		properties[f.Name] = p
		if f.Required {
			required = append(required, f.Name)
		}
	}
	if len(properties) > 0 {
		s["properties"] = properties
	}
	if len(required) > 0 {
		slices.Sort(required)
		s["required"] = required
	}
	switch {
	case t.Members != nil:
		s["additionalProperties"] = t.Members.jsonSchema()
	case !t.Open:
		s["additionalProperties"] = false
	}
	if t.Names != nil {
		names := t.Names.jsonSchema()
		delete(names, "type")
		s["propertyNames"] = names
	}
	if t.MaxFields > 0 {
		s["maxProperties"] = t.MaxFields
	}
}
