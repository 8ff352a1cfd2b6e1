// Package trace reads and writes the field's job traces. Readers stream: they hold a bounded window of jobs, never the file,
// but for formats that come unsorted (Philly, Alibaba 2020, sacct --json), whose jobs are sorted in memory. An error names file
// and line; what is repaired instead is counted in the Report.
package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Error is what is wrong at a place of a trace.
type Error struct {
	File string
	Line int
	Msg  string
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg) }

// Options change how a trace is read.
type Options struct {
	// Format is one of Formats; "" or "auto" looks at the first lines.
	Format string
	// Lenient skips lines that cannot be read and counts them, instead of stopping at the first.
	Lenient bool
	// Location is the zone of timestamps that state none; nil is UTC.
	Location *time.Location
	// Window is how many jobs are held back to put slightly unsorted traces in order; 0 is 4096.
	Window int
	// UnknownRun is the run time of SWF jobs that state none (−1); 0 leaves them out.
	UnknownRun workload.Time
	// Throughputs is the table of speeds a Gavel trace needs.
	Throughputs Throughputs

	rows bool // opened by Rows, which has no jobs to read
}

// Report counts what a reader did. It is complete when the source has been drained.
type Report struct {
	Lines, Jobs int
	Repairs     map[string]int
	// Header holds what the file says about itself (MaxProcs and the like of SWF).
	Header map[string]string
}

func (r *Report) repair(what string) {
	if r.Repairs == nil {
		r.Repairs = map[string]int{}
	}
	r.Repairs[what]++
}

// String says what was repaired, in a fixed order; "" if nothing was.
func (r *Report) String() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(r.Repairs)) {
		fmt.Fprintf(&b, "%d× %s\n", r.Repairs[k], k)
	}
	return b.String()
}

// Format reads one kind of file.
type Format struct {
	Name, Doc string
	// sorted formats are expected in order of submission, and kept so with a window; others are sorted in memory.
	sorted bool
	sniff  func(head string) bool
	read   func(in *input, emit func(workload.Job) bool) error
}

// Formats lists what can be read.
func Formats() []Format {
	return []Format{
		{"swf", "standard workload format (18 columns), Parallel Workloads Archive", true, sniffSWF, readSWF},
		{"sacct", "Slurm: sacct -P (parsable, with a header line)", true, sniffSacct, readSacct},
		{"sacct-json", "Slurm: sacct --json", false, sniffSacctJSON, readSacctJSON},
		{"philly", "Philly CSV: timestamp,duration,num_gpus,gpu_time,cluster", false, sniffHeader("timestamp,duration,num_gpus"), readPhillyCSV},
		{"philly-json", "Philly cluster_job_log JSON, as published by msr-fiddle", false, sniffPhillyJSON, readPhillyJSON},
		{"openb", "Alibaba cluster-trace-gpu-v2023 pod list", true, sniffHeader("name,cpu_milli,memory_mib,num_gpu,gpu_milli"), readOpenb},
		{"alibaba2020", "Alibaba cluster-trace-gpu-v2020 task table (pai_task_table.csv)", false, sniffHeader("job_name,task_name,inst_num"), readAlibaba2020},
		{"gavel", "Gavel trace (tab separated)", true, sniffGavel, readGavel},
		{"muri", "Muri CSV (milliseconds, iteration times)", true, sniffHeader("job_id,num_gpu,submit_time,iterations,model_name,batch_size"), readMuri},
		{"tiresias", "Tiresias CSV (seconds)", true, sniffHeader("job_id,num_gpu,submit_time,iterations,model_name,duration"), readTiresias},
		{"elasticflow", "ElasticFlow CSV with deadlines", true, sniffHeader("job_id,submit_time,real_iteration"), readElasticFlow},
		{"azure", "Azure LLM inference requests", true, sniffHeader("TIMESTAMP,ContextTokens,GeneratedTokens"), readAzure},
	}
}

func formatByName(name string) (Format, error) {
	var names []string
	for _, f := range Formats() {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return Format{}, fmt.Errorf("no trace format is called %q; use auto, %s", name, strings.Join(names, ", "))
}

// Trace is an opened trace.
type Trace struct {
	Format Format
	Report Report
	opt    Options
	in     *input
	close  func() error
}

// Open opens a file, gzipped or not. "-" is standard input.
func Open(path string, opt Options) (*Trace, error) {
	if path == "-" {
		return Read("standard input", os.Stdin, opt)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open the trace: %w", err)
	}
	t, err := Read(path, f, opt)
	if err != nil {
		f.Close()
		return nil, err
	}
	t.close = f.Close
	return t, nil
}

// Read reads a trace from a reader; name appears in errors.
func Read(name string, r io.Reader, opt Options) (*Trace, error) {
	br := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := br.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, &Error{name, 1, "begins like a gzip file and is none (" + err.Error() + "); compress it anew"}
		}
		br = bufio.NewReaderSize(z, 1<<16)
	}
	// What is wrong behind a readable beginning is met again, and told with its line, when that line is read.
	head, err := br.Peek(4096)
	switch {
	case len(head) == 0 && errors.Is(err, io.EOF):
		return nil, &Error{name, 1, "the trace is empty; name one that holds jobs, or make one with advisor sim generate"}
	case len(head) == 0:
		return nil, &Error{name, 1, cannotRead(err)}
	}
	t := &Trace{opt: opt}
	if !opt.rows && (opt.Format == "" || opt.Format == "auto") {
		found := false
		for _, f := range Formats() {
			if f.sniff(string(head)) {
				t.Format, found = f, true
				break
			}
		}
		if !found {
			return nil, &Error{name, 1, "the format is not recognised; name it with --format"}
		}
	} else if opt.rows {
		// any table will do
	} else if t.Format, err = formatByName(opt.Format); err != nil {
		return nil, err
	}
	if opt.Location == nil {
		t.opt.Location = time.UTC
	}
	if opt.Window <= 0 {
		t.opt.Window = 4096
	}
	t.in = &input{file: name, r: br, opt: &t.opt, report: &t.Report}
	return t, nil
}

// Close closes the file.
func (t *Trace) Close() error {
	if t.close == nil {
		return nil
	}
	return t.close()
}

// errStopped ends a read whose consumer wants no more.
var errStopped = errors.New("stopped")

// Jobs streams the trace in order of submission. It can be drained once.
func (t *Trace) Jobs() workload.Source {
	return func(yield func(workload.Job, error) bool) {
		out := sorter{limit: t.opt.Window, whole: !t.Format.sorted, last: -1 << 62, report: &t.Report}
		out.yield = func(j workload.Job) bool {
			t.Report.Jobs++
			return yield(j, nil)
		}
		err := t.Format.read(t.in, func(j workload.Job) bool {
			if err := j.Validate(); err != nil {
				out.err = t.in.bad(t.in.errorf("%v", err))
				return out.err == nil
			}
			return out.add(j, t.in)
		})
		switch {
		case out.err != nil:
			yield(workload.Job{}, out.err)
		case errors.Is(err, errStopped):
		case err != nil:
			yield(workload.Job{}, err)
		default:
			out.flush()
		}
	}
}

// sorter puts jobs in order of submission, ties in order of the file.
type sorter struct {
	limit  int
	whole  bool
	held   jobHeap
	seq    int
	last   workload.Time
	yield  func(workload.Job) bool
	report *Report
	err    error
}

type heldJob struct {
	workload.Job
	seq int
}

type jobHeap []heldJob

func (h jobHeap) Len() int      { return len(h) }
func (h jobHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h jobHeap) Less(i, j int) bool {
	return h[i].Submit < h[j].Submit || h[i].Submit == h[j].Submit && h[i].seq < h[j].seq
}
func (h *jobHeap) Push(x any) { *h = append(*h, x.(heldJob)) }
func (h *jobHeap) Pop() any {
	s := *h
	x := s[len(s)-1]
	*h = s[:len(s)-1]
	return x
}

func (s *sorter) add(j workload.Job, in *input) bool {
	s.seq++
	if s.whole {
		s.held = append(s.held, heldJob{j, s.seq})
		return true
	}
	if j.Submit < s.last {
		s.err = in.errorf("job %d is submitted earlier than jobs already read, by more than the window of %d jobs; sort the file by submission", j.ID, s.limit)
		return false
	}
	if n := len(s.held); n > 0 && j.Submit < s.newest() {
		s.report.repair("job out of order, put in its place")
	}
	heap.Push(&s.held, heldJob{j, s.seq})
	if len(s.held) > s.limit {
		x := heap.Pop(&s.held).(heldJob)
		s.last = x.Submit
		return s.yield(x.Job)
	}
	return true
}

// newest is the submission of the job read before this one.
func (s *sorter) newest() workload.Time {
	best := s.held[0]
	for _, h := range s.held[max(0, len(s.held)-8):] { // the last pushed sits near the end of the heap; a hint is enough for a count
		if h.seq > best.seq {
			best = h
		}
	}
	return best.Submit
}

func (s *sorter) flush() {
	slices.SortFunc(s.held, func(a, b heldJob) int {
		switch {
		case a.Submit < b.Submit:
			return -1
		case a.Submit > b.Submit:
			return 1
		}
		return a.seq - b.seq
	})
	for i := range s.held {
		if !s.yield(s.held[i].Job) {
			return
		}
	}
}
