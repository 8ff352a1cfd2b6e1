package command

import (
	"bufio"
	"fmt"
	"os"

	"github.com/parquet-go/parquet-go"

	"github.com/berth-hpc/berth/components/advisor/sim/experiment"
)

// resultRow is a line of the results. Times are microseconds; start is −1 for jobs that never started.
type resultRow struct {
	ID       int64   `parquet:"id"`
	User     string  `parquet:"user,dict"`
	Account  string  `parquet:"account,dict"`
	Model    string  `parquet:"model,dict"`
	Width    float64 `parquet:"width"`
	Submit   int64   `parquet:"submit"`
	Start    int64   `parquet:"start"`
	End      int64   `parquet:"end"`
	Service  int64   `parquet:"service"`
	Limit    int64   `parquet:"limit"`
	Deadline int64   `parquet:"deadline"`
	Outcome  string  `parquet:"outcome,dict"`
	Preempts int32   `parquet:"preempts"`
	Requeues int32   `parquet:"requeues"`
	Node     string  `parquet:"node,dict"`
}

// resultWriter writes the fates of jobs as they end, to a temporary file beside the one asked for, which keep puts in place: memory
// does not grow with the trace, and a failure leaves nothing half-written.
type resultWriter struct {
	path string
	file *os.File
	text *bufio.Writer // of a .csv
	rows *parquet.GenericWriter[resultRow]
	err  error // the first
	held []resultRow
}

// rowGroup is how many rows of a Parquet file are held in memory.
const rowGroup = 1 << 14

func newResults(path string) (*resultWriter, error) {
	f, err := os.CreateTemp(dirOf(path), ".advisor-")
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", path, err)
	}
	w := &resultWriter{path: path, file: f, text: bufio.NewWriter(f)}
	if hasSuffix(path, ".parquet") {
		w.rows = parquet.NewGenericWriter[resultRow](w.text, parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(1<<17))
	} else {
		_, w.err = fmt.Fprintln(w.text, "id,user,account,model,width,submit_us,start_us,end_us,service_us,limit_us,deadline_us,outcome,preempts,requeues,node")
	}
	return w, nil
}

// add writes one job.
func (w *resultWriter) add(j *experiment.JobResult) {
	if w.err != nil {
		return
	}
	if w.rows == nil {
		_, w.err = fmt.Fprintf(w.text, "%d,%s,%s,%s,%g,%d,%d,%d,%d,%d,%d,%s,%d,%d,%s\n", j.ID, csvField(j.User), csvField(j.Account), csvField(j.Model), j.Width, j.Submit,
			j.Start, j.End, j.Service, j.Limit, j.Deadline, j.Outcome, j.Preempts, j.Requeues, j.Node)
		return
	}
	w.held = append(w.held, resultRow{j.ID, j.User, j.Account, j.Model, j.Width, j.Submit, j.Start, j.End, j.Service, j.Limit, j.Deadline, j.Outcome, int32(j.Preempts),
		int32(j.Requeues), j.Node})
	if len(w.held) == rowGroup {
		w.flush()
	}
}

func (w *resultWriter) flush() {
	if w.err == nil && len(w.held) > 0 {
		_, w.err = w.rows.Write(w.held)
	}
	w.held = w.held[:0]
}

// keep ends the file and gives it its name.
func (w *resultWriter) keep() error {
	defer w.drop()
	if w.rows != nil {
		if w.flush(); w.err == nil {
			w.err = w.rows.Close()
		}
	}
	for _, step := range []func() error{w.text.Flush, func() error { return w.file.Chmod(0o644) }, w.file.Close, func() error { return os.Rename(w.file.Name(), w.path) }} {
		if w.err == nil {
			w.err = step()
		}
	}
	if w.err != nil {
		return fmt.Errorf("cannot write %s: %w", w.path, w.err)
	}
	w.file = nil
	return nil
}

// drop removes the temporary file, if it has not become the real one.
func (w *resultWriter) drop() {
	if w.file != nil {
		w.file.Close()
		os.Remove(w.file.Name())
		w.file = nil
	}
}
