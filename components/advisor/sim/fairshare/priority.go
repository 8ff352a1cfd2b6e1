package fairshare

import (
	"math"
	"strings"
)

// Weights are the weights of slurm.conf (PriorityWeight…).
type Weights struct {
	Age, Association, FairShare, JobSize, Partition, QOS float64
	TRES                                                 map[string]float64
}

// Factors are a job's factors, each in [0, 1].
type Factors struct {
	Age, Association, FairShare, JobSize, Partition, QOS float64
	TRES                                                 map[string]float64
}

// MaxPriority is the largest priority a job can have.
const MaxPriority = math.MaxUint32

// Priority is the job's priority: the site factor and the weighted factors, less nice, cut to a whole number. It is at least 1,
// because 0 means held.
func Priority(site float64, w Weights, f Factors, nice int) uint32 {
	p := site + float64(w.Age*f.Age) + float64(w.Association*f.Association) + float64(w.FairShare*f.FairShare) + float64(w.JobSize*f.JobSize) +
		float64(w.Partition*f.Partition) + float64(w.QOS*f.QOS)
	for _, name := range sorted(w.TRES) {
		p += float64(w.TRES[name] * f.TRES[name])
	}
	p -= float64(nice)
	switch {
	case p < 1:
		return 1
	case p > MaxPriority:
		return MaxPriority
	}
	return uint32(p)
}

// AgeFactor grows with the time a job has been eligible, up to 1 at maxAge.
func AgeFactor(wait, maxAge float64) float64 {
	if maxAge <= 0 {
		return 0
	}
	return min(1, max(wait, 0)/maxAge)
}

// SizeFactor is the mean of the job's part of all nodes and of all CPUs; favouring small jobs, of the rest.
func SizeFactor(nodes, cpus, clusterNodes, clusterCPUs float64, favorSmall bool) float64 {
	if clusterNodes <= 0 || clusterCPUs <= 0 {
		return 0
	}
	f := (nodes/clusterNodes + cpus/clusterCPUs) / 2
	if favorSmall {
		f = ((clusterNodes-nodes)/clusterNodes + (clusterCPUs-cpus)/clusterCPUs) / 2
	}
	return min(max(f, 0), 1)
}

// Billing is TRESBillingWeights: the sum of weight times count, or the largest product (MAX_TRES). Memory weights such as
// "0.25G" are a GiB.
func Billing(weights map[string]float64, counts map[string]float64, largest bool) float64 {
	total := 0.0
	for _, name := range sorted(weights) {
		v := float64(weights[name] * counts[name])
		switch {
		case !largest:
			total += v
		default:
			total = max(total, v)
		}
	}
	return total
}

func sorted(m map[string]float64) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	// Insertion sort: a handful of names, and no allocation beyond the slice.
	for i := 1; i < len(names); i++ {
		for k := i; k > 0 && strings.Compare(names[k], names[k-1]) < 0; k-- {
			names[k], names[k-1] = names[k-1], names[k]
		}
	}
	return names
}
