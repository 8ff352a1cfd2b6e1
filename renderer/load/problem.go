package load

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a site, at the line of the user's file that is to be mended.
type Problem struct {
	// Path names the field, "lab.pools.gpu.hosts[1]".
	Path string `json:"path"`
	// File is the user's file, relative to the working directory where it lies below it.
	File string `json:"file"`
	// Line and Column count from 1; they are 0 where CUE gives no place in the user's files.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Message says what is wrong, and often how to mend it.
	Message string `json:"message"`
	// Mend adds a suggestion that the message does not hold, such as the nearest name that exists; often empty.
	Mend string `json:"mend,omitempty"`
	// Schema is the rule's own place in the schema, for those who want to read it.
	Schema string `json:"schema,omitempty"`
}

// String is the problem on one line, `file:line:column: path: message`.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Place())
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Mend != "" {
		b.WriteString("; " + p.Mend)
	}
	return b.String()
}

// Place is `file:line:column: `, as much of it as is known.
func (p Problem) Place() string {
	switch {
	case p.File == "":
		return ""
	case p.Line == 0:
		return p.File + ": "
	default:
		return fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	}
}

// Problems is everything that was found wrong in one run, as an error: sorted by place, each once.
type Problems []Problem

// Error lists the problems, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// longWord is a word that nobody reads to its end: a value of megabytes would fill the terminal.
var longWord = regexp.MustCompile(`(\S{100})\S{200,}`)

// normalize cuts long words short, sorts the problems by place and drops those that repeat another: a derived site repeats those of its origin.
func (ps Problems) normalize() Problems {
	for i := range ps {
		ps[i].Message = longWord.ReplaceAllString(ps[i].Message, "$1…")
	}
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column,
			strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
	seen := make(map[string]bool)
	return slices.DeleteFunc(ps, func(p Problem) bool {
		byPlace, byPath := p.Place()+p.Message, p.Path+": "+p.Message
		again := (p.Line > 0 && seen[byPlace]) || (p.Path != "" && seen[byPath])
		seen[byPlace], seen[byPath] = true, true
		return again
	})
}
