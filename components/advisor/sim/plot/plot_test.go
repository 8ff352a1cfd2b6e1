package plot

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A Gantt chart holds its rows' names and a bar a stretch; a picture's kind is its file's ending.
func TestGantt(t *testing.T) {
	dir := t.TempDir()
	svg := filepath.Join(dir, "g.svg")
	bars := []Bar{{Row: "w-0/0", Job: 1, Start: 0, End: 2}, {Row: "w-0/1", Job: 2, Start: 1, End: 3, Part: 1, Of: 2}}
	if err := Gantt(svg, "fcfs", []string{"w-0/0", "w-0/1"}, bars); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "w-0/0", "w-0/1", "hours since the first submission"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the chart lacks %q", want)
		}
	}
	png := filepath.Join(dir, "g.png")
	if err := Gantt(png, "fcfs", []string{"w-0/0", "w-0/1"}, bars); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(png); err != nil || !bytes.HasPrefix(b, []byte("\x89PNG")) {
		t.Errorf("not a PNG: %v", err)
	}
}

func TestCDF(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "c.svg")
	if err := CDF(svg, "Completion times", "seconds", []Curve{{"fcfs", []float64{3, 1, 2}}, {"nobody", nil}, {"saf+easy", []float64{1, 1, 1}}}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(svg)
	if err != nil || !strings.Contains(string(b), "saf+easy") || strings.Contains(string(b), "nobody") {
		t.Errorf("the legend is wrong: %v", err)
	}
	xy := steps([]float64{30, 10, 20, 40})
	if xy[0].X != 10 || xy[0].Y != .25 || xy[len(xy)-1].X != 40 || xy[len(xy)-1].Y != 1 {
		t.Errorf("steps are %v", xy)
	}
}

// What cannot be drawn says why and leaves no file.
func TestNothingToDraw(t *testing.T) {
	dir := t.TempDir()
	for path, draw := range map[string]func(string) error{
		"a.svg": func(p string) error { return Gantt(p, "", nil, nil) },
		"b.svg": func(p string) error { return CDF(p, "", "", []Curve{{"x", nil}}) },
		"c.doc": func(p string) error { return CDF(p, "", "", []Curve{{"x", []float64{1}}}) },
		"d.svg": func(p string) error { return Gantt(p, "", []string{"r"}, make([]Bar, MaxBars+1)) },
	} {
		full := filepath.Join(dir, path)
		if err := draw(full); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v", path, err)
		}
		if _, err := os.Stat(full); err == nil {
			t.Errorf("%s is left behind", path)
		}
	}
}
