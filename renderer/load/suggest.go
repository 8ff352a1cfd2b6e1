package load

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"

	schema "github.com/berth-hpc/berth/cue"
)

// schemaOf finds #Site among the package's imports; the value does not exist where nothing imports the schema.
func schemaOf(ctx *cue.Context, instance *build.Instance) cue.Value {
	for _, imported := range instance.Imports {
		if path, _, _ := strings.Cut(imported.ImportPath, ":"); strings.Split(path, "@")[0] == schema.ImportPath {
			return ctx.BuildInstance(imported).LookupPath(cue.ParsePath("#Site"))
		}
	}
	return cue.Value{}
}

// isSite reports whether the value has the schema's rules in it, that is, whether it is a site.#Site.
func isSite(v cue.Value) bool {
	return v.LookupPath(cue.MakePath(cue.Hid(rulesField, schema.ImportPath+":site"))).Exists()
}

// descend follows a path of the user's, without the site's name, into the schema.
func descend(v cue.Value, path []string) cue.Value {
	for _, step := range path {
		next := v.LookupPath(cue.MakePath(cue.Str(step).Optional()))
		if !next.Exists() {
			next = v.LookupPath(cue.MakePath(cue.Str(step)))
		}
		if !next.Exists() {
			next = v.LookupPath(cue.MakePath(cue.AnyString))
		}
		if !next.Exists() && number.MatchString(step) {
			next = v.LookupPath(cue.MakePath(cue.AnyIndex))
		}
		if !next.Exists() {
			return cue.Value{}
		}
		v = next
	}
	return v
}

// fieldsOf names the fields that the schema declares at a value.
func fieldsOf(v cue.Value) []string {
	if !v.Exists() {
		return nil
	}
	fields, err := v.Fields(cue.Optional(true))
	if err != nil {
		return nil
	}
	var names []string
	for fields.Next() {
		names = append(names, fields.Selector().Unquoted())
	}
	return names
}

// suggestField says which field was probably meant by one that the schema does not have, and gives its path where it knows
// it: that one is then not missing as well.
func suggestField(site cue.Value, path []string) (mend string, meant []string) {
	if !site.Exists() || len(path) < 2 {
		return "", nil
	}
	name, parent := path[len(path)-1], path[1:len(path)-1]
	here := fieldsOf(descend(site, parent))
	if near := nearest(name, here); near != "" {
		return fmt.Sprintf("did you mean %q?", near), append(path[:len(path)-1:len(path)-1], near)
	}
	// pools: sharing: mps: …, a field of a pool where a pool's name belongs.
	if len(parent) == 2 && slices.Contains(maps, parent[0]) && slices.Contains(fieldsOf(descend(site, []string{parent[0], "name"})), parent[1]) {
		return fmt.Sprintf("%s is a field of each member of %s; write %s: <name>: %s: …", parent[1], parent[0], parent[0], parent[1]), path[:len(path)-1]
	}
	if elsewhere := placesOf(site, name, nil, 0); len(elsewhere) > 0 {
		return fmt.Sprintf("it belongs in %s", strings.Join(elsewhere, " or ")), nil
	}
	if len(here) > 0 {
		slices.Sort(here)
		return "fields here: " + strings.Join(here, ", "), nil
	}
	return "", nil
}

// placesOf finds where in a site the schema has a field of this name, at most three steps deep.
func placesOf(v cue.Value, name string, at []string, depth int) []string {
	var places []string
	for _, f := range fieldsOf(v) {
		if f == name && len(at) > 0 {
			places = append(places, strings.Join(at, "."))
			continue
		}
		if depth >= 3 {
			continue
		}
		inner := descend(v, []string{f})
		if slices.Contains(maps, f) {
			places = append(places, placesOf(descend(inner, []string{"name"}), name, append(at[:len(at):len(at)], f, "<name>"), depth+1)...)
			continue
		}
		places = append(places, placesOf(inner, name, append(at[:len(at):len(at)], f), depth+1)...)
	}
	return places
}

// describeField is what the schema's comment says about a field that is missing.
func describeField(site cue.Value, path []string) string {
	if !site.Exists() || len(path) < 2 {
		return ""
	}
	name := path[len(path)-1]
	parent := descend(site, path[1:len(path)-1])
	if !parent.Exists() {
		return ""
	}
	fields, err := parent.Fields(cue.Optional(true))
	if err != nil {
		return ""
	}
	for fields.Next() {
		if fields.Selector().Unquoted() != name {
			continue
		}
		for _, doc := range fields.Value().Doc() {
			if text := strings.Join(strings.Fields(doc.Text()), " "); text != "" {
				first, _, _ := strings.Cut(text, ". ")
				return "it is: " + strings.TrimSuffix(first, ".")
			}
		}
	}
	return ""
}

var knownNames = regexp.MustCompile(`"([^"]+)" is not in .*\(known: ([^)]*)\)`)

var noneKnown = regexp.MustCompile(`is not in \S+ \(known: none\)`)

// suggestKnown finds the nearest of the names that a message of the schema lists, and what to do where it lists none.
func suggestKnown(message string) string {
	if noneKnown.MatchString(message) {
		return "add it there, or leave this out"
	}
	m := knownNames.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	if near := nearest(m[1], strings.Split(m[2], ", ")); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// didYouMean is suggestKnown for load's own messages.
func didYouMean(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// nearest is the candidate at the smallest edit distance, if that is small for the name's length; case does not count.
func nearest(name string, candidates []string) string {
	best, bestDistance := "", 1+(len(name)+2)/4
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the restricted edit distance: insertions, deletions, substitutions and swaps of neighbours.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
