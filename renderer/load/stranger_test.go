package load

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
)

// A stranger mends a site who knows the file and what berth says of it, and nothing else: they go to the place, and write what the
// message names. TestWrongSites vets what comes of it. Where the mend asks for a choice that the message leaves to people, the case
// makes it ("~ OLD => NEW") and quotes the piece of the message that led there ("says PIECE").

// mend gives the text as the stranger leaves it; ok is false where a message leads to nothing. Problems of the same words, in any order, are
// one to the stranger, who mends the last of their places.
func (w wrongSite) mend(t *testing.T, text string, problems Problems) (mended string, ok bool) {
	t.Helper()
	if len(w.choices) > 0 {
		all := problems.Error()
		if w.says == "" || !strings.Contains(all, w.says) {
			t.Errorf("what leads to the mend is not in the message: %q\n%s", w.says, all)
		}
		for _, choice := range w.choices {
			if !strings.Contains(text, choice[0]) {
				t.Fatalf("the changed site has no %q", choice[0])
			}
			text = strings.Replace(text, choice[0], choice[1], 1)
		}
		return text, true
	}
	said := map[string]bool{}
	for _, p := range slices.Backward(problems) { // from the end, so that the places before stay where they are
		words := strings.Join(slices.Sorted(strings.FieldsSeq(p.Message)), " ")
		if said[words] {
			continue
		}
		said[words] = true
		at := spotOf(t, text, p)
		if at == nil {
			return text, false
		}
		if text, ok = at.follow(p.Message + "; " + p.Mend); !ok {
			return text, false
		}
	}
	return text, true
}

// spot is the place in a file that a message points to.
type spot struct {
	text  string
	entry *entry
	// missing is the field that the place does not have and should; name says that what is wrong is the name of the entry.
	missing string
	name    bool
}

func spotOf(t *testing.T, text string, p Problem) *spot {
	t.Helper()
	file, err := parser.ParseFile("site.cue", text)
	if err != nil {
		t.Fatal(err)
	}
	s := &spot{text: text}
	if m := misnomer.FindStringSubmatch(p.Message); m != nil {
		s.name = true
		if name := m[1] + m[2]; name != "" { // of what the place is in
			p.Path = p.Path[:strings.LastIndex(p.Path, name)+len(name)]
			if strings.HasSuffix(p.Path[:len(p.Path)-len(name)], `"`) {
				p.Path += `"`
			}
		}
	}
	if m := lacking.FindStringSubmatch(p.Message); m != nil {
		s.missing = m[1]
		p.Path = strings.TrimSuffix(p.Path, "."+m[1])
	}
	for _, e := range newIndex([]*ast.File{file}).entries {
		if pathText(strings.Split(e.path, pathSeparator)) == p.Path && p.Line >= e.label.Line() && p.Line <= e.end.Line() {
			s.entry = e
		}
	}
	if s.entry == nil {
		return nil
	}
	return s
}

var (
	misnomer = regexp.MustCompile(`^"([^"]*)" (?:is not|cannot name)|^(?:user|group|partition) (\S+) (?:exists|has the name)|^not a name of|^not the key of a Kubernetes label|^not a resource that|^not an image of the platform`)
	lacking  = regexp.MustCompile(`^"([^"]*)" is missing`)
	meant    = regexp.MustCompile(`did you mean "([^"]+)"\?`)
	charset  = regexp.MustCompile(`use (at most \d+ |a-z|lower-case letters|letters)|choose another name`)
	nothing  = regexp.MustCompile(`leave (it|one|value|this) out|remove this line|there is no field .* fields here`)
	amount   = regexp.MustCompile(`(?:set max to|write|ask for|use) (\d[0-9A-Za-z]*) (?:or less|or more|at most)|must be an? [^,;]*, (\d+)`)
	fragment = regexp.MustCompile(`for example ([a-zA-Z]+): (.*)$`)
	more     = regexp.MustCompile(`; add ([0-9./]+)$`)
	example  = regexp.MustCompile(`for example ([^ ,;]*[^ ,;)])|(?:write|form) [^;()]*\(([^ ,]+)[ ,]|; write (\S+)$|such as ([^ ,;]+)`)
	choice   = regexp.MustCompile(`(?:one of: |takes |must be |; use |, or use )([A-Za-z0-9][-A-Za-z0-9.]*)(?:,| or |;|$)`)
	known    = regexp.MustCompile(`\((?:known|hosts with as many|hosts with cards): ([^,)]+)`)
	model    = regexp.MustCompile(`\(models: ([^,)]+)`)
)

// follow does what the words say at the place.
func (s *spot) follow(words string) (string, bool) {
	words = strings.TrimSuffix(words, "; ")
	first := func(r *regexp.Regexp) string {
		for i, group := range r.FindStringSubmatch(words) {
			if i > 0 && group != "" {
				return group
			}
		}
		return ""
	}
	steps := strings.Split(s.entry.path, pathSeparator)
	last := steps[len(steps)-1]
	switch {
	case s.missing != "" && first(example) != "":
		return s.insert(s.missing + ": " + strconv.Quote(first(example)))
	case s.missing != "":
		return s.text, false
	case first(meant) != "" && strings.HasPrefix(words, "there is no field"):
		return s.rename(first(meant)), true
	case first(meant) != "":
		return s.write(first(meant)), true
	case nothing.MatchString(words):
		return s.remove(), true
	case s.name && first(choice) != "":
		return s.rename(first(choice)), true
	case s.name:
		return s.rename("other"), charset.MatchString(words)
	case first(amount) != "":
		return s.write(first(amount)), true
	case first(model) != "": // in the name of a TRES
		return s.rename(last[:strings.LastIndex(last, ":")+1] + first(model)), true
	case first(known) != "" && first(known) != "none":
		return s.write(first(known)), true
	case first(fragment) == last:
		return s.put(strings.TrimPrefix(fragment.FindString(words), "for example "+last+": ")), true
	case first(fragment) != "":
		return s.insert(strings.TrimPrefix(fragment.FindString(words), "for example "))
	case first(more) != "":
		return s.insert(strconv.Quote(first(more)))
	case first(example) != "":
		return s.write(first(example)), true
	case strings.Contains(words, "above 0"):
		return s.write("0.5"), true
	case charset.MatchString(words):
		return s.write("other"), true
	case first(choice) != "":
		return s.write(first(choice)), true
	}
	return s.text, false
}

// write puts a value in the place of the one that is there: in quotes, unless it is a number where no text was, or a truth value. A
// list gets it as its only element.
func (s *spot) write(value string) string {
	literal, _ := s.entry.node.(*ast.BasicLit)
	list, isList := s.entry.node.(*ast.ListLit)
	_, err := strconv.ParseFloat(value, 64)
	if number := err == nil && (literal == nil || literal.Kind != token.STRING); !number && value != "true" && value != "false" {
		value = strconv.Quote(strings.Trim(value, `"`))
	}
	if isList {
		value = "[" + value + "]"
		if len(list.Elts) > 0 {
			return s.text
		}
	}
	return s.put(value)
}

// put puts CUE in the place of the value that is there.
func (s *spot) put(cue string) string {
	return s.text[:s.entry.value.Offset()] + cue + s.text[s.entry.end.Offset():]
}

// insert adds a field to the struct, or an element to the list, that stands at the place.
func (s *spot) insert(cue string) (string, bool) {
	at := s.entry.value.Offset()
	if open := s.text[at]; open != '{' && open != '[' {
		return s.text, false
	}
	return s.text[:at+1] + cue + ", " + s.text[at+1:], true
}

// rename writes another name for the field.
func (s *spot) rename(name string) string {
	from := s.entry.label.Offset()
	rest := s.text[from:]
	length := strings.IndexAny(rest, ":?! ")
	if rest[0] == '"' {
		length = 2 + strings.IndexByte(rest[1:], '"')
	}
	return s.text[:from] + strconv.Quote(name) + rest[length:]
}

// remove takes the field or element out; of a list that names something twice, its last element.
func (s *spot) remove() string {
	from, to := s.entry.label.Offset(), s.entry.end.Offset()
	if list, ok := s.entry.node.(*ast.ListLit); ok && len(list.Elts) > 1 {
		from, to = list.Elts[len(list.Elts)-1].Pos().Offset(), list.Elts[len(list.Elts)-1].End().Offset()
	}
	before, after := strings.TrimRight(s.text[:from], " "), s.text[to:]
	switch {
	case strings.HasSuffix(before, ":"): // the only field of a struct without braces
		return before + " {}" + after
	case strings.HasSuffix(before, ","):
		return strings.TrimSuffix(before, ",") + after
	default:
		return before + strings.TrimPrefix(after, ",")
	}
}
