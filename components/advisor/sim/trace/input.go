package trace

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// maxLine bounds the memory one line may take, maxFields the fields of a table's line.
const (
	maxLine   = 1 << 20
	maxFields = 1 << 10
)

// input is a trace being read: it knows where it is.
type input struct {
	file   string
	line   int
	r      *bufio.Reader
	opt    *Options
	report *Report
	buf    []byte
}

func (in *input) errorf(format string, args ...any) error {
	return &Error{in.file, in.line, fmt.Sprintf(format, args...)}
}

// next gives the next line without its end (LF or CRLF); io.EOF after the last.
func (in *input) next() (string, error) {
	in.buf = in.buf[:0]
	for {
		part, err := in.r.ReadSlice('\n')
		if len(in.buf)+len(part) > maxLine {
			in.line++
			return "", in.errorf("the line is longer than %d bytes; this is not a trace", maxLine)
		}
		in.buf = append(in.buf, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && (!errors.Is(err, io.EOF) || len(in.buf) == 0) {
			if errors.Is(err, io.EOF) {
				return "", io.EOF
			}
			in.line++
			return "", in.errorf("%s", cannotRead(err))
		}
		in.line++
		in.report.Lines++
		s := strings.TrimSuffix(strings.TrimSuffix(string(in.buf), "\n"), "\r")
		if in.line == 1 {
			s = strings.TrimPrefix(s, "\ufeff")
		}
		return s, nil
	}
}

// cannotRead says why reading failed.
func cannotRead(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the compressed file ends in its middle; copy or compress it anew"
	}
	return "cannot read: " + err.Error()
}

// bad is what to do with a line that cannot be read: nil to go on (counted), or the error.
func (in *input) bad(err error) error {
	if in.opt.Lenient {
		in.report.repair("line that cannot be read, skipped")
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return &Error{e.File, e.Line, e.Msg + "; mend or remove the line"}
	}
	return err
}

// number reads a decimal number; NaN, infinities and what would overflow the clock are refused.
func (in *input) number(name, s string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		return 0, in.errorf("%s: %q is not a number", name, s)
	}
	if math.IsNaN(v) || math.Abs(v) > workload.MaxSeconds {
		return 0, in.errorf("%s: %q is out of range", name, s)
	}
	return v, nil
}

// count reads a non-negative whole number that fits 31 bits.
func (in *input) count(name, s string) (int32, error) {
	v, err := in.number(name, s)
	if err != nil {
		return 0, err
	}
	if v < 0 || v > math.MaxInt32 || v != math.Trunc(v) {
		return 0, in.errorf("%s: %q is not a whole number from 0 to 2147483647", name, s)
	}
	return int32(v), nil
}

// layouts are the timestamp forms seen in traces without a zone.
var layouts = []string{"2006-01-02 15:04:05.9999999", "2006-01-02T15:04:05.9999999", "2006-01-02 15:04:05"}

// timestamp reads a local time in the trace's zone, as microseconds since 1970. Times that a change of clocks left out or
// made twice are counted.
func (in *input) timestamp(s string) (workload.Time, error) {
	s = strings.TrimSpace(s)
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t.UnixMicro(), nil
	}
	loc := in.opt.Location
	if loc == nil {
		loc = time.UTC
	}
	for _, l := range layouts {
		t, err := time.ParseInLocation(l, s, loc)
		if err != nil {
			continue
		}
		if wall, _ := time.Parse(l, s); !sameWall(t, wall) {
			in.report.repair("local time skipped by a change of clocks, moved to an existing one")
		} else if sameWall(t.Add(time.Hour), wall) || sameWall(t.Add(-time.Hour), wall) {
			in.report.repair("local time that occurred twice at a change of clocks, taken as Go's first choice")
		}
		if y := t.Year(); y < 1970 || y > 2200 {
			return 0, in.errorf("timestamp %q lies outside 1970 to 2200", s)
		}
		return t.UnixMicro(), nil
	}
	return 0, in.errorf("%q is not a timestamp like 2017-10-09 07:01:55", s)
}

func sameWall(t, wall time.Time) bool {
	return t.Hour() == wall.Hour() && t.Minute() == wall.Minute() && t.Day() == wall.Day()
}

// table reads a delimited file with a header line, streaming. Rows give access to fields by the header's names.
type table struct {
	in   *input
	sep  string
	cols map[string]int
	row  []string
}

func newTable(in *input, sep string, need ...string) (*table, error) {
	t := &table{in: in, sep: sep, cols: map[string]int{}}
	line, err := in.next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, in.errorf("the file is empty; a header line was expected")
		}
		return nil, err
	}
	names := strings.Split(line, sep)
	if len(names) > maxFields {
		return nil, in.errorf("the header has %d columns; at most %d are read", len(names), maxFields)
	}
	for i, name := range names {
		t.cols[strings.TrimSpace(name)] = i
	}
	for _, n := range need {
		if _, ok := t.cols[n]; !ok {
			return nil, in.errorf("the header has no column %q (it has %s)", n, line)
		}
	}
	return t, nil
}

// next reads a row; false at the end. Rows of the wrong length are bad lines.
func (t *table) next() (bool, error) {
	for {
		line, err := t.in.next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		t.row = t.row[:0]
		if t.sep == "," && strings.Contains(line, `"`) {
			r := csv.NewReader(strings.NewReader(line))
			r.FieldsPerRecord = -1
			rec, err := r.Read()
			if err != nil {
				if err := t.in.bad(t.in.errorf("bad quoting: %v", err)); err != nil {
					return false, err
				}
				continue
			}
			t.row = append(t.row, rec...)
		} else {
			for f := range strings.SplitSeq(line, t.sep) {
				t.row = append(t.row, f)
			}
		}
		if len(t.row) > maxFields {
			if err := t.in.bad(t.in.errorf("%d fields where the header has %d", len(t.row), len(t.cols))); err != nil {
				return false, err
			}
			continue
		}
		if len(t.row) < len(t.cols) {
			if err := t.in.bad(t.in.errorf("%d fields where the header has %d; the line is truncated", len(t.row), len(t.cols))); err != nil {
				return false, err
			}
			continue
		}
		return true, nil
	}
}

func (t *table) has(name string) bool { _, ok := t.cols[name]; return ok }

func (t *table) str(name string) string {
	i, ok := t.cols[name]
	if !ok || i >= len(t.row) {
		return ""
	}
	return t.row[i]
}

func (t *table) number(name string) (float64, error) { return t.in.number(name, t.str(name)) }
func (t *table) count(name string) (int32, error)    { return t.in.count(name, t.str(name)) }

// numbers reads several numeric columns at once.
func (t *table) numbers(names ...string) ([]float64, error) {
	vs := make([]float64, len(names))
	for i, n := range names {
		v, err := t.number(n)
		if err != nil {
			return nil, err
		}
		vs[i] = v
	}
	return vs, nil
}

// rows calls job for every row and emits what it returns; job reports false for a row that is left out (having counted why).
func (t *table) rows(emit func(workload.Job) bool, job func() (workload.Job, bool, error)) error {
	for {
		ok, err := t.next()
		if err != nil || !ok {
			return err
		}
		j, keep, err := job()
		if err != nil {
			if err = t.in.bad(err); err != nil {
				return err
			}
			continue
		}
		if keep && !emit(j) {
			return errStopped
		}
	}
}

// firstLine is the first line of the head of a file.
func firstLine(head string) string {
	l, _, _ := strings.Cut(head, "\n")
	return strings.TrimSuffix(strings.TrimPrefix(l, "\ufeff"), "\r")
}

func sniffHeader(prefix string) func(string) bool {
	return func(head string) bool { return strings.HasPrefix(firstLine(head), prefix) }
}

func containsAll(s string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(s, p) })
}
