package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// sacctJob is the part of a job in sacct --json that is used. Numbers come plain or as {set, infinite, number}.
type sacctJob struct {
	JobID int64 `json:"job_id"`
	Array struct {
		JobID  slurmNumber `json:"job_id"`
		Limits struct {
			Max struct{ Running struct{ Tasks slurmNumber } }
		}
	}
	Association struct{ Account, Partition, User string }
	User        string
	Partition   string
	Account     string
	QOS         string
	Time        struct {
		Submission, Start, End, Eligible slurmNumber
		Limit                            slurmNumber
	}
	State struct{ Current slurmStates }
	TRES  struct {
		Allocated, Requested []struct {
			Type, Name string
			Count      float64
		}
	}
	Required struct{ CPUs slurmNumber }
}

type slurmNumber struct {
	set bool
	v   float64
}

// UnmarshalJSON reads a number, or Slurm's object with set, infinite and number.
func (n *slurmNumber) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &n.v); err == nil {
		n.set = true
		return nil
	}
	var o struct {
		Set, Infinite bool
		Number        float64
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	n.set, n.v = o.Set && !o.Infinite, o.Number
	return nil
}

type slurmStates []string

// UnmarshalJSON reads a list of states, or the one string of older versions.
func (s *slurmStates) UnmarshalJSON(b []byte) error {
	var one string
	if err := json.Unmarshal(b, &one); err == nil {
		*s = slurmStates{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(s))
}

// readSacctJSON streams the array "jobs" of sacct --json.
func readSacctJSON(in *input, emit func(workload.Job) bool) error {
	counted := newLineCounter(in.r)
	d := json.NewDecoder(counted)
	fail := func(err error) error {
		in.line = counted.lines + 1
		return in.errorf("not the output of sacct --json: %v", err)
	}
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return fail(orUnexpected(err, "it does not begin with {"))
	}
	for d.More() {
		counted.element()
		key, err := d.Token()
		if err != nil {
			return fail(err)
		}
		if key != "jobs" {
			var skip json.RawMessage
			if err := d.Decode(&skip); err != nil {
				return fail(err)
			}
			continue
		}
		if tok, err := d.Token(); err != nil || tok != json.Delim('[') {
			return fail(orUnexpected(err, `"jobs" is not a list`))
		}
		for d.More() {
			counted.element()
			var s sacctJob
			if err := d.Decode(&s); err != nil {
				return fail(err)
			}
			in.line = counted.lines + 1
			j, keep, err := s.job(in)
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
		if _, err := d.Token(); err != nil {
			return fail(err)
		}
	}
	if _, err := d.Token(); err != nil {
		return fail(err)
	}
	return nil
}

func orUnexpected(err error, msg string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s", msg)
}

func (s *sacctJob) job(in *input) (j workload.Job, keep bool, err error) {
	in.report.Lines++
	ended := false
	for _, st := range s.State.Current {
		ended = ended || finished(st)
	}
	if !ended || s.Time.Start.v <= 0 || s.Time.End.v <= 0 {
		in.report.repair("job that has not run to an end, left out")
		return j, false, nil
	}
	for _, v := range []float64{s.Time.Submission.v, s.Time.Start.v, s.Time.End.v, s.Time.Limit.v * 60} {
		if v < 0 || v > workload.MaxSeconds {
			return j, false, in.errorf("job %d: time %g s is out of range", s.JobID, v)
		}
	}
	j.ID = s.JobID
	if v := s.Array.JobID.v; v > 0 && v < 1<<42 {
		j.Array = int64(v)
	}
	if v := s.Array.Limits.Max.Running.Tasks.v; v > 0 && v < 1<<31 {
		j.ArrayLimit = int32(v)
	}
	j.Submit = workload.Seconds(s.Time.Submission.v)
	if s.Time.Eligible.v > s.Time.Submission.v && s.Time.Eligible.v <= s.Time.Start.v {
		j.Submit = workload.Seconds(s.Time.Eligible.v)
		in.report.repair("submission moved to when the job became eligible")
	}
	j.Run = workload.Seconds(s.Time.End.v) - workload.Seconds(s.Time.Start.v)
	if s.Time.Limit.set {
		j.Limit = workload.Seconds(s.Time.Limit.v * 60)
	}
	j.User, j.Account, j.Partition, j.QOS = s.Association.User, s.Association.Account, s.Partition, s.QOS
	if j.User == "" {
		j.User = s.User
	}
	if j.Account == "" {
		j.Account = s.Account
	}
	tres := s.TRES.Allocated
	if len(tres) == 0 {
		tres = s.TRES.Requested
	}
	for _, t := range tres {
		if t.Count < 0 || t.Count > 1e15 {
			continue // Slurm's marks for "not set"
		}
		name := t.Type
		if t.Type == "gres" {
			name = "gres/" + t.Name
		}
		setOneTRES(&j, name, t.Count)
	}
	if j.Procs == 0 && s.Required.CPUs.v > 0 && s.Required.CPUs.v < 1<<30 {
		j.Procs, j.CPUMilli = int32(s.Required.CPUs.v), int64(s.Required.CPUs.v*1000)
	}
	return keepRun(in, j)
}

// maxElement bounds the memory that one element of a JSON trace may take: one job, or what sacct says beside its jobs.
const maxElement = 8 << 20

// lineCounter counts the lines that have been read through it, which is near enough to say where a JSON error lies, and refuses to
// read on where an element has no end.
type lineCounter struct {
	r     io.Reader
	lines int
	left  int // bytes that the element may still take
}

func newLineCounter(r io.Reader) *lineCounter { return &lineCounter{r: r, left: maxElement} }

// element begins another element.
func (c *lineCounter) element() { c.left = maxElement }

func (c *lineCounter) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("an element is longer than %d bytes", maxElement)
	}
	n, err := c.r.Read(p)
	c.left -= n
	for _, b := range p[:n] {
		if b == '\n' {
			c.lines++
		}
	}
	return n, err
}

// unixMicro is for JSON with timestamps as strings.
func unixMicro(in *input, s string) (workload.Time, error) {
	if s == "" || s == "None" {
		return 0, fmt.Errorf("no time")
	}
	loc := in.opt.Location
	if loc == nil {
		loc = time.UTC
	}
	if t, err := time.ParseInLocation("2006-01-02 15:04:05 MST", s, loc); err == nil {
		// Go takes an abbreviation that the zone does not use, such as PDT in UTC, as one without an offset.
		if name, offset := t.Zone(); offset == 0 && t.Location() != loc && t.Location() != time.UTC {
			return 0, fmt.Errorf("%q is in zone %s, which %s does not use; name the trace's zone with --timezone", s, name, loc)
		}
		return t.UnixMicro(), nil
	}
	return in.timestamp(s)
}
