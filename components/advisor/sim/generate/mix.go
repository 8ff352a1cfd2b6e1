package generate

import (
	"fmt"
	"math"

	"github.com/berth-hpc/berth/components/advisor/sim/random"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Kind is one kind of job of a mix.
type Kind struct {
	Model string
	Share float64 // of all jobs
	// MeanRun is the mean run time alone on a card of relative speed 1; run times are log-normal with Sigma (of the natural
	// logarithm).
	MeanRun   workload.Time
	Sigma     float64
	Cards     []int32 // equally likely
	Milli     int32   // of a card, for single-card jobs
	Util      int32   // percent of a card's compute when alone
	MemMiB    int32   // on each card
	CPUMilli  int64   // a card
	HostMiB   int64   // a card
	Batch     int32
	Class     workload.Class
	Deadlines float64 // a latency job's deadline, as a multiple of its run time alone; 0 for none
}

// AIMix is the mix of the lab's experiments: 30 % BERT inference, 30 % ResNet-50 training, 30 % Qwen fine-tuning, 10 % matrix
// multiplication. Utilisations are those measured in published co-location tables (BERT and ResNet-50 near 100 % in training;
// inference saturates a small part); memory and run times are of the order seen on 10–12 GiB cards and are assumptions to be
// replaced by a lab's own (see trace sacct).
var AIMix = []Kind{
	{Model: "bert-inference", Share: .30, MeanRun: 90 * workload.Second, Sigma: 0.8, Cards: []int32{1}, Milli: 250, Util: 30, MemMiB: 2000,
		CPUMilli: 1000, HostMiB: 4096, Batch: 8, Class: workload.Latency, Deadlines: 3},
	{Model: "resnet50", Share: .30, MeanRun: 45 * workload.Minute, Sigma: 1.0, Cards: []int32{1, 1, 1, 2}, Milli: 500, Util: 97, MemMiB: 4500,
		CPUMilli: 2000, HostMiB: 8192, Batch: 64},
	{Model: "qwen-finetune", Share: .30, MeanRun: 2 * workload.Hour, Sigma: 1.1, Cards: []int32{1, 1, 2}, Milli: 1000, Util: 95, MemMiB: 9000,
		CPUMilli: 2000, HostMiB: 12288, Batch: 4},
	{Model: "matmul", Share: .10, MeanRun: 5 * workload.Minute, Sigma: 0.5, Cards: []int32{1}, Milli: 500, Util: 100, MemMiB: 1500,
		CPUMilli: 1000, HostMiB: 2048, Batch: 1},
}

// Mix generates jobs of several kinds for a cluster of cards.
type Mix struct {
	Kinds []Kind
	Jobs  int
	Cards float64 // capacity: cards, weighted by relative speed
	Load  float64 // offered: card-time asked for over capacity
	// CV is the coefficient of variation of the times between arrivals: 1 is Poisson, more is bursty (two-phase
	// hyperexponential; the code trace of Azure has 13).
	CV       float64
	Seed     uint64
	Estimate float64
	Users    int // jobs are spread over so many users, some busier than others
	// MaxCards leaves out wider kinds of job, for small clusters; 0 is no bound.
	MaxCards int32
}

// Source streams the jobs in order of arrival.
func (m Mix) Source() (workload.Source, error) {
	if m.Jobs < 1 || !(m.Cards >= 1e-3 && m.Cards <= 1e9) || len(m.Kinds) == 0 {
		return nil, fmt.Errorf("a mix needs at least one job, 0.001 to 1000000000 cards, and kinds of jobs; got %d, %g and %d kinds", m.Jobs, m.Cards, len(m.Kinds))
	}
	if err := checkLoad(m.Load, m.Estimate); err != nil {
		return nil, err
	}
	if m.Users < 0 || m.Users > 1e6 || m.MaxCards < 0 {
		return nil, fmt.Errorf("%d users and a widest job of %d cards are not possible; use 0 (none named) to 1000000 users, and 0 (as the mix has it) or more cards", m.Users, m.MaxCards)
	}
	if m.CV == 0 {
		m.CV = 1
	}
	if !(m.CV >= 1 && m.CV <= 100) {
		return nil, fmt.Errorf("a coefficient of variation of %g is not supported; use 1 (Poisson) to 100", m.CV)
	}
	return func(yield func(workload.Job, error) bool) {
		pre, work := m.stream(), 0.0
		for i := range m.Jobs {
			j := pre.next(m, i)
			work += workload.InSeconds(j.Run) * float64(j.GPUs) * float64(j.GPUMilli) / 1000
		}
		// Burstiness is kept; the gaps are scaled together.
		scale := work / (m.Load * m.Cards) / pre.clock
		s := m.stream()
		for i := range m.Jobs {
			j := s.next(m, i)
			if s.clock*scale > workload.MaxSeconds {
				yield(workload.Job{}, errTooLong(i, m.Load))
				return
			}
			j.Submit = workload.Seconds(s.clock * scale)
			if j.Deadline > 0 {
				j.Deadline += j.Submit
			}
			if !yield(j, nil) {
				return
			}
		}
	}, nil
}

type mixStream struct {
	arrivals, mix, sizes, runs, estimates random.Stream
	clock                                 float64
}

func (m Mix) stream() *mixStream {
	return &mixStream{arrivals: random.New(m.Seed, random.Arrivals), mix: random.New(m.Seed, random.Mix), sizes: random.New(m.Seed, random.Sizes),
		runs: random.New(m.Seed, random.Runtimes), estimates: random.New(m.Seed, random.Estimates)}
}

// next draws a job whose deadline, if any, still counts from its submission.
func (s *mixStream) next(m Mix, i int) workload.Job {
	s.clock += s.arrivals.HyperExp(1, m.CV)
	k := m.pick(s.mix.Float64())
	run := float64(k.MeanRun) * math.Exp(float64(k.Sigma*s.runs.NormFloat64())-k.Sigma*k.Sigma/2)
	cards := k.Cards[s.sizes.IntN(len(k.Cards))]
	if m.MaxCards > 0 {
		cards = min(cards, m.MaxCards)
	}
	milli := k.Milli
	if cards > 1 {
		milli = 1000
	}
	j := workload.Job{Run: max(workload.Time(math.Round(run)), workload.Second)}
	factor := 1.0
	if e := s.estimates.Float64(); m.Estimate > 1 {
		factor = 1 + e*(m.Estimate-1)
	}
	j.Request = workload.Request{ID: int64(i + 1), GPUs: cards, GPUMilli: milli, GPUMemMiB: k.MemMiB, CPUMilli: k.CPUMilli * int64(cards),
		MemMiB: k.HostMiB * int64(cards), Model: k.Model, Util: k.Util, Batch: k.Batch, Class: k.Class, Procs: cards,
		Limit: workload.Time(math.Round(float64(j.Run) * factor))}
	if k.Deadlines > 0 {
		j.Deadline = workload.Time(math.Round(k.Deadlines * float64(j.Run)))
	}
	if m.Users > 0 {
		// The square makes low numbers busier: user 1 of 4 submits a half of all.
		u := s.mix.Float64()
		j.User = fmt.Sprintf("user%d", 1+int(u*u*float64(m.Users)))
		j.Account = fmt.Sprintf("account%d", 1+int(u*u*float64(m.Users))%2)
	}
	return j
}

func (m Mix) pick(u float64) *Kind {
	total := 0.0
	for i := range m.Kinds {
		total += m.Kinds[i].Share
	}
	u *= total
	for i := range m.Kinds {
		if u -= m.Kinds[i].Share; u < 0 {
			return &m.Kinds[i]
		}
	}
	return &m.Kinds[len(m.Kinds)-1]
}

// Queue is a single-class workload for comparison with queueing theory: Poisson or bursty arrivals, one processor a job.
type Queue struct {
	Jobs    int
	Rate    float64 // arrivals a second
	Service func(random.Stream) float64
	Seed    uint64
}

// Source streams the jobs.
func (q Queue) Source() workload.Source {
	return func(yield func(workload.Job, error) bool) {
		arrivals, service := random.New(q.Seed, random.Arrivals), random.New(q.Seed, random.Runtimes)
		clock := 0.0
		for i := range q.Jobs {
			clock += arrivals.Exp(1 / q.Rate)
			j := workload.Job{Run: max(workload.Seconds(q.Service(service)), 1)}
			j.ID, j.Submit, j.Procs, j.Limit = int64(i+1), workload.Seconds(clock), 1, j.Run
			if !yield(j, nil) {
				return
			}
		}
	}
}
