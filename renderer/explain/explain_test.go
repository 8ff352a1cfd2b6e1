package explain_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-hpc/berth/components/api"
	"github.com/berth-hpc/berth/components/chart"
	schema "github.com/berth-hpc/berth/cue"
	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/explain"
	"github.com/berth-hpc/berth/renderer/load"
)

func explainer(t *testing.T, site string) (*load.Package, *explain.Explainer) {
	t.Helper()
	opened, err := load.Open("../../clusters", site)
	if err != nil {
		t.Fatal(err)
	}
	e, err := explain.New(opened, site, "../..", compile.Parts{Chart: chart.Files, ChartDir: chart.Dir, CRDs: api.CRDs()})
	if err != nil {
		t.Fatal(err)
	}
	return opened, e
}

// Every field of a site explains, and every place that it turns into traces back to it. A run looks at some fields of each site, by
// the seed in BERTH_FUZZ_SEED (1); with BERTH_EXPLAIN_ALL=1, as in make fuzz, at all of them.
func TestEveryFieldExplainsAndTracesBack(t *testing.T) {
	seed := uint64(1)
	if text := os.Getenv("BERTH_FUZZ_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("BERTH_FUZZ_SEED: %v", err)
		}
	}
	for site, some := range map[string]int{"lab": 60, "laptop": 12, "lab-box": 12, "campus": 12} {
		t.Run(site, func(t *testing.T) {
			opened, e := explainer(t, site)
			leaves := e.Leaves(nil)
			if len(leaves) < 80 {
				t.Fatalf("only %d fields", len(leaves))
			}
			all := len(leaves)
			if os.Getenv("BERTH_EXPLAIN_ALL") != "1" {
				rand.New(rand.NewPCG(seed, 0)).Shuffle(all, func(i, j int) { leaves[i], leaves[j] = leaves[j], leaves[i] })
				leaves = leaves[:some]
			}
			nothing, lines := 0, e.Lines(explain.Query{})
			for _, leaf := range leaves {
				full := append([]string{site}, leaf...)
				known, err := opened.Explain(full)
				if err != nil {
					t.Errorf("explain: %v", err)
					continue
				}
				if known.At == nil && known.Schema == "" {
					t.Errorf("%s: neither written nor the schema's", known.Path)
				}
				places := e.Touched(leaf)
				if len(places) == 0 {
					nothing++
					t.Logf("%s = %s turns into nothing", known.Path, known.Value)
				}
				for _, p := range places {
					if !slices.ContainsFunc(lines, func(line explain.Place) bool { return p.Holds(line) }) && p.Text != "{}" && p.Text != "[]" {
						t.Errorf("%s turns into %s, which no line of the site is", known.Path, p)
					}
				}
			}
			t.Logf("seed %d: looked at %d of %d fields; %d turn into nothing", seed, len(leaves), all, nothing)
		})
	}
}

// Tracing a place of a field finds the field.
func TestTraceIsExplainBackwards(t *testing.T) {
	_, e := explainer(t, "laptop")
	for _, path := range []string{"pools.cpu.memory", "login.replicas", "cluster.name", "slurm.priority.weights.age", "storage.home", "delivery.url"} {
		places, err := e.Places(load.Steps(path))
		if err != nil || len(places) == 0 {
			t.Errorf("%s: %d places (%v)", path, len(places), err)
			continue
		}
		for _, p := range places {
			kind, name, _ := strings.Cut(p.Object, " ")
			namespace, name, namespaced := strings.Cut(name, "/")
			if !namespaced {
				namespace, name = "", namespace
			}
			_, origins, err := e.Trace(explain.Query{Kind: strings.ToLower(kind), Namespace: namespace, Name: name, Field: p.Field})
			if err != nil {
				t.Errorf("%s: trace of %s: %v", path, p, err)
				continue
			}
			if !slices.ContainsFunc(origins, func(o explain.Origin) bool { return load.PathText(o.Path) == path }) {
				t.Errorf("%s turns into %s, whose origins are %+v", path, p, origins)
			}
		}
	}
}

// A field that other fields take their value from leads to what these turn into, and back.
func TestValuesThatFollow(t *testing.T) {
	_, e := explainer(t, "lab")
	for follower, source := range map[string]string{
		"network.apiServer": "network.lan", "users.student.gid": "users.student.uid", "slurm.killWait": "",
	} {
		sources, err := e.Sources(load.Steps(follower))
		var got []string
		for _, s := range sources {
			got = append(got, load.PathText(s))
		}
		if strings.Join(got, " ") != source || err != nil {
			t.Errorf("%s follows from %q (%v), want %q", follower, got, err, source)
		}
	}
	whole, err := e.Places([]string{"network", "lan"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range e.Touched([]string{"network", "apiServer"}) {
		if !slices.Contains(whole, p) {
			t.Errorf("network.lan does not lead to %s", p)
		}
	}
	// The box's fields follow from those of the site that it is the box of, at its lines.
	opened, box := explainer(t, "lab-box")
	if at, whole := opened.Of([]string{"lab-box", "pools", "cpu", "max"}); !whole || !strings.HasSuffix(at.File, "lab.cue") {
		t.Errorf("lab-box.pools.cpu.max is written at %s", at)
	}
	places, err := box.Places([]string{"pools", "cpu", "max"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range places {
		if strings.Contains(p.Text, "KillWait") {
			t.Errorf("pools.cpu.max leads to %s", p)
		}
	}
}

// S15: times are written in Slurm's forms or Go's, never as bare numbers that could be either's; Slurm gets its own, and explain shows
// both.
func TestS15TimesInBothForms(t *testing.T) {
	root := t.TempDir()
	if err := schema.Vendor(root); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../clusters/laptop.cue")
	if err != nil {
		t.Fatal(err)
	}
	write := func(limit string) {
		text := string(text) + "\nlaptop: pools: cpu: partition: maxTime: " + limit + "\n"
		if err := os.MkdirAll(filepath.Join(root, "clusters"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "clusters/laptop.cue"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for written, slurm := range map[string]string{
		`"7d"`: "MaxTime=7-00:00:00", `"24h"`: "MaxTime=1-00:00:00", `"90"`: "MaxTime=0-01:30:00", `"2-12"`: "MaxTime=2-12:00:00", `"UNLIMITED"`: "MaxTime=UNLIMITED",
	} {
		write(written)
		opened, err := load.Open(filepath.Join(root, "clusters"))
		if err != nil {
			t.Errorf("%s: %v", written, err)
			continue
		}
		known, err := opened.Explain(load.Steps("laptop.pools.cpu.partition.maxTime"))
		if err != nil || string(known.Value) != written {
			t.Errorf("%s is explained as %+v (%v)", written, known, err)
		}
		e, err := explain.New(opened, "laptop", root, compile.Parts{Chart: chart.Files, ChartDir: chart.Dir, CRDs: api.CRDs()})
		if err != nil {
			t.Fatal(err)
		}
		if places := e.Touched(load.Steps("pools.cpu.partition.maxTime")); !slices.ContainsFunc(places, func(p explain.Place) bool { return strings.Contains(p.Text, slurm) }) {
			t.Errorf("%s leads to %v, want %s", written, places, slurm)
		}
	}
	write("90")
	if _, err := load.Open(filepath.Join(root, "clusters")); err == nil || !strings.Contains(err.Error(), "not a time limit; write Slurm's form (90 for minutes,") {
		t.Errorf("the number 90 gives %v", err)
	}
}
