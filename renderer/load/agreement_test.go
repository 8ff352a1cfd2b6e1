package load_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	cueload "cuelang.org/go/cue/load"

	schema "github.com/berth-hpc/berth/cue"
	"github.com/berth-hpc/berth/renderer/compile/slurmconf"
	"github.com/berth-hpc/berth/renderer/load"
)

// The schema compares times and the renderer writes them: both must read the same text as the same number of seconds, and what
// the schema accepts the renderer must too.
func TestSchemaAndRendererReadTimesAlike(t *testing.T) {
	times := map[string]struct {
		seconds float64
		limit   bool // accepted as a job's time limit
		span    bool // accepted as a span of time
	}{
		"90s":             {seconds: 90, limit: true, span: true},
		"1h30m":           {seconds: 5400, limit: true, span: true},
		"1.5h":            {seconds: 5400, limit: true, span: true},
		"7d":              {seconds: 604800, limit: true, span: true},
		"1d12h":           {seconds: 129600, limit: true, span: true},
		"2w":              {seconds: 1209600, limit: true, span: true},
		"5:00":            {seconds: 300, limit: true, span: true},
		"100:30":          {seconds: 6030, limit: true, span: true},
		"1:00:00":         {seconds: 3600, limit: true, span: true},
		"48:00:00":        {seconds: 172800, limit: true, span: true},
		"2-12":            {seconds: 216000, limit: true, span: true},
		"2-12:30":         {seconds: 217800, limit: true, span: true},
		"7-00:00:00":      {seconds: 604800, limit: true, span: true},
		"0-08:09:09":      {seconds: 29349, limit: true, span: true},
		"90":              {seconds: 5400, limit: true},
		"UNLIMITED":       {seconds: 1e12, limit: true},
		"INFINITE":        {seconds: 1e12, limit: true},
		"":                {},
		"1 day":           {},
		"30m1h":           {},
		"1:75:00":         {},
		"-5":              {},
		"99999d":          {},
		"1-24:00:00":      {},
		"10 minutes":      {},
		"1:00:00:00":      {},
		"9999999999h":     {},
		"7-00:00:00:00":   {},
		"2026-10-01":      {},
		"one":             {},
		"unlimited":       {},
		"0x10":            {},
		"1e3":             {},
		"00000000000000m": {},
	}

	var text strings.Builder
	text.WriteString("probe: {\n")
	for one := range times {
		fmt.Fprintf(&text, "%q: {limit: (%[1]q & #JobTime) != _|_, span: (%[1]q & #Span) != _|_, if limit {seconds: (_seconds & {in: %[1]q}).out}}\n", one)
	}
	text.WriteString("}\n")
	value := probe(t, text.String())

	for text, want := range times {
		at := value.LookupPath(cue.MakePath(cue.Str(text)))
		var got struct {
			Limit, Span bool
			Seconds     float64
		}
		if err := at.Decode(&got); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got.Limit != want.limit || got.Span != want.span || got.Seconds != want.seconds {
			t.Errorf("%q: the schema reads %+v, want %+v", text, got, want)
		}
		parsed, err := slurmconf.ParseTime(text)
		if want.limit && err != nil {
			t.Errorf("%q: the schema accepts it, the renderer says %v", text, err)
		}
		if want.limit && !parsed.IsUnlimited() && parsed.Duration().Seconds() != want.seconds {
			t.Errorf("%q: the renderer reads %v, the schema %v s", text, parsed, want.seconds)
		}
	}
}

// Keys that Berth writes into slurm.conf cannot be set again by extraLines: slurmctld would take the last and only log it.
func TestExtraLinesCannotRepeatWhatBerthWrites(t *testing.T) {
	var refused []string
	if err := probe(t, "probe: _generated\n").Decode(&refused); err != nil {
		t.Fatal(err)
	}
	sites, err := load.Load("../../clusters")
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string)
	for _, s := range sites {
		files, err := slurmconf.Files(s)
		if err != nil {
			t.Fatal(err)
		}
		texts[s.Name] = files["slurm.conf"]
	}
	profiles, err := filepath.Glob("../../components/chart/slurm-platform/files/profiles/*.conf")
	if err != nil || len(profiles) == 0 {
		t.Fatal("no profiles", err)
	}
	for _, path := range profiles {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(path)] = string(text)
	}
	for from, text := range texts {
		for line := range strings.Lines(text) {
			key, _, found := strings.Cut(strings.TrimSpace(line), "=")
			if found && !strings.HasPrefix(key, "#") && !slices.Contains(refused, strings.ToLower(key)) {
				t.Errorf("%s: Berth writes %s, and extraLines may write it again", from, key)
			}
		}
	}
}

// probe evaluates a field named probe as if it stood in the schema.
func probe(t *testing.T, text string) cue.Value {
	t.Helper()
	root := t.TempDir()
	files, err := schema.Files()
	if err != nil {
		t.Fatal(err)
	}
	files["probe.cue"] = []byte("package site\n\n" + text)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	instance := cueload.Instances([]string{"."}, &cueload.Config{Dir: root})[0]
	if instance.Err != nil {
		t.Fatal(instance.Err)
	}
	return cuecontext.New().BuildInstance(instance).LookupPath(cue.ParsePath("probe"))
}
