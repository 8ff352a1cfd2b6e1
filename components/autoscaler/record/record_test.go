package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/slurmrest"
)

var epoch = time.Date(2026, 12, 2, 8, 0, 0, 0, time.UTC)

// drawn is some state of a pool of three nodes.
func drawn(t *rapid.T) State {
	nodes, pods := map[string]*slurmrest.Node{}, map[string]*decision.Pod{}
	names := []string{"n-0", "n-1", "n-2"}
	states := []slurmrest.NodeState{
		slurmrest.Idle | slurmrest.Cloud | slurmrest.PoweredDown, slurmrest.Mixed | slurmrest.Cloud | slurmrest.PoweringUp, slurmrest.Mixed | slurmrest.Cloud,
		slurmrest.Idle | slurmrest.Cloud | slurmrest.PoweringDown, slurmrest.Down | slurmrest.Cloud, 0,
	}
	for _, name := range names {
		if rapid.IntRange(0, 9).Draw(t, "known") > 0 {
			nodes[name] = &slurmrest.Node{
				Name: name, State: rapid.SampledFrom(states).Draw(t, "state"), Reason: rapid.SampledFrom([]string{"", "fan \"broken\"", "berth: its pod is gone"}).Draw(t, "reason"),
				ReasonAt: epoch.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "reason at")) * time.Minute).Local(), AllocCPUs: rapid.IntRange(0, 1).Draw(t, "cpus"),
			}
			if nodes[name].State == 0 {
				nodes[name].UnknownWords = []string{"NEW", "WORDS"}
			}
		}
		if rapid.Bool().Draw(t, "pod") {
			pods[name] = &decision.Pod{Name: name, UID: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "uid")), SeenUp: rapid.Bool().Draw(t, "seen up"), Created: epoch.Local(), Template: "t1"}
		}
	}
	pool := decision.Pool{Name: "n", Max: 3, Floor: rapid.IntRange(0, 2).Draw(t, "floor"), Template: "t1", ConfigAccepted: true, Blocked: map[string]string{}, Now: epoch}
	return NewState(pool, names, nodes, pods)
}

// What is read back is what was seen, whatever changed, however much of it was let go, and from whatever time on.
func TestReadsBackWhatWasSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recorder := &Recorder{Limit: rapid.SampledFrom([]int{0, 1, 3000}).Draw(t, "limit")}
		var seen []State
		for i := range rapid.IntRange(1, 20).Draw(t, "rounds") {
			state, now := drawn(t), epoch.Add(time.Duration(i)*time.Second)
			actions, _ := state.Decide(now)
			var done []Done
			for _, a := range actions {
				done = append(done, Done{Action: a})
			}
			recorder.Add(now, "cpu", state, done)
			seen = append(seen, state)
		}
		var log bytes.Buffer
		if err := recorder.WriteSince(&log, epoch.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "since"))*time.Second)); err != nil {
			t.Fatal(err)
		}
		var last State
		err := Read(&log, func(round Round, state State) error {
			want := seen[int(round.At.Sub(epoch).Seconds())]
			if !reflect.DeepEqual(plain(state), plain(want)) {
				t.Fatalf("at %s: %+v\nwant %+v", round.At, state, want)
			}
			last = state
			if difference := Difference(round, state); difference != "" {
				t.Fatal(difference)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(plain(last), plain(seen[len(seen)-1])) {
			t.Fatalf("it ends with %+v, want %+v", last, seen[len(seen)-1])
		}
	})
}

// plain is a state without the difference between none and an empty map.
func plain(s State) string {
	text, err := json.Marshal(struct {
		Pool  decision.Pool
		Names []string
		Nodes map[string]Node
		Pods  map[string]decision.Pod
	}{s.Pool, s.Names, s.Nodes, s.Pods})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// A pool in which nothing happens leaves one line, and a busy one no more than the limit and the state that it begins with.
func TestBounded(t *testing.T) {
	recorder := &Recorder{Limit: 4096}
	node := &slurmrest.Node{Name: "n-0", State: slurmrest.Idle | slurmrest.Cloud}
	state := func() State {
		return NewState(decision.Pool{Name: "n", Max: 1}, []string{"n-0"}, map[string]*slurmrest.Node{"n-0": node}, nil)
	}
	for i := range 100 {
		recorder.Add(epoch.Add(time.Duration(i)*time.Second), "cpu", state(), nil)
	}
	if len(recorder.lines) != 1 {
		t.Errorf("%d lines of a quiet pool", len(recorder.lines))
	}
	for i := range 1000 {
		node.AllocCPUs = i + 1
		recorder.Add(epoch.Add(time.Duration(100+i)*time.Second), "cpu", state(), nil)
	}
	var log bytes.Buffer
	if err := recorder.WriteSince(&log, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if recorder.size > 4096 || log.Len() > 5000 || log.Len() < 3000 {
		t.Errorf("%d bytes kept, %d written", recorder.size, log.Len())
	}
	if !strings.HasPrefix(log.String(), `{"at":`) || !strings.Contains(strings.SplitN(log.String(), "\n", 2)[0], `"snapshot":true`) {
		t.Errorf("it begins %.100s", log.String())
	}
	var none *Recorder
	none.Add(epoch, "cpu", state(), nil)
}

func TestServes(t *testing.T) {
	recorder := new(Recorder)
	recorder.Add(epoch, "cpu", NewState(decision.Pool{Name: "n", Max: 1}, []string{"n-0"}, nil, nil), nil)
	for _, c := range []struct {
		method, query string
		status        int
		says          string
	}{
		{"GET", "", 200, `"workerPool":"cpu"`},
		{"GET", "?since=2026-12-02T09:00:00Z", 200, `"snapshot":true`},
		{"GET", "?since=yesterday", 400, "write a time such as"},
		{"POST", "", 405, "GET gives"},
	} {
		answer := httptest.NewRecorder()
		recorder.ServeHTTP(answer, httptest.NewRequest(c.method, "/decisions"+c.query, http.NoBody))
		if answer.Code != c.status || !strings.Contains(answer.Body.String(), c.says) {
			t.Errorf("%s %s: %d %s", c.method, c.query, answer.Code, answer.Body)
		}
	}
}

// A log that is none, or is damaged, is one error that says where.
func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"hello":                         "line 1: not a round",
		`{"at":"2026-12-02T08:00:00Z"}`: "names no pool",
		`{"at":"2026-12-02T08:00:00Z","workerPool":"cpu"}`:                                    "begins in the middle",
		`{"at":"2026-12-02T08:00:00Z","workerPool":"cpu","nodes":{"n":{"state":"IDLE+ODD"}}}`: `"ODD" is not a word`,
		"\n" + `{"at":"2026-12-02T08:00:00Z","workerPool":"cpu","pool":{}` + "\n":             "line 2: ",
	} {
		err := Read(strings.NewReader(text), func(Round, State) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A decision that was taken otherwise is told.
func TestDifferenceIsTold(t *testing.T) {
	node := &slurmrest.Node{Name: "n-0", State: slurmrest.Mixed | slurmrest.Cloud | slurmrest.PoweringUp}
	state := NewState(decision.Pool{Name: "n", Max: 1, Template: "t"}, []string{"n-0"}, map[string]*slurmrest.Node{"n-0": node}, nil)
	if said := Difference(Round{At: epoch}, state); !strings.Contains(said, "recorded: nothing; this program: CreatePod n-0") {
		t.Error(said)
	}
	if said := Difference(Round{At: epoch, Snapshot: true}, state); said != "" {
		t.Error(said)
	}
}
