package explain

import (
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"slices"
	"strconv"
)

// others are other values that might do in the place of one: those that the schema lists, or else those that it takes. Listed says
// which of the two.
func (e *Explainer) others(leaf []string, value any) (others iter.Seq[any], listed bool) {
	path := e.full(leaf)
	if flag, ok := value.(bool); ok {
		return slices.Values([]any{!flag}), true
	}
	if all := e.opened.Alternatives(path); len(all) > 1 {
		return slices.Values(slices.DeleteFunc(all, func(other any) bool { return reflect.DeepEqual(other, value) })), true
	}
	return func(yield func(any) bool) {
		admitted := false
		for _, other := range e.guesses(value) {
			if e.opened.Admits(path, other) {
				admitted = true
				if !yield(other) {
					return
				}
			}
		}
		if admitted { // else the schema takes no other value than this: what would another change?
			return
		}
		for _, other := range e.guesses(value) {
			if !yield(other) {
				return
			}
		}
	}, false
}

var digits = regexp.MustCompile(`\d+`)

// step is how far guesses count: to a number that no neighbour has.
const step = 7

// guesses are values of the same form.
func (e *Explainer) guesses(value any) []any {
	switch v := value.(type) {
	case float64:
		return []any{v + step, v / 2, v * 2, v + 1, v - 1}
	case string:
		var out []any
		for _, by := range []int{step, 1, -1} {
			if text := counted(v, by); text != v {
				out = append(out, text)
			}
		}
		out = append(out, v+"x", lastChanged(v))
		for _, name := range e.names {
			if name != value {
				out = append(out, name)
			}
		}
		return append(out, "https://example.org", "1Gi", "10.77.0.0/16", "10.77.0.7", "17m")
	case []any:
		var out []any
		if len(v) > 1 {
			out = append(out, v[:len(v)-1])
		}
		for i, item := range v {
			for _, other := range e.guesses(item) {
				if !slices.ContainsFunc(v, func(have any) bool { return reflect.DeepEqual(have, other) }) {
					changed := slices.Clone(v)
					changed[i] = other
					out = append(out, changed)
				}
			}
			if i == enough {
				break
			}
		}
		return append(out, []any{})
	}
	return nil
}

// counted counts the first number in a text up or down, keeping its width.
func counted(text string, by int) string {
	at := digits.FindStringIndex(text)
	if at == nil {
		return text
	}
	n, err := strconv.Atoi(text[at[0]:at[1]])
	if err != nil || n+by < 0 {
		return text
	}
	return text[:at[0]] + fmt.Sprintf("%0*d", at[1]-at[0], n+by) + text[at[1]:]
}

// lastChanged gives a text, such as a digest or a key, another last character.
func lastChanged(text string) string {
	if text == "" {
		return "1"
	}
	last := "0"
	if text[len(text)-1] == '0' {
		last = "1"
	}
	return text[:len(text)-1] + last
}
