package load

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	schema "github.com/berth-hpc/berth/cue"
)

// Who comes from YAML leaves quotes, commas and brackets out. CUE says then what it met, at the place where it met it; what follows
// says what to write.

// lineAt is the line of a file that a position is on.
func lineAt(pos token.Pos) string {
	text, err := os.ReadFile(pos.Filename())
	if err != nil {
		return ""
	}
	lines := strings.Split(string(text), "\n")
	if n := pos.Line(); n >= 1 && n <= len(lines) {
		return lines[n-1]
	}
	return ""
}

// clock is a time with colons, which is one word all the same.
var clock = regexp.MustCompile(`^(\d+-)?\d+(:\d+){1,2}$`)

// wordAt is what stands in the line around the column, from 1, without blanks, brackets, commas and quotes; before is what stands before
// it, and label says that a colon follows.
func wordAt(line string, column int) (word, before string, label bool) {
	const ends = " \t\r,{}[]()\"'`"
	from := min(max(column-1, 0), len(line))
	to := from
	for from > 0 && !strings.ContainsRune(ends, rune(line[from-1])) {
		from--
	}
	for to < len(line) && !strings.ContainsRune(ends, rune(line[to])) {
		to++
	}
	if whole := line[from:to]; !clock.MatchString(whole) {
		at := min(max(column-1-from, 0), len(whole))
		if at > 0 && at < len(whole) && whole[at] == ':' {
			at-- // the colon is its word's
		}
		if i := strings.LastIndexByte(whole[:at], ':'); i >= 0 {
			from += i + 1
		}
		if i := strings.IndexByte(whole[at:], ':'); i >= 0 {
			to, label = to-len(whole)+at+i, true
		}
	}
	return line[from:to], strings.TrimRight(line[:from], " \t"), label
}

// mendSyntax says what to write where CUE could not read on.
func mendSyntax(message, line string, column int) string {
	if !strings.HasPrefix(message, "missing ','") && !strings.HasPrefix(message, "illegal") && !strings.HasPrefix(message, "expected") {
		return ""
	}
	if strings.HasPrefix(strings.TrimSpace(line), "- ") {
		return "a list is written in [], with commas between its elements"
	}
	word, before, label := wordAt(line, column)
	switch {
	case !bareText.MatchString(word):
		return ""
	case !label && !strings.HasSuffix(before, ":") && !strings.HasSuffix(before, ",") && !strings.HasSuffix(before, "["),
		label && before != "" && !strings.ContainsAny(before[len(before)-1:], ":,{"):
		return "write a comma between two fields, and a colon between a field and its value"
	case ast.IsValidIdent(word):
		return ""
	case label:
		return "a name with other characters than letters, digits and _ is written in quotes: " + strconv.Quote(word)
	}
	return "text is written in quotes: " + strconv.Quote(word)
}

// bareText is what can hardly be anything but text without its quotes.
var bareText = regexp.MustCompile(`^[A-Za-z0-9_.:/@%-]+$`)

var notFound = regexp.MustCompile(`^reference "([^"]+)" not found$`)

const unreferenced = "unreferenced alias or let clause "

// mendReference says what to write for a name that stands for nothing.
func mendReference(message, line string, column int) string {
	if name, ok := strings.CutPrefix(message, unreferenced); ok {
		return "a field is written with a colon: " + name + ": …"
	}
	m := notFound.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	word, _, _ := wordAt(line, column)
	switch {
	case m[1] == "site" && strings.HasPrefix(word, "site.#"):
		return "write import " + strconv.Quote(schema.ImportPath+":site") + " below the file's package clause"
	case slices.Contains([]string{"yes", "on", "y"}, strings.ToLower(m[1])):
		return "write true"
	case slices.Contains([]string{"no", "off", "n"}, strings.ToLower(m[1])):
		return "write false"
	case slices.Contains([]string{"true", "false"}, strings.ToLower(m[1])):
		return "write " + strings.ToLower(m[1])
	case !bareText.MatchString(word):
		word = m[1]
	}
	return "if it is text, write it in quotes: " + strconv.Quote(word)
}

// mendLiteral says how a number, or bytes, become the text that the field wants.
func (v *view) mendLiteral(path []string, node ast.Node) string {
	literal, ok := node.(*ast.BasicLit)
	if !ok || len(path) < 2 || !v.schema().Exists() {
		return ""
	}
	field := descend(v.schema(), path[1:])
	if kind := field.IncompleteKind(); !field.Exists() || kind&cue.StringKind == 0 || kind&cue.NumberKind != 0 {
		return ""
	}
	text, quotes := literal.Value, "quotes"
	switch {
	case literal.Kind == token.INT || literal.Kind == token.FLOAT:
	case literal.Kind == token.STRING && strings.HasPrefix(text, "'"):
		text, quotes = strings.Trim(text, "'"), "double quotes"
	default:
		return ""
	}
	if field.Unify(v.context.Encode(text)).Validate() != nil {
		return "it is text, so it stands in " + quotes
	}
	return "write it in " + quotes + ": " + strconv.Quote(text)
}
