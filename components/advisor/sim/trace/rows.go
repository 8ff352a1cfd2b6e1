package trace

import (
	"math"
	"strings"
)

// Row is a line of a table: its fields by the header's names.
type Row struct{ t *table }

// Rows reads a comma-separated file whose header has at least the columns named, gzipped or not, and calls row for each line behind
// it. Errors of row are best made with Errorf, which says where.
func Rows(path string, need []string, row func(Row) error) error {
	t, err := Open(path, Options{rows: true})
	if err != nil {
		return err
	}
	defer t.Close()
	tab, err := newTable(t.in, ",", need...)
	if err != nil {
		return err
	}
	for {
		ok, err := tab.next()
		if err != nil || !ok {
			return err
		}
		if err := row(Row{tab}); err != nil {
			return t.in.bad(err)
		}
	}
}

// Text is a field as it stands; "" where there is no such column.
func (r Row) Text(name string) string { return strings.Clone(r.t.str(name)) }

// Number reads a finite number.
func (r Row) Number(name string) (float64, error) { return r.t.number(name) }

// Whole reads a whole number from least to most.
func (r Row) Whole(name string, least, most int64) (int64, error) {
	v, err := r.t.number(name)
	if err != nil {
		return 0, err
	}
	if v != math.Trunc(v) || v < float64(least) || v > float64(most) {
		return 0, r.Errorf("%s: %q is not a whole number from %d to %d", name, r.t.str(name), least, most)
	}
	return int64(v), nil
}

// Errorf makes an error that names file and line.
func (r Row) Errorf(format string, args ...any) error { return r.t.in.errorf(format, args...) }
