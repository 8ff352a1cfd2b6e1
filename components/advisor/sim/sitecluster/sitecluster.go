// Package sitecluster turns a lab's site, as clusters/<site>.cue describes it, into a cluster to simulate: one node a worker.
package sitecluster

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/engine"
	"github.com/berth-hpc/berth/components/advisor/sim/fairshare"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/site"
)

// Load reads clusters/<name>.cue: the package in its directory, and the site named after the file.
func Load(path string) (*cluster.Spec, *site.Site, error) {
	name := strings.TrimSuffix(filepath.Base(path), ".cue")
	sites, err := load.Load(filepath.Dir(path), name)
	if err != nil {
		return nil, nil, err
	}
	if len(sites) != 1 {
		return nil, nil, fmt.Errorf("%s: there is no site called %q; the file is named after its site", path, name)
	}
	spec, err := Spec(sites[0])
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return spec, sites[0], nil
}

// startup is how long a worker takes from Slurm's decision to its registration; measured on nodes that have the image.
const startup = 30 * workload.Second

// Spec makes the cluster. Pools are elastic from min to max. Pools with cards come first and the fastest of them first, which is
// the order Slurm gives their nodes.
func Spec(s *site.Site) (*cluster.Spec, error) {
	names := slices.Sorted(maps.Keys(s.Pools))
	slices.SortStableFunc(names, func(a, b string) int {
		pa, pb := s.Pools[a], s.Pools[b]
		switch {
		case speed(&pa) > speed(&pb):
			return -1
		case speed(&pa) < speed(&pb):
			return 1
		}
		return 0
	})
	spec := &cluster.Spec{Name: s.Name}
	for _, n := range names {
		p := s.Pools[n]
		if p.Max == 0 {
			continue
		}
		mem, err := mebibytes(p.Memory)
		if err != nil {
			return nil, fmt.Errorf("%s.pools.%s.memory: %w", s.Name, n, err)
		}
		c := cluster.Pool{Name: n, Nodes: p.Max, CPUs: p.CPUs, Memory: cluster.Memory(mem), GPUs: p.GPUs, GPUType: p.Model, Speed: p.Speed,
			Elastic: p.Min < p.Max, Min: p.Min, Startup: cluster.Duration(startup)}
		if p.GPUs > 0 && p.GPUMemory != "" {
			m, err := mebibytes(p.GPUMemory)
			if err != nil {
				return nil, fmt.Errorf("%s.pools.%s.gpuMemory: %w", s.Name, n, err)
			}
			c.GPUMemory = cluster.Memory(m)
		}
		if p.Idle != "" {
			d, err := duration(p.Idle)
			if err != nil {
				return nil, fmt.Errorf("%s.pools.%s.idle: %w", s.Name, n, err)
			}
			c.Idle = cluster.Duration(d)
		}
		spec.Pools = append(spec.Pools, c)
	}
	return spec, spec.Validate()
}

func speed(p *site.Pool) float64 {
	if p.GPUs == 0 {
		return -1
	}
	return p.Speed
}

func mebibytes(q string) (int64, error) {
	v, err := resource.ParseQuantity(q)
	if err != nil {
		return 0, fmt.Errorf("%q is not a quantity: %w", q, err)
	}
	return v.Value() >> 20, nil
}

// duration reads a Go duration, or Slurm's minutes, minutes:seconds, hours:minutes:seconds and days-hours forms.
func duration(s string) (workload.Time, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return d.Microseconds(), nil
	}
	days, rest, has := strings.Cut(s, "-")
	if !has {
		days, rest = "0", s
	}
	var v []int64
	for _, p := range append([]string{days}, strings.Split(rest, ":")...) {
		n, err := strconv.ParseInt(p, 10, 32)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("%q is neither a Slurm time nor a Go duration", s)
		}
		v = append(v, n)
	}
	sec := v[0] * 86400
	switch {
	case len(v) == 4:
		sec += v[1]*3600 + v[2]*60 + v[3]
	case len(v) == 3 && has:
		sec += v[1]*3600 + v[2]*60
	case len(v) == 3:
		sec += v[1]*60 + v[2]
	case has:
		sec += v[1] * 3600
	default:
		sec += v[1] * 60
	}
	return sec * workload.Second, nil
}

// Tree makes the association tree of the site's accounts and users.
func Tree(s *site.Site) *fairshare.Tree {
	t := fairshare.NewTree()
	done := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		a, ok := s.Accounts[name]
		if !ok || done[name] {
			return
		}
		done[name] = true
		add(a.Parent)
		// The schema has refused what could fail here: unknown parents and double names.
		_, _ = t.Account(name, a.Parent, float64(max(a.Shares, 1)))
	}
	for _, n := range slices.Sorted(maps.Keys(s.Accounts)) {
		add(n)
	}
	for _, n := range slices.Sorted(maps.Keys(s.Users)) {
		u := s.Users[n]
		for _, a := range append([]string{u.Account}, u.Accounts...) {
			_, _ = t.User(n, a, float64(max(u.Shares, 1)))
		}
	}
	return t
}

// Multifactor is the site's multifactor priority: its weights, times, fair-share algorithm, QOS and billing, over its accounts. The
// weight of associations has nothing to act on: a site gives accounts no priorities.
func Multifactor(s *site.Site) (*engine.Multifactor, error) {
	p := s.Slurm.Priority
	m := engine.DefaultMultifactor()
	m.Weights = fairshare.Weights{Age: float64(p.Weights.Age), FairShare: float64(p.Weights.FairShare), JobSize: float64(p.Weights.JobSize),
		Partition: float64(p.Weights.Partition), QOS: float64(p.Weights.QOS)}
	if len(p.Weights.TRES) > 0 {
		m.Weights.TRES = map[string]float64{}
		for name, w := range p.Weights.TRES {
			m.Weights.TRES[name] = float64(w)
		}
	}
	var err error
	if m.HalfLife, err = duration(p.DecayHalf); err != nil {
		return nil, fmt.Errorf("%s.slurm.priority.decayHalfLife: %w", s.Name, err)
	}
	if m.MaxAge, err = duration(p.MaxAge); err != nil {
		return nil, fmt.Errorf("%s.slurm.priority.maxAge: %w", s.Name, err)
	}
	m.Classic, m.FavorSmall, m.Billing, m.Tree = !p.FairTree, !p.FavorWide, s.Slurm.TRESBilling, Tree(s)
	largest := 0
	for _, q := range s.Slurm.QOS {
		largest = max(largest, q.Priority)
	}
	m.QOS = map[string]float64{}
	for name, q := range s.Slurm.QOS {
		if largest > 0 {
			m.QOS[name] = float64(q.Priority) / float64(largest)
		}
	}
	return m, nil
}
