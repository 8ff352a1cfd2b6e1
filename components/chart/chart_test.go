package chart

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/*.yaml")

func TestGolden(t *testing.T) {
	text, err := render(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/default.yaml"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("the chart renders otherwise than %s; if that is meant: go test ./components/chart -update", golden)
	}
	objects(t, nil)
}
