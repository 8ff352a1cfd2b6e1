// Package diff says what the way from one state of a site to another changes: first in the site's own terms, then what it does
// to jobs, pods and data, then object by object. What slurmctld does to jobs is the guard's own table (guard/slurmconf), so
// that what is announced before a push is what the guard decides after it. It reads nothing: states are given to it.
package diff

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-hpc/berth/components/guard/slurmconf"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/inflate"
	"github.com/berth-hpc/berth/renderer/site"
)

// State is a site at one point: in a revision, in the working tree, or in a cluster.
type State struct {
	Name   string            // "HEAD", "the working tree"
	Site   *site.Site        // nil: the site does not exist there, or its value cannot be said
	Layers []inflate.Layer   // as they reach the cluster; empty: the site is not rendered there
	Entry  []manifest.Object // Flux's entry points
}

// Report is what changes.
type Report struct {
	Site string `json:"site"`
	From string `json:"from"`
	To   string `json:"to"`
	// Edits are the changes in the site's own terms.
	Edits []Edit `json:"edits"`
	// Effects are what the change does once it is pushed.
	Effects []Effect `json:"effects"`
	// Migrations are those effects that render refuses until the site acknowledges them.
	Migrations []Migration `json:"migrations"`
	// Objects are the changed objects, secrets masked.
	Objects []Change `json:"objects"`
}

// Kinds of effects, in the order in which they are told.
const (
	Refused     = "refused"     // the cluster will not take it
	Jobs        = "jobs"        // waits for jobs, or would hurt them
	Drain       = "drain"       // workers end after their jobs
	Restart     = "restart"     // pods of the control plane are replaced
	Replace     = "replace"     // an immutable field changes
	Delete      = "delete"      // something leaves the cluster
	Move        = "move"        // an object goes from one layer to another
	Reconfigure = "reconfigure" // slurmctld reads its configuration again
	Accounts    = "accounts"    // Slurm's database is brought in line
	Apply       = "apply"       // anything else: Flux applies it and nothing stops
)

var order = []string{Refused, Jobs, Drain, Restart, Replace, Delete, Move, Reconfigure, Accounts, Apply}

// Effect is one thing that a push does.
type Effect struct {
	Kind string `json:"kind"`
	// What is concerned, and Why says what happens to it.
	What string `json:"what"`
	Why  string `json:"why"`
	// Jobs are those concerned, where the cluster was asked.
	Jobs []slurmconf.Job `json:"jobs,omitempty"`

	danger *slurmconf.Danger
}

// Differs says whether there is any change.
func (r *Report) Differs() bool { return len(r.Edits)+len(r.Objects)+len(r.Effects) > 0 }

// Unacknowledged are the migrations that the site has not agreed to.
func (r *Report) Unacknowledged() []Migration {
	return slices.DeleteFunc(slices.Clone(r.Migrations), func(m Migration) bool { return m.Acknowledged })
}

// Compare says what changes from one state of a site to another.
func Compare(name string, from, to State) (*Report, error) {
	r := &Report{Site: name, From: from.Name, To: to.Name, Edits: []Edit{}, Effects: []Effect{}, Migrations: []Migration{}, Objects: []Change{}}
	edits, err := edits(from.Site, to.Site)
	if err != nil {
		return nil, err
	}
	r.Edits = append(r.Edits, edits...)
	before, after := indexed(from), indexed(to)
	if len(from.Layers) == 0 && len(to.Layers) > 0 {
		r.add(Apply, "the site", "is new: everything in it is made")
	} else {
		if err := r.slurm(before, after); err != nil {
			return nil, err
		}
		r.pods(before, after)
		r.immutable(before, after)
		r.deletions(from, to, before, after)
		r.moves(to, before, after)
	}
	if r.Objects, err = changes(before, after); err != nil {
		return nil, err
	}
	if len(r.Objects) > 0 && len(r.Effects) == 0 {
		r.add(Apply, "Flux", "applies the objects below; no pod restarts and no job is touched")
	}
	slices.SortStableFunc(r.Effects, func(a, b Effect) int {
		return cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind))
	})
	r.Migrations = append(r.Migrations, migrations(from, to, before, after)...)
	return r, nil
}

func (r *Report) add(kind, what, why string, args ...any) {
	r.Effects = append(r.Effects, Effect{Kind: kind, What: what, Why: fmt.Sprintf(why, args...)})
}

// Concern tells each effect that would hurt jobs which of these it is about.
func (r *Report) Concern(jobs []slurmconf.Job) {
	for i := range r.Effects {
		if d := r.Effects[i].danger; d != nil {
			r.Effects[i].Jobs = d.Hurt(jobs)
		}
	}
}

// placed is an object and the layer that it is in.
type placed struct {
	manifest.Object
	layer string
}

// indexed are a state's objects by identity, the carriers of our chart's values left out: what they carry is shown itself.
func indexed(s State) map[string]placed {
	out := map[string]placed{}
	for _, o := range s.Entry {
		out[o.ID()] = placed{o, "entry points"}
	}
	for _, layer := range s.Layers {
		for _, o := range layer.Objects {
			if isValues(o) {
				continue
			}
			out[o.ID()] = placed{withoutValuesName(o), layer.Name}
		}
	}
	return out
}
