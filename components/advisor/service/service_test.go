package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/berth-hpc/berth/components/advisor/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
	"github.com/berth-hpc/berth/components/advisor/snapshot"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const topology = "rtx4070:1x1,rtx3080:2x1"

// newService makes one whose clock stands still at start until the test moves it.
func newService(t testing.TB, settings string) (*Service, *time.Time) {
	t.Helper()
	s := New("", slog.New(slog.DiscardHandler))
	now := start
	s.now = func() time.Time { return now }
	configure(t, s, settings)
	return s, &now
}

func configure(t testing.TB, s *Service, settings string) {
	t.Helper()
	if err := s.Configure([]byte(settings), nobody); err != nil {
		t.Fatal(err)
	}
}

func nobody(string) ([]byte, error) { return nil, errors.New("there is no such file") }

func settings(mode Mode) string {
	return fmt.Sprintf(`{"mode":%q,"topology":%q,"maxBoost":1000,"snapshotTtlSeconds":30}`, mode, topology)
}

// whole is a snapshot with pending jobs of so many minutes, and two nodes.
func whole(at time.Time, minutes ...int64) *snapshot.Delta {
	d := &snapshot.Delta{Schema: 1, Cluster: "lab", Version: uint64(at.UnixMilli()), TakenAt: at, Nodes: []snapshot.Node{
		{Name: "slurm-worker-a-0", State: []string{"IDLE"}, CPUs: 8, MemoryMiB: 32000, Gres: "gpu:rtx3080:1,mps:rtx3080:100"},
		{Name: "slurm-worker-b-0", State: []string{"MIXED"}, CPUs: 8, AllocCPUs: 2, MemoryMiB: 32000, Gres: "gpu:rtx4070:1,mps:rtx4070:100", GresUsed: "gpu:rtx4070:0(IDX:N/A),mps:rtx4070:25(25/100)"},
	}}
	for i, m := range minutes {
		d.Jobs = append(d.Jobs, snapshot.Job{ID: int64(i + 1), State: "PENDING", LimitMinutes: m, Submit: at.Unix() - 60, TRES: "cpu=1,mem=1G,node=1"})
	}
	return d
}

func give(t testing.TB, s *Service, d *snapshot.Delta) {
	t.Helper()
	if err := s.Snapshot(d); err != nil {
		t.Fatal(err)
	}
}

// Live adds what shadow only says; off says nothing.
func TestModes(t *testing.T) {
	for mode, want := range map[Mode]Answer{
		Off:    {Mode: Off, Abstain: ReasonOff},
		Shadow: {Mode: Shadow, Advice: 500, Value: 0.5},
		Live:   {Mode: Live, Advice: 500, Boost: 500, Value: 0.5},
	} {
		s, _ := newService(t, settings(mode))
		give(t, s, whole(start, 10, 20, 30, 40))
		got := s.Decide(&Job{LimitMinutes: 20, CPUs: 1}, start)
		want.Checkpoint = "builtin:saf"
		if got != want {
			t.Errorf("%s: %+v, want %+v", mode, got, want)
		}
	}
}

// Each guardrail abstains by its own reason, and is counted.
func TestGuardrails(t *testing.T) {
	checkpoint := func(text string) func(t *testing.T, s *Service) {
		return func(t *testing.T, s *Service) {
			data := []byte(text)
			text := strings.Replace(settings(Live), "{", fmt.Sprintf(`{"checkpoint":%q,`, policy.Digest(data)), 1)
			if err := s.Configure([]byte(text), func(string) ([]byte, error) { return data, nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		reason Reason
		change func(t *testing.T, s *Service)
		late   time.Duration // before the request
		took   time.Duration
	}{
		{reason: ReasonOff, change: func(t *testing.T, s *Service) { configure(t, s, settings(Off)) }},
		{reason: "", late: 30 * time.Second},
		{reason: ReasonStale, late: 31 * time.Second},
		{reason: ReasonValue, change: func(t *testing.T, s *Service) {
			configure(t, s, strings.Replace(settings(Live), "{", `{"valueAbstain":0.9,`, 1))
		}},
		{reason: ReasonValue, change: checkpoint(`{"schema":1,"kind":"fixed","parameters":{"score":1,"value":0.4},"value_quantiles":[0.5,0.6,0.7]}`)},
		{reason: "", change: checkpoint(`{"schema":1,"kind":"fixed","parameters":{"score":1,"value":0.5},"value_quantiles":[0.5,0.6,0.7]}`)},
		{reason: ReasonRange, change: checkpoint(`{"schema":1,"kind":"fixed","parameters":{"score":1},"range":{"limit_seconds":[0,60]}}`)},
		{reason: ReasonBudget, took: 11 * time.Millisecond},
		{reason: ReasonRate, change: func(t *testing.T, s *Service) {
			configure(t, s, strings.Replace(settings(Live), "{", `{"decisionsPerSecond":1,`, 1))
			s.Decide(&Job{}, start)
		}},
	} {
		s, now := newService(t, settings(Live))
		give(t, s, whole(start, 10, 20, 30, 40))
		if c.change != nil {
			c.change(t, s)
		}
		*now = now.Add(c.late)
		before := 0.0
		if c.reason != "" {
			before = testutil.ToFloat64(s.metrics.abstained[c.reason])
		}
		got := s.Decide(&Job{LimitMinutes: 20, CPUs: 1}, now.Add(-c.took))
		if got.Abstain != c.reason || (c.reason != "") != (got.Boost == 0 && got.Advice == 0) {
			t.Errorf("%s: %+v", c.reason, got)
		}
		if c.reason != "" && testutil.ToFloat64(s.metrics.abstained[c.reason]) != before+1 {
			t.Errorf("%s is not counted", c.reason)
		}
	}
	at := situation{settings: &Settings{}, loaded: policy.Builtin()}
	if got := at.after(policy.Advice{Score: math.NaN()}, 0); got != ReasonNotANumber {
		t.Errorf("NaN: %q", got)
	}
	at.loaded.Checkpoint.Topology, at.settings.SnapshotTTLSeconds = "a:1x1", 1
	if got := at.before(&workload.Request{}); got != ReasonTopology {
		t.Errorf("another topology: %q", got)
	}
}

// The order of the cards is part of a topology: a checkpoint of the reversed one is refused, and nodes that come in another order get no
// jobs, nor does a checkpoint of the topology say anything of them.
func TestReversedOrder(t *testing.T) {
	right := strings.Replace(settings(Live), "{", `{"nodeOrder":["slurm-worker-b-","slurm-worker-a-"],`, 1)
	wrong := strings.Replace(settings(Live), "{", `{"nodeOrder":["slurm-worker-a-","slurm-worker-b-"],`, 1)
	card := []Job{{ID: 1, TRESPerJob: "gres/gpu=1", Nodes: 1}}
	for _, c := range []struct {
		settings, checkpoint string
		act, decide          Reason
		refused              bool
	}{
		{settings: right}, {settings: wrong, act: ReasonTopology},
		{settings: right, checkpoint: topology}, {settings: wrong, checkpoint: topology, act: ReasonTopology, decide: ReasonTopology},
		{settings: right, checkpoint: "rtx3080:2x1,rtx4070:1x1", refused: true}, {settings: right, checkpoint: "rtx4070:1x1", refused: true},
	} {
		s, _ := newService(t, c.settings)
		if c.checkpoint != "" {
			data := []byte(fmt.Sprintf(`{"schema":1,"kind":"order","parameters":{"order":"sjf"},"topology":%q}`, c.checkpoint))
			text := strings.Replace(c.settings, "{", fmt.Sprintf(`{"checkpoint":%q,`, policy.Digest(data)), 1)
			if err := s.Configure([]byte(text), func(string) ([]byte, error) { return data, nil }); (err != nil) != c.refused {
				t.Errorf("checkpoint for %s: %v", c.checkpoint, err)
			}
		}
		give(t, s, whole(start, 10))
		if got := s.Act(card, nil, start); got.Abstain != c.act || c.act == "" && got.Node < 0 {
			t.Errorf("%+v: placed %+v", c, got)
		}
		if got := s.Decide(&Job{LimitMinutes: 1, CPUs: 1}, start); got.Abstain != c.decide {
			t.Errorf("%+v: decided %+v", c, got)
		}
		if h := s.Health(); (h.Refused != "") != c.refused {
			t.Errorf("%+v: %+v", c, h)
		}
	}
}

// A service without a snapshot abstains and is not ready.
func TestNoSnapshot(t *testing.T) {
	s, now := newService(t, settings(Live))
	if got := s.Decide(&Job{}, start); got.Abstain != ReasonStale || s.Ready() == "" {
		t.Errorf("%+v, ready: %q", got, s.Ready())
	}
	give(t, s, whole(start))
	if why := s.Ready(); why != "" {
		t.Error(why)
	}
	*now = now.Add(time.Minute)
	if why := s.Ready(); !strings.Contains(why, "60 s old") {
		t.Error(why)
	}
}

func scrape(s *Service) string {
	answer := httptest.NewRecorder()
	s.Metrics().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Body.String()
}

// A bad checkpoint is refused and the one before stays; a good one is taken by its digest.
func TestCheckpoints(t *testing.T) {
	good := []byte(`{"schema":1,"kind":"order","parameters":{"order":"sjf"},"topology":"` + topology + `"}`)
	files := map[string][]byte{policy.Digest(good): good}
	open := func(d string) ([]byte, error) {
		if data, has := files[d]; has {
			return data, nil
		}
		return nil, errors.New("there is no such file")
	}
	with := func(digest, topology string) []byte {
		return []byte(fmt.Sprintf(`{"mode":"shadow","topology":%q,"checkpoint":%q}`, topology, digest))
	}
	s, _ := newService(t, settings(Shadow))
	if err := s.Configure(with(policy.Digest(good), topology), open); err != nil || s.Health().Policy != "sjf" {
		t.Fatalf("%v %+v", err, s.Health())
	}
	broken := []byte(`{"schema":1,"kind":"order","parameters":{"order":"nonesuch"}}`)
	swapped := policy.Digest([]byte("what was evaluated"))
	files[policy.Digest(broken)], files[swapped] = broken, good
	for name, c := range map[string]struct{ digest, topology, says string }{
		"missing":          {"sha256:" + strings.Repeat("0", 64), topology, "no such file"},
		"unreadable":       {policy.Digest(broken), topology, "nonesuch"},
		"not that file":    {swapped, topology, "the file's digest is " + policy.Digest(good)},
		"another topology": {policy.Digest(good), "rtx3080:2x1,rtx4070:1x1", "was made for the topology " + topology},
	} {
		if err := s.Configure(with(c.digest, c.topology), open); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if h := s.Health(); h.Policy != "sjf" || h.Checkpoint != policy.Digest(good) || h.Refused == "" || s.Ready() == "" {
			t.Errorf("%s: %+v", name, h)
		}
	}
	refusing := func(want string) {
		t.Helper()
		if text := scrape(s); !strings.Contains(text, "\nadvisor_refusing "+want+"\n") {
			t.Errorf("the metrics do not say advisor_refusing %s", want)
		}
	}
	refusing("1")
	configure(t, s, settings(Shadow))
	refusing("0")
	if err := s.Configure([]byte(`{"mode":"loud"}`), open); err == nil || s.Health().Mode != Shadow {
		t.Errorf("bad settings: %v", err)
	}
	refusing("1")
	configure(t, s, settings(Shadow))
	refusing("0")
	if h := s.Health(); h.Refused != "" || h.Checkpoint != "builtin:saf" {
		t.Errorf("%+v", h)
	}
}

// When the tail of the waits crosses the site's line, live demotes itself, stays so across restarts and snapshots, and comes
// back only with other settings.
func TestDemotion(t *testing.T) {
	dir := t.TempDir()
	live := strings.Replace(settings(Live), "{", `{"watch":{"qos":["latency"],"p95WaitSeconds":60,"minJobs":20},`, 1)
	s, now := newService(t, live)
	s.state = dir
	d := whole(start, 10)
	for i := range 40 {
		wait := int64(10)
		if i >= 30 {
			wait = 600 // of another class, does not count
		}
		d.Jobs = append(d.Jobs, snapshot.Job{ID: int64(100 + i), State: "RUNNING", QOS: map[bool]string{true: "latency", false: "normal"}[i < 30], Submit: start.Unix() - wait, Start: start.Unix()})
	}
	give(t, s, d)
	if h := s.Health(); h.Mode != Live {
		t.Fatalf("demoted too early: %s", h.Demoted)
	}
	late := &snapshot.Delta{Schema: 1, Cluster: "lab", Base: d.Version, Version: d.Version + 1, TakenAt: start}
	for i := range 5 {
		late.Jobs = append(late.Jobs, snapshot.Job{ID: int64(200 + i), State: "COMPLETED", QOS: "latency", Submit: start.Unix() - 300, Start: start.Unix()})
	}
	give(t, s, late)
	if h := s.Health(); h.Mode != Shadow || !strings.Contains(h.Demoted, "is 300 s, above 60 s") || h.WantedMode != Live {
		t.Fatalf("not demoted: %+v", h)
	}
	if got := s.Decide(&Job{LimitMinutes: 1, CPUs: 1}, start); got.Mode != Shadow || got.Boost != 0 || got.Advice == 0 {
		t.Errorf("%+v", got)
	}
	*now = now.Add(2 * time.Hour) // the late ones are out of the window
	give(t, s, whole(*now, 10))
	if s.Health().Mode != Shadow {
		t.Error("it promoted itself")
	}
	again := New(dir, slog.New(slog.DiscardHandler))
	configure(t, again, live)
	if h := again.Health(); h.Mode != Shadow || h.Demoted == "" {
		t.Errorf("a restart promoted it: %+v", h)
	}
	configure(t, again, strings.Replace(live, "1000", "900", 1))
	if h := again.Health(); h.Mode != Live {
		t.Errorf("new settings do not bring live back: %+v", h)
	}
}

// /act names a job, a node in the site's order, and a card.
func TestAct(t *testing.T) {
	s, _ := newService(t, strings.Replace(settings(Shadow), "{", `{"nodeOrder":["slurm-worker-b-","slurm-worker-a-"],`, 1))
	give(t, s, whole(start, 10))
	jobs := []Job{{ID: 7, LimitMinutes: 60, TRESPerNode: "gres/mps:50"}, {ID: 8, LimitMinutes: 5, TRESPerNode: "gres:gpu:rtx3080:1"}}
	got := s.Act(jobs, nil, start)
	if got.Job != 0 && got.Job != 1 {
		t.Fatalf("%+v", got)
	}
	got = s.Act(jobs[:1], nil, start) // half a card: the one that is already a quarter full, which is the first node
	if got.JobID != 7 || got.Node != 0 || got.NodeName != "slurm-worker-b-0" || got.Card != 0 {
		t.Errorf("%+v", got)
	}
	if testutil.ToFloat64(s.metrics.requests.WithLabelValues("400")) != 0 || s.lastNode.Load() != 0 || s.lastCard.Load() != 0 {
		t.Error("the last placement is not told")
	}
	got = s.Act(jobs[1:], nil, start)
	if got.NodeName != "slurm-worker-a-0" {
		t.Errorf("%+v", got)
	}
	if got = s.Act([]Job{{ID: 9, TRESPerNode: "gres/gpu:4"}}, nil, start); got.Job != -1 || got.Node != -1 || got.Card != -1 {
		t.Errorf("a job that fits nowhere: %+v", got)
	}
}

// /act chooses among the nodes that it is given, and offers no more cards than the site's topology has; a node's index stays the site's.
func TestActAmongNodes(t *testing.T) {
	s, _ := newService(t, strings.Replace(settings(Shadow), "{", `{"nodeOrder":["slurm-worker-b-","slurm-worker-a-"],`, 1))
	d := whole(start, 10)
	for i := range 3 {
		d.Nodes = append(d.Nodes, snapshot.Node{Name: fmt.Sprintf("slurm-worker-a-%d", i+1), State: []string{"IDLE"}, CPUs: 8, MemoryMiB: 32000, Gres: "gpu:rtx3080:1"})
	}
	d.Nodes = append(d.Nodes, snapshot.Node{Name: "slurm-worker-cpu-0", State: []string{"IDLE"}, CPUs: 64, MemoryMiB: 32000})
	give(t, s, d)
	card := []Job{{ID: 7, LimitMinutes: 60, TRESPerJob: "gres/gpu=1", Nodes: 1}}
	for _, c := range []struct {
		among []string
		jobs  []Job
		want  string
	}{
		{nil, card, "1 slurm-worker-a-0"},
		{[]string{"slurm-worker-a-1"}, card, "2 slurm-worker-a-1"},
		{[]string{"slurm-worker-a-2", "slurm-worker-a-3"}, card, "-1 "}, // the topology has three cards
		{[]string{"nonesuch"}, card, "-1 "},
		{[]string{"slurm-worker-a-0", "slurm-worker-cpu-0"}, []Job{{ID: 7, CPUs: 32}}, "5 slurm-worker-cpu-0"},
	} {
		if got := s.Act(c.jobs, c.among, start); fmt.Sprint(got.Node, " ", got.NodeName) != c.want {
			t.Errorf("%v: %+v, want %s", c.among, got, c.want)
		}
	}
	status, text := call(t, s.Handler(""), "POST", "/act", "", `{"jobs":[{"id":3,"tres_per_job":"gres/gpu=1"}],"nodes":["slurm-worker-a-1"]}`)
	if status != 200 || !strings.Contains(text, `"node":"slurm-worker-a-1"`) {
		t.Error(status, text)
	}
}

// Placement has a switch of its own, and terms that are whole.
func TestPlacingSettings(t *testing.T) {
	s, _ := newService(t, settings(Live))
	if mode, _ := s.Placing(); mode != Off {
		t.Errorf("placement is %s where nothing says so", mode)
	}
	configure(t, s, strings.Replace(settings(Live), "{", `{"placement":{"mode":"live","jobNamePrefix":"placed-","qos":["q"],"startSeconds":60},`, 1))
	if mode, terms := s.Placing(); mode != Live || terms.JobNamePrefix != "placed-" || terms.QOS[0] != "q" || terms.GiveUpSeconds != 900 || terms.StartSeconds != 60 {
		t.Errorf("%s %+v", mode, terms)
	}
	for text, want := range map[string]string{
		`{"mode":"auto","jobNamePrefix":"x"}`: `mode "auto" is not`, `{"mode":"shadow"}`: "no jobs are chosen", `{"mode":"live","jobNamePrefix":"x","giveUpSeconds":-1}`: "must be above 0",
	} {
		if err := s.Configure([]byte(`{"mode":"live","placement":`+text+`}`), nobody); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestActions(t *testing.T) {
	for text, want := range map[string]int{"": 0, topology: 3, "a100:4x8": 32, "x": 0, "a:-1x2": 0, "a:999999999x999999999": 0} {
		if got := Actions(text); got != want {
			t.Errorf("%q has %d, want %d", text, got, want)
		}
	}
}

// A job's words of sbatch mean what Slurm means by them.
func TestRequests(t *testing.T) {
	for _, c := range []struct {
		job  Job
		gpus int32
		part int32
		cpus int64
	}{
		{Job{TRESPerNode: "gres/mps:25", CPUs: 2}, 1, 250, 2},
		{Job{TRESPerNode: "gres/gpu:rtx4070:2", Nodes: 3}, 6, 1000, 1},
		{Job{TRESPerTask: "gres/gpu=1", Tasks: 4, CPUsPerTask: 3}, 4, 1000, 12},
		{Job{TRESPerJob: "gpu", CPUs: 1}, 1, 1000, 1},
		{Job{TRESPerNode: "gres/shard:2,license/x:1"}, 0, 0, 1},
		{Job{Tasks: math.MaxInt64, CPUsPerTask: math.MaxInt64, Nodes: math.MaxInt64, MemoryMiB: math.MaxInt64, TRESPerNode: "gpu:2147483647"}, most, 1000, 0},
	} {
		r := c.job.request(start.UnixMicro())
		if r.GPUs != c.gpus || r.GPUMilli != c.part || (c.cpus != 0 && r.CPUMilli != c.cpus*1000) || r.MemMiB < 0 || r.CPUMilli <= 0 {
			t.Errorf("%+v: %+v", c.job, r)
		}
	}
}

func call(t testing.TB, h http.Handler, method, path, token, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	text, _ := io.ReadAll(w.Result().Body)
	return w.Code, string(text)
}

func TestHTTP(t *testing.T) {
	s, _ := newService(t, strings.Replace(settings(Live), "{", `{"nodeOrder":["slurm-worker-b-","slurm-worker-a-"],`, 1))
	h := s.Handler("s3cret")
	text, _ := json.Marshal(whole(start, 10, 20))
	follow := `{"schema":1,"cluster":"lab","base":5,"version":6,"taken_at":"2026-03-01T12:00:00Z"}`
	for _, c := range []struct {
		method, path, token, body string
		status                    int
		says                      string
	}{
		{"POST", "/decide", "", "{}", 401, "token"},
		{"POST", "/decide", "wrong", "{}", 401, "token"},
		{"POST", "/snapshot", "s3cret", follow, 409, "send the whole"},
		{"POST", "/snapshot", "s3cret", string(text), 200, `"version":`},
		{"POST", "/snapshot", "s3cret", `{"schema":9}`, 400, "schema is 9"},
		{"POST", "/decide", "s3cret", `{"limit_minutes":5,"cpus":1}`, 200, `{"boost":1000,"advice":1000,"value":1.000000,"mode":"live","checkpoint":"builtin:saf"}`},
		{"POST", "/decide", "s3cret", `[]`, 400, "not a job"},
		{"POST", "/decide", "s3cret", `{"name":"` + strings.Repeat("x", maxDecide) + `"}`, 413, "longer than"},
		{"POST", "/act", "s3cret", `{"jobs":[{"id":3,"limit_minutes":5}]}`, 200, `"job_id":3`},
		{"POST", "/act", "s3cret", `{"jobs":[` + strings.Repeat(`{},`, maxActJobs) + `{}]}`, 400, "more than"},
		{"GET", "/healthz", "", "", 200, `"n_actions":3`},
		{"GET", "/readyz", "", "", 200, "ready"},
		{"GET", "/metrics", "", "", 200, "rl_scheduler_shadow_mode 0"},
		{"GET", "/metrics", "", "", 200, "rl_scheduler_last_node_index 0"},
		{"GET", "/metrics", "", "", 200, "rl_scheduler_last_gpu_index -1"},
		{"GET", "/decide", "s3cret", "", 405, ""},
		{"GET", "/elsewhere", "", "", 404, ""},
	} {
		if status, text := call(t, h, c.method, c.path, c.token, c.body); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %s %.60s: %d %.300s", c.method, c.path, c.body, status, text)
		}
	}
	if status, _ := call(t, s.Handler(""), "POST", "/decide", "", "{}"); status != 200 {
		t.Error("the socket's handler wants a token")
	}
	if a, b := Token([]byte("one")), Token([]byte("two")); a == b || len(a) != 64 {
		t.Error("the token does not depend on the secret")
	}
}

// The description has every path that is served, and every field of what is read and written.
func TestOpenAPI(t *testing.T) {
	var doc struct {
		Paths      map[string]map[string]json.RawMessage `json:"paths"`
		Components struct {
			Schemas map[string]struct {
				Properties map[string]json.RawMessage `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	s, _ := newService(t, settings(Shadow))
	status, text := call(t, s.Handler(""), "GET", "/openapi.json", "", "")
	if err := json.Unmarshal([]byte(text), &doc); err != nil || status != 200 {
		t.Fatal(status, err)
	}
	for path, methods := range doc.Paths {
		for method := range methods {
			if status, _ := call(t, s.Handler(""), strings.ToUpper(method), path, "", "{}"); status == 404 || status == 405 {
				t.Errorf("%s %s is described and not served", method, path)
			}
		}
	}
	if len(doc.Paths) != 7 {
		t.Errorf("%d paths are described", len(doc.Paths))
	}
	for name, v := range map[string]any{
		"Job": Job{}, "Placement": Placement{}, "Health": Health{}, "Node": snapshot.Node{}, "SnapshotJob": snapshot.Job{}, "Delta": snapshot.Delta{},
	} {
		fields := map[string]bool{}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields[tag] = true
			if doc.Components.Schemas[name].Properties[tag] == nil {
				t.Errorf("%s.%s is not described", name, tag)
			}
		}
		for described := range doc.Components.Schemas[name].Properties {
			if !fields[described] {
				t.Errorf("%s.%s is described and does not exist", name, described)
			}
		}
	}
	var answer map[string]any
	if err := json.Unmarshal(Answer{Abstain: ReasonRate}.append(nil), &answer); err != nil {
		t.Fatal(err)
	}
	for field := range answer {
		if doc.Components.Schemas["Answer"].Properties[field] == nil {
			t.Errorf("Answer.%s is not described", field)
		}
	}
	for _, reason := range Reasons {
		if !bytes.Contains(openAPI, []byte(`"`+reason+`"`)) {
			t.Errorf("reason %s is not described", reason)
		}
	}
}

// The share of abstentions is of the last ten minutes.
func TestAbstentionShare(t *testing.T) {
	var s shares
	now := start
	for range 3 {
		s.add(now, true)
	}
	s.add(now, false)
	if share, of := s.abstained(now); share != 0.75 || of != 4 {
		t.Errorf("%g of %d", share, of)
	}
	if share, of := s.abstained(now.Add(11 * time.Minute)); share != 0 || of != 0 {
		t.Errorf("%g of %d after eleven minutes", share, of)
	}
}

func fuzzHTTP(f *testing.F, path string, seeds ...string) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	s := New("", slog.New(slog.DiscardHandler))
	if err := s.Configure([]byte(settings(Live)), nobody); err != nil {
		f.Fatal(err)
	}
	d := whole(time.Now(), 10, 20)
	if err := s.Snapshot(d); err != nil {
		f.Fatal(err)
	}
	h := s.Handler("")
	f.Fuzz(func(t *testing.T, body []byte) {
		status, text := call(t, h, "POST", path, "", string(body))
		if status != 200 && status != 400 && status != 409 && status != 413 {
			t.Fatalf("%d %s", status, text)
		}
		if !json.Valid([]byte(text)) {
			t.Fatalf("the answer is no JSON: %q", text)
		}
		if path == "/decide" && status == 200 {
			var a struct{ Boost, Advice int }
			if err := json.Unmarshal([]byte(text), &a); err != nil || a.Boost < 0 || a.Boost > 1000 || a.Advice > 1000 {
				t.Fatalf("out of bounds: %s", text)
			}
		}
	})
}

func FuzzDecideRequest(f *testing.F) {
	fuzzHTTP(f, "/decide", `{}`, `{"limit_minutes":5,"cpus":1,"tres_per_node":"gres/mps:25"}`, `{"cpus":-1,"tasks":9223372036854775807}`, `[`)
}

func FuzzActRequest(f *testing.F) {
	fuzzHTTP(f, "/act", `{"jobs":[]}`, `{"jobs":[{"id":1,"tres_per_node":"gres/gpu:1"}]}`, `{"jobs":[null]}`, `{"jobs":{}}`)
}

func FuzzSnapshotRequest(f *testing.F) {
	text, _ := json.Marshal(whole(start, 10))
	fuzzHTTP(f, "/snapshot", string(text), `{"schema":1,"cluster":"lab","base":5,"version":6,"taken_at":"2026-03-01T12:00:00Z"}`,
		`{"schema":1,"version":2,"taken_at":"2026-03-01T12:00:00Z","jobs":[{"id":1,"state":"PENDING","tres":"gres/mps=1e99,mem=1e400T"}]}`)
}
