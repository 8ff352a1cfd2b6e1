package slurmconf

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/berth-hpc/berth/renderer/site"
)

// partitionLines are the pools' own partitions in node order, then the site's further ones by name.
func partitionLines(s *site.Site) ([]line, error) {
	billing := tresFloats(s.Slurm.TRESBilling)
	var lines []line
	for _, name := range PoolOrder(s.Pools) {
		pool := s.Pools[name]
		idle, err := ParseTime(pool.Idle)
		if err != nil {
			return nil, fmt.Errorf("pools.%s.idle: %w", name, err)
		}
		l, err := partitionLine("pools."+name+".partition", name, pool.Partition, []string{name}, s.Pools, billing)
		if err != nil {
			return nil, err
		}
		l.add("SuspendTime", idle.SecondsText())
		lines = append(lines, l)
	}
	for _, name := range sortedKeys(s.Slurm.Partitions) {
		partition := s.Slurm.Partitions[name]
		l, err := partitionLine("slurm.partitions."+name, name, partition, partition.Pools, s.Pools, billing)
		if err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func partitionLine(field, name string, p site.Partition, pools []string, all map[string]site.Pool, billing string) (line, error) {
	var nodes []string
	exclusive := false
	for _, poolName := range pools {
		if _, ok := all[poolName]; !ok {
			return nil, fmt.Errorf("%s.pools: pool %q is not in pools; known: %s", field, poolName, strings.Join(sortedKeys(all), ", "))
		}
	}
	// In node order, fastest first, however the site lists the pools.
	for _, poolName := range PoolOrder(all) {
		if !contains(pools, poolName) {
			continue
		}
		pool := all[poolName]
		if pool.Max > 0 {
			nodes = append(nodes, PoolNodes(poolName, pool.Max))
		}
		// A card that serves one user at a time is kept so by the partition: the second user's job waits in Slurm, where
		// it is seen, and not in CUDA's start-up (ExclusiveUser is per node, and such a node is one card).
		if pool.Sharing.MPS != nil && pool.Sharing.MPS.Users == "one" {
			exclusive = true
		}
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("%s: partition %q has no nodes; name a pool whose max is above 0", field, name)
	}
	var l line
	l.add("PartitionName", name)
	l.add("Nodes", joinComma(nodes))
	l.add("State", p.State)
	if p.Default {
		l.add("Default", "YES")
	}
	if p.Hidden {
		l.add("Hidden", "YES")
	}
	for _, limit := range []struct{ key, field, value string }{
		{"MaxTime", "maxTime", p.MaxTime}, {"DefaultTime", "defaultTime", p.DefaultTime},
	} {
		if limit.value == "" {
			continue
		}
		t, err := ParseTime(limit.value)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", field, limit.field, err)
		}
		l.add(limit.key, t.String())
	}
	if p.MaxNodes > 0 {
		l.add("MaxNodes", strconv.Itoa(p.MaxNodes))
	}
	l.add("PriorityTier", strconv.Itoa(p.PriorityTier))
	l.add("PreemptMode", strings.ToUpper(p.PreemptMode))
	l.add("QOS", p.QOS)
	l.add("AllowAccounts", joinComma(p.AllowAccounts))
	l.add("AllowQos", joinComma(p.AllowQOS))
	l.add("OverSubscribe", strings.ToUpper(p.OverSubscribe))
	if exclusive {
		l.add("ExclusiveUser", "YES")
	}
	if billing != "" {
		l.add("TRESBillingWeights", `"`+billing+`"`)
	}
	for _, p := range l {
		check := checkWord
		if p.key == "TRESBillingWeights" {
			check = checkText
		}
		if err := check(field+" ("+p.key+")", p.value); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// tresFloats writes CPU=1,GRES/gpu=8 in the order of the names.
func tresFloats(weights map[string]float64) string {
	var parts []string
	for _, name := range sortedKeys(weights) {
		parts = append(parts, name+"="+strconv.FormatFloat(weights[name], 'g', -1, 64))
	}
	return joinComma(parts)
}

func tresInts(counts map[string]int) string {
	var parts []string
	for _, name := range sortedKeys(counts) {
		parts = append(parts, name+"="+strconv.Itoa(counts[name]))
	}
	return joinComma(parts)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func joinComma(parts []string) string { return strings.Join(parts, ",") }

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}
