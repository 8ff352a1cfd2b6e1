package emit

import (
	"reflect"
	"testing"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/inflate"
)

// A preview shows what render writes and the cluster gets, though it takes shorter ways there.
func TestPreviewIsWhatIsRendered(t *testing.T) {
	for _, name := range []string{"campus", "lab", "lab-box", "laptop"} {
		for _, mode := range []string{"helm", "manifests"} {
			s := shipped(t, name)
			s.Delivery.Mode = mode
			rendered, err := Render("../..", s, parts())
			if err != nil {
				t.Fatal(err)
			}
			preview, err := NewPreview("../..", name, parts())
			if err != nil {
				t.Fatal(err)
			}
			// The second time from what the first one left.
			for range 2 {
				layers, entry, err := preview.Layers(s)
				if err != nil {
					t.Fatal(err)
				}
				want, got := byLayer(rendered.Inflated), byLayer(layers)
				if len(want) < 40 || len(want) != len(got) || len(entry) != len(rendered.Compiled.Entry) {
					t.Errorf("%s by %s: %d objects and %d entry points, want %d and %d", name, mode, len(got), len(entry), len(want), len(rendered.Compiled.Entry))
				}
				for id, o := range want {
					if other, there := got[id]; !there || !reflect.DeepEqual(o.Content(), other.Content()) {
						t.Errorf("%s by %s: %s is otherwise in the preview", name, mode, id)
					}
				}
			}
		}
	}
}

func byLayer(layers []inflate.Layer) map[string]manifest.Object {
	objects := map[string]manifest.Object{}
	for _, layer := range layers {
		for _, o := range layer.Objects {
			objects[layer.Name+" "+o.ID()] = o
		}
	}
	return objects
}

// S19: what leaves the site, or is taken out by a null in a patch, is not there afterwards: no null is left for an applier to read in its
// own way, and a field that was set for a while leaves no trace.
func TestS19RemovedIsAbsent(t *testing.T) {
	s := shipped(t, "lab")
	s.Delivery.Mode = "manifests"
	before, err := Render(t.TempDir(), s, parts())
	if err != nil {
		t.Fatal(err)
	}
	pool := s.Pools["cpu"]
	pool.Env = map[string]string{"NCCL_DEBUG": "INFO"}
	s.Pools["cpu"] = pool
	set, err := Render(t.TempDir(), s, parts())
	if err != nil || reflect.DeepEqual(set.Tree, before.Tree) {
		t.Fatalf("the variable changes nothing (%v)", err)
	}
	pool.Env = nil
	s.Pools["cpu"] = pool
	if unset, err := Render(t.TempDir(), s, parts()); err != nil || !reflect.DeepEqual(unset.Tree, before.Tree) {
		t.Errorf("a variable that was set for a while is still there (%v)", err)
	}

	root := t.TempDir()
	put(t, root, "overlays/lab/patches/slurm/rest.yaml", []byte(`apiVersion: apps/v1
kind: Deployment
metadata: {name: slurm-rest, namespace: slurm}
spec: {template: {spec: {priorityClassName: null}}}
`))
	patched, err := Render(root, s, parts())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Rendered{before, patched} {
		for _, layer := range r.Inflated {
			for _, o := range layer.Objects {
				if o.ID() != "Deployment slurm/slurm-rest" {
					continue
				}
				value, there := o.Content()["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["priorityClassName"]
				if there != (r == before) {
					t.Errorf("priorityClassName is %v, there: %v", value, there)
				}
			}
		}
	}
}
