package engine

import (
	"math/bits"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// kind orders events of one moment: what frees resources comes first, then what takes them away, arrivals last.
type kind uint8

const (
	completion kind = iota
	repair
	nodeUp
	windowEnd
	failure
	windowStart
	idle
	cancel
	wake
	kinds
)

// event is ordered by time, kind and sequence.
type event struct {
	at      workload.Time
	seq     uint64
	job     *Job
	jobSeq  int64 // a job's record is used again: events of an earlier holder are stale
	node    int
	version uint32
	kind    kind
}

// stale says that what the event announced has been overtaken.
func (ev *event) stale() bool {
	switch ev.kind {
	case completion:
		return ev.job.dead || ev.job.Seq != ev.jobSeq || ev.job.version != ev.version
	case cancel:
		return ev.job.dead || ev.job.Seq != ev.jobSeq
	}
	return false
}

func (a *event) before(b *event) bool {
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.kind != b.kind:
		return a.kind < b.kind
	}
	return a.seq < b.seq
}

type eventHeap []event

func (e *Engine) push(ev event) {
	ev.seq = e.seq
	e.seq++
	e.pending[ev.kind]++
	s := append(e.events, ev)
	i := len(s) - 1
	for i > 0 {
		p := (i - 1) / 2
		if !ev.before(&s[p]) {
			break
		}
		s[i] = s[p]
		i = p
	}
	s[i] = ev
	e.events = s
}

func (e *Engine) pop() event {
	s := e.events
	top, last := s[0], s[len(s)-1]
	s[len(s)-1] = event{}
	s = s[:len(s)-1]
	e.events = s
	e.pending[top.kind]--
	n, i := len(s), 0
	if n == 0 {
		return top
	}
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && s[c+1].before(&s[c]) {
			c++
		}
		if !s[c].before(&last) {
			break
		}
		s[i] = s[c]
		i = c
	}
	s[i] = last
	return top
}

func (e *Engine) handle(ev *event) {
	e.stats.Events++
	switch ev.kind {
	case completion:
		e.complete(ev.job)
	case cancel:
		e.cancelJob(ev.job)
	case nodeUp:
		h := &e.host[ev.node]
		if h.state == starting && h.upAt == e.now {
			h.state = on
			e.watchIdle(ev.node)
		}
	case idle:
		e.powerDown(ev.node, ev.version)
	case failure:
		e.fail(ev.node)
	case repair:
		e.host[ev.node].state = on
		e.host[ev.node].upSince = e.now
		e.refresh(ev.node)
	case windowStart, windowEnd:
		e.maintain(ev.node, ev.kind == windowStart)
	case wake:
		if e.wakeAt == e.now {
			e.wakeAt = workload.Never
		}
	}
}

// progress brings a running job's account up to now.
func (e *Engine) progress(j *Job) {
	from := max(j.since, j.ready)
	if e.now > j.since {
		j.since = e.now
	}
	if e.now <= from {
		return
	}
	dt := e.now - from
	j.Executed += dt
	hi, lo := bits.Mul64(uint64(dt), uint64(j.rate))
	done, _ := bits.Div64(hi, lo, 1_000_000)
	j.left = max(j.left-int64(min(done, 1<<62)), 0)
}

// plan announces a running job's end under its present rate.
func (e *Engine) plan(j *Job) {
	j.version++
	hi, lo := bits.Mul64(uint64(j.left), 1_000_000)
	lo, carry := bits.Add64(lo, uint64(j.rate)-1, 0)
	hi += carry
	need := workload.Time(1 << 61)
	if hi < uint64(j.rate) {
		q, _ := bits.Div64(hi, lo, uint64(j.rate))
		need = workload.Time(min(q, 1<<61))
	}
	if e.cfg.EnforceLimits {
		need = min(need, max(j.Limit-j.Executed, 0))
	}
	e.push(event{at: max(e.now, j.ready) + need, kind: completion, job: j, jobSeq: j.Seq, version: j.version})
}

// complete ends a job whose work is done or whose limit has come.
func (e *Engine) complete(j *Job) {
	e.progress(j)
	o := Completed
	if j.left > 0 && e.cfg.EnforceLimits && j.Executed >= j.Limit {
		o = TimedOut
	}
	e.stop(j)
	e.finish(j, o)
}

func (e *Engine) cancelJob(j *Job) {
	switch {
	case j.Running:
		e.progress(j)
		e.stop(j)
	case e.held[j.ID] == j:
		delete(e.held, j.ID)
	default:
		e.leaveQueue(j)
	}
	e.finish(j, Cancelled)
}

func (e *Engine) leaveQueue(j *Job) {
	if i := slices.Index(e.waiting, j); i >= 0 {
		e.waiting = slices.Delete(e.waiting, i, i+1)
	}
}

// start gives a waiting job the pieces of nodes that fit found for it, and its nodes power if they have none.
func (e *Engine) start(j *Job) {
	e.leaveQueue(j)
	j.Running, j.since, j.began, j.ready = true, e.now, e.now, e.now
	if j.first >= 0 {
		j.ready += e.cfg.RestartCost(j)
	} else {
		j.first = e.now
	}
	e.stats.Starts++
	j.index = len(e.running)
	e.running = append(e.running, j)
	for i := range j.pieces {
		p := &j.pieces[i]
		e.nodes[p.node].Take(&p.demand, p.cards)
		h := &e.host[p.node]
		h.idle++
		if h.state == off {
			h.state, h.upAt, h.upSince = starting, e.now+workload.Time(h.pool.Startup), e.now
			e.stats.NodeStarts++
			e.push(event{at: h.upAt, kind: nodeUp, node: p.node})
		}
		if h.state == starting {
			j.ready = max(j.ready, h.upAt)
		}
		for _, c := range p.cards {
			if e.tenants[p.node][c] = append(e.tenants[p.node][c], j); len(e.tenants[p.node][c]) == 1 {
				e.busy++
			}
		}
	}
	e.rerate(j, true)
}

// stop takes a running job's resources back. Its account must be up to date.
func (e *Engine) stop(j *Job) {
	j.version++
	j.Running = false
	j.service += e.now - j.began
	last := e.running[len(e.running)-1]
	e.running[j.index], last.index = last, j.index
	e.running = e.running[:len(e.running)-1]
	cards := float64(0)
	for i := range j.pieces {
		p := &j.pieces[i]
		e.nodes[p.node].Give(&p.demand, p.cards)
		cards += float64(p.demand.CardTotal()) / cluster.WholeCard
		for _, c := range p.cards {
			ts := e.tenants[p.node][c]
			k := slices.Index(ts, j)
			if e.tenants[p.node][c] = slices.Delete(ts, k, k+1); len(ts) == 1 {
				e.busy--
			}
		}
		if e.cfg.Trace != nil {
			e.cfg.Trace(Stretch{Job: j.ID, Node: e.nodes[p.node].Name, Cards: slices.Clone(p.cards), Start: j.began, End: e.now})
		}
		e.watchIdle(p.node)
	}
	if e.observe != nil {
		e.observe.Stopped(&e.view, j)
	}
	e.stats.CardArea += float64(cards * workload.InSeconds(e.now-j.began))
	e.rerate(j, false)
}

// rerate sets the rate of a job that starts, and of all who share cards with one that starts or stops.
func (e *Engine) rerate(j *Job, itself bool) {
	if itself {
		j.rate = e.rateOf(j)
		e.plan(j)
	}
	if j.GPUMilli >= cluster.WholeCard {
		return // nobody shares with it
	}
	for i := range j.pieces {
		p := &j.pieces[i]
		for _, c := range p.cards {
			for _, o := range e.tenants[p.node][c] {
				if o == j {
					continue
				}
				e.progress(o)
				if r := e.rateOf(o); r != o.rate {
					o.rate = r
					e.plan(o)
				}
			}
		}
	}
}

// rateOf is a job's speed where it is, in parts per million: a gang goes at the pace of its slowest card.
func (e *Engine) rateOf(j *Job) int64 {
	slowest := 1e9
	for i := range j.pieces {
		p := &j.pieces[i]
		v := e.matrix.Relative(j.Model, e.nodes[p.node].Type, j.Batch)
		for _, c := range p.cards {
			if ts := e.tenants[p.node][c]; len(ts) > 0 {
				slowest = min(slowest, float64(v*e.shared(j, ts)))
			}
		}
		if len(p.cards) == 0 {
			slowest = min(slowest, v)
		}
	}
	if j.stretched {
		slowest *= e.cfg.Spec.Spread
	}
	return max(int64(slowest*1e6+.5), 1)
}

// shared is the effect of a job's share of a card and of its neighbours there.
func (e *Engine) shared(j *Job, ts []*Job) float64 {
	self := cluster.Tenant{ID: j.ID, Util: utilOf(j), Milli: j.GPUMilli}
	v := cluster.ShareSpeed(self)
	e.buf = e.buf[:0]
	for _, o := range ts {
		if o != j {
			e.buf = append(e.buf, cluster.Tenant{ID: o.ID, Util: utilOf(o), Milli: o.GPUMilli})
		}
	}
	if len(e.buf) == 0 || e.noise.Off {
		return v
	}
	v *= e.noise.Factor(self, e.buf)
	if j.Class == workload.Latency {
		v /= cluster.Tail(cluster.UtilSum(append(e.buf, self)))
	}
	return v
}

// utilOf is how much of a card a job uses alone; what is not known counts as all of its share.
func utilOf(j *Job) int32 {
	if j.Util > 0 {
		return j.Util
	}
	return j.GPUMilli / 10
}
