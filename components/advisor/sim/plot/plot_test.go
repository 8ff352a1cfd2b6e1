package plot

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// A Gantt chart holds its rows' names and a bar a stretch.
func TestGantt(t *testing.T) {
	bars := []Bar{{Row: "w-0/0", Job: 1, Start: 0, End: 2}, {Row: "w-0/1", Job: 2, Start: 1, End: 3, Part: 1, Of: 2}}
	var svg, png bytes.Buffer
	if err := Gantt(&svg, "svg", "fcfs", []string{"w-0/0", "w-0/1"}, bars); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "w-0/0", "w-0/1", "hours since the first submission"} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("the chart lacks %q", want)
		}
	}
	if err := Gantt(&png, Form("g.PNG"), "fcfs", []string{"w-0/0", "w-0/1"}, bars); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(png.Bytes(), []byte("\x89PNG")) {
		t.Error("not a PNG")
	}
}

func TestCDF(t *testing.T) {
	var svg bytes.Buffer
	err := CDF(&svg, "svg", "Completion times", "seconds", []Curve{{"fcfs", []float64{3, 1, 2}}, {"nobody", nil}, {"saf+easy", []float64{1, 1, 1}}})
	if err != nil || !strings.Contains(svg.String(), "saf+easy") || strings.Contains(svg.String(), "nobody") {
		t.Errorf("the legend is wrong: %v", err)
	}
	xy := steps([]float64{30, 10, 20, 40})
	if xy[0].X != 10 || xy[0].Y != .25 || xy[len(xy)-1].X != 40 || xy[len(xy)-1].Y != 1 {
		t.Errorf("steps are %v", xy)
	}
}

// What cannot be drawn says why and writes nothing.
func TestNothingToDraw(t *testing.T) {
	for want, draw := range map[string]func(io.Writer) error{
		"no job ran":   func(w io.Writer) error { return Gantt(w, "svg", "", nil, nil) },
		"no job ended": func(w io.Writer) error { return CDF(w, "svg", "", "", []Curve{{"x", nil}}) },
		"doc":          func(w io.Writer) error { return CDF(w, "doc", "", "", []Curve{{"x", []float64{1}}}) },
		"too many":     func(w io.Writer) error { return Gantt(w, "svg", "", []string{"r"}, make([]Bar, MaxBars+1)) },
	} {
		var b bytes.Buffer
		if err := draw(&b); err == nil || !strings.Contains(err.Error(), want) || b.Len() > 0 {
			t.Errorf("%s: error %v after %d bytes", want, err, b.Len())
		}
	}
	if err := Check("c.doc"); err == nil || !strings.Contains(err.Error(), "c.doc") {
		t.Errorf("error %v", err)
	}
}
