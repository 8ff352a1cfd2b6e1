package e2e

import (
	"fmt"
	"os"
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

// From sbatch into an empty pool to the job's first line, and where the time goes.
func TestBenchFirstLine(t *testing.T) {
	r := bench(t, 30*time.Minute)
	parts := map[string][]float64{}
	order := []string{"slurm-allocates", "pod-starts", "node-registers", "job-starts"}
	var total []float64
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
