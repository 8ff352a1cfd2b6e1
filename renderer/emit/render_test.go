package emit

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/runtime"

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

// The two ways of delivery bring the same objects into the cluster: byte for byte the same contents, for what Helm itself adds is
// in neither.
func TestBothDeliveriesAreTheSameCluster(t *testing.T) {
	for _, name := range []string{"campus", "lab", "lab-box", "laptop"} {
		s := shipped(t, name)
		s.Delivery.Mode = "helm"
		byHelm := slurmObjects(t, s)
		s.Delivery.Mode = "manifests"
		byManifests := slurmObjects(t, s)
		if len(byHelm) < 20 || len(byHelm) != len(byManifests) {
			t.Errorf("%s: %d objects by helm, %d by manifests", name, len(byHelm), len(byManifests))
		}
		for id, o := range byManifests {
			if other, there := byHelm[id]; !there || !reflect.DeepEqual(o.Content(), other.Content()) {
				t.Errorf("%s: %s differs between the two", name, id)
			}
		}
	}
}

// What helm-controller is told: to look for drift, to try a failed install again, to roll a failed upgrade of another
// project's chart back and then stay visibly failed, to look again at one of the platform, which may wait for jobs, for how long, and where the values lie: whole, in a ConfigMap of the same namespace whose name follows its content.
func TestReleasesAsHelmControllerWantsThem(t *testing.T) {
	for _, name := range []string{"campus", "lab", "laptop"} {
		s := shipped(t, name)
		s.Delivery.Mode = "helm"
		rendered, err := Render(t.TempDir(), s, parts())
		if err != nil {
			t.Fatal(err)
		}
		maps, releases := map[string]bool{}, 0
		for _, layer := range rendered.Inflated {
			for _, o := range layer.Objects {
				if o.Kind() == "ConfigMap" {
					maps[o.Namespace()+"/"+o.Name()] = true
				}
			}
			for _, o := range layer.Objects {
				if o.Kind() != helmv2.HelmReleaseKind {
					continue
				}
				var r helmv2.HelmRelease
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Content(), &r); err != nil {
					t.Fatalf("%s: %s: %v", name, o.ID(), err)
				}
				releases++
				install, upgrade := r.GetInstall().GetRemediation(), r.GetUpgrade().GetRemediation()
				platform := r.Spec.Chart != nil && r.Spec.Chart.Spec.SourceRef.Kind == sourcev1.GitRepositoryKind
				switch {
				case platform && (r.GetInstall().GetRetry(false) == nil || r.GetUpgrade().GetRetry(false) == nil || r.GetUpgrade().CleanupOnFail):
					t.Errorf("%s: %s takes a change back that waits for jobs", name, o.ID())
				case r.Namespace != s.Namespaces.Flux:
					t.Errorf("%s: %s is not where Flux's objects lie", name, o.ID())
				case r.GetDriftDetection().Mode != helmv2.DriftDetectionEnabled:
					t.Errorf("%s: %s does not look for drift", name, o.ID())
				case !platform && install.GetRetries() <= 0:
					t.Errorf("%s: %s does not try a failed install again", name, o.ID())
				case !platform && (upgrade.GetRetries() <= 0 || !upgrade.MustRemediateLastFailure() || upgrade.GetStrategy() != helmv2.RollbackRemediationStrategy):
					t.Errorf("%s: %s leaves a failed upgrade, or tries it for ever", name, o.ID())
				case r.GetTimeout().Duration.String() != duration(t, s.Delivery.Timeout) || r.Spec.Interval.Duration.String() != duration(t, s.Delivery.Interval):
					t.Errorf("%s: %s has other times than the site", name, o.ID())
				case len(r.GetReleaseName()) > 53 || r.GetReleaseNamespace() != r.GetStorageNamespace():
					t.Errorf("%s: %s is called and kept otherwise than Helm does", name, o.ID())
				case r.HasChartRef() || !r.HasChartTemplate():
					t.Errorf("%s: %s names no chart", name, o.ID())
				}
				for _, from := range r.Spec.ValuesFrom {
					// targetPath cuts text at its first comma.
					if from.TargetPath != "" || from.Optional || !maps[r.Namespace+"/"+from.Name] || !hashed.MatchString(from.Name) {
						t.Errorf("%s: %s takes values from %+v", name, o.ID(), from)
					}
				}
			}
		}
		if releases == 0 {
			t.Errorf("%s: no release was looked at", name)
		}
	}
}

var hashed = regexp.MustCompile(`-[0-9a-f]{10}$`)

func duration(t *testing.T, text string) string {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
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
