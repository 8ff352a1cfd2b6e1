package engine

import (
	"maps"
	"math"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/fairshare"
	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Multifactor ranks by Slurm's multifactor priority. Usage is charged while jobs run and decays.
type Multifactor struct {
	Weights  fairshare.Weights
	MaxAge   workload.Time
	HalfLife workload.Time
	// Classic uses classic fair share with this damping instead of Fair Tree.
	Classic    bool
	Damping    float64
	FavorSmall bool
	// Period is how often factors are computed anew (PriorityCalcPeriod, 5 minutes).
	Period workload.Time
	Tree   *fairshare.Tree
	// Billing is what a second of a resource costs (TRESBillingWeights; memory in MiB); nil charges cards, or processors where a
	// job has no cards.
	Billing map[string]float64
	// Partitions and QOS give their factors by name. Nil partitions are all alike: each has the factor 1, because Slurm divides
	// by the largest.
	Partitions, QOS map[string]float64
	// Boost, if set, is added to a job's priority: the site factor.
	Boost func(*Job) float64

	last, computed workload.Time
	started        bool
	billed         []string // names of Billing, in order
	size           clusterSize
}

// clusterSize is what job sizes are compared with.
type clusterSize struct {
	nodes, cpus, memMiB, cards float64
	cardsPerNode               int32
}

// DefaultMultifactor has the weights of the chart's multifactor profile: fair share first, then age, then size.
func DefaultMultifactor() *Multifactor {
	return &Multifactor{Weights: fairshare.Weights{Age: 1000, FairShare: 10000, JobSize: 1000}, MaxAge: 7 * workload.Day, HalfLife: 7 * workload.Day,
		Period: 5 * workload.Minute, Damping: 1, Tree: fairshare.NewTree()}
}

// Name is multifactor, or classic.
func (m *Multifactor) Name() string {
	if m.Classic {
		return "multifactor-classic"
	}
	return "multifactor"
}

// Rank charges usage, computes factors where they are due, and ranks the highest priority first.
func (m *Multifactor) Rank(v *View, jobs []*Job) {
	now := v.Now()
	m.charge(v, now)
	for _, j := range jobs {
		m.Tree.Find(j.Account, j.User)
	}
	if !m.started || now >= m.computed+m.Period {
		m.started, m.computed = true, now
		m.compute()
	}
	if m.size.nodes == 0 {
		m.size = sizeOf(v)
	}
	for _, j := range jobs {
		boost := 0.0
		if m.Boost != nil {
			boost = m.Boost(j)
		}
		j.Key = -float64(fairshare.Priority(boost, m.Weights, m.factors(j, now), int(j.Nice)))
	}
}

// factors are a waiting job's, each as slurmctld computes it.
func (m *Multifactor) factors(j *Job, now workload.Time) fairshare.Factors {
	f := fairshare.Factors{
		Age:       fairshare.AgeFactor(workload.InSeconds(now-j.Submit), workload.InSeconds(m.MaxAge)),
		FairShare: m.Tree.Find(j.Account, j.User).Factor,
		JobSize:   fairshare.SizeFactor(m.size.nodesOf(j), cpusOf(j), m.size.nodes, m.size.cpus, m.FavorSmall),
		Partition: 1,
		QOS:       m.QOS[j.QOS],
	}
	if m.Partitions != nil {
		f.Partition = m.Partitions[j.Partition]
	}
	if len(m.Weights.TRES) > 0 {
		f.TRES = map[string]float64{}
		for name := range m.Weights.TRES {
			if total := m.size.total(name); total > 0 {
				f.TRES[name] = min(m.count(j, name)/total, 1)
			}
		}
	}
	return f
}

func sizeOf(v *View) clusterSize {
	s := clusterSize{cardsPerNode: v.e.maxCard}
	for _, n := range v.Nodes() {
		s.nodes++
		s.cpus += float64(n.CPUMilli) / 1000
		s.memMiB += float64(n.MemMiB)
		s.cards += float64(len(n.CardLeft))
	}
	return s
}

// nodesOf is the least number of nodes a job can run on.
func (s *clusterSize) nodesOf(j *Job) float64 {
	if s.cardsPerNode == 0 || j.GPUs <= s.cardsPerNode {
		return 1
	}
	return math.Ceil(float64(j.GPUs) / float64(s.cardsPerNode))
}

// total is how much the cluster has of a resource that Slurm tracks.
func (s *clusterSize) total(name string) float64 {
	switch name {
	case "cpu":
		return s.cpus
	case "mem":
		return s.memMiB
	case "node":
		return s.nodes
	case "gres/gpu":
		return s.cards
	case "gres/mps":
		return 100 * s.cards
	}
	return 0
}

// cpusOf is how many processors Slurm allocates: at least one.
func cpusOf(j *Job) float64 { return max(math.Ceil(float64(j.CPUMilli)/1000), 1) }

// count is how much a job wants of a resource that Slurm tracks. A share of a card is counted in MPS percent, as the lab's workers
// offer it, and not as a card.
func (m *Multifactor) count(j *Job, name string) float64 {
	share := j.GPUs == 1 && j.GPUMilli < 1000
	switch name {
	case "cpu":
		return cpusOf(j)
	case "mem":
		return float64(j.MemMiB)
	case "node":
		return m.size.nodesOf(j)
	case "gres/gpu":
		if !share {
			return float64(j.GPUs)
		}
	case "gres/mps":
		if share {
			return float64(j.GPUMilli) / 10
		}
	}
	return 0
}

// rate is what a job is charged a second.
func (m *Multifactor) rate(j *Job) float64 {
	if m.Billing == nil {
		return policy.Width(&j.Request)
	}
	if m.billed == nil {
		m.billed = slices.Sorted(maps.Keys(m.Billing)) // sums of floats depend on their order
	}
	sum := 0.0
	for _, name := range m.billed {
		sum += float64(m.Billing[name] * m.count(j, name))
	}
	return sum
}

func (m *Multifactor) charge(v *View, now workload.Time) {
	dt := workload.InSeconds(now - m.last)
	if m.last == 0 || dt <= 0 {
		m.last = now
		return
	}
	m.Tree.Decay(fairshare.DecayFactor(dt, workload.InSeconds(m.HalfLife)))
	for _, j := range v.Running() {
		since := max(m.last, j.Since())
		if now > since {
			m.Tree.Find(j.Account, j.User).Charge(workload.InSeconds(now-since) * m.rate(j))
		}
	}
	m.last = now
}

// Stopped charges what a job has used since the last pass.
func (m *Multifactor) Stopped(v *View, j *Job) {
	if since := max(m.last, j.Since()); m.started && v.Now() > since {
		m.Tree.Find(j.Account, j.User).Charge(workload.InSeconds(v.Now()-since) * m.rate(j))
	}
}

func (m *Multifactor) compute() {
	if m.Classic {
		m.Tree.Classic(m.Damping)
		return
	}
	m.Tree.FairTree()
}
