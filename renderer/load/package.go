package load

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/renderer/site"
)

// Package is a directory of right sites, together with where their author wrote what.
type Package struct {
	Sites []*site.Site

	dir   string
	views map[string]*view // by site
}

// Open is Load for those who also want to know where things are written.
func Open(dir string, names ...string) (*Package, error) {
	return bounded(dir, func() (*Package, error) { return open(dir, names) })
}

// Load reads the CUE package in dir, a lab's clusters/, and returns the named sites, or all of them, in the order of their
// names. What is wrong with them comes back as Problems; other errors are about the directory or about CUE itself.
func Load(dir string, names ...string) ([]*site.Site, error) {
	p, err := Open(dir, names...)
	if err != nil {
		return nil, err
	}
	return p.Sites, nil
}

func open(dir string, names []string) (*Package, error) {
	v, problems, err := inspect(dir, names)
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return nil, problems
	}
	p := &Package{dir: dir, views: make(map[string]*view)}
	for _, s := range v.sites {
		typed := &site.Site{Name: s.name}
		if err := s.value.Decode(typed); err != nil {
			return nil, fmt.Errorf("%s: site %s: the schema in this repository is not the one that this berth knows; run `berth init` to renew it: %w", dir, s.name, err)
		}
		Derive(typed)
		p.Sites = append(p.Sites, typed)
		p.views[s.name] = v
	}
	return p, nil
}

// Place is a position in the user's files. The zero value: the user wrote nothing there.
type Place struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// String is file:line:column.
func (p Place) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Of is where the user wrote the field that the steps lead to, the site's name first; whole is false where they wrote only a
// part that holds it, and the field follows from the schema or from an expression there.
func (p *Package) Of(path []string) (at Place, whole bool) {
	v := p.views[path[0]]
	if v == nil {
		return Place{}, false
	}
	i := slices.IndexFunc(v.sites, func(s evaluated) bool { return s.name == path[0] })
	e, whole := v.index.lookup(v.sites[i].originOf(group{path: path}))
	if e == nil {
		return Place{}, false
	}
	pos := e.value
	if !whole {
		pos = e.label
	}
	return Place{display(pos.Filename()), pos.Line(), pos.Column()}, whole
}

// Problem makes a problem of a rule that CUE cannot express, at the user's line.
func (p *Package) Problem(path []string, message string) Problem {
	at, _ := p.Of(path)
	return Problem{Path: pathText(path), File: at.File, Line: at.Line, Column: at.Column, Message: message}
}

// Steps cuts a path as people and messages write it, lab.pools.gpu-rtx4070.hosts[1] or lab."my pool".max, into its steps.
func Steps(path string) []string {
	var steps []string
	for path != "" {
		var step string
		switch {
		case path[0] == '"':
			step, path, _ = strings.Cut(path[1:], `"`)
			path = strings.TrimPrefix(path, ".")
		case path[0] == '[':
			step, path, _ = strings.Cut(path[1:], "]")
			path = strings.TrimPrefix(path, ".")
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			step, path = path[:end], strings.TrimPrefix(path[end:], ".")
		}
		steps = append(steps, step)
	}
	return steps
}

// PathText writes steps as a path that people read.
func PathText(steps []string) string { return pathText(steps) }
