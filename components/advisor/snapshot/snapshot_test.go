package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// cluster is a stand-in slurmctld.
type cluster struct {
	nodes   []slurmrest.Node
	jobs    map[int64][]slurmrest.JobRecord
	asked   []int64
	fails   error
	changed time.Time
}

func (c *cluster) Nodes(_ context.Context, since time.Time) (*slurmrest.NodeList, error) {
	if c.fails != nil {
		return nil, c.fails
	}
	if !since.IsZero() && !c.changed.After(since) {
		return nil, slurmrest.ErrUnchanged
	}
	return &slurmrest.NodeList{Nodes: c.nodes, AsOf: c.changed, Cluster: "lab"}, nil
}

func (c *cluster) JobStates(context.Context) ([]slurmrest.JobState, error) {
	var out []slurmrest.JobState
	for id, records := range c.jobs {
		for _, r := range records {
			name := fmt.Sprint(id)
			if r.ArrayTasks != "" {
				name += "_" + r.ArrayTasks
			}
			out = append(out, slurmrest.JobState{ID: name, States: r.States})
		}
	}
	return out, c.fails
}

func (c *cluster) JobRecords(_ context.Context, id int64) ([]slurmrest.JobRecord, error) {
	c.asked = append(c.asked, id)
	return c.jobs[id], c.fails
}

func (c *cluster) put(id int64, state string) {
	c.jobs[id] = []slurmrest.JobRecord{{ID: id, States: []string{state}, Limit: time.Hour, Submit: time.Unix(1000, 0)}}
}

func newCluster() *cluster {
	return &cluster{
		jobs: map[int64][]slurmrest.JobRecord{}, changed: time.Unix(5000, 0),
		nodes: []slurmrest.Node{{Name: "n1", State: slurmrest.Idle, CPUs: 4, MemoryMiB: 1000}, {Name: "n0", State: slurmrest.Idle, CPUs: 4}},
	}
}

// target is a store that can be lost.
type target struct {
	Store
	down bool
	got  []*Delta
}

func (t *target) Snapshot(d *Delta) error {
	if t.down {
		return errors.New("connection refused")
	}
	if _, err := t.Apply(d, d.TakenAt); err != nil {
		return err
	}
	t.got = append(t.got, d)
	return nil
}

func summary(s *Snapshot) string {
	var b strings.Builder
	for _, n := range s.Nodes {
		fmt.Fprintf(&b, "%s ", n.Name)
	}
	for _, j := range s.Jobs {
		fmt.Fprintf(&b, "%d:%s ", j.ID, j.State)
	}
	return strings.TrimSpace(b.String())
}

// The agent asks for what changed, and only that; nothing is lost when it, or the service, starts anew or is away.
func TestAgent(t *testing.T) {
	c, service := newCluster(), &target{}
	agent := func() *Agent { return &Agent{Slurm: c, Target: service, Log: slog.New(slog.DiscardHandler), Batch: 2} }
	a := agent()
	now := time.Unix(6000, 0)
	round := func(want string, asked ...int64) {
		t.Helper()
		c.asked = nil
		now = now.Add(10 * time.Second)
		if err := a.Round(context.Background(), now); err != nil {
			t.Fatal(err)
		}
		if got := summary(service.Present()); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if fmt.Sprint(c.asked) != fmt.Sprint(asked) {
			t.Errorf("asked for %v, want %v", c.asked, asked)
		}
		if !service.Present().TakenAt.Equal(now) {
			t.Error("the snapshot's time does not advance")
		}
	}
	c.put(1, "PENDING")
	c.put(2, "PENDING")
	c.put(3, "PENDING")
	round("n0 n1 1:PENDING 2:PENDING", 1, 2)           // two a round
	round("n0 n1 1:PENDING 2:PENDING 3:PENDING", 1, 3) // and what is left of the two for those that wait
	round("n0 n1 1:PENDING 2:PENDING 3:PENDING", 1, 2)
	if d := service.got[len(service.got)-1]; len(d.Nodes)+len(d.Jobs) != 0 {
		t.Errorf("nothing changed, and %+v was sent", d)
	}
	c.put(2, "RUNNING")
	delete(c.jobs, 1)
	round("n0 n1 2:RUNNING 3:PENDING", 2, 3)

	// An array is one record until tasks of it start; each task is a job with a number of its own.
	c.jobs[4] = []slurmrest.JobRecord{{ID: 4, ArrayTasks: "0-9", States: []string{"PENDING"}}}
	round("n0 n1 2:RUNNING 3:PENDING 4:PENDING", 3, 4)
	c.jobs[4] = []slurmrest.JobRecord{{ID: 4, ArrayTasks: "1-9", States: []string{"PENDING"}}, {ID: 5, ArrayTasks: "0", States: []string{"RUNNING"}}}
	round("n0 n1 2:RUNNING 3:PENDING 4:PENDING 5:RUNNING", 3, 4)
	c.jobs[4] = c.jobs[4][1:]
	round("n0 n1 2:RUNNING 3:PENDING 5:RUNNING", 3, 4)

	// The service starts anew: it gets everything, without Slurm being asked for more than the job that waits.
	service.present = nil
	round("n0 n1 2:RUNNING 3:PENDING 5:RUNNING", 3)
	if service.got[len(service.got)-1].Base != 0 {
		t.Error("a service without a snapshot was not sent the whole")
	}
	// The service is away for a while: what changed meanwhile arrives.
	service.down = true
	c.put(3, "RUNNING")
	if err := a.Round(context.Background(), now); err == nil {
		t.Error("the lost round is not told")
	}
	service.down = false
	round("n0 n1 2:RUNNING 3:RUNNING 5:RUNNING", 3)
	// The agent starts anew: its first round may be partial, and then it has caught up.
	a = agent()
	c.asked = nil
	for range 3 {
		now = now.Add(10 * time.Second)
		if err := a.Round(context.Background(), now); err != nil {
			t.Fatal(err)
		}
	}
	if got := summary(service.Present()); got != "n0 n1 2:RUNNING 3:RUNNING 5:RUNNING" {
		t.Error(got)
	}
	// Slurm is away: nothing changes, and the age grows.
	c.fails = errors.New("no route")
	before := service.Present()
	if err := a.Round(context.Background(), now); err == nil || service.Present() != before {
		t.Error("a failed round changed the snapshot")
	}
	c.fails = nil
	// A node leaves.
	c.nodes, c.changed = c.nodes[:1], time.Unix(9000, 0)
	round("n1 2:RUNNING 3:RUNNING 5:RUNNING")
}

// A job that is held is asked for again in every round, though its state stays PENDING: people release it, and whoever did tells so.
func TestAgentSeesReleases(t *testing.T) {
	c, service := newCluster(), &target{}
	a := &Agent{Slurm: c, Target: service, Log: slog.New(slog.DiscardHandler), Batch: 100}
	round := func() *Delta {
		t.Helper()
		c.asked = nil
		if err := a.Round(context.Background(), time.Now()); err != nil {
			t.Fatal(err)
		}
		return service.got[len(service.got)-1]
	}
	c.put(1, "PENDING")
	for id := range int64(watched + 10) {
		c.put(100+id, "PENDING")
		c.jobs[100+id][0].Held = true
	}
	round()
	if d := round(); len(d.Jobs) != 0 || len(c.asked) != watched+1 || c.asked[0] != 1 || c.asked[1] != 100 {
		t.Errorf("asked for %v, sent %v", c.asked, d.Jobs)
	}
	c.jobs[159][0].Held = false
	c.jobs[159][0].RequiredNodes = "n1"
	c.jobs[1][0].Nice = 7
	a.Refresh(1)
	d := round()
	if len(d.Jobs) != 2 || d.Jobs[0].Nice != 7 || d.Jobs[1].ID != 159 || d.Jobs[1].Held || d.Jobs[1].RequiredNode() != "n1" || len(c.asked) != watched+1 {
		t.Errorf("asked for %v, sent %+v", c.asked, d.Jobs)
	}
}

// A job that is held, or given another priority, long after it was submitted is seen, however long the queue, and jobs that do change
// go first.
func TestAgentSeesHolds(t *testing.T) {
	c, service := newCluster(), &target{}
	a := &Agent{Slurm: c, Target: service, Log: slog.New(slog.DiscardHandler), Batch: 50}
	round := func() *Delta {
		t.Helper()
		c.asked = nil
		if err := a.Round(context.Background(), time.Now()); err != nil {
			t.Fatal(err)
		}
		return service.got[len(service.got)-1]
	}
	const queue = 100
	for id := range int64(queue) {
		c.put(1+id, "PENDING")
	}
	round()
	round()
	c.jobs[queue][0].Held = true
	c.jobs[queue/2][0].Priority = 4242
	for range queue / checked {
		round()
		if len(c.asked) != checked {
			t.Errorf("asked for %v", c.asked)
		}
	}
	for _, j := range service.Present().Jobs {
		if j.Held != (j.ID == queue) || (j.Priority == 4242) != (j.ID == queue/2) {
			t.Errorf("after a turn through the queue: %+v", j)
		}
	}
	for id := range int64(45) {
		c.put(1000+id, "PENDING")
	}
	if d := round(); len(d.Jobs) != 45 || len(c.asked) != 50 {
		t.Errorf("of 45 new jobs %d came, by %d questions", len(d.Jobs), len(c.asked))
	}
}

// Jobs that wait for a node by name have taken their part of it.
func TestStatePromises(t *testing.T) {
	job := func(id int64, node, tres string) Job {
		return Job{ID: id, State: "PENDING", TRES: tres, Required: node}
	}
	held := job(6, "n0", "cpu=4,gres/gpu=2")
	held.Held = true
	s := &Snapshot{Nodes: []Node{
		{Name: "n0", State: []string{"IDLE"}, CPUs: 8, MemoryMiB: 4096, Gres: "gpu:a:2"},
		{Name: "n1", State: []string{"IDLE"}, CPUs: 8, MemoryMiB: 4096, Gres: "gpu:a:2", GresUsed: "gpu:a:2"},
	}, Jobs: []Job{
		job(1, "n0", "cpu=2,mem=1G,gres/mps=25"), job(2, "n0", "cpu=1,mem=8G,gres/gpu=1"), job(3, "n1", "cpu=1,gres/gpu=4"),
		job(4, "n[0-1]", "cpu=4"), job(5, "n9", "cpu=4"), held, {ID: 7, State: "RUNNING", Required: "n0", TRES: "cpu=1"},
	}}
	state := s.State(time.Unix(1, 0), []string{"n1"})
	got := fmt.Sprint(state.Nodes[1].CPUMilli, state.Nodes[1].MemMiB, state.Nodes[1].CardMilli, state.Nodes[0].CPUMilli, state.Nodes[0].CardMilli, len(state.Waiting))
	if got != "5000 0 [750 0] 7000 [0 0] 5" {
		t.Error(got)
	}
}

func TestApplyRefuses(t *testing.T) {
	now := time.Unix(5000, 0)
	for name, d := range map[string]Delta{
		"schema": {Schema: 2, Version: 1, TakenAt: now}, "version": {Schema: 1, Base: 3, Version: 3, TakenAt: now},
		"time": {Schema: 1, Version: 1, TakenAt: now.Add(time.Hour)}, "no time": {Schema: 1, Version: 1},
		"node": {Schema: 1, Version: 1, TakenAt: now, Nodes: []Node{{}}}, "job": {Schema: 1, Version: 1, TakenAt: now, Jobs: []Job{{ID: 1}}},
		"negative": {Schema: 1, Version: 1, TakenAt: now, Jobs: []Job{{ID: 1, State: "PENDING", LimitMinutes: -1}}},
	} {
		var s Store
		if _, err := s.Apply(&d, now); err == nil || errors.Is(err, ErrBase) || s.Present() != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is free on a node is what its GRES strings say.
func TestState(t *testing.T) {
	s := &Snapshot{Nodes: []Node{
		{Name: "slow-0", State: []string{"IDLE"}, CPUs: 4, AllocCPUs: 1, MemoryMiB: 1000, AllocMiB: 400, Gres: "gpu:rtx3080:2,mps:rtx3080:200", GresUsed: "gpu:rtx3080:1(IDX:0),mps:rtx3080:25(0/100,25/100)"},
		{Name: "slow-1", State: []string{"IDLE", "DRAIN"}, Gres: "gpu:rtx3080:1"},
		{Name: "fast-0", State: []string{"IDLE", "CLOUD", "POWERED_DOWN"}, Gres: "gpu:rtx4070:1"},
	}, Jobs: []Job{
		{ID: 1, State: "PENDING", TRES: "cpu=4,mem=8G,node=1,billing=4,gres/gpu:rtx4070=2", LimitMinutes: 5},
		{ID: 2, State: "PENDING", Held: true}, {ID: 3, State: "RUNNING"}, {ID: 4, State: "PENDING", TRES: "cpu=1,mem=512M,gres/mps=25"},
	}}
	state := s.State(time.Unix(1, 0), []string{"fast-", "slow-"})
	var got []string
	for _, n := range state.Nodes {
		got = append(got, fmt.Sprintf("%s %v %d %d %v", n.Name, n.Usable, n.CPUMilli, n.MemMiB, n.CardMilli))
	}
	want := "fast-0 true 0 0 [1000]\nslow-0 true 3000 600 [0 750]\nslow-1 false 0 0 [1000]"
	if strings.Join(got, "\n") != want {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	if len(state.Waiting) != 2 {
		t.Fatalf("%d wait", len(state.Waiting))
	}
	if r := state.Waiting[0]; r.CPUMilli != 4000 || r.MemMiB != 8192 || r.GPUs != 2 || r.GPUTypes[0] != "rtx4070" || r.Limit != 5*workload.Minute {
		t.Errorf("%+v", r)
	}
	if r := state.Waiting[1]; r.GPUs != 1 || r.GPUMilli != 250 || r.MemMiB != 512 || r.Limit != unlimited {
		t.Errorf("%+v", r)
	}
}

// A node that does not respond takes no jobs, unless it is off: then it can't.
func TestUsable(t *testing.T) {
	for state, want := range map[string]bool{
		"IDLE": true, "MIXED CLOUD": true, "IDLE CLOUD POWERED_DOWN": true, "IDLE CLOUD POWERED_DOWN NOT_RESPONDING": true, "IDLE NOT_RESPONDING": false,
		"IDLE DRAIN": false, "DOWN": false, "IDLE POWERING_DOWN": false, "IDLE POWER_DOWN": false, "": false,
	} {
		n := Node{State: strings.Fields(state)}
		if n.Free().Usable != want {
			t.Errorf("%s: %v", state, !want)
		}
	}
}

// FuzzTexts: no text of Slurm's breaks the reading of it.
func FuzzTexts(f *testing.F) {
	f.Add("cpu=1,mem=1G,gres/gpu:a=1", "gpu:a:2(IDX:0-1),mps:a:50(50/100)")
	f.Add("gres/mps=999999999999,mem=1e300T", "gpu:a:99999999999,((,)")
	f.Fuzz(func(t *testing.T, tres, gres string) {
		j := Job{ID: 1, State: "PENDING", TRES: tres}
		if r := j.Request(); r.CPUMilli < 0 || r.MemMiB < 0 || r.GPUs < 0 || r.GPUMilli < 0 || r.GPUMilli > 1000 {
			t.Errorf("%+v", r)
		}
		n := Node{Name: "n", State: []string{"IDLE"}, Gres: gres, GresUsed: gres}
		for _, milli := range ptr(n.Free()).CardMilli {
			if milli < 0 || milli > 1000 {
				t.Errorf("%v", milli)
			}
		}
	})
}
