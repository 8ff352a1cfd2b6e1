// Package anchor holds published tables of other people's simulators, cell by cell, and computes each cell with ours. A cell
// that does not come out says so; nothing here is adjusted to make one come out.
package anchor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// Cell is one published number and ours.
type Cell struct {
	Anchor, Name    string
	Published, Ours float64
	Decimals        int
	OK              bool
}

// String is the line of the report: anchor, cell, published, ours, ok or short.
func (c Cell) String() string {
	verdict := "short"
	if c.OK {
		verdict = "ok"
	}
	return fmt.Sprintf("%s %s %.*f %.*f %s", c.Anchor, c.Name, c.Decimals, c.Published, c.Decimals, c.Ours, verdict)
}

// Group is a set of cells computed together.
type Group struct {
	Name string
	Run  func(shared string, emit func(Cell)) error
}

// Groups lists the anchors.
func Groups() []Group {
	return []Group{
		{"lublin", Lublin},
		{"hpc2n", HPC2N},
		{"muri", Muri},
		{"openb", Openb},
	}
}

// Run computes the groups named (all if none) and prints a line a cell. It reports how many cells came out short. Traces that
// are not there are an error that says which.
func Run(w io.Writer, shared string, names ...string) (short int, err error) {
	var known []string
	for _, g := range Groups() {
		known = append(known, g.Name)
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return 0, fmt.Errorf("no anchor is called %q; use %s", n, strings.Join(known, ", "))
		}
	}
	for _, g := range Groups() {
		if len(names) > 0 && !slices.Contains(names, g.Name) {
			continue
		}
		err := g.Run(shared, func(c Cell) {
			fmt.Fprintln(w, c)
			if !c.OK {
				short++
			}
		})
		if errors.Is(err, fs.ErrNotExist) {
			return short, fmt.Errorf("the anchor %s needs traces that are not there: %w", g.Name, err)
		}
		if err != nil {
			return short, fmt.Errorf("anchor %s: %w", g.Name, err)
		}
	}
	return short, nil
}
