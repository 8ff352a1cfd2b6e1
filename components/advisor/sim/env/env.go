// Package env is the simulator as a reinforcement-learning environment: a semi-Markov decision process whose actions start a
// waiting job on a node and card, or wait. It sees what a scheduler sees and never a true run time. A step allocates nothing.
package env

import (
	"fmt"
	"math"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/engine"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Features of a candidate, in order.
const (
	FeatureWait      = iota // log1p of the wait in minutes, over 10
	FeatureLimit            // log1p of the remaining limit in minutes, over 10
	FeatureWidth            // cards wanted, over 8
	FeatureShare            // part of each card wanted
	FeatureUtil             // part of a card's compute used alone
	FeatureLatency          // 1 for latency jobs
	FeatureSlack            // time to the deadline over the remaining limit, −1 to 1; 1 without a deadline
	FeatureSpeed            // relative speed of the node's cards for the job, log2
	FeatureFreeAfter        // part of the node's cards free after the start
	FeatureLoadCard         // part of the chosen card in use before the start
	FeaturePreempted        // 1 if the job has run before
	FeatureRank             // place in the queue by arrival, 0 to 1
	Features
)

// Globals of an observation, in order.
const (
	GlobalWaiting = iota // log1p of waiting jobs, over 5
	GlobalRunning        // log1p of running jobs, over 5
	GlobalFree           // part of all cards free
	GlobalWork           // log1p of waiting card-hours, over 10
	Globals
)

// Observation is what the agent sees. Rows of X beyond N are zero. Action N... are not allowed but for Wait.
type Observation struct {
	// X holds a row of features a candidate; N are in use.
	X [][Features]float32
	N int
	// Jobs, Nodes and Cards say what the candidates are.
	Jobs  []*engine.Job
	Nodes []int32
	Cards []int32
	G     [Globals]float32
	// Held are waiting jobs that fit nowhere now and may be boosted; HX holds their features, with none of a node.
	Held []*engine.Job
	HX   [][Features]float32
}

// Wait is the action that starts nobody and lets time pass.
const Wait = -1

// Config describes the environment.
type Config struct {
	Spec *cluster.Spec
	Seed uint64
	// Candidates bounds the actions beside Wait (64 if 0).
	Candidates int
	// Norm divides rewards: seconds of one job in the system that cost 1 (3600 if 0).
	Norm float64
	// MissCost is what a missed deadline costs.
	MissCost float64
	// Window is how many waiting jobs are looked at: the oldest half, the newest quarter, and of the rest the most urgent and the
	// shortest (48 if 0).
	Window int
	// Boosts bounds the waiting jobs that are offered to Boost (0: none).
	Boosts int
	// Ended, if set, is told of every job that ended.
	Ended func(*engine.Result)
}

// Env is one environment. It is not safe for concurrent use.
type Env struct {
	cfg   Config
	eng   *engine.Engine
	jobs  []workload.Job
	next  int
	obs   Observation
	pick  []*engine.Job
	area  float64
	miss  int
	speed *cluster.Matrix
	err   error
	cards float64

	boosted *engine.Job
	boostID int64
}

// Transition is the outcome of a step. Elapsed is the time that passed, for discounting in semi-Markov fashion.
type Transition struct {
	Reward  float64
	Elapsed float64 // seconds
	Done    bool
	// Area and Misses are what Reward is made of: time of jobs in the system over Norm, and missed deadlines.
	Area   float64
	Misses int
}

// New makes an environment.
func New(cfg Config) (*Env, error) {
	if cfg.Candidates <= 0 {
		cfg.Candidates = 64
	}
	if cfg.Norm <= 0 {
		cfg.Norm = 3600
	}
	if cfg.Window <= 0 {
		cfg.Window = 48
	}
	if cfg.Spec == nil {
		return nil, fmt.Errorf("an environment needs a cluster")
	}
	if err := cfg.Spec.Validate(); err != nil {
		return nil, err
	}
	e := &Env{cfg: cfg, speed: cluster.NewMatrix(cfg.Spec)}
	n, processors := cfg.Spec.Cards()
	if processors {
		return nil, fmt.Errorf("the environment places jobs on cards; the cluster has none")
	}
	e.cards = float64(n)
	e.obs.X = make([][Features]float32, cfg.Candidates)
	e.obs.Jobs = make([]*engine.Job, cfg.Candidates)
	e.obs.Nodes = make([]int32, cfg.Candidates)
	e.obs.Cards = make([]int32, cfg.Candidates)
	e.pick = make([]*engine.Job, 0, cfg.Window)
	return e, nil
}

// idle is the scheduler of an engine that is scheduled from outside.
type idle struct{}

func (idle) Name() string                    { return "environment" }
func (idle) Pass(*engine.View) workload.Time { return workload.Never }

// Reset begins an episode over jobs sorted by submission, and gives the first observation. Jobs spanning several nodes are
// refused: an action names one node.
func (e *Env) Reset(jobs []workload.Job) (*Observation, error) {
	eng, err := engine.New(engine.Config{Spec: e.cfg.Spec, Scheduler: idle{}, Placement: "best-fit", Seed: e.cfg.Seed}, e.ended)
	if err != nil {
		return nil, err
	}
	widest := int32(0)
	for i := range e.cfg.Spec.Pools {
		widest = max(widest, int32(e.cfg.Spec.Pools[i].GPUs))
	}
	for i := range jobs {
		if jobs[i].GPUs < 1 || jobs[i].GPUs > widest {
			return nil, fmt.Errorf("job %d wants %d cards; the environment takes jobs of 1 to %d cards, which fit on one node", jobs[i].ID, jobs[i].GPUs, widest)
		}
	}
	e.eng, e.jobs, e.next, e.area, e.miss, e.err = eng, jobs, 0, 0, 0, nil
	e.boosted = nil
	e.settle()
	return &e.obs, e.err
}

func (e *Env) ended(r *engine.Result) {
	if d := r.Request.Deadline; d != 0 && (r.Outcome != engine.Completed || r.End > d) {
		e.miss++
	}
	if e.boosted != nil && r.Request.ID == e.boostID {
		e.boosted = nil
	}
	if e.cfg.Ended != nil {
		e.cfg.Ended(r)
	}
}

// Observation is the present one. It is the environment's own and changes with every step.
func (e *Env) Observation() *Observation { return &e.obs }

// Stats are the engine's counts of the episode.
func (e *Env) Stats() *engine.Stats { return e.eng.Stats() }

// Step takes an action: a candidate's index, or Wait.
func (e *Env) Step(action int) (Transition, error) {
	m := e.mark()
	if action == Wait {
		e.advance()
	} else {
		if action < 0 || action >= e.obs.N {
			return Transition{}, fmt.Errorf("action %d is not one of the %d candidates, nor Wait", action, e.obs.N)
		}
		if !e.eng.View().StartOn(e.obs.Jobs[action], int(e.obs.Nodes[action]), int(e.obs.Cards[action])) {
			return Transition{}, fmt.Errorf("candidate %d does not fit any more; actions must come from the present observation", action)
		}
	}
	return e.since(m)
}

// mark is where a step began.
type mark struct {
	area float64
	miss int
	at   workload.Time
}

func (e *Env) mark() mark { return mark{e.eng.Stats().SystemArea, e.miss, e.eng.Now()} }

// since lets time pass until there is a choice, and tells what a step brought.
func (e *Env) since(m mark) (Transition, error) {
	e.settle()
	t := Transition{Elapsed: workload.InSeconds(e.eng.Now() - m.at), Done: e.Done()}
	t.Area, t.Misses = (e.eng.Stats().SystemArea-m.area)/e.cfg.Norm, e.miss-m.miss
	t.Reward = -t.Area - e.cfg.MissCost*float64(t.Misses)
	return t, e.err
}

// Done says that all jobs have ended, or can never start.
func (e *Env) Done() bool {
	return e.next == len(e.jobs) && (e.eng.Live() == 0 || e.obs.N == 0 && !e.more())
}

// more says that something will yet happen.
func (e *Env) more() bool { return len(e.eng.View().Running()) > 0 }

// settle lets time pass until there is a choice, and looks at it.
func (e *Env) settle() {
	for {
		e.observe()
		if e.obs.N > 0 || e.err != nil || !e.advance() {
			return
		}
	}
}

// advance handles the next moment: an event, or the next arrivals. It reports whether there was one.
func (e *Env) advance() bool {
	if e.next == len(e.jobs) {
		return e.eng.Moment(workload.Never)
	}
	at := e.jobs[e.next].Submit
	if e.eng.Moment(at) {
		return true
	}
	for e.next < len(e.jobs) && e.jobs[e.next].Submit == at {
		if err := e.eng.Arrive(&e.jobs[e.next]); err != nil {
			e.err = err
			return false
		}
		e.next++
	}
	return true
}

// observe lists the candidates: for every job in the window, every node and card on which it fits.
func (e *Env) observe() {
	v := e.eng.View()
	o := &e.obs
	o.N = 0
	waiting := v.Waiting()
	e.window(waiting)
	nodes := v.Nodes()
	until := e.reserve(v)
	o.Held, o.HX = o.Held[:0], o.HX[:0]
	for _, j := range e.pick {
		if j != e.boosted && j.Remaining() > until {
			continue
		}
		first := o.N
		for i, n := range nodes {
			if o.N == len(o.X) {
				break
			}
			if j.GPUs == 1 && j.GPUMilli < cluster.WholeCard {
				last := int32(-1)
				for c := range n.CardLeft {
					// Cards that are equally full are one choice.
					if n.CardLeft[c] != last && o.N < len(o.X) && v.FitsOn(j, i, c) {
						last = n.CardLeft[c]
						e.candidate(j, i, c, n)
					}
				}
			} else if v.FitsOn(j, i, -1) {
				e.candidate(j, i, -1, n)
			}
		}
		if o.N == first && o.N < len(o.X) && e.boosted == nil && len(o.Held) < e.cfg.Boosts {
			e.held(j)
		}
	}
	for i := o.N; i < len(o.X) && o.Jobs[i] != nil; i++ {
		o.X[i], o.Jobs[i] = [Features]float32{}, nil
	}
	e.globals(v, waiting)
}

func (e *Env) candidate(j *engine.Job, node, card int, n *cluster.Node) {
	o := &e.obs
	i := o.N
	o.N++
	o.Jobs[i], o.Nodes[i], o.Cards[i] = j, int32(node), int32(card)
	x := &o.X[i]
	e.job(j, x)
	x[FeatureSpeed] = float32(math.Log2(e.speed.Relative(j.Model, n.Type, j.Batch)))
	total := float64(len(n.CardLeft)) * cluster.WholeCard
	x[FeatureFreeAfter] = float32((float64(n.TotalLeft()) - float64(j.GPUs)*float64(j.GPUMilli)) / total)
	x[FeatureLoadCard] = 0
	if card >= 0 {
		x[FeatureLoadCard] = 1 - float32(n.CardLeft[card])/cluster.WholeCard
	}
}

// job fills in the features of a job, whatever its node.
func (e *Env) job(j *engine.Job, x *[Features]float32) {
	now := e.eng.Now()
	minutes := func(t workload.Time) float64 { return math.Log1p(workload.InSeconds(t)/60) / 10 }
	x[FeatureWait] = float32(minutes(now - j.Submit))
	x[FeatureLimit] = float32(minutes(j.Remaining()))
	x[FeatureWidth] = float32(j.GPUs) / 8
	x[FeatureShare] = float32(j.GPUMilli) / cluster.WholeCard
	x[FeatureUtil] = float32(j.Util) / 100
	x[FeatureLatency], x[FeaturePreempted] = 0, 0
	if j.Class == workload.Latency {
		x[FeatureLatency] = 1
	}
	if j.Executed > 0 {
		x[FeaturePreempted] = 1
	}
	x[FeatureSlack] = 1
	if j.Deadline != 0 {
		x[FeatureSlack] = float32(min(max(float64(j.Deadline-now)/float64(j.Remaining())-1, -1), 1))
	}
	x[FeatureRank] = float32(j.Key)
}

func (e *Env) globals(v *engine.View, waiting []*engine.Job) {
	o := &e.obs
	o.G[GlobalWaiting] = float32(math.Log1p(float64(len(waiting))) / 5)
	o.G[GlobalRunning] = float32(math.Log1p(float64(len(v.Running()))) / 5)
	free := int64(0)
	for _, n := range v.Nodes() {
		free += n.TotalLeft()
	}
	o.G[GlobalFree] = float32(float64(free) / cluster.WholeCard / e.cards)
	work := 0.0
	for _, j := range waiting {
		work += workload.InSeconds(j.Remaining()) / 3600 * float64(j.GPUs) * float64(j.GPUMilli) / cluster.WholeCard
	}
	o.G[GlobalWork] = float32(math.Log1p(work) / 10)
}
