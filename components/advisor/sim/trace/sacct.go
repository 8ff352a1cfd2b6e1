package trace

import (
	"fmt"
	"strconv"
	"strings"

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
