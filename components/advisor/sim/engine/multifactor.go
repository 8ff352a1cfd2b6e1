package engine

import (
	"github.com/berth-hpc/berth/components/advisor/sim/fairshare"
	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Multifactor ranks by Slurm's multifactor priority. Usage is charged while jobs run (card-seconds, or processor-seconds without
// cards) and decays.
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
	// Partitions and QOS give their factors by name.
	Partitions, QOS map[string]float64
	// Boost, if set, is added to a job's priority: the site factor.
	Boost func(*Job) float64

	last, computed workload.Time
	started        bool
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
	capacity := v.Capacity()
	nodes := float64(len(v.Nodes()))
	for _, j := range jobs {
		w := policy.Width(&j.Request)
		a := m.Tree.Find(j.Account, j.User)
		f := fairshare.Factors{
			Age:       fairshare.AgeFactor(workload.InSeconds(now-j.Submit), workload.InSeconds(m.MaxAge)),
			FairShare: a.Factor,
			JobSize:   fairshare.SizeFactor(1, w, nodes, capacity, m.FavorSmall),
			Partition: m.Partitions[j.Partition],
			QOS:       m.QOS[j.QOS],
		}
		boost := 0.0
		if m.Boost != nil {
			boost = m.Boost(j)
		}
		j.Key = -float64(fairshare.Priority(boost, m.Weights, f, int(j.Nice)))
	}
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
			m.Tree.Find(j.Account, j.User).Charge(workload.InSeconds(now-since) * policy.Width(&j.Request))
		}
	}
	m.last = now
}

// Stopped charges what a job has used since the last pass.
func (m *Multifactor) Stopped(v *View, j *Job) {
	if since := max(m.last, j.Since()); m.started && v.Now() > since {
		m.Tree.Find(j.Account, j.User).Charge(workload.InSeconds(v.Now()-since) * policy.Width(&j.Request))
	}
}

func (m *Multifactor) compute() {
	if m.Classic {
		m.Tree.Classic(m.Damping)
		return
	}
	m.Tree.FairTree()
}
