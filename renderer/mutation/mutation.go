// Package mutation makes sites that differ a little from given ones, right and wrong alike, and the same ones for the same seed.
// It is for tests: what cue accepts of them, every later step must take; what cue refuses, berth must refuse and explain. It
// judges no site.
package mutation

import (
	_ "embed"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"
)

// Site is a mutated site.
type Site struct {
	Name string // of the site that is to be looked at
	// Files are the files of clusters/, by name: the site's own and those of the site that it is derived from.
	Files map[string]string
	Edits []string // what was done, in words, in order
}

// String shows what was done and the files that came of it.
func (s Site) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "site %s, changed: %s\n", s.Name, strings.Join(s.Edits, "; "))
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		fmt.Fprintf(&b, "--- %s\n%s", name, s.Files[name])
	}
	return b.String()
}

// Maker makes mutations of the sites of one directory.
type Maker struct {
	bases    []base
	settings []setting
}

// base is a site to start from. Its own file is the last of files.
type base struct {
	name  string
	files []string
	texts map[string][]byte
}

var derivedFrom = regexp.MustCompile(`#of:\s*([a-z]+)`)

// New reads the sites of a directory: one a file, named as the file is.
func New(dir string) (*Maker, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.cue"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s: holds no sites to change (%v)", dir, err)
	}
	m := &Maker{}
	if m.settings, err = parseSettings(settingsText); err != nil {
		return nil, err
	}
	texts := map[string][]byte{}
	for _, path := range paths {
		if texts[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	for _, path := range paths {
		own := filepath.Base(path)
		b := base{name: strings.TrimSuffix(own, ".cue"), texts: texts}
		if of := derivedFrom.FindSubmatch(texts[own]); of != nil {
			b.files = append(b.files, string(of[1])+".cue")
		}
		b.files = append(b.files, own)
		m.bases = append(m.bases, b)
	}
	return m, nil
}

// Make gives mutation number n of a seed. The bases take turns, the small ones more often: they are quick to evaluate.
func (m *Maker) Make(seed, n uint64) Site {
	r := rand.New(rand.NewPCG(seed, n))
	var turns []base
	for _, b := range m.bases {
		size := 0
		for _, file := range b.files {
			size += len(b.texts[file])
		}
		for range max(1, 8000/size) {
			turns = append(turns, b)
		}
	}
	b := turns[r.IntN(len(turns))]
	s := Site{Name: b.name, Files: map[string]string{}}
	files := map[string]*ast.File{}
	for _, name := range b.files {
		file, err := parser.ParseFile(name, b.texts[name])
		if err != nil {
			return Site{Name: b.name, Edits: []string{"none: " + err.Error()}}
		}
		files[name] = file
	}
	for range 1 + min(r.IntN(3), r.IntN(3)) {
		name := b.files[r.IntN(len(b.files))]
		e := &editor{random: r, file: files[name], site: strings.TrimSuffix(name, ".cue"), settings: m.settings}
		// A derived site's names stand in the site that it is derived from.
		e.names = newPlaces(files[b.files[0]], strings.TrimSuffix(b.files[0], ".cue"))
		s.Edits = append(s.Edits, e.edit())
	}
	for name, file := range files {
		text, err := format.Node(file)
		if err != nil {
			return Site{Name: b.name, Edits: append(s.Edits, "unwritable: "+err.Error())}
		}
		s.Files[name] = string(text)
	}
	return s
}

//go:embed settings.txt
var settingsText string

// setting is a field and values for it, as CUE expressions.
type setting struct {
	path         []string
	right, wrong []string
}

func parseSettings(text string) ([]setting, error) {
	var out []setting
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		path, values, found := strings.Cut(line, " ")
		right, wrong, both := strings.Cut(values, " || ")
		if !found || !both {
			return nil, fmt.Errorf("settings: cannot read %q", line)
		}
		out = append(out, setting{strings.Split(path, "."), strings.Split(right, " | "), strings.Split(wrong, " | ")})
	}
	return out, nil
}
