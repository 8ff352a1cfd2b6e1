package slurm

import (
	"maps"
	"slices"
	"testing"
)

func TestParsePoweringUp(t *testing.T) {
	out := "w-0|alloc#\nw-1|mix~\nw-2|idle%\nw-3|alloc\nw-4|down#\nw-5|down*\nw-6|drain~\nw-0|alloc#\n"
	pending, err := parsePoweringUp(out)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(pending)), []string{"w-0", "w-1", "w-2", "w-6"}; !slices.Equal(got, want) {
		t.Errorf("powering up: %v, want %v", got, want)
	}
	if _, err := parsePoweringUp("slurm_load_node error\n"); err == nil {
		t.Error("words that are no node were taken for one")
	}
}
