package e2e

import (
	"fmt"
	"testing"
)

// The table as the tests read it: a port, a range by its ends, and "any".
func TestFlowTable(t *testing.T) {
	table := flowTable{Flows: []flow{
		{From: "login", To: "worker", Ports: []any{6818.0, "srun"}},
		{From: "worker", To: "worker", Ports: []any{"any"}},
	}}
	srun := portRange{60001, 60200}
	ports := []int{80, 6818, 60001, 60200}
	for _, want := range []struct {
		from, to string
		open     []int
	}{
		{"login", "worker", []int{6818, 60001, 60200}},
		{"worker", "worker", ports},
		{"worker", "login", nil},
	} {
		open, err := table.open(want.from, want.to, ports, srun)
		if err != nil || fmt.Sprint(open) != fmt.Sprint(want.open) {
			t.Errorf("%s to %s: %v %v, want %v", want.from, want.to, open, err, want.open)
		}
	}
	table.Flows[0].Ports = []any{"http"}
	if _, err := table.open("login", "worker", ports, srun); err == nil {
		t.Error("a port that is neither a number nor a known word was accepted")
	}
}
