package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/advisor/placement/custody"
	"github.com/berth-hpc/berth/components/advisor/service"
	"github.com/berth-hpc/berth/components/advisor/snapshot"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// lab stands for slurmctld and slurmrestd: two workers that share a card each, one of them the faster.
type lab struct {
	nodes   []slurmrest.Node
	jobs    map[int64]*slurmrest.JobRecord
	updates []string
	refuse  map[string]bool // nodes that it has never heard of
	fail    error
}

func newLab() *lab {
	worker := func(name, card string) slurmrest.Node {
		return slurmrest.Node{Name: name, State: slurmrest.Idle | slurmrest.Cloud | slurmrest.PoweredDown, CPUs: 4, MemoryMiB: 8192, Gres: "gpu:" + card + ":1,mps:" + card + ":100"}
	}
	return &lab{
		nodes:  []slurmrest.Node{worker("slow-0", "rtx3080"), worker("fast-0", "rtx4070")},
		jobs:   map[int64]*slurmrest.JobRecord{},
		refuse: map[string]bool{},
	}
}

// hold submits a held job for a share of a card.
func (l *lab) hold(id int64, share int) *slurmrest.JobRecord {
	l.jobs[id] = &slurmrest.JobRecord{
		ID: id, Name: fmt.Sprintf("placed-%d", id), States: []string{"PENDING"}, Held: true, Reason: "JobHeldUser", Submit: time.Now().Add(-time.Minute),
		Limit: time.Hour, TRES: fmt.Sprintf("cpu=1,mem=100M,node=1,billing=1,gres/mps=%d", share),
	}
	return l.jobs[id]
}

func (l *lab) Nodes(context.Context, time.Time) (*slurmrest.NodeList, error) {
	return &slurmrest.NodeList{Nodes: l.nodes, AsOf: time.Now(), Cluster: "lab"}, l.fail
}

func (l *lab) JobStates(context.Context) ([]slurmrest.JobState, error) {
	var out []slurmrest.JobState
	for id, j := range l.jobs {
		out = append(out, slurmrest.JobState{ID: fmt.Sprint(id), States: j.States})
	}
	return out, l.fail
}

func (l *lab) JobRecords(_ context.Context, id int64) ([]slurmrest.JobRecord, error) {
	if j := l.jobs[id]; j != nil {
		return []slurmrest.JobRecord{*j}, l.fail
	}
	return nil, l.fail
}

func (l *lab) UpdateJob(_ context.Context, id int64, u slurmrest.JobUpdate) error {
	if l.fail != nil {
		return l.fail
	}
	j := l.jobs[id]
	if len(u.RequiredNodes) > 0 {
		if l.refuse[u.RequiredNodes[0]] {
			return &slurmrest.APIError{Status: 500, Messages: []string{"Invalid node name specified"}, Numbers: []int{2018}}
		}
		j.RequiredNodes = strings.Join(u.RequiredNodes, ",")
	}
	if u.Hold != nil {
		j.Held, j.Reason = *u.Hold, "None"
	}
	j.AdminComment = *u.AdminComment
	l.updates = append(l.updates, fmt.Sprintf("%d %s", id, j.AdminComment))
	return nil
}

// controller makes one beside a real service and a real agent, and what takes a new picture.
func controller(t *testing.T, l *lab, advisor, placement service.Mode) (c *Controller, look func()) {
	t.Helper()
	s := service.New("", slog.New(slog.DiscardHandler))
	text := fmt.Sprintf(`{"mode":%q,"topology":"rtx4070:1x1,rtx3080:1x1","nodeOrder":["fast-","slow-"],"budgetMilliseconds":5000,
		"placement":{"mode":%q,"jobNamePrefix":"placed-","giveUpSeconds":600,"startSeconds":300}}`, advisor, placement)
	if err := s.Configure([]byte(text), nil); err != nil {
		t.Fatal(err)
	}
	c = New(l, InProcess{s}, s.Placing, filepath.Join(t.TempDir(), custody.File), slog.New(slog.DiscardHandler))
	agent := &snapshot.Agent{Slurm: l, Target: s, Log: c.Log, Batch: 100, Changed: c.Observe}
	c.Changed = agent.Refresh
	look = func() {
		t.Helper()
		time.Sleep(2 * time.Millisecond) // versions are milliseconds
		if err := agent.Round(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	look()
	return c, look
}

func round(t *testing.T, c *Controller) {
	t.Helper()
	if err := c.Round(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
}

// where says which node each job must run on, and whether it is held.
func (l *lab) where(ids ...int64) string {
	var out []string
	for _, id := range ids {
		at := l.jobs[id].RequiredNodes
		if l.jobs[id].Held {
			at = "held" + at
		}
		out = append(out, at)
	}
	return strings.Join(out, " ")
}

// Held jobs are placed one by one, each on a picture that has what the one before took: the first two share the faster card, the third
// has no room there.
func TestPlacesOneAfterTheOther(t *testing.T) {
	l := newLab()
	l.hold(1, 50)
	l.hold(2, 50).AdminComment = "a word"
	l.hold(3, 50)
	l.hold(4, 50).Name = "a person's own"
	c, look := controller(t, l, service.Live, service.Live)
	round(t, c)
	if got := l.where(1, 2, 3); got != "fast-0 held held" {
		t.Fatal(got)
	}
	round(t, c)
	if len(l.updates) != 1 {
		t.Errorf("a second job was placed on the picture of the first: %q", l.updates)
	}
	look()
	round(t, c)
	look()
	round(t, c)
	if got := l.where(1, 2, 3, 4); got != "fast-0 fast-0 slow-0 held" {
		t.Error(got)
	}
	if !strings.HasPrefix(l.updates[1], "2 a word; placement: node=fast-0 at=20") || !strings.HasSuffix(l.updates[1], " checkpoint=builtin:saf") {
		t.Errorf("%q", l.updates[1])
	}
	look()
	round(t, c)
	// Another controller, which knows nothing of this one, finds nothing to do.
	other, _ := controller(t, l, service.Live, service.Live)
	round(t, other)
	if len(l.updates) != 3 {
		t.Errorf("%q", l.updates)
	}
}

// Nothing is changed in any mode below live, of either switch.
func TestShadowChangesNothing(t *testing.T) {
	for _, c := range []struct{ advisor, placement service.Mode }{
		{service.Live, service.Shadow}, {service.Shadow, service.Shadow}, {service.Live, service.Off}, {service.Off, service.Shadow},
	} {
		l := newLab()
		l.hold(1, 25).Submit = time.Now().Add(-time.Hour)
		l.hold(2, 25).Bound = "it asks for features"
		l.hold(3, 25)
		controller, look := controller(t, l, c.advisor, c.placement)
		shown := map[Outcome]int{}
		controller.Count = func(o Outcome) { shown[o]++ }
		for range 4 {
			round(t, controller)
			look()
		}
		want := 2 // each job once
		if c.advisor == service.Off || c.placement == service.Off {
			want = 0
		}
		if len(l.updates) != 0 || shown[Shown] != want || len(shown) > 1 {
			t.Errorf("advisor %s, placement %s: %q, %v", c.advisor, c.placement, l.updates, shown)
		}
		if p, err := custody.Read(controller.Promise); p != nil || err != nil {
			t.Errorf("shadow promises %+v %v", p, err)
		}
	}
}

// A node that is drained, down, gone or fuller than the advisor thought gets no job; the next choice is made without it.
func TestNodeIsLookedAtAgain(t *testing.T) {
	for name, spoil := range map[string]func(*lab){
		"drained":      func(l *lab) { l.nodes[1].State |= slurmrest.Drain },
		"down":         func(l *lab) { l.nodes[1].State = slurmrest.Down | slurmrest.NotResponding },
		"full":         func(l *lab) { l.nodes[1].GresUsed = "gpu:rtx4070:1" },
		"gone":         func(l *lab) { l.nodes = l.nodes[:1] },
		"a new word":   func(l *lab) { l.nodes[1].UnknownWords = []string{"BLESSED"} },
		"powered down": func(l *lab) { l.nodes[1].State |= slurmrest.PoweringDown },
	} {
		l := newLab()
		l.hold(1, 25)
		c, _ := controller(t, l, service.Live, service.Live)
		spoil(l)
		round(t, c)
		if len(l.updates) != 0 {
			t.Errorf("%s: %q", name, l.updates)
		}
		round(t, c)
		if got := l.where(1); got != "slow-0" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A job that changed since the picture is left alone: released, held by an administrator, gone, or placed by somebody else.
func TestJobIsLookedAtAgain(t *testing.T) {
	for name, change := range map[string]func(*lab){
		"released": func(l *lab) { l.jobs[1].Held = false },
		"an administrator's": func(l *lab) {
			l.jobs[1].Reason = "JobHeldAdmin"
		},
		"gone":       func(l *lab) { delete(l.jobs, 1) },
		"placed":     func(l *lab) { l.jobs[1].AdminComment = "placement: node=slow-0 at=x checkpoint=y" },
		"for a node": func(l *lab) { l.jobs[1].RequiredNodes = "slow-0" },
	} {
		l := newLab()
		l.hold(1, 25)
		c, _ := controller(t, l, service.Live, service.Live)
		change(l)
		round(t, c)
		if len(l.updates) != 0 {
			t.Errorf("%s: %q", name, l.updates)
		}
	}
}

// Only the nodes that the controller is told of get jobs.
func TestNodesOfItsOwn(t *testing.T) {
	l := newLab()
	l.hold(1, 25)
	c, _ := controller(t, l, service.Live, service.Live)
	c.Nodes = []string{"slow-0"}
	round(t, c)
	if got := l.where(1); got != "slow-0" {
		t.Error(got)
	}
}

// A job that slurmctld will not have on its place goes back, with slurmctld's words; so does one whose place can't be chosen. One that
// begins later waits.
func TestGivesBack(t *testing.T) {
	l := newLab()
	l.refuse["fast-0"] = true
	l.hold(1, 25)
	l.hold(2, 25).Bound = "it asks for features"
	l.hold(3, 25).Start = time.Now().Add(time.Hour)
	l.hold(4, 100).Submit = time.Now().Add(-time.Hour)
	c, look := controller(t, l, service.Live, service.Live)
	round(t, c)
	look()
	round(t, c)
	want := []string{
		"4 placement: none (no place within 10m0s)", "2 placement: none (it asks for features)",
		"1 placement: none (slurmctld refuses fast-0: slurmrestd (HTTP 500): Invalid node name specified)",
	}
	if fmt.Sprintf("%q", l.updates) != fmt.Sprintf("%q", want) || l.where(1, 2, 3, 4) != "  held " {
		t.Errorf("%q, %q", l.updates, l.where(1, 2, 3, 4))
	}
}

// brokenAdvisor does not answer, or not sensibly.
type brokenAdvisor struct {
	err    error
	answer service.Placement
}

func (b brokenAdvisor) Health(context.Context) (service.Health, error) {
	return service.Health{Mode: service.Live, Version: uint64(time.Now().UnixNano())}, b.err
}

func (b brokenAdvisor) Act(context.Context, []service.Job, []string) (service.Placement, error) {
	return b.answer, nil
}

// Without an advisor, or with one that talks nonsense, nothing is placed and jobs get back in time all the same.
func TestAdvisorBreaks(t *testing.T) {
	for name, broken := range map[string]brokenAdvisor{
		"dead":        {err: errors.New("connection refused")},
		"another job": {answer: service.Placement{Job: 0, JobID: 7, NodeName: "fast-0", Mode: service.Live}},
		"out of list": {answer: service.Placement{Job: 9, JobID: 1, NodeName: "fast-0", Mode: service.Live}},
		"no node":     {answer: service.Placement{Job: 0, JobID: 1, Mode: service.Live}},
	} {
		l := newLab()
		l.hold(1, 25)
		l.hold(2, 25).Submit = time.Now().Add(-time.Hour)
		c, _ := controller(t, l, service.Live, service.Live)
		c.Advisor = broken
		if err := c.Round(t.Context(), time.Now()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if len(l.updates) != 1 || l.updates[0] != "2 placement: none (no place within 10m0s)" {
			t.Errorf("%s: %q", name, l.updates)
		}
	}
	// A node that is nobody's is looked up, and avoided.
	l := newLab()
	l.hold(1, 25)
	c, _ := controller(t, l, service.Live, service.Live)
	c.Advisor = brokenAdvisor{answer: service.Placement{Job: 0, JobID: 1, NodeName: "moon-0", Mode: service.Live}}
	round(t, c)
	if len(l.updates) != 0 || len(c.avoid) != 1 {
		t.Errorf("%q %v", l.updates, c.avoid)
	}
}

// An advisor that has demoted itself, or whose picture is old, places nothing; what it placed before goes back in time.
func TestDemotedGivesBackOnly(t *testing.T) {
	l := newLab()
	l.hold(1, 25)
	placed := l.hold(2, 25)
	placed.Held, placed.Reason, placed.RequiredNodes = false, "Resources", "slow-0"
	placed.AdminComment = "placement: node=slow-0 at=" + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339) + " checkpoint=x"
	c, _ := controller(t, l, service.Shadow, service.Live)
	round(t, c)
	if got := l.where(1, 2); got != "held " || len(l.updates) != 1 || l.updates[0] != "2 placement: none (not started on slow-0 within 5m0s)" {
		t.Errorf("%q %q", got, l.updates)
	}
}

// The promise is renewed while the site wants placement live, and ends when it does not.
func TestPromise(t *testing.T) {
	l := newLab()
	c, _ := controller(t, l, service.Live, service.Live)
	now := time.Now()
	read := func() *custody.Promise {
		t.Helper()
		p, err := custody.Read(c.Promise)
		if err != nil || p == nil {
			t.Fatalf("%+v %v", p, err)
		}
		return p
	}
	for _, at := range []time.Time{now, now.Add(50 * time.Second)} {
		if err := c.Round(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		if p := read(); p.Ended || p.Until.Sub(at) < custody.Lease/2 || p.Terms.JobNamePrefix != "placed-" {
			t.Errorf("%+v", p)
		}
	}
	_, terms := c.Orders()
	for _, mode := range []service.Mode{service.Shadow, service.Off} {
		c.Orders = func() (service.Mode, custody.Terms) { return mode, terms }
		if err := c.Round(t.Context(), now.Add(60*time.Second)); err != nil {
			t.Fatal(err)
		}
		if p := read(); !p.Ended || !p.Until.Equal(now.Add(60*time.Second).Round(0)) && p.Until.Sub(now) > 61*time.Second {
			t.Errorf("%s: %+v", mode, p)
		}
	}
}

// Of two controllers on one promise one changes jobs; the other does when it has gone.
func TestLeader(t *testing.T) {
	l := newLab()
	first, look := controller(t, l, service.Live, service.Live)
	second, _ := controller(t, l, service.Live, service.Live)
	second.Promise = first.Promise
	round(t, first)
	l.hold(1, 25)
	look()
	second.Observe(&snapshot.Delta{Jobs: []snapshot.Job{snapshot.JobOf(l.jobs[1])}})
	if err := second.Round(t.Context(), time.Now()); !errors.Is(err, errFollows) || len(l.updates) != 0 {
		t.Errorf("%v %q", err, l.updates)
	}
	first.follow()
	round(t, second)
	if len(l.updates) != 1 {
		t.Errorf("%q", l.updates)
	}
	second.follow()
}

// A promise that can't be written stops no job from going back, and no job is taken without one.
func TestPromiseCannotBeWritten(t *testing.T) {
	l := newLab()
	l.hold(1, 25)
	l.hold(2, 25).Submit = time.Now().Add(-time.Hour)
	c, _ := controller(t, l, service.Live, service.Live)
	c.Promise = "/dev/null/placement.json"
	if err := c.Round(t.Context(), time.Now()); err == nil || len(l.updates) != 1 || l.where(1, 2) != "held " {
		t.Errorf("%v %q", err, l.updates)
	}
	// One that is garbage is replaced.
	c.Promise = filepath.Join(t.TempDir(), custody.File)
	if err := os.WriteFile(c.Promise, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	round(t, c)
	if p, err := custody.Read(c.Promise); err != nil || p == nil || l.where(1) != "fast-0" {
		t.Errorf("%+v %v %q", p, err, l.updates)
	}
}

// slurmctld that does not answer ends the round, and nothing is forgotten.
func TestSlurmIsAway(t *testing.T) {
	l := newLab()
	l.hold(1, 25)
	c, look := controller(t, l, service.Live, service.Live)
	l.fail = errors.New("connection refused")
	if err := c.Round(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
	l.fail = nil
	look()
	round(t, c)
	if got := l.where(1); got != "fast-0" {
		t.Error(got)
	}
}

// By HTTP it is the same advisor.
func TestRemote(t *testing.T) {
	l := newLab()
	l.hold(1, 50)
	c, _ := controller(t, l, service.Live, service.Live)
	server := httptest.NewServer(c.Advisor.(InProcess).Service.Handler("a-token"))
	defer server.Close()
	remote, err := NewRemote(server.URL, "a-token")
	if err != nil {
		t.Fatal(err)
	}
	c.Advisor = remote
	round(t, c)
	if got := l.where(1); got != "fast-0" {
		t.Error(got)
	}
	stranger, _ := NewRemote(server.URL, "another")
	if _, err := stranger.Act(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "401") {
		t.Error(err)
	}
	for _, bad := range []string{"", "advisor:8080", "ftp://advisor"} {
		if _, err := NewRemote(bad, ""); err == nil {
			t.Errorf("%q is taken for an address", bad)
		}
	}
}

// A job's resources reach the advisor as Slurm tells them.
func TestRequestOf(t *testing.T) {
	j := snapshot.Job{ID: 3, TRES: "cpu=2,mem=4G,node=1,billing=2,gres/gpu=1,gres/gpu:rtx4070=1", LimitMinutes: 60, Partition: "gpu"}
	if got := RequestOf(&j); got.CPUs != 2 || got.MemoryMiB != 4096 || got.TRESPerJob != "gres/gpu=1,gres/gpu:rtx4070=1" || got.Partition != "gpu" || got.LimitMinutes != 60 {
		t.Errorf("%+v", got)
	}
}
