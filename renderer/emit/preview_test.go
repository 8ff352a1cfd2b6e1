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
