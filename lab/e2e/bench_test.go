package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The figures of `make bench` that need the box. Each prints lines `NAME value unit ratio goal ok|short|undecided`
// (lab/bench.sh); "-" stands for what a figure does not have.
func bench(t *testing.T, bound time.Duration) *run {
	t.Helper()
	if os.Getenv("BERTH_E2E_BENCH") != "1" {
		t.Skip("a figure of make bench: set BERTH_E2E_BENCH=1")
	}
	return begin(t, bound)
}

// rounds is how often a figure is measured. Of five values the second and the fourth enclose the median with 62 %, the
// first and the last with 94 %: the verdict takes the latter.
const rounds = 5

// report prints a figure's line from its values in seconds. goal 0: no goal.
func report(name string, seconds []float64, goal float64) {
	sort.Float64s(seconds)
	wanted, verdict := "-", "-"
	if goal > 0 {
		wanted = strconv.FormatFloat(goal, 'g', -1, 64)
		switch {
		case seconds[len(seconds)-1] <= goal:
			verdict = "ok"
		case seconds[0] > goal:
			verdict = "short"
		default:
			verdict = "undecided"
		}
	}
	fmt.Printf("%s %.2f s - %s %s\n", name, seconds[len(seconds)/2], wanted, verdict)
}

// From the push of a changed site to every layer Ready and slurmctld running with it.
func TestBenchPush(t *testing.T) {
	r := bench(t, 15*time.Minute)
	s := r.clone()
	var seconds []float64
	shares := 2
	for i := range rounds {
		s.edit("vision:", strconv.Itoa(shares), strconv.Itoa(10+i))
		shares = 10 + i
		seconds = append(seconds, s.deliver("Give vision another share").Seconds())
	}
	report("push-to-converged", seconds, 0)
}

// From sbatch into an empty pool to the job's first line, and where the time goes; then the same without the prolog that waits in
// slurmctld until the node has registered.
func TestBenchFirstLine(t *testing.T) {
	r := bench(t, 30*time.Minute)
	parts := map[string][]float64{}
	order := []string{"slurm-allocates", "pod-starts", "node-registers", "job-starts"}
	var total, without []float64
	for range rounds {
		r.waitNoWorkers("cpu")
		marks := r.firstLine()
		for i, part := range order {
			parts[part] = append(parts[part], marks[i+1].Sub(marks[i]).Seconds())
		}
		total = append(total, marks[len(marks)-1].Sub(marks[0]).Seconds())
	}
	report("sbatch-to-first-line", total, 6)
	for _, part := range order {
		report("sbatch-to-first-line/"+part, parts[part], 0)
	}
	r.withoutProlog(func() {
		for range rounds {
			r.waitNoWorkers("cpu")
			marks := r.firstLine()
			without = append(without, marks[len(marks)-1].Sub(marks[0]).Seconds())
		}
	})
	report("sbatch-to-first-line/without-prolog", without, 0)
}

// What the waiting prolog costs where there is nothing to wait for: 1,000 jobs that do nothing, on two workers that stay up. Rounds with
// and without it alternate, and the ratio is that of their medians.
func TestBenchProlog(t *testing.T) {
	r := bench(t, 40*time.Minute)
	s := r.clone()
	s.edit("cpu:", "max: 4", "min: 2, max: 2")
	s.edit("cpu:", "partition: default: true", `partition: {default: true, overSubscribe: "FORCE:8"}`)
	s.deliver("Two workers that stay up")
	r.eventually(workerStarts, "two workers are idle", func() (bool, string) {
		out, err := r.inController("sinfo --noheader --Node --format=%T --partition=cpu --responding --states=idle")
		if err != nil {
			return false, err.Error()
		}
		return len(strings.Fields(out)) == 2, out
	})
	var with, without []float64
	for range 3 {
		with = append(with, r.thousandJobs())
		r.withoutProlog(func() { without = append(without, r.thousandJobs()) })
	}
	report("1000-jobs", with, 0)
	report("1000-jobs/without-prolog", without, 0)
	fmt.Printf("1000-jobs/prolog %.2f ms/job %.3f - -\n", with[1]-without[1], with[1]/without[1]) // s/1,000 jobs are ms/job
}

// A job that comes just when the only node that it can have goes to sleep: Slurm gives the node to nobody until it has slept, which takes
// SuspendTimeout, and then has to notice.
func TestBenchPoweringDown(t *testing.T) {
	r := bench(t, 30*time.Minute)
	var seconds []float64
	for range rounds {
		r.waitJob(r.submit(student, "--partition=gpu-rtx3080", "true"), "COMPLETED", 2*workerStarts)
		r.eventually(workersLeave, "the node powers down", func() (bool, string) {
			out, err := r.inController("sinfo --noheader --format=%T --partition=gpu-rtx3080")
			if err != nil {
				return false, err.Error()
			}
			return strings.HasSuffix(strings.TrimSpace(out), "%"), out
		})
		began := time.Now()
		r.waitJob(r.submit(student, "--partition=gpu-rtx3080", "sleep 5"), "RUNNING", 2*workerStarts)
		seconds = append(seconds, time.Since(began).Seconds())
	}
	report("sbatch-while-powering-down", seconds, 0)
}

// thousandJobs runs an array of 1,000 jobs that do nothing, and returns the seconds from its submission to the end of the last.
func (r *run) thousandJobs() float64 {
	r.Helper()
	began := time.Now()
	id := r.mustAs(student, "sbatch --parsable --job-name=e2e --partition=cpu --mem-per-cpu=50M --output=/dev/null --array=0-999 --wrap true")
	r.submitted = append(r.submitted, id)
	r.eventually(15*time.Minute, "1,000 jobs have ended", func() (bool, string) {
		out, err := r.as(student, "squeue --noheader --format=%T --jobs="+id)
		if err != nil {
			return strings.Contains(err.Error(), "Invalid job id"), err.Error()
		}
		return out == "", out
	})
	took := time.Since(began).Seconds()
	r.eventually(3*time.Minute, "1,000 records", func() (bool, string) {
		out, err := r.as(student, "sacct --noheader --parsable2 --array --allocations --format=state --jobs="+id+" | sort | uniq -c")
		if err != nil {
			return false, err.Error()
		}
		return strings.Join(strings.Fields(out), " ") == "1000 COMPLETED", out
	})
	return took
}

// withoutProlog does something while slurmctld has no PrologSlurmctld. The site cannot say so, which is why the rendered slurm.conf is
// edited.
func (r *run) withoutProlog(do func()) {
	r.Helper()
	s := r.clone()
	path := filepath.Join(s.dir, "overlays", siteName, "slurm", "slurmconfig-slurm.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		r.Fatal(err)
	}
	const line = "      PrologSlurmctld=/usr/libexec/berth/prolog-slurmctld\n"
	if strings.Count(string(text), line) != 1 {
		r.Fatalf("%s has not once the line %q", path, line)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), line, "", 1)), 0o644); err != nil {
		r.Fatal(err)
	}
	s.push("Without the prolog in slurmctld")
	s.converged()
	if out := r.mustController("scontrol show config | grep ^PrologSlurmctld"); !strings.Contains(out, "(null)") {
		r.Fatalf("slurmctld still has a prolog: %s", out)
	}
	do()
	s.revertLast()
	s.converged()
}

// firstLine runs a job in an empty pool and returns when it was submitted, when slurmctld gave it its node, when slurmd
// started there, when its node was registered, and when its script ran.
func (r *run) firstLine() []time.Time {
	r.Helper()
	submitted := r.mustAs(student, "date +%s.%N; sbatch --parsable --job-name=e2e --partition=cpu --output="+outputDir+
		"/e2e-%j.out --wrap 'date +%s.%N; sleep 20'")
	at, id, ok := strings.Cut(submitted, "\n")
	if !ok {
		r.Fatalf("sbatch said %q", submitted)
	}
	r.submitted = append(r.submitted, id)
	j := r.waitJob(id, "RUNNING", workerStarts)
	var first string
	r.eventually(30*time.Second, "the job's first line", func() (bool, string) {
		first = strings.TrimSpace(r.outputOrWhy(id))
		_, err := strconv.ParseFloat(first, 64)
		return err == nil, first
	})
	controller := r.kubectl("logs", "--timestamps", "-n", platform, controllerPod, "-c", controllerContainer, "--since=10m")
	worker := r.kubectl("logs", "--timestamps", "-n", workers, j.nodes)
	marks := []time.Time{
		unixTime(r, at),
		r.logged(controller, "Allocate JobId="+id+" "),
		r.logged(worker, "slurmd version"),
		r.logged(controller, "Node "+j.nodes+" now responding"),
		unixTime(r, first),
	}
	for i := 1; i < len(marks); i++ {
		if marks[i].Before(marks[i-1]) {
			r.Fatalf("the marks of job %s are not in order: %v", id, marks)
		}
	}
	return marks
}

func unixTime(r *run, text string) time.Time {
	r.Helper()
	seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		r.Fatal(err)
	}
	return time.UnixMicro(int64(seconds * 1e6))
}

// logged is the time of the last line with these words in a log with kubectl's timestamps.
func (r *run) logged(log, words string) time.Time {
	r.Helper()
	lines := strings.Split(log, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		stamp, line, _ := strings.Cut(lines[i], " ")
		if !strings.Contains(line, words) {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			r.Fatalf("log line %q: %v", lines[i], err)
		}
		return at
	}
	r.Fatalf("the log does not say %q:\n%s", words, lastLines(log, 30))
	return time.Time{}
}
