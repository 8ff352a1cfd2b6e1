package load_test

import (
	"testing"

	"github.com/berth-hpc/berth/renderer/load"
)

func TestLoadShippedSites(t *testing.T) {
	sites, err := load.Load("../../clusters")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sites {
		if s.Name == "lab" && s.Pools["gpu-rtx4070"].Model != "rtx4070" {
			t.Errorf("lab: model of gpu-rtx4070 is %q", s.Pools["gpu-rtx4070"].Model)
		}
	}
}
