package compile

import (
	"fmt"
	"slices"
	"sort"

	"github.com/berth-hpc/berth/renderer/site"
)

// Conflict is something that two sites of one repository both claim.
type Conflict struct {
	Site, Other string   // by name, in order
	Field       []string // of Other, step by step
	Message     string
}

// Conflicts finds sites that would fight over a cluster's objects or over a machine: the same cluster name and namespace, or
// the same host. A box is another site's double for a development machine; the two never meet.
func Conflicts(sites []*site.Site) []Conflict {
	ordered := append([]*site.Site{}, sites...)
	sort.Slice(ordered, func(i, j int) bool { return ordered[i].Name < ordered[j].Name })
	var found []Conflict
	for i, a := range ordered {
		for _, b := range ordered[i+1:] {
			if origin(a) == origin(b) {
				continue
			}
			claims := between(a, b)
			if len(claims) > 0 {
				if stray := strayBox(a, b, ordered); stray != nil {
					claims = []Conflict{*stray}
				}
			}
			found = append(found, claims...)
		}
	}
	return found
}

// origin is the site that a box stands for, or the site itself.
func origin(s *site.Site) string {
	if s.Variant == "box" && s.VariantOf != "" {
		return s.VariantOf
	}
	return s.Name
}

// strayBox is the one cause of what two sites both claim where one of them is a box of a site that does not exist: its variantOf
// is written wrong.
func strayBox(a, b *site.Site, all []*site.Site) *Conflict {
	for _, pair := range [][2]*site.Site{{a, b}, {b, a}} {
		box, other := pair[0], pair[1]
		if box.Variant != "box" || slices.ContainsFunc(all, func(s *site.Site) bool { return s.Name == box.VariantOf }) {
			continue
		}
		return &Conflict{Site: other.Name, Other: box.Name, Field: []string{"variantOf"}, Message: fmt.Sprintf(
			"there is no site %q, and site %s claims the same cluster or machines; write variantOf: %q if %s is its box", box.VariantOf, other.Name, other.Name, box.Name)}
	}
	return nil
}

func between(a, b *site.Site) []Conflict {
	var found []Conflict
	add := func(field []string, format string, args ...any) {
		found = append(found, Conflict{Site: a.Name, Other: b.Name, Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if a.Cluster.Name == b.Cluster.Name {
		for _, namespace := range []struct{ field, a, b string }{
			{"slurm", a.Namespaces.Slurm, b.Namespaces.Slurm}, {"workers", a.Namespaces.Workers, b.Namespaces.Workers},
		} {
			if namespace.a == namespace.b {
				add([]string{"namespaces", namespace.field}, "sites %s and %s are both cluster %q in namespace %s; give one another cluster.name or other namespaces",
					a.Name, b.Name, a.Cluster.Name, namespace.a)
			}
		}
	}
	for _, mine := range sortedHosts(a) {
		for _, theirs := range sortedHosts(b) {
			x, y := a.Hosts[mine], b.Hosts[theirs]
			switch {
			case x.Address == y.Address:
				add([]string{"hosts", theirs, "address"}, "host %s of site %s and host %s of site %s are the same machine, %s; a machine belongs to one site",
					mine, a.Name, theirs, b.Name, x.Address)
			case x.Node == y.Node:
				add([]string{"hosts", theirs, "node"}, "host %s of site %s and host %s of site %s are the same Kubernetes node, %s; a machine belongs to one site",
					mine, a.Name, theirs, b.Name, x.Node)
			}
		}
	}
	return found
}

func sortedHosts(s *site.Site) []string {
	names := make([]string, 0, len(s.Hosts))
	for name := range s.Hosts {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
