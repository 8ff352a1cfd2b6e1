// Package load turns a directory of CUE sites into typed sites, or into the list of everything that is wrong with them.
// It reads files and evaluates CUE; it renders nothing and never touches a cluster or the network.
package load

import (
	"fmt"
	"sort"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"

	"github.com/berth-hpc/berth/renderer/site"
)

// Load reads the CUE package in dir, a lab's clusters/, and returns the named sites, or all of them in the order of
// their names.
func Load(dir string, names ...string) ([]*site.Site, error) {
	instances := load.Instances([]string{"."}, &load.Config{Dir: dir})
	if len(instances) != 1 {
		return nil, fmt.Errorf("%s: want one CUE package, found %d", dir, len(instances))
	}
	if err := instances[0].Err; err != nil {
		return nil, err
	}
	root := cuecontext.New().BuildInstance(instances[0])
	if err := root.Validate(cue.Concrete(true)); err != nil {
		return nil, err
	}
	wanted := make(map[string]bool)
	for _, n := range names {
		wanted[n] = true
	}
	var sites []*site.Site
	fields, err := root.Fields()
	if err != nil {
		return nil, err
	}
	for fields.Next() {
		name := fields.Selector().Unquoted()
		if len(wanted) > 0 && !wanted[name] {
			continue
		}
		delete(wanted, name)
		s := &site.Site{Name: name}
		if err := fields.Value().Decode(s); err != nil {
			return nil, err
		}
		derive(s)
		sites = append(sites, s)
	}
	for n := range wanted {
		return nil, fmt.Errorf("%s: no site %q", dir, n)
	}
	sort.Slice(sites, func(i, j int) bool { return sites[i].Name < sites[j].Name })
	return sites, nil
}

// derive fills in what follows from other fields: a pool's card model, speed and memory are those of its hosts.
func derive(s *site.Site) {
	for name, p := range s.Pools {
		if p.GPUs > 0 && len(p.Hosts) > 0 {
			g := s.Hosts[p.Hosts[0]].GPUs
			p.Model, p.Speed, p.GPUMemory = g.Model, g.Speed, g.Memory
			s.Pools[name] = p
		}
	}
}
