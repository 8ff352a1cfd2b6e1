package slurmconf

import (
	"fmt"
	"strings"

	"github.com/berth-hpc/berth/renderer/site"
)

// topologyFile is read by slurmctld beside slurm.conf; configless sends it to workers and login.
const topologyFile = "topology.conf"

// Rack is the rack that all workers of a pool are in; "" where none can be told: a worker may run on any host of its pool, so
// only a pool that names its hosts, all of one rack, has one.
func Rack(s *site.Site, pool string) string {
	rack := ""
	for i, name := range s.Pools[pool].Hosts {
		at := s.Hosts[name].Rack
		if at == "" || i > 0 && at != rack {
			return ""
		}
		rack = at
	}
	return rack
}

// topologyConf writes the site's racks as topology/tree's switches, "" where no pool is bound to a rack: a leaf for each rack,
// and one switch above all. A pool whose rack cannot be told is a leaf of its own, because a node that is under no switch
// shares no job with the others.
func topologyConf(s *site.Site) (string, error) {
	leaves := map[string][]string{}
	known := false
	for _, name := range PoolOrder(s.Pools) {
		leaf := "pool-" + name
		if rack := Rack(s, name); rack != "" {
			leaf, known = "rack-"+rack, true
			if err := checkWord("hosts (rack)", rack); err != nil {
				return "", err
			}
		}
		leaves[leaf] = append(leaves[leaf], PoolNodes(name, s.Pools[name].Max))
	}
	if !known {
		return "", nil
	}
	var b strings.Builder
	b.WriteString("# Made by berth from the site's racks: a job gets nodes of as few as possible.\n")
	names := sortedKeys(leaves)
	for _, leaf := range names {
		fmt.Fprintf(&b, "SwitchName=%s Nodes=%s\n", leaf, joinComma(leaves[leaf]))
	}
	fmt.Fprintf(&b, "SwitchName=site Switches=%s\n", joinComma(names))
	return b.String(), nil
}
