package shape

import (
	"fmt"
	"strconv"
	"strings"
)

// referenceHead begins the reference.
const referenceHead = `# Reference of a site

Every field of a site, as the schema in [cue](../cue) has it; made by ` + "`berth docs`" + `. ` + "`<name>`" + ` stands for a name that you choose, ` + "`[]`" + `
for each element of a list. A field without "required" may be left out. What follows an *Or* is what ` + "`berth vet`" + ` says of anything else; it
also says what must hold between fields.
`

// Reference describes every field in Markdown: a chapter for each field of a site, a line for each field below it, with its type,
// its default, the schema's comment and, for texts, what they look like.
func (t *Type) Reference() string {
	var out strings.Builder
	out.WriteString(referenceHead)
	for _, f := range t.Fields {
		fmt.Fprintf(&out, "\n## %s\n\n%s\n", f.Name, about(f))
		var lines strings.Builder
		below(&lines, f.Name, f.Type)
		if lines.Len() > 0 {
			out.WriteString("\n" + lines.String())
		}
	}
	return out.String()
}

// below describes the fields of an object, of a map's members or of a list's elements.
func below(out *strings.Builder, path string, t *Type) {
	for _, f := range t.Fields {
		inner := path + "." + f.Name
		fmt.Fprintf(out, "- `%s`: %s\n", inner, lower(about(f)))
		below(out, inner, f.Type)
	}
	if t.Members != nil {
		below(out, path+".<name>", t.Members)
	}
	if t.Elements != nil {
		below(out, path+"[]", t.Elements)
	}
}

// about is what there is to say of a field, on one line.
func about(f Field) string {
	facts := f.Type.words()
	switch {
	case f.Required:
		facts += ", required"
	case f.Derived:
		facts += ", follows from other fields or names"
	case f.Default != "":
		facts += ", default `" + f.Default + "`"
	}
	line := facts + "."
	if f.Doc != "" {
		line += " " + inMarkdown(f.Doc)
	}
	for _, t := range []*Type{f.Type, f.Type.Members, f.Type.Elements} {
		if t != nil && t.Message != "" && t.Enum == nil && (t.Kind == "string" || t.Alternatives != nil) {
			line += " *Or: " + inMarkdown(t.Message) + ".*"
		}
	}
	return line
}

// inMarkdown keeps a text from being read as HTML or emphasis.
func inMarkdown(text string) string {
	return strings.NewReplacer("<", "&lt;", "*", "\\*", "_", "\\_").Replace(text)
}

// words says what a type is, in a few words.
func (t *Type) words() string {
	if len(t.Alternatives) > 0 {
		var forms []string
		for _, one := range t.Alternatives {
			forms = append(forms, one.words())
		}
		return strings.Join(forms, " or ")
	}
	if t.Enum != nil {
		var values []string
		for _, value := range t.Enum {
			if text, is := value.(string); is {
				value = strconv.Quote(text)
			}
			values = append(values, fmt.Sprintf("`%v`", value))
		}
		return strings.Join(values, ", ")
	}
	switch t.Kind {
	case "object":
		if t.Members == nil {
			return "Fields"
		}
		return "By name: " + lower(t.Members.words())
	case "array":
		if t.Elements == nil {
			return "List"
		}
		return "List of " + lower(t.Elements.words())
	case "integer":
		return "Whole number" + t.limits()
	case "number":
		return "Number" + t.limits()
	case "boolean":
		return "`true` or `false`"
	case "string":
		return "Text"
	}
	return "Any value"
}

func lower(words string) string { return strings.ToLower(words[:1]) + words[1:] }

func (t *Type) limits() string {
	number := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	switch {
	case t.Min != nil && t.Max != nil:
		return fmt.Sprintf(", %s to %s", number(*t.Min), number(*t.Max))
	case t.Min != nil:
		return fmt.Sprintf(", %s or more", number(*t.Min))
	case t.Above != nil && t.Max != nil:
		return fmt.Sprintf(" above %s, at most %s", number(*t.Above), number(*t.Max))
	case t.Above != nil && t.Below != nil:
		return fmt.Sprintf(" above %s, below %s", number(*t.Above), number(*t.Below))
	case t.Above != nil:
		return fmt.Sprintf(" above %s", number(*t.Above))
	}
	return ""
}
