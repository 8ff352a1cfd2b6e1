package migrate

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	schema "github.com/berth-hpc/berth/cue"
)

const old = `package clusters

import "github.com/berth-hpc/berth/cue:site"

// Our lab.
lab: site.#Site & {
	schemaVersion: 0 // as we began
	delivery: {
		url: "https://git.example.org/lab.git"
		// The network is slow.
		interval: "5m" // five minutes
	}
}

// Says no version.
other: site.#Site & {delivery: "interval": "2m"}

// Is current.
new: site.#Site & {schemaVersion: 1, delivery: interval: "1h"}

_interval: {delivery: interval: "3m"}
`

func TestRenameKeepsCommentsAndOrder(t *testing.T) {
	out, changes, err := File("old.cue", []byte(old), Current)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(old, "schemaVersion: 0 //", "schemaVersion: 1 //", 1)
	want = strings.Replace(want, `interval: "5m" //`, `sourceInterval: "5m" //`, 1)
	if spaced(string(out)) != spaced(want) {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	if len(changes) != 2 || changes[0] != (Change{"lab", 11, 3, "delivery.interval is now delivery.sourceInterval"}) {
		t.Errorf("changes: %v", changes)
	}

	// Once more: nothing is left to do.
	if again, changes, err := File("old.cue", out, Current); again != nil || changes != nil || err != nil {
		t.Errorf("a second run changes %v (%v)", changes, err)
	}
}

// spaced is a text without the columns into which the formatter puts it.
func spaced(text string) string { return strings.Join(strings.Fields(text), " ") }

// A site that names no version is taken for the one that is given.
func TestFromAnOlderVersion(t *testing.T) {
	out, _, err := File("old.cue", []byte(old), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`other: site.#Site & {delivery: "sourceInterval": "2m"}`, `new: site.#Site & {schemaVersion: 1, delivery: interval: "1h"}`, `_interval: {delivery: interval: "3m"}`} {
		if !strings.Contains(spaced(string(out)), part) {
			t.Errorf("want %s in\n%s", part, out)
		}
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"package clusters\nlab: {":                                                                                     "expected",
		"package clusters\nlab: site.#Site & {schemaVersion: 7}":                                                       "x.cue:2: lab is written for version 7 of the schema, and this berth has 1; use a newer berth",
		"package clusters\nlab: site.#Site & {schemaVersion: \"0\"}":                                                   "x.cue:2: lab.schemaVersion: is not a number",
		"package clusters\nlab: site.#Site & {schemaVersion: 0, delivery: {interval: \"1m\", sourceInterval: \"2m\"}}": "x.cue:2: lab.delivery has both interval and sourceInterval",
	} {
		if _, _, err := File("x.cue", []byte(text), Current); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want %q, got %v", text, want, err)
		}
	}
}

// The schema's own number is this package's.
func TestVersionIsTheSchemas(t *testing.T) {
	files, err := schema.Files()
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`schemaVersion: \*([0-9]+) \|`).FindStringSubmatch(string(files["site.cue"]))
	if m == nil || m[1] != strconv.Itoa(Current) {
		t.Errorf("cue/site.cue has %v, this package %d", m, Current)
	}
}
