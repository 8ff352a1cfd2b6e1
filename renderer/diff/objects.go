package diff

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
)

// Change is one object that comes, goes or changes.
type Change struct {
	Object string `json:"object"` // "Deployment slurm/slurm-rest"
	Layer  string `json:"layer"`
	Action string `json:"action"` // create, change or delete
	Diff   string `json:"diff"`   // unified, secrets masked
}

// changes compares object by object. What only repeats another change, such as the hash of Slurm's configuration in every
// pool, is left out.
func changes(before, after map[string]placed) ([]Change, error) {
	out := []Change{}
	for _, id := range slices.Sorted(maps.Keys(merged(before, after))) {
		from, was := before[id]
		to, is := after[id]
		c := Change{Object: id, Layer: to.layer, Action: "change"}
		var a, b []byte
		var err error
		if was {
			if a, err = masked(from.Object, to.Object, is); err != nil {
				return nil, err
			}
		}
		if is {
			if b, err = masked(to.Object, from.Object, was); err != nil {
				return nil, err
			}
		}
		switch {
		case !was:
			c.Action = "create"
		case !is:
			c.Action, c.Layer = "delete", from.layer
		case bytes.Equal(a, b):
			continue
		}
		if c.Diff, err = difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
			A: difflib.SplitLines(string(a)), B: difflib.SplitLines(string(b)), FromFile: "a/" + id, ToFile: "b/" + id, Context: 2,
		}); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// masked is an object's text without what nobody should read and what only repeats other changes. A secret's values are told
// apart from the other state's, and never shown.
func masked(o, other manifest.Object, both bool) ([]byte, error) {
	switch o.Kind() {
	case "Secret":
		for _, field := range []string{"data", "stringData"} {
			values, _ := o.Content()[field].(map[string]any)
			theirs := map[string]any{}
			if both {
				theirs, _ = other.Content()[field].(map[string]any)
			}
			if values == nil {
				continue
			}
			hidden := map[string]any{}
			for key, value := range values {
				hidden[key] = "(masked)"
				if was, there := theirs[key]; both && there && !reflect.DeepEqual(was, value) {
					hidden[key] = "(masked, changed)"
				}
			}
			o = o.With(hidden, field)
		}
		if sops, ok := o.Content()["sops"].(map[string]any); ok {
			o = o.With(map[string]any{"recipients": recipients(sops)}, "sops")
		}
	case "SlurmConfig":
		o = o.With("(of the files)", "metadata", "annotations", "berth-hpc.github.io/config-hash")
	case "WorkerPool":
		o = o.With("(of the SlurmConfig)", "spec", "configHash")
	}
	return o.YAML()
}

// recipients are whom a sealed secret is for.
func recipients(sops map[string]any) []any {
	var out []any
	keys, _ := sops["age"].([]any)
	for _, key := range keys {
		out = append(out, at(key, "recipient"))
	}
	return out
}

const valuesPrefix = "slurm-values-"

// isValues says whether the object carries our chart's values: its name changes with each, and what the chart makes of them is
// compared itself.
func isValues(o manifest.Object) bool {
	return o.Kind() == "ConfigMap" && strings.HasPrefix(o.Name(), valuesPrefix)
}

// withoutValuesName takes the changing name of the values out of our release.
func withoutValuesName(o manifest.Object) manifest.Object {
	sources, _ := at(o.Content(), "spec", "valuesFrom").([]any)
	if o.Kind() != "HelmRelease" || o.Name() != naming.ReleaseName || len(sources) == 0 {
		return o
	}
	renamed := make([]any, len(sources))
	for i, source := range sources {
		s, _ := source.(map[string]any)
		s = maps.Clone(s)
		if name := fmt.Sprint(s["name"]); strings.HasPrefix(name, valuesPrefix) {
			s["name"] = valuesPrefix + "(hash)"
		}
		renamed[i] = s
	}
	return o.With(renamed, "spec", "valuesFrom")
}
