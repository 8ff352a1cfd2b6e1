package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// SacctFormat is the format to ask sacct -P for, so that all the importer can use is there.
const SacctFormat = "JobIDRaw,JobID,User,Account,Partition,QOS,Submit,Start,End,ElapsedRaw,TimelimitRaw,AllocCPUS,ReqCPUS,ReqMem,AllocTRES,ReqTRES,State,NNodes"

func sniffSacct(head string) bool {
	l := "|" + firstLine(head) + "|"
	return containsAll(l, "|JobID", "|Submit|", "|State|")
}

func sniffSacctJSON(head string) bool {
	h := strings.TrimSpace(head)
	return strings.HasPrefix(h, "{") && (containsAll(h, `"jobs"`, `"association"`) || containsAll(h, `"meta"`, `"Slurm`) || containsAll(h, `"meta"`, `"slurm"`))
}

// readSacct reads the parsable output of sacct. Job steps are left out; unfinished and never started jobs are counted.
func readSacct(in *input, emit func(workload.Job) bool) error {
	t, err := newTable(in, "|", "Submit", "Start", "End", "State")
	if err != nil {
		return err
	}
	idCol := "JobIDRaw"
	if !t.has(idCol) {
		idCol = "JobID"
	}
	limits := arrayLimits{}
	return t.rows(emit, func() (j workload.Job, keep bool, err error) {
		if strings.Contains(t.str(idCol), ".") || strings.Contains(t.str("JobID"), ".") {
			return j, false, nil // a step
		}
		limits.note(t)
		if !finished(t.str("State")) || isUnknown(t.str("Start")) || isUnknown(t.str("End")) {
			in.report.repair("job that has not run to an end, left out")
			return j, false, nil
		}
		if j, err = sacctRow(t, idCol); err != nil {
			return j, false, err
		}
		j.ArrayLimit = limits[j.Array]
		return keepRun(in, j)
	})
}

// arrayLimits is how many tasks of an array may run at once, by the array's id, as far as sacct has said. It says so in two places:
// in the JobID of the record that stands for tasks that have not started, such as 12_[4-10%2], and in the SubmitLine.
type arrayLimits map[int64]int32

// manyArrays bounds the memory.
const manyArrays = 1 << 16

func (l arrayLimits) note(t *table) {
	head, tasks, ok := strings.Cut(t.str("JobID"), "_")
	if !ok {
		return
	}
	id, err := strconv.ParseInt(head, 10, 64)
	if err != nil || l[id] > 0 {
		return
	}
	_, limit, found := strings.Cut(strings.TrimSuffix(tasks, "]"), "%")
	if !found {
		words := strings.Fields(t.str("SubmitLine"))
		for i, w := range words {
			spec, isArray := strings.CutPrefix(w, "--array=")
			if (w == "--array" || w == "-a") && i+1 < len(words) {
				spec, isArray = words[i+1], true
			} else if s, short := strings.CutPrefix(w, "-a"); !isArray && short && s != "" && s[0] >= '0' && s[0] <= '9' {
				spec, isArray = s, true
			}
			if isArray {
				_, limit, found = strings.Cut(spec, "%")
				break
			}
		}
	}
	if n, err := strconv.ParseInt(limit, 10, 32); found && err == nil && n > 0 {
		if len(l) >= manyArrays {
			clear(l)
		}
		l[id] = int32(n)
	}
}

func sacctRow(t *table, idCol string) (j workload.Job, err error) {
	in := t.in
	head, task, isTask := strings.Cut(t.str("JobID"), "_")
	if idCol == "JobID" {
		// Without the raw id the tasks of an array share a number: keep them apart.
		if j.ID, err = strconv.ParseInt(head, 10, 64); err != nil {
			return j, in.errorf("JobID %q is not a number", t.str("JobID"))
		}
		if n, err := strconv.ParseInt(task, 10, 32); err == nil {
			if j.ID < 0 || j.ID >= 1<<42 || n < 0 || n >= 1<<20 {
				return j, in.errorf("JobID %q is out of range", t.str("JobID"))
			}
			j.ID = j.ID<<20 + n + 1
		}
	} else if j.ID, err = strconv.ParseInt(strings.SplitN(t.str(idCol), "+", 2)[0], 10, 64); err != nil {
		return j, in.errorf("%s %q is not a number", idCol, t.str(idCol))
	}
	if isTask {
		j.Array, _ = strconv.ParseInt(head, 10, 64)
	}
	if j.Submit, err = in.timestamp(t.str("Submit")); err != nil {
		return j, err
	}
	if s := t.str("Eligible"); s != "" && !isUnknown(s) {
		if at, err := in.timestamp(s); err == nil && at > j.Submit {
			j.Submit = at // held, or waiting for a dependency: it was not the scheduler that kept it
			in.report.repair("submission moved to when the job became eligible")
		}
	}
	start, err := in.timestamp(t.str("Start"))
	if err != nil {
		return j, err
	}
	end, err := in.timestamp(t.str("End"))
	if err != nil {
		return j, err
	}
	j.Run = end - start
	if j.Limit, err = sacctLimit(t); err != nil {
		return j, err
	}
	j.User, j.Account, j.Partition, j.QOS = t.str("User"), t.str("Account"), t.str("Partition"), t.str("QOS")
	tres := t.str("AllocTRES")
	if tres == "" {
		tres = t.str("ReqTRES")
	}
	if err := setTRES(&j, tres); err != nil {
		return j, in.errorf("%v", err)
	}
	if j.Procs == 0 {
		for _, c := range []string{"AllocCPUS", "ReqCPUS"} {
			if v := optional(t.str(c)); v > 0 && v < 1<<30 {
				j.Procs = int32(v)
				break
			}
		}
		j.CPUMilli = int64(j.Procs) * 1000
	}
	return j, nil
}

// sacctLimit reads the time limit; unlimited jobs get their run time later.
func sacctLimit(t *table) (workload.Time, error) {
	if s := t.str("TimelimitRaw"); s != "" { // minutes
		if v, err := strconv.ParseFloat(s, 64); err == nil && v > 0 && v < workload.MaxSeconds/60 {
			return workload.Seconds(v * 60), nil
		}
		return 0, nil // UNLIMITED, Partition_Limit
	}
	s := t.str("Timelimit")
	if s == "" || isUnknown(s) || s == "UNLIMITED" || s == "Partition_Limit" {
		return 0, nil
	}
	d, err := slurmDuration(s)
	if err != nil {
		return 0, t.in.errorf("Timelimit: %v", err)
	}
	return d, nil
}

// slurmDuration reads [days-]hours:minutes:seconds, minutes:seconds, or minutes.
func slurmDuration(s string) (workload.Time, error) {
	days, rest, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, rest = "0", s
	}
	parts := append([]string{days}, strings.Split(rest, ":")...)
	var v [4]int64
	for i, p := range parts {
		n, err := strconv.ParseInt(p, 10, 32)
		if err != nil || n < 0 || i > 3 {
			return 0, fmt.Errorf("%q is not a Slurm time like 1-12:00:00", s)
		}
		v[i] = n
	}
	var sec int64
	switch {
	case len(parts) == 4 || hasDays:
		sec = v[0]*86400 + v[1]*3600 + v[2]*60 + v[3]
	case len(parts) == 3:
		sec = v[1]*60 + v[2]
	default:
		sec = v[1] * 60
	}
	if sec > workload.MaxSeconds {
		return 0, fmt.Errorf("%q is longer than the clock allows", s)
	}
	return sec * workload.Second, nil
}

func isUnknown(s string) bool { return s == "" || s == "Unknown" || s == "None" || s == "N/A" }

// finished says that a state is one that a job stays in after it ran.
func finished(state string) bool {
	word, _, _ := strings.Cut(state, " ") // "CANCELLED by 1000"
	switch strings.ToUpper(word) {
	case "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "DEADLINE", "BOOT_FAIL":
		return true
	}
	return false
}

// setTRES reads a list like billing=4,cpu=4,gres/gpu:rtx4070=1,gres/mps=25,mem=16G,node=1. gres/mps counts percent of a card.
func setTRES(j *workload.Job, list string) error {
	if list == "" {
		return nil
	}
	for item := range strings.SplitSeq(list, ",") {
		name, val, ok := strings.Cut(item, "=")
		if !ok {
			return fmt.Errorf("TRES %q has no value", item)
		}
		v, err := sizeMiB(val, name == "mem")
		if err != nil {
			return fmt.Errorf("TRES %s: %w", name, err)
		}
		setOneTRES(j, name, v)
	}
	return nil
}

func setOneTRES(j *workload.Job, name string, v float64) {
	gres, typ, typed := strings.Cut(strings.TrimPrefix(name, "gres/"), ":")
	switch {
	case name == "cpu":
		j.Procs, j.CPUMilli = int32(min(v, 1<<30)), int64(v*1000)
	case name == "mem":
		j.MemMiB = int64(v)
	case gres == "gpu":
		j.GPUs, j.GPUMilli = max(j.GPUs, int32(min(v, 1<<20))), 1000
		if typed {
			j.GPUTypes = []string{typ}
		}
	case gres == "mps" && v > 0:
		if v < 100 && j.GPUs == 0 {
			j.GPUs, j.GPUMilli = 1, int32(v*10)
		} else if j.GPUs == 0 {
			j.GPUs, j.GPUMilli = int32(min(v, 1<<20)+99)/100, 1000
		}
	}
}

// sizeMiB reads a number with an optional K, M, G, T suffix; memory without one is in MiB.
func sizeMiB(s string, memory bool) (float64, error) {
	mult := 1.0
	if n := len(s); n > 0 {
		if i := strings.IndexByte("KMGTP", s[n-1]); i >= 0 {
			s = s[:n-1]
			mult = [...]float64{1.0 / 1024, 1, 1024, 1 << 20, 1 << 30}[i]
			if !memory {
				mult *= 1 << 20 / 1.048576 // a count such as 2K
			}
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0 && v*mult < 1e15) {
		return 0, fmt.Errorf("%q is not an amount", s)
	}
	return v * mult, nil
}

// keepRun leaves out what a simulator cannot use and fills in missing limits.
func keepRun(in *input, j workload.Job) (workload.Job, bool, error) {
	switch {
	case j.Run < 0:
		in.report.repair("job that ended before it started, left out")
		return j, false, nil
	case j.Run == 0:
		in.report.repair("job of zero run time, left out")
		return j, false, nil
	case j.Procs == 0 && j.GPUs == 0:
		in.report.repair("job of zero processors, left out")
		return j, false, nil
	}
	if j.Limit <= 0 {
		j.Limit = j.Run
		in.report.repair("job without a time limit, given its run time")
	}
	if j.GPUMilli != 1000 && j.GPUs > 1 {
		j.GPUMilli = 1000
	}
	return j, true, nil
}

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
	if t, err := time.Parse("2006-01-02 15:04:05 MST", s); err == nil {
		return t.UnixMicro(), nil
	}
	return in.timestamp(s)
}
