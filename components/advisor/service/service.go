package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/renameio/v2"

	"github.com/berth-hpc/berth/components/advisor/placement/custody"
	"github.com/berth-hpc/berth/components/advisor/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
	"github.com/berth-hpc/berth/components/advisor/snapshot"
)

// Service advises. It is safe for concurrent use.
type Service struct {
	log   *slog.Logger
	state string // directory; "": a demotion does not outlive the process
	now   func() time.Time

	store   snapshot.Store
	current atomic.Pointer[current]
	limiter limiter
	shares  shares
	metrics *metrics

	mu   sync.Mutex // held by whoever replaces current
	tail tail
	// lastNode and lastCard are the last placement, for a metric that today's dashboards know.
	lastNode, lastCard atomic.Int64
	// unread: the settings file is refused, and the one before serves on.
	unread atomic.Bool
}

// current is all that a decision needs, replaced as one.
type current struct {
	settings Settings // Mode is the effective one
	wanted   Mode
	demoted  string // why, if Mode is not what is wanted
	digest   string // of the settings file
	refused  string // why the wanted checkpoint is not in use
	loaded   *policy.Loaded
	snap     *snapshot.Snapshot
	cluster  *policy.State
	prepared policy.Prepared
	// misordered says why the nodes' order is not the topology's; "" if it is.
	misordered string
}

// New makes a service in mode off with the built-in policy. state is a directory in which a demotion is kept.
func New(state string, log *slog.Logger) *Service {
	s := &Service{log: log, state: state, now: time.Now}
	s.metrics = newMetrics(s)
	settings, _ := ParseSettings([]byte(`{"mode":"off"}`))
	c := &current{settings: settings, wanted: Off, loaded: policy.Builtin(), cluster: &policy.State{}}
	c.prepared = c.loaded.Policy.Prepare(c.cluster)
	s.current.Store(c)
	s.lastNode.Store(-1)
	s.lastCard.Store(-1)
	return s
}

// Configure takes a settings file, and the checkpoint that it names from open. Bad settings change nothing; a bad checkpoint
// leaves the one before in force, and is told and counted.
func (s *Service) Configure(data []byte, open func(digest string) ([]byte, error)) error {
	settings, err := ParseSettings(data)
	if err != nil {
		s.metrics.refused.WithLabelValues("settings").Inc()
		s.unread.Store(true)
		return err
	}
	s.unread.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.current.Load()
	next := *old
	next.settings, next.wanted, next.digest, next.demoted = settings, settings.Mode, policy.Digest(data), ""
	if old.digest != next.digest {
		s.tail = tail{} // other advice: its waits are judged by themselves
	}
	if settings.Mode == Live {
		if why := s.demotion(next.digest); why != "" {
			next.settings.Mode, next.demoted = Shadow, why
		}
	}
	loaded, err := load(&settings, open)
	if err != nil {
		next.refused = err.Error()
		s.metrics.refused.WithLabelValues("checkpoint").Inc()
		err = fmt.Errorf("checkpoint %s is refused, %s stays in force: %w", settings.Checkpoint, old.loaded.Digest, err)
	} else {
		next.loaded, next.refused = loaded, ""
	}
	s.replace(&next)
	s.log.Info("configured", "mode", string(next.settings.Mode), "wanted", string(next.wanted), "checkpoint", next.loaded.Digest, "policy", next.loaded.Policy.Name())
	return err
}

// load opens the checkpoint that the settings name and tries it.
func load(settings *Settings, open func(string) ([]byte, error)) (*policy.Loaded, error) {
	if settings.Checkpoint == "" {
		return policy.Builtin(), nil
	}
	data, err := open(settings.Checkpoint)
	if err != nil {
		return nil, err
	}
	if got := policy.Digest(data); got != settings.Checkpoint {
		return nil, fmt.Errorf("the file's digest is %s", got)
	}
	l, err := policy.Open(data)
	if err != nil {
		return nil, err
	}
	if l.Checkpoint.Topology != "" && settings.Topology != "" && l.Checkpoint.Topology != settings.Topology {
		return nil, fmt.Errorf("it was made for the topology %s, the site's is %s", l.Checkpoint.Topology, settings.Topology)
	}
	r := workload.Request{Limit: workload.Hour, CPUMilli: 1000, Procs: 1}
	if a := l.Policy.Prepare(&policy.State{}).Decide(&r); math.IsNaN(a.Score) || math.IsNaN(a.Value) {
		return nil, errors.New("it gives no number for a plain job")
	}
	return l, nil
}

// Snapshot takes a change of the cluster; snapshot.ErrBase asks for the whole.
func (s *Service) Snapshot(d *snapshot.Delta) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap, err := s.store.Apply(d, s.now())
	if err != nil {
		return err
	}
	next := *s.current.Load()
	next.snap = snap
	s.tail.look(snap, &next.settings.Watch, s.now())
	if why := s.tail.crossed(&next.settings.Watch); why != "" && next.settings.Mode == Live {
		s.demote(&next, why)
	}
	s.replace(&next)
	return nil
}

// replace prepares the policy on the snapshot and puts all of it in force.
func (s *Service) replace(next *current) {
	next.cluster = &policy.State{Now: s.now().UnixMicro()}
	if next.snap != nil {
		next.cluster = next.snap.State(s.now(), next.settings.NodeOrder)
	}
	next.prepared = next.loaded.Policy.Prepare(next.cluster)
	old := next.misordered
	if next.misordered = misordered(next.settings.Topology, next.cluster.Nodes); next.misordered != "" && next.misordered != old {
		s.log.Error("the order of the nodes is not that of the topology; nothing is placed, and a checkpoint that was made for the topology is not asked", "why", next.misordered)
	}
	s.current.Store(next)
}

// misordered says how the nodes contradict the order of a topology (rtx4070:1x1,rtx3080:1x1: fastest first); "" if they do not. A
// policy that is told them the other way round sends jobs to the slow card.
func misordered(topology string, nodes []policy.Node) string {
	if topology == "" {
		return ""
	}
	var models []string
	for part := range strings.SplitSeq(topology, ",") {
		model, _, _ := strings.Cut(part, ":")
		models = append(models, model)
	}
	at := 0
	for i := range nodes {
		n := &nodes[i]
		if len(n.CardMilli) == 0 || !slices.Contains(models, n.Type) {
			continue // cards beyond the topology are not offered anyway
		}
		further := slices.Index(models[at:], n.Type)
		if further < 0 {
			return fmt.Sprintf("%s has a %s and comes after a node with a %s; the topology is %s", n.Name, n.Type, models[at], topology)
		}
		at += further
	}
	return ""
}

// demote makes live shadow, until other settings are given: the advisor never promotes itself, not by a restart either.
func (s *Service) demote(next *current, why string) {
	next.settings.Mode, next.demoted = Shadow, why
	s.log.Error("demoted to shadow; a new settings file brings live back", "why", why)
	s.metrics.demotions.Inc()
	if s.state == "" {
		return
	}
	text, err := json.Marshal(demotion{Settings: next.digest, Why: why, At: s.now().UTC()})
	if err == nil {
		err = renameio.WriteFile(s.demotionFile(), append(text, '\n'), 0o600)
	}
	if err != nil {
		s.log.Error("the demotion could not be kept and will not outlive this process", "why", err.Error())
	}
}

// demotion is a demotion as it is kept, with the settings that it is of.
type demotion struct {
	Settings string    `json:"settings"`
	Why      string    `json:"why"`
	At       time.Time `json:"at"`
}

func (s *Service) demotionFile() string { return filepath.Join(s.state, "demotion.json") }

// demotion says why these settings were demoted; "" if they were not. What can't be read counts as a demotion.
func (s *Service) demotion(settings string) string {
	if s.state == "" {
		return ""
	}
	data, err := os.ReadFile(s.demotionFile())
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	var d demotion
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	if err != nil {
		return fmt.Sprintf("%s can't be read (%v); remove it to allow live", s.demotionFile(), err)
	}
	if d.Settings == settings {
		return d.Why
	}
	return ""
}

// Answer is what /decide says.
type Answer struct {
	Boost      int     // points to add now
	Advice     int     // points that live would add
	Value      float64 // the policy's
	Mode       Mode
	Checkpoint string
	Abstain    Reason
}

// Decide advises on one job.
func (s *Service) Decide(j *Job, started time.Time) Answer {
	c := s.current.Load()
	a := Answer{Mode: c.settings.Mode, Checkpoint: c.loaded.Digest}
	now := s.now()
	r := j.request(now.UnixMicro())
	at := c.situation(now)
	a.Abstain = at.before(&r)
	if a.Abstain == "" && !s.limiter.admits(now, c.settings.DecisionsPerSecond) {
		a.Abstain = ReasonRate
	}
	if a.Abstain == "" {
		advice := c.prepared.Decide(&r)
		a.fill(c, advice, at.after(advice, s.now().Sub(started)))
	}
	s.count(&c.settings, a.Abstain, now, started)
	return a
}

// Consider is what Decide would say of a job that waits already, for the record: it counts nowhere.
func (s *Service) Consider(j *snapshot.Job) Answer {
	c := s.current.Load()
	a := Answer{Mode: c.settings.Mode, Checkpoint: c.loaded.Digest}
	r := j.Request()
	at := c.situation(s.now())
	if a.Abstain = at.before(&r); a.Abstain == "" {
		advice := c.prepared.Decide(&r)
		a.fill(c, advice, at.after(advice, 0))
	}
	return a
}

// fill makes a policy's advice an answer, unless there is a reason against it.
func (a *Answer) fill(c *current, advice policy.Advice, against Reason) {
	if a.Abstain = against; against != "" {
		return
	}
	a.Value = advice.Value
	a.Advice = points(advice, c.settings.MaxBoost)
	if a.Mode == Live {
		a.Boost = a.Advice
	}
}

// points are the part of the largest boost that a policy's advice comes to.
func points(advice policy.Advice, maxBoost int) int {
	return int(math.Floor(min(max(advice.Score, 0), 1) * float64(maxBoost)))
}

func (s *Service) count(settings *Settings, reason Reason, now, started time.Time) {
	s.metrics.decided(settings.Mode, reason, s.now().Sub(started))
	if settings.Mode != Off {
		s.shares.add(now, reason != "")
	}
}

// situation is what the guardrails look at.
func (c *current) situation(now time.Time) situation {
	at := situation{settings: &c.settings, loaded: c.loaded, misordered: c.misordered != "", age: -1, waiting: len(c.cluster.Waiting)}
	if c.snap != nil {
		at.age = max(now.Sub(c.snap.TakenAt), 0)
	}
	return at
}

// Placement is what /act says: indices into the jobs asked about, the nodes in the site's order and the node's cards, −1 for
// none.
type Placement struct {
	Job        int     `json:"job_i"`
	Node       int     `json:"node_j"`
	Card       int     `json:"gpu_k"`
	JobID      int64   `json:"job_id"`
	NodeName   string  `json:"node"`
	Value      float64 `json:"value"`
	Mode       Mode    `json:"mode"`
	Checkpoint string  `json:"checkpoint"`
	Abstain    Reason  `json:"abstain,omitempty"`
}

// Act chooses a held job and a place for it, among the nodes; no nodes: all.
func (s *Service) Act(jobs []Job, among []string, started time.Time) Placement {
	c := s.current.Load()
	now := s.now()
	p := Placement{Job: -1, Node: -1, Card: -1, Mode: c.settings.Mode, Checkpoint: c.loaded.Digest}
	at := c.situation(now)
	requests := make([]workload.Request, len(jobs))
	for i := range jobs {
		requests[i] = jobs[i].request(now.UnixMicro())
		if p.Abstain == "" {
			p.Abstain = at.before(&requests[i])
		}
	}
	if p.Abstain == "" && at.misordered {
		p.Abstain = ReasonTopology
	}
	if p.Abstain == "" {
		prepared, site := c.offered(among)
		if action, found := prepared.Act(requests); found {
			if site != nil {
				action.Node = site[action.Node]
			}
			p.Abstain = at.after(policy.Advice{Value: action.Value}, s.now().Sub(started))
			if p.Abstain == "" {
				p.Job, p.Node, p.Card, p.Value = action.Job, action.Node, action.Card, action.Value
				p.JobID, p.NodeName = jobs[action.Job].ID, c.cluster.Nodes[action.Node].Name
				s.lastNode.Store(int64(p.Node))
				s.lastCard.Store(int64(p.Card))
			}
		}
	}
	s.count(&c.settings, p.Abstain, now, started)
	return p
}

// offered is the policy on the nodes to choose among, and their indices in the site's order (nil: they are all). A policy has as many
// places to choose among as the site's topology has cards: cards beyond it are not offered.
func (c *current) offered(among []string) (policy.Prepared, []int) {
	left := Actions(c.settings.Topology)
	bounded := c.settings.Topology != ""
	site := make([]int, 0, len(c.cluster.Nodes))
	for i := range c.cluster.Nodes {
		n := &c.cluster.Nodes[i]
		if cards := len(n.CardMilli); bounded && cards > 0 {
			if cards > left {
				continue
			}
			left -= cards
		}
		if len(among) == 0 || slices.Contains(among, n.Name) {
			site = append(site, i)
		}
	}
	if len(site) == len(c.cluster.Nodes) {
		return c.prepared, nil
	}
	state := *c.cluster
	state.Nodes = make([]policy.Node, len(site))
	for at, i := range site {
		state.Nodes[at] = c.cluster.Nodes[i]
	}
	return c.loaded.Policy.Prepare(&state), site
}

// Placing says how much the placement controller may do, and with which jobs.
func (s *Service) Placing() (Mode, custody.Terms) {
	placement := &s.current.Load().settings.Placement
	return placement.Mode, placement.Terms
}

// CountPlacement counts what the placement controller did with a job.
func (s *Service) CountPlacement(outcome string) { s.metrics.placements.WithLabelValues(outcome).Inc() }

// Health is what /healthz says.
type Health struct {
	Status       string  `json:"status"`
	Mode         Mode    `json:"mode"`
	WantedMode   Mode    `json:"wanted_mode"`
	Demoted      string  `json:"demoted,omitempty"`
	Checkpoint   string  `json:"checkpoint"`
	Policy       string  `json:"policy"`
	Refused      string  `json:"refused_checkpoint,omitempty"`
	Topology     string  `json:"topology"`
	Actions      int     `json:"n_actions"`
	Cluster      string  `json:"cluster"`
	Version      uint64  `json:"snapshot_version"`
	AgeSeconds   float64 `json:"snapshot_age_seconds"` // −1: there is none
	Waiting      int     `json:"waiting"`
	AbstainShare float64 `json:"abstain_share"`
	AbstainOf    int     `json:"abstain_of"`
}

// Health tells how the service is.
func (s *Service) Health() Health {
	c := s.current.Load()
	now := s.now()
	h := Health{
		Status: "ok", Mode: c.settings.Mode, WantedMode: c.wanted, Demoted: c.demoted, Checkpoint: c.loaded.Digest,
		Policy: c.loaded.Policy.Name(), Refused: c.refused, Topology: c.settings.Topology, Actions: Actions(c.settings.Topology),
		AgeSeconds: -1, Waiting: len(c.cluster.Waiting),
	}
	if c.snap != nil {
		h.Cluster, h.Version, h.AgeSeconds = c.snap.Cluster, c.snap.Version, max(now.Sub(c.snap.TakenAt).Seconds(), 0)
	}
	h.AbstainShare, h.AbstainOf = s.shares.abstained(now)
	return h
}

// Ready says why the service can't advise; "" if it can, or is off.
func (s *Service) Ready() string {
	c := s.current.Load()
	at := c.situation(s.now())
	switch {
	case c.settings.Mode == Off:
		return ""
	case at.age < 0:
		return "there is no snapshot yet"
	case at.age > c.settings.ttl():
		return fmt.Sprintf("the snapshot is %.0f s old, older than %d s", at.age.Seconds(), c.settings.SnapshotTTLSeconds)
	case c.refused != "":
		return "the checkpoint is refused: " + c.refused
	}
	return ""
}

// Actions counts the cards of a topology (rtx4070:1x1,a100:4x8 has 33): the places that a placement chooses among.
func Actions(topology string) int {
	total := 0
	for part := range strings.SplitSeq(topology, ",") {
		_, size, _ := strings.Cut(part, ":")
		workers, cards, _ := strings.Cut(size, "x")
		w, err1 := strconv.Atoi(workers)
		c, err2 := strconv.Atoi(cards)
		if err1 == nil && err2 == nil && w > 0 && c > 0 && w < most && c < most {
			total += w * c
		}
	}
	return total
}
