package slurmconf

import (
	"fmt"
	"sort"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-hpc/berth/renderer/site"
)

// NodePrefix starts the name of every Slurm node and of the pod that carries it.
const NodePrefix = "slurm-worker"

// NodeName is the name of worker i of a pool.
func NodeName(pool string, i int) string { return fmt.Sprintf("%s-%s-%d", NodePrefix, pool, i) }

// PoolNodeNames are all nodes that a pool can have.
func PoolNodeNames(pool string, max int) []string {
	names := make([]string, max)
	for i := range names {
		names[i] = NodeName(pool, i)
	}
	return names
}

// PoolNodes is the compressed list of all nodes that a pool can have.
func PoolNodes(pool string, max int) string { return Hostlist(PoolNodeNames(pool, max)) }

// Weights: Slurm takes the node with the lowest weight that fits. Jobs that need no card go to CPU nodes first, and of the
// GPU nodes the fastest come first. The gap leaves room for an administrator's own values between two pools.
const (
	cpuWeight     = 10
	firstGPU      = 100
	gpuWeightStep = 10
)

// PoolOrder lists the pools with cards first, the fastest ones leading, then those without, by name: the order of node lines,
// of partitions, and of the nodes that the advisor sees. It is derived from the hosts' speeds and never typed.
func PoolOrder(pools map[string]site.Pool) []string {
	names := make([]string, 0, len(pools))
	for name := range pools {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := pools[names[i]], pools[names[j]]
		if (a.GPUs > 0) != (b.GPUs > 0) {
			return a.GPUs > 0
		}
		if a.GPUs > 0 && a.Speed != b.Speed {
			return a.Speed > b.Speed
		}
		return names[i] < names[j]
	})
	return names
}

// weights gives each pool its Weight; pools of equal speed share one.
func weights(pools map[string]site.Pool) map[string]int {
	out := make(map[string]int, len(pools))
	rank, previous := -1, 0.0
	for _, name := range PoolOrder(pools) {
		pool := pools[name]
		if pool.GPUs == 0 {
			out[name] = cpuWeight
			continue
		}
		if rank < 0 || pool.Speed != previous {
			rank, previous = rank+1, pool.Speed
		}
		out[name] = firstGPU + rank*gpuWeightStep
	}
	return out
}

// Mebibytes reads a Kubernetes quantity as the whole MiB that Slurm counts in, rounded down.
func Mebibytes(quantity string) (int64, error) {
	q, err := resource.ParseQuantity(quantity)
	if err != nil {
		return 0, fmt.Errorf("%q is not an amount of memory: %w; write for example 64Gi", quantity, err)
	}
	mib := q.Value() / (1 << 20)
	if mib < 1 {
		return 0, fmt.Errorf("%q is less than one MiB; write for example 64Gi", quantity)
	}
	return mib, nil
}

func nodeLine(name string, pool site.Pool, weight int) (line, error) {
	memory, err := Mebibytes(pool.Memory)
	if err != nil {
		return nil, fmt.Errorf("pools.%s.memory: %w", name, err)
	}
	features := []string{name}
	if pool.Model != "" && pool.Model != name {
		features = append(features, pool.Model)
	}
	for i, feature := range pool.Features {
		if err := checkWord(fmt.Sprintf("pools.%s.features[%d]", name, i), feature); err != nil {
			return nil, err
		}
		if !contains(features, feature) {
			features = append(features, feature)
		}
	}
	var gres []string
	for _, g := range poolGRES(pool) {
		gres = append(gres, g.String())
	}
	var l line
	l.add("NodeName", PoolNodes(name, pool.Max))
	l.add("CPUs", strconv.Itoa(pool.CPUs))
	l.add("RealMemory", strconv.FormatInt(memory, 10))
	l.add("Gres", joinComma(gres))
	l.add("Feature", joinComma(features))
	l.add("Weight", strconv.Itoa(weight))
	l.add("State", "CLOUD")
	return l, nil
}
