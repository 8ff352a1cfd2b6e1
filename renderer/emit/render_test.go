package emit

import (
	"reflect"
	"strings"
	"testing"

	"github.com/berth-hpc/berth/components/api"
	"github.com/berth-hpc/berth/components/chart"
	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/site"
)

func parts() compile.Parts {
	return compile.Parts{Chart: chart.Files, ChartDir: chart.Dir, CRDs: api.CRDs()}
}

func shipped(t *testing.T, name string) *site.Site {
	t.Helper()
	sites, err := load.Load("../../clusters", name)
	if err != nil {
		t.Fatal(err)
	}
	return sites[0]
}

// slurmObjects are what reaches the cluster of the slurm layer, without what only carries it there.
func slurmObjects(t *testing.T, s *site.Site) map[string]manifest.Object {
	t.Helper()
	rendered, err := Render(t.TempDir(), s, parts())
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]manifest.Object{}
	for _, layer := range rendered.Inflated {
		if layer.Name != "slurm" {
			continue
		}
		for _, o := range layer.Objects {
			if o.Kind() != "HelmRelease" && !strings.HasPrefix(o.Name(), "slurm-values-") {
				objects[o.ID()] = o
			}
		}
	}
	return objects
}

// The two ways of delivery bring the same objects into the cluster.
func TestBothDeliveriesAreTheSameCluster(t *testing.T) {
	s := shipped(t, "lab")
	s.Delivery.Mode = "helm"
	byHelm := slurmObjects(t, s)
	s.Delivery.Mode = "manifests"
	byManifests := slurmObjects(t, s)
	if len(byHelm) < 20 || len(byHelm) != len(byManifests) {
		t.Fatalf("%d objects by helm, %d by manifests", len(byHelm), len(byManifests))
	}
	for id, o := range byManifests {
		if !reflect.DeepEqual(o.Content(), byHelm[id].Content()) {
			t.Errorf("%s differs between the two", id)
		}
	}
}

// The committed overlays of the shipped sites are the golden trees: a change of what is rendered shows as their diff.
func TestShippedSitesAreRendered(t *testing.T) {
	sites, err := load.Load("../../clusters")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sites {
		rendered, err := Render("../..", s, parts())
		if err != nil {
			t.Fatal(err)
		}
		drifts, err := Check("../..", s.Name, rendered.Tree)
		if err != nil {
			t.Fatal(err)
		}
		for _, drift := range drifts {
			t.Errorf("%s: %s\n%s", drift.Path, drift.Why, drift.Unified)
		}
	}
}
