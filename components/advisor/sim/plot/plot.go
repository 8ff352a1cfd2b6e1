// Package plot draws what a simulation did: a Gantt chart of nodes and cards, and distribution functions of job times. The file's
// ending chooses the form: .svg, .png or .pdf. It writes to where the caller says, who sees to it that no file is left half-written.
package plot

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bar is a stretch of time, in hours, that a job held a row of a Gantt chart.
type Bar struct {
	Row        string
	Job        int64
	Start, End float64
	// Part and Of cut the row's height for shares of a card: share number Part of Of.
	Part, Of int
}

// Curve is a named sample for a distribution function.
type Curve struct {
	Name   string
	Values []float64
}

// MaxBars bounds a Gantt chart; beyond it a picture shows nothing.
const MaxBars = 20000

// Form is the form of picture that a file's name asks for.
func Form(path string) string { return strings.TrimPrefix(strings.ToLower(filepath.Ext(path)), ".") }

// Check refuses a file name whose ending is no form of picture.
func Check(path string) error {
	switch Form(path) {
	case "svg", "png", "pdf":
		return nil
	}
	return fmt.Errorf("%s: a picture's name ends in .svg, .png or .pdf", path)
}

// hue gives neighbouring ids well separated colours (golden-angle steps around the circle).
func hue(id int64, alpha uint8) color.Color {
	h := math.Mod(float64(id)*137.508, 360) / 60
	const s, v = .55, .85
	c := v * s
	x := c * (1 - math.Abs(math.Mod(h, 2)-1))
	var r, g, b float64
	switch int(h) {
	case 0:
		r, g = c, x
	case 1:
		r, g = x, c
	case 2:
		g, b = c, x
	case 3:
		g, b = x, c
	case 4:
		r, b = x, c
	default:
		r, b = c, x
	}
	m := v - c
	to := func(f float64) uint8 { return uint8(math.Round((f + m) * 255)) }
	return color.NRGBA{to(r), to(g), to(b), alpha}
}

type gantt struct {
	bars []Bar
	rows map[string]int
}

// Plot draws the bars.
func (g gantt) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, b := range g.bars {
		of := max(b.Of, 1)
		y := float64(g.rows[b.Row]) - .4 + .8*float64(b.Part)/float64(of)
		rect := vg.Path{}
		x0, x1 := tx(b.Start), tx(b.End)
		y0, y1 := ty(y), ty(y+.8/float64(of))
		rect.Move(vg.Point{X: x0, Y: y0})
		rect.Line(vg.Point{X: x1, Y: y0})
		rect.Line(vg.Point{X: x1, Y: y1})
		rect.Line(vg.Point{X: x0, Y: y1})
		rect.Close()
		c.SetColor(hue(b.Job, 255))
		c.Fill(rect)
	}
}

// DataRange makes room for all bars.
func (g gantt) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin = math.Inf(1)
	for _, b := range g.bars {
		xmin, xmax = min(xmin, b.Start), max(xmax, b.End)
	}
	return xmin, xmax, -.5, float64(len(g.rows)) - .5
}

// Gantt draws who held what when, one row a card (or node).
func Gantt(w io.Writer, form, title string, rows []string, bars []Bar) error {
	if len(bars) == 0 {
		return errors.New("no job ran, so there is nothing to draw")
	}
	if len(bars) > MaxBars {
		return fmt.Errorf("%d bars are too many for a chart (at most %d); cut the trace with --jobs", len(bars), MaxBars)
	}
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "hours since the first submission"
	g := gantt{bars: bars, rows: map[string]int{}}
	var ticks []plot.Tick
	for i, r := range rows {
		g.rows[r] = len(rows) - 1 - i
		ticks = append(ticks, plot.Tick{Value: float64(len(rows) - 1 - i), Label: r})
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Add(g)
	height := vg.Points(80 + 18*float64(min(len(rows), 100)))
	return render(p, 10*vg.Inch, height, w, form)
}

// CDF draws the distribution functions of samples on a logarithmic axis; values below one second count as one.
func CDF(w io.Writer, form, title, label string, curves []Curve) error {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = label
	p.Y.Label.Text = "part of jobs"
	p.Y.Min, p.Y.Max = 0, 1
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	drawn := false
	for i, c := range curves {
		if len(c.Values) == 0 {
			continue
		}
		drawn = true
		line, err := plotter.NewLine(steps(c.Values))
		if err != nil {
			return err
		}
		line.Color = hue(int64(i+1), 255)
		line.Width = vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(c.Name, line)
	}
	if !drawn {
		return errors.New("no job ended, so there is nothing to draw")
	}
	if p.X.Max <= p.X.Min {
		p.X.Max = p.X.Min * 10
	}
	return render(p, 7*vg.Inch, 5*vg.Inch, w, form)
}

// steps gives at most about a thousand points of an empirical distribution function.
func steps(values []float64) plotter.XYs {
	v := slices.Clone(values)
	slices.Sort(v)
	n := len(v)
	every := max(n/1000, 1)
	var xy plotter.XYs
	for i := 0; i < n; i += every {
		xy = append(xy, plotter.XY{X: max(v[i], 1), Y: float64(i+1) / float64(n)})
	}
	return append(xy, plotter.XY{X: max(v[n-1], 1), Y: 1})
}

func render(p *plot.Plot, width, height vg.Length, w io.Writer, form string) error {
	c, err := p.WriterTo(width, height, form)
	if err != nil {
		return err
	}
	_, err = c.WriteTo(w)
	return err
}
