package usage

import (
	"encoding/csv"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// CSV writes a line for each row, with a header. Hours have four digits: less than a second of one.
func (r *Report) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"account", "user", "jobs", "cpu_hours", "gpu_hours"})
	for _, row := range r.Rows {
		_ = out.Write([]string{row.Account, row.User, strconv.Itoa(row.Jobs), fmt.Sprintf("%.4f", row.CPUHours), fmt.Sprintf("%.4f", row.GPUHours)})
	}
	out.Flush()
	return out.Error() // of any Write too
}

// Name of a row, for people.
func (row Row) Name() string {
	name := row.Account
	if name == "" {
		name = "(no account)"
	}
	if row.User != "" {
		name += "/" + row.User
	}
	return name
}

// measure is what a chart's bars are long by: GPU-hours, or CPU-hours where no row has any.
func (r *Report) measure() (of func(Row) float64, unit string, most float64) {
	of, unit = func(row Row) float64 { return row.GPUHours }, "GPU-hours"
	if r.Total.GPUHours == 0 {
		of, unit = func(row Row) float64 { return row.CPUHours }, "CPU-hours"
	}
	for _, row := range r.Rows {
		most = max(most, of(row))
	}
	return of, unit, most
}

// eighths of a cell, from none to seven.
var eighths = []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// Chart draws a bar for each row; the longest has as many cells as width.
func (r *Report) Chart(w io.Writer, width int) error {
	of, unit, most := r.measure()
	title := 0
	for _, row := range r.Rows {
		title = max(title, utf8.RuneCountInString(row.Name()))
	}
	if _, err := fmt.Fprintf(w, "%s, %s to %s\n", unit, r.Start.Format(minute), r.End.Format(minute)); err != nil {
		return err
	}
	for _, row := range r.Rows {
		bar, padding := "", title-utf8.RuneCountInString(row.Name())
		if most > 0 {
			n := int(of(row)/most*float64(width)*8 + 0.5)
			bar = strings.Repeat("█", n/8) + eighths[n%8]
		}
		line := fmt.Sprintf("%s%s  %s %s", row.Name(), strings.Repeat(" ", padding), bar, Hours(of(row)))
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

// minute is how times are shown, in the site's zone.
const minute = "2006-01-02 15:04 MST"

// Hours shows hours: with a digit or two where that says something.
func Hours(h float64) string {
	switch {
	case h == 0:
		return "0"
	case h < 0.01:
		return "<0.01"
	case h < 100:
		return strconv.FormatFloat(h, 'f', 2, 64)
	}
	return strconv.FormatFloat(h, 'f', 0, 64)
}

// SVG draws the chart as a picture.
func (r *Report) SVG(w io.Writer) error {
	const step, left, length = 24, 220, 420
	of, unit, most := r.measure()
	var b strings.Builder
	text := func(x, y int, anchor, words string) {
		var safe strings.Builder
		_ = xml.EscapeText(&safe, []byte(words)) // to memory
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, safe.String())
	}
	height := step * (len(r.Rows) + 2)
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n", left+length+100, height)
	text(10, step-6, "start", fmt.Sprintf("%s: %s, %s to %s", r.Site, unit, r.Start.Format(minute), r.End.Format(minute)))
	for i, row := range r.Rows {
		y := step * (i + 1)
		bar := 0.0
		if most > 0 {
			bar = of(row) / most * length
		}
		text(left-8, y+step-7, "end", row.Name())
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#3b7dd8\"/>\n", left, y+4, bar, step-8)
		text(left+int(bar)+6, y+step-7, "start", Hours(of(row)))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
