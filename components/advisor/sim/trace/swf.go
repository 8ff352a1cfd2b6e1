package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// The columns of the standard workload format (Feitelson; counted from 0).
const (
	swfID, swfSubmit, swfWait, swfRun, swfAlloc, swfReqProcs, swfReqTime = 0, 1, 2, 3, 4, 7, 8
	swfStatus, swfUser, swfGroup, swfQueue, swfPartition, swfPrevious    = 10, 11, 12, 14, 15, 16
	swfColumns                                                           = 18
)

func sniffSWF(head string) bool {
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == ';' {
			if strings.HasPrefix(line, ";") && (containsAll(line, "Version") || containsAll(line, "MaxProcs") || containsAll(line, "UnixStartTime")) {
				return true
			}
			continue
		}
		return len(strings.Fields(line)) == swfColumns && strings.IndexFunc(line, func(r rune) bool {
			return (r < '0' || r > '9') && !strings.ContainsRune(" \t.-+eE", r)
		}) < 0
	}
	return strings.HasPrefix(head, ";")
}

// readSWF reads the standard workload format. A job's width is the larger of allocated and requested processors, its limit
// the requested time or, if there is none, the run time.
func readSWF(in *input, emit func(workload.Job) bool) error {
	fields := make([]string, 0, swfColumns+4)
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if line[0] == ';' {
			if k, v, ok := strings.Cut(line[1:], ":"); ok {
				if in.report.Header == nil {
					in.report.Header = map[string]string{}
				}
				if len(in.report.Header) < maxFields {
					in.report.Header[strings.TrimSpace(k)] = strings.TrimSpace(v)
				}
			}
			continue
		}
		fields = fields[:0]
		for f := range strings.FieldsSeq(line) {
			fields = append(fields, f)
		}
		j, keep, err := swfJob(in, fields)
		if err != nil {
			if err = in.bad(err); err != nil {
				return err
			}
			continue
		}
		if keep && !emit(j) {
			return errStopped
		}
	}
}

func swfJob(in *input, f []string) (j workload.Job, keep bool, err error) {
	if len(f) < swfColumns {
		return j, false, in.errorf("%d of %d columns; the line is truncated", len(f), swfColumns)
	}
	var v [swfColumns]float64
	for i := range v {
		if v[i], err = strconv.ParseFloat(f[i], 64); err != nil || !(math.Abs(v[i]) <= workload.MaxSeconds) {
			_, err = in.number("column "+strconv.Itoa(i+1), f[i])
			return j, false, err
		}
	}
	procs := max(v[swfAlloc], v[swfReqProcs])
	switch {
	case procs <= 0:
		in.report.repair("job of zero processors, left out")
		return j, false, nil
	case procs > 1<<30 || procs != float64(int32(procs)):
		return j, false, in.errorf("%s processors is not a plausible whole number", f[swfReqProcs])
	case v[swfSubmit] < 0:
		in.report.repair("job with a negative submission time, left out")
		return j, false, nil
	case v[swfRun] < 0 && in.opt.UnknownRun > 0:
		in.report.repair("job of unknown run time, given the assumed one")
		v[swfRun] = workload.InSeconds(in.opt.UnknownRun)
	case v[swfRun] < 0:
		in.report.repair("job that never ran (negative run time), left out")
		return j, false, nil
	}
	j.ID = int64(v[swfID])
	j.Submit = workload.Seconds(v[swfSubmit])
	j.Run = workload.Seconds(v[swfRun])
	j.Limit = j.Run
	if v[swfReqTime] > 0 {
		j.Limit = workload.Seconds(v[swfReqTime])
	}
	if j.Limit == 0 {
		j.Limit = workload.Second // ended within the second it started, and nothing was requested
		in.report.repair("job without run time and request, given a limit of one second")
	}
	j.Procs = int32(procs)
	j.User, j.Account = swfName("user", v[swfUser]), swfName("group", v[swfGroup])
	j.Partition = swfName("partition", v[swfPartition])
	if v[swfPrevious] > 0 {
		j.After = []int64{int64(v[swfPrevious])}
	}
	return j, true, nil
}

func swfName(kind string, v float64) string {
	if v < 0 {
		return ""
	}
	return kind + strconv.FormatInt(int64(v), 10)
}

// WriteSWF writes jobs in the standard workload format; outcome, if not nil, gives the wait of a job. Times are rounded to
// whole seconds, as the format wants. It returns the number of jobs.
func WriteSWF(w io.Writer, src workload.Source, maxProcs int, outcome func(id int64) (wait workload.Time, ok bool)) (int, error) {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "; Version: 2.2\n; MaxProcs: %d\n; Note: written by Berth's simulator\n", maxProcs)
	users, groups, parts := numbering{}, numbering{}, numbering{}
	n := 0
	for j, err := range src {
		if err != nil {
			return n, err
		}
		wait := int64(-1)
		if outcome != nil {
			if t, ok := outcome(j.ID); ok {
				wait = wholeSeconds(t)
			}
		}
		procs, prev := j.Procs, int64(-1)
		if procs == 0 {
			procs = max(j.GPUs, 1)
		}
		if len(j.After) > 0 {
			prev = j.After[0]
		}
		fmt.Fprintf(b, "%d %d %d %d %d -1 -1 %d %d -1 1 %d %d -1 -1 %d %d -1\n", j.ID, wholeSeconds(j.Submit), wait,
			max(wholeSeconds(j.Run), 1), procs, procs, max(wholeSeconds(j.Limit), 1), users.of(j.User), groups.of(j.Account), parts.of(j.Partition), prev)
		n++
	}
	return n, b.Flush()
}

func wholeSeconds(t workload.Time) int64 { return (t + workload.Second/2) / workload.Second }

// numbering gives names numbers in order of appearance, as SWF wants; −1 for none.
type numbering map[string]int

func (n numbering) of(name string) int {
	if name == "" {
		return -1
	}
	if i, ok := n[name]; ok {
		return i
	}
	n[name] = len(n) + 1
	return len(n)
}
