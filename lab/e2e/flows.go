package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"sigs.k8s.io/yaml"
)

// flowTable is the platform's declaration of who may connect to whom (the chart's files/flows.yaml).
type flowTable struct {
	Roles map[string]struct {
		Namespace string `json:"namespace"`
		Listens   []any  `json:"listens"`
	} `json:"roles"`
	Flows   []flow `json:"flows"`
	Outside []flow `json:"outside"`
}

type flow struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Ports []any  `json:"ports"`
	Why   string `json:"why"`
}

// Ports that nothing of the platform uses: closed but where a flow says "any". Two are the neighbours of the srun range.
const (
	strangePort = 12345
	webPort     = 80
)

// readFlows reads the table from a checkout.
func readFlows(source string) (flowTable, error) {
	path := filepath.Join(source, "components/chart/slurm-platform/files/flows.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return flowTable{}, err
	}
	var t flowTable
	if err := yaml.UnmarshalStrict(text, &t); err != nil {
		return flowTable{}, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// portRange is the range that srun and salloc listen in, both ends included.
type portRange struct{ first, last int }

// probes are the ports worth measuring for a port entry of the table: all of a list, the ends of a range.
func (s portRange) probes(entry any) ([]int, error) {
	switch v := entry.(type) {
	case float64:
		return []int{int(v)}, nil
	case string:
		if v == "srun" {
			return []int{s.first, s.last}, nil
		}
	}
	return nil, fmt.Errorf("ports: %v is neither a number nor srun", entry)
}

// allPorts are the ports that the matrix measures: every port that a role listens on, and some that none does.
func (t flowTable) allPorts(srun portRange) ([]int, error) {
	ports := []int{webPort, strangePort, srun.first - 1, srun.last + 1}
	for _, role := range t.Roles {
		for _, entry := range role.Listens {
			p, err := srun.probes(entry)
			if err != nil {
				return nil, err
			}
			ports = append(ports, p...)
		}
	}
	sort.Ints(ports)
	return slices.Compact(ports), nil
}

// roles lists the table's roles by name.
func (t flowTable) roles() []string {
	var names []string
	for name := range t.Roles {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// open lists the ports, of those given, on which the table lets one role connect to another.
func (t flowTable) open(from, to string, ports []int, srun portRange) ([]int, error) {
	var open []int
	for _, f := range t.Flows {
		if f.From != from || f.To != to {
			continue
		}
		for _, entry := range f.Ports {
			if entry == "any" {
				return ports, nil
			}
			p, err := srun.probes(entry)
			if err != nil {
				return nil, err
			}
			open = append(open, p...)
		}
	}
	sort.Ints(open)
	return slices.Compact(open), nil
}

// outside tells whether the table lets a role connect to a peer beyond the roles, or such a peer to a role.
func (t flowTable) outside(from, to string) bool {
	return slices.ContainsFunc(t.Outside, func(f flow) bool { return f.From == from && f.To == to })
}
