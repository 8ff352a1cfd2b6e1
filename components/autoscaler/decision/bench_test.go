package decision_test

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sort"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/slurmrest"
	"github.com/berth-hpc/berth/components/slurmrest/v0042"
)

// thousand is an answer of slurmrestd with 1,000 nodes: a recorded one, its first node repeated.
func thousand(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("../../slurmrest/testdata/nodes-busy.json")
	if err != nil {
		t.Fatal(err)
	}
	var answer map[string]any
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatal(err)
	}
	first := answer["nodes"].([]any)[0].(map[string]any)
	nodes := make([]any, 1000)
	for i := range nodes {
		node := map[string]any{}
		for key, value := range first {
			node[key] = value
		}
		node["name"] = fmt.Sprintf("n-%d", i)
		nodes[i] = node
	}
	answer["nodes"] = nodes
	text, err = json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A figure of make bench: one decision for 1,000 nodes, from slurmrestd's bytes to the actions, beside one plain decode of
// the same bytes into the generated types. Nine rounds, the two one after the other in each; of nine ratios the second and
// the eighth enclose the median with 96 %, and the verdict is theirs.
func TestBenchDecision(t *testing.T) {
	if os.Getenv("BERTH_BENCH") != "1" {
		t.Skip("a figure of make bench: set BERTH_BENCH=1")
	}
	const goal = 1.2
	answer := thousand(t)
	pods := map[string]*decision.Pod{}
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("n-%d", i)
		pods[names[i]] = &decision.Pod{Name: names[i], UID: names[i], Template: "t1", SeenUp: true, Busy: true}
	}
	pool := decision.Pool{Floor: 2, Max: 1000, Template: "t1", TemplateProven: true, ConfigAccepted: true}
	var ratios, milliseconds []float64
	for range 9 {
		began := time.Now()
		var plain struct {
			Nodes v0042.Nodes `json:"nodes"`
		}
		if err := json.Unmarshal(answer, &plain); err != nil || len(plain.Nodes) != 1000 {
			t.Fatal(len(plain.Nodes), err)
		}
		decoded := time.Since(began)
		began = time.Now()
		list, err := slurmrest.DecodeNodes(200, answer)
		if err != nil {
			t.Fatal(err)
		}
		nodes := make(map[string]*slurmrest.Node, len(list.Nodes))
		for i := range list.Nodes {
			nodes[list.Nodes[i].Name] = &list.Nodes[i]
		}
		if actions, _ := decision.Decide(pool, names, nodes, pods); len(actions) != 0 {
			t.Fatal("a quiet pool needs", list)
		}
		took := time.Since(began)
		ratios = append(ratios, took.Seconds()/decoded.Seconds())
		milliseconds = append(milliseconds, took.Seconds()*1000)
	}
	sort.Float64s(ratios)
	sort.Float64s(milliseconds)
	verdict := "undecided"
	if ratios[7] <= goal {
		verdict = "ok"
	} else if ratios[1] > goal {
		verdict = "short"
	}
	fmt.Printf("decision-1000-nodes %.0f ms %.2f %g %s\n", milliseconds[4], ratios[4], goal, verdict)
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	verdict = "ok"
	if memory.Sys >= 100<<20 {
		verdict = "short"
	}
	fmt.Printf("decision-1000-nodes/memory %d MB - 100 %s\n", memory.Sys>>20, verdict)
}
