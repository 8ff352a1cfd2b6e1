package slurmconf

import (
	"fmt"
	"strings"

	"github.com/berth-hpc/berth/renderer/site"
)

// topologyFile is read by slurmctld beside slurm.conf; configless sends it to workers and login.
const topologyFile = "topology.conf"

// Racks are the racks of a pool's workers, by their index; "" where a rack cannot be told. A worker may run on any host of its
// pool, so all must be in one rack; only where there are as many hosts as workers does each have its own.
func Racks(s *site.Site, pool string) []string {
	p := s.Pools[pool]
	racks := make([]string, p.Max)
	common := ""
	for i, name := range p.Hosts {
		at := s.Hosts[name].Rack
		if len(p.Hosts) == p.Max {
			racks[i] = at
		} else if i == 0 || at == common {
			common = at
		} else {
			return racks
		}
	}
	if common != "" {
		for i := range racks {
			racks[i] = common
		}
	}
	return racks
}

// KnowsRacks says whether the rack of any worker is known.
func KnowsRacks(s *site.Site) bool {
	for name := range s.Pools {
		for _, rack := range Racks(s, name) {
			if rack != "" {
				return true
			}
		}
	}
	return false
}

// topologyConf writes the site's racks as topology/tree's switches, "" where no worker's rack is known: a leaf for each rack,
// and one switch above all. Workers of a pool whose racks cannot be told are a leaf of their own, because a node that is under
// no switch shares no job with the others.
func topologyConf(s *site.Site) (string, error) {
	if !KnowsRacks(s) {
		return "", nil
	}
	leaves := map[string][]string{}
	for pool := range s.Pools {
		nodes := PoolNodeNames(pool, s.Pools[pool].Max)
		for i, rack := range Racks(s, pool) {
			leaf := "pool-" + pool
			if rack != "" {
				leaf = "rack-" + rack
				if err := checkWord("hosts (rack)", rack); err != nil {
					return "", err
				}
			}
			leaves[leaf] = append(leaves[leaf], nodes[i])
		}
	}
	var b strings.Builder
	b.WriteString("# Made by berth from the site's racks: a job gets nodes of as few as possible.\n")
	names := sortedKeys(leaves)
	for _, leaf := range names {
		fmt.Fprintf(&b, "SwitchName=%s Nodes=%s\n", leaf, Hostlist(leaves[leaf]))
	}
	fmt.Fprintf(&b, "SwitchName=site Switches=%s\n", joinComma(names))
	return b.String(), nil
}
