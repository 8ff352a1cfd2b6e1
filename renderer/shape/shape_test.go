package shape

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/berth-hpc/berth/renderer/load"
)

var update = flag.Bool("update", false, "rewrite docs/reference.md")

// validator compiles a schema as editors and Helm do.
func validator(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func validate(t *testing.T, s *jsonschema.Schema, value any) error {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(document)
}

func siteSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	shape, err := Site()
	if err != nil {
		t.Fatal(err)
	}
	text, err := shape.JSONSchema("A site")
	if err != nil {
		t.Fatal(err)
	}
	return validator(t, text)
}

// What vet accepts, complete with all defaults, the JSON Schema accepts too.
func TestShippedSitesAreOfTheSchema(t *testing.T) {
	schema := siteSchema(t)
	sites, err := load.Values("../../clusters")
	if err != nil {
		t.Fatal(err)
	}
	for name, site := range sites {
		if err := validate(t, schema, site); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(sites) < 4 {
		t.Errorf("%d sites; the shipped ones are four", len(sites))
	}
}

// The schema refuses mistakes of one field, at the place where they are.
func TestWrongSitesAreNotOfTheSchema(t *testing.T) {
	schema := siteSchema(t)
	cases := map[string]struct {
		change func(site map[string]any)
		place  string
	}{
		"a typo":              {func(s map[string]any) { s["hostz"] = map[string]any{} }, "hostz"},
		"a typo in a pool":    {func(s map[string]any) { pool(s)["mx"] = 3 }, "/pools/cpu"},
		"a missing field":     {func(s map[string]any) { delete(pool(s), "cpus") }, "cpus"},
		"a missing group":     {func(s map[string]any) { delete(s, "network") }, "network"},
		"text for a number":   {func(s map[string]any) { pool(s)["max"] = "4" }, "/pools/cpu/max"},
		"too small":           {func(s map[string]any) { pool(s)["max"] = 0 }, "/pools/cpu/max"},
		"a wrong unit":        {func(s map[string]any) { pool(s)["memory"] = "4GB" }, "/pools/cpu/memory"},
		"no choice":           {func(s map[string]any) { s["delivery"].(map[string]any)["mode"] = "kustomize" }, "/delivery/mode"},
		"a name":              {func(s map[string]any) { s["pools"].(map[string]any)["GPU"] = pool(s) }, "GPU"},
		"a forbidden name":    {func(s map[string]any) { s["pools"].(map[string]any)["default"] = pool(s) }, "default"},
		"a bare number":       {func(s map[string]any) { pool(s)["idle"] = "600" }, "/pools/cpu/idle"},
		"a tag named latest":  {func(s map[string]any) { s["images"].(map[string]any)["tag"] = "latest" }, "/images/tag"},
		"a reserved uid":      {func(s map[string]any) { user(s)["uid"] = 64030 }, "/users/student/uid"},
		"a password in a URL": {func(s map[string]any) { s["delivery"].(map[string]any)["url"] = "https://me:secret@example.org/x.git" }, "/delivery/url"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			sites, err := load.Values("../../clusters", "lab")
			if err != nil {
				t.Fatal(err)
			}
			var site map[string]any
			text, _ := json.Marshal(sites["lab"])
			if err := json.Unmarshal(text, &site); err != nil {
				t.Fatal(err)
			}
			c.change(site)
			if err := validate(t, schema, site); err == nil || !strings.Contains(err.Error(), c.place) {
				t.Errorf("want an error at %s, got %v", c.place, err)
			}
		})
	}
}

func pool(site map[string]any) map[string]any {
	return site["pools"].(map[string]any)["cpu"].(map[string]any)
}

func user(site map[string]any) map[string]any {
	return site["users"].(map[string]any)["student"].(map[string]any)
}

// docs/reference.md is what `berth docs` prints.
func TestReferenceIsCurrent(t *testing.T) {
	shape, err := Site()
	if err != nil {
		t.Fatal(err)
	}
	want := shape.Reference()
	const file = "../../docs/reference.md"
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("%s is not what the schema says; go test ./renderer/shape -update", file)
	}
	for _, part := range []string{"- `pools.<name>.sharing.mps.share`: whole number, 1 to 100, required.", "Fair shares, relative to the account's siblings.", "default `\"10m\"`", "follows from other fields"} {
		if !strings.Contains(want, part) {
			t.Errorf("the reference does not hold %q", part)
		}
	}
}

// A schema that says something that this package cannot pass on is an error, not a schema that says less.
func TestNothingIsLeftOut(t *testing.T) {
	for source, want := range map[string]string{
		`import "strings"
#S: {a?: strings.MinRunes(3)}`: "strings.MinRunes",
		`#S: {a?: {b: 1} & {b: int, c: 2} | string}`: "",
	} {
		value := cuecontext.New().CompileString(source)
		_, err := Of(value.LookupPath(cue.ParsePath("#S")))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: want %q, got %v", source, want, err)
		}
	}
}

func TestSmallForms(t *testing.T) {
	value := cuecontext.New().CompileString(`
import "struct"
#Name: =~"^[a-z]+$"
#S: {
	// A list.
	list!: [int, ...int]
	maybe?: null | [...string]
	open?: {x?: int, ...}
	one?: null | (struct.MaxFields(1) & {a?: int, b?: int})
	named?: [#Name]: int
	copy: *list[0] | int
}`)
	shape, err := Of(value.LookupPath(cue.ParsePath("#S")))
	if err != nil {
		t.Fatal(err)
	}
	text, err := shape.JSONSchema("small")
	if err != nil {
		t.Fatal(err)
	}
	schema := validator(t, text)
	for document, right := range map[string]bool{
		`{"list": [1]}`:                                true,
		`{"list": []}`:                                 false,
		`{}`:                                           false,
		`{"list": [1], "maybe": null}`:                 true,
		`{"list": [1], "maybe": [1]}`:                  false,
		`{"list": [1], "open": {"y": true}}`:           true,
		`{"list": [1], "open": {"x": true}}`:           false,
		`{"list": [1], "one": {"a": 1}}`:               true,
		`{"list": [1], "one": {"a": 1, "b": 2}}`:       false,
		`{"list": [1], "one": {"c": 1}}`:               false,
		`{"list": [1], "named": {"abc": 1}}`:           true,
		`{"list": [1], "named": {"ABC": 1}}`:           false,
		`{"list": [1], "copy": 2, "more": "not here"}`: false,
	} {
		var value any
		if err := json.Unmarshal([]byte(document), &value); err != nil {
			t.Fatal(err)
		}
		if err := validate(t, schema, value); (err == nil) != right {
			t.Errorf("%s: %v\n%s", document, err, text)
		}
	}
}
