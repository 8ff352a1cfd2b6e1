package command

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/autoscaler/record"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// What an autoscaler serves is shown in words; a log that says otherwise than this program decides is an error.
func TestDecisionsAreShownAndDecidedAgain(t *testing.T) {
	at := time.Date(2026, 12, 2, 8, 0, 0, 0, time.UTC)
	recorder := new(record.Recorder)
	node := &slurmrest.Node{Name: "n-0", State: slurmrest.Mixed | slurmrest.Cloud | slurmrest.PoweringUp, AllocCPUs: 1}
	state := record.NewState(decision.Pool{Name: "n", Max: 1, Template: "t"}, []string{"n-0"}, map[string]*slurmrest.Node{"n-0": node}, nil)
	actions, _ := state.Decide(at)
	recorder.Add(at, "cpu", state, []record.Done{{Action: actions[0], Failed: "quota exceeded"}})
	server := httptest.NewServer(recorder)
	defer server.Close()

	var log, out bytes.Buffer
	if err := decisions(context.Background(), server.URL, &log); err != nil {
		t.Fatal(err)
	}
	recorded := log.String()
	if err := replay(strings.NewReader(recorded), &out); err != nil {
		t.Fatal(err)
	}
	want := "2026-12-02T08:00:00.000Z cpu CreatePod n-0: Slurm powers it up (Slurm: MIXED+CLOUD+POWERING_UP); not done: quota exceeded\n"
	if out.String() != want {
		t.Errorf("it says %q, want %q", out.String(), want)
	}

	out.Reset()
	err := replay(strings.NewReader(strings.Replace(recorded, "CreatePod", "DeletePod", 1)), &out)
	if err == nil || !strings.Contains(err.Error(), "1 of 1 rounds are decided otherwise") || !strings.Contains(out.String(), "this program: CreatePod n-0") {
		t.Errorf("%v; it says %q", err, out.String())
	}
	if err := replay(strings.NewReader(""), &out); err == nil || !strings.Contains(err.Error(), "the log is empty") {
		t.Errorf("of nothing: %v", err)
	}

	elsewhere := httptest.NewServer(http.NotFoundHandler())
	defer elsewhere.Close()
	if err := decisions(context.Background(), elsewhere.URL, &log); err == nil || !strings.Contains(err.Error(), "is it an autoscaler's address?") {
		t.Errorf("another server: %v", err)
	}
}
