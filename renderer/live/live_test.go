package live_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-hpc/berth/components/api"
	"github.com/berth-hpc/berth/components/chart"
	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/diff"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/live"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/status"
)

// A cluster that has what is wanted, with what a cluster fills in, does not differ; one that has more, less or something else does.
func TestStateOfACluster(t *testing.T) {
	sites, err := load.Load("../../clusters", "laptop")
	if err != nil {
		t.Fatal(err)
	}
	s := sites[0]
	s.Delivery.Mode = "manifests"
	r, err := emit.Render(t.TempDir(), s, compile.Parts{Chart: chart.Files, ChartDir: chart.Dir, CRDs: api.CRDs()})
	if err != nil {
		t.Fatal(err)
	}
	want := diff.State{Name: "wanted", Site: s, Layers: r.Inflated}
	var objects []client.Object
	for _, layer := range r.Inflated {
		for _, o := range layer.Objects {
			content := o.With("filled in by the cluster", "metadata", "annotations", "example.org/uid").Content()
			if o.Name() == "slurm-rest" && o.Kind() == "Deployment" {
				content = o.With(int64(3), "spec", "replicas").Content()
			}
			if o.Name() == "slurm-autoscaler" && o.Kind() == "Deployment" {
				continue
			}
			objects = append(objects, &unstructured.Unstructured{Object: content})
		}
	}
	extra := r.Inflated[len(r.Inflated)-1].Objects
	for _, o := range extra {
		if o.Kind() == "WorkerPool" {
			old := o.With("old", "metadata", "name")
			objects = append(objects, &unstructured.Unstructured{Object: old.Content()})
		}
	}
	scheme, err := status.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	have, err := live.State(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), want)
	if err != nil {
		t.Fatal(err)
	}
	report, err := diff.Compare("laptop", have, want)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, c := range report.Objects {
		said = append(said, c.Action+" "+c.Object)
	}
	if got, want := strings.Join(said, "; "), "create Deployment slurm/slurm-autoscaler; change Deployment slurm/slurm-rest; delete WorkerPool slurm-workers/old"; got != want {
		t.Errorf("differs: %s\nwant: %s", got, want)
	}
}
