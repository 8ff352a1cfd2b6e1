package policy

import (
	"fmt"
	"math"
	"strings"
	"testing"

	simpolicy "github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

func waiting(minutes ...int64) []workload.Request {
	var jobs []workload.Request
	for i, m := range minutes {
		jobs = append(jobs, workload.Request{ID: int64(i), Limit: m * workload.Minute, CPUMilli: 1000, Procs: 1, Submit: int64(i) * workload.Second})
	}
	return jobs
}

// A job's score is the part of the queue that the order puts behind it.
func TestOrderScores(t *testing.T) {
	sjf := Order{simpolicy.SJF}.Prepare(&State{Now: workload.Hour, Waiting: waiting(10, 20, 20, 40)})
	for minutes, want := range map[int64]float64{5: 1, 10: 0.75, 15: 0.75, 20: 0.25, 60: 0} {
		if got := sjf.Decide(&workload.Request{Limit: minutes * workload.Minute}); got.Score != want {
			t.Errorf("a job of %d minutes scores %g, want %g", minutes, got.Score, want)
		}
	}
	if got := (Order{simpolicy.FCFS}).Prepare(&State{Now: workload.Hour, Waiting: waiting(10)}).Decide(&workload.Request{Submit: workload.Hour, Limit: 1}); got.Score != 0 {
		t.Errorf("first come first served lets a newcomer pass: %v", got)
	}
	if got := (Order{simpolicy.SJF}).Prepare(&State{}).Decide(&workload.Request{Limit: 1}); got.Score != 0 {
		t.Errorf("an empty queue gives %v", got)
	}
}

// Placement takes the first job in order that fits, on the tightest usable node, and the fullest card with room.
func TestAct(t *testing.T) {
	nodes := []Node{
		{Name: "down", CPUMilli: 8000, MemMiB: 1000, CardMilli: []int32{1000}},
		{Name: "fast", Usable: true, Type: "a", CPUMilli: 8000, MemMiB: 1000, CardMilli: []int32{1000, 1000}},
		{Name: "slow", Usable: true, Type: "b", CPUMilli: 8000, MemMiB: 1000, CardMilli: []int32{800, 500}},
	}
	share := func(minutes int64, milli int32, types ...string) workload.Request {
		return workload.Request{Limit: minutes * workload.Minute, CPUMilli: 1000, GPUs: 1, GPUMilli: milli, GPUTypes: types}
	}
	for _, c := range []struct {
		name string
		jobs []workload.Request
		want string
	}{
		{"the shorter of two, packed", []workload.Request{share(20, 250), share(10, 250)}, "1 slow 1"},
		{"a card of its own", []workload.Request{share(10, 1000)}, "0 fast 0"},
		{"a model", []workload.Request{share(10, 250, "a")}, "0 fast 0"},
		{"what does not fit is passed over", []workload.Request{{Limit: 1, GPUs: 4, GPUMilli: 1000}, share(10, 600)}, "1 slow 0"},
		{"nothing fits", []workload.Request{{Limit: 1, CPUMilli: 1e6}}, "none"},
		{"any partition of a node that names none", []workload.Request{{Limit: 1, Partition: "cpu"}}, "0 fast -1"},
	} {
		p := Order{simpolicy.SJF}.Prepare(&State{Nodes: nodes})
		got := "none"
		if a, ok := p.Act(c.jobs); ok {
			got = fmt.Sprintf("%d %s %d", a.Job, nodes[a.Node].Name, a.Card)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestOpen(t *testing.T) {
	good := `{"schema":1,"kind":"order","parameters":{"order":"sjf"},"topology":"a:1x1","value_quantiles":[0.1,0.5,1],"range":{"gpus":[0,2]}}`
	l, err := Open([]byte(good))
	if err != nil || l.Policy.Name() != "sjf" || l.AbstainBelow() != 0.1 || !strings.HasPrefix(l.Digest, "sha256:") {
		t.Fatalf("%+v %v", l, err)
	}
	if l.InRange(&workload.Request{GPUs: 3}, 0) || !l.InRange(&workload.Request{GPUs: 2}, 9) {
		t.Error("the range is not held")
	}
	for text, want := range map[string]string{
		`{`: "can't be read", `{"schema":2}`: "schema 2", `{"schema":1,"kind":"magic"}`: `kind "magic" is not known; known: fixed, order`,
		`{"schema":1,"kind":"order","parameters":{"order":"x"}}`:                  `no order is called "x"`,
		`{"schema":1,"kind":"fixed","parameters":{"score":2}}`:                    "score 2 is not between",
		`{"schema":1,"kind":"fixed","parameters":{},"range":{"moon":[0,1]}}`:      `"moon", which is no feature`,
		`{"schema":1,"kind":"fixed","parameters":{},"range":{"gpus":[3,1]}}`:      "range of gpus is 3 to 1",
		`{"schema":1,"kind":"fixed","parameters":{},"extra":1}`:                   "unknown field",
		`{"schema":1,"kind":"fixed","parameters":{}} {"schema":1,"kind":"fixed"}`: "more after the value",
		good[:len(good)-1] + `,"kind":"order","value_quantiles":"x"}`:             "can't be read",
	} {
		if _, err := Open([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if !math.IsInf(Builtin().AbstainBelow(), -1) {
		t.Error("the built-in policy abstains by value")
	}
}

// The hot path allocates nothing (the field's rule for what runs under slurmctld's locks).
func TestNoAllocations(t *testing.T) {
	var minutes []int64
	for i := range int64(10000) {
		minutes = append(minutes, i%600+1)
	}
	s := &State{Now: workload.Hour, Waiting: waiting(minutes...), Nodes: make([]Node, 1000)}
	for i := range s.Nodes {
		s.Nodes[i] = Node{Usable: true, CPUMilli: 8000, MemMiB: 1 << 20, CardMilli: []int32{1000}}
	}
	jobs := s.Waiting[:64]
	for _, order := range simpolicy.Orders() {
		p := Order{order}.Prepare(s)
		if n := testing.AllocsPerRun(100, func() { p.Decide(&jobs[7]) }); n != 0 {
			t.Errorf("%s: a decision allocates %g times", order.Name(), n)
		}
		if n := testing.AllocsPerRun(10, func() { p.Act(jobs) }); n != 0 {
			t.Errorf("%s: a placement allocates %g times", order.Name(), n)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	var minutes []int64
	for i := range int64(10000) {
		minutes = append(minutes, i%600+1)
	}
	p := Order{simpolicy.SAF}.Prepare(&State{Now: workload.Hour, Waiting: waiting(minutes...)})
	r := workload.Request{Limit: 77 * workload.Minute, CPUMilli: 2000, Procs: 2}
	b.ReportAllocs()
	for b.Loop() {
		p.Decide(&r)
	}
}
