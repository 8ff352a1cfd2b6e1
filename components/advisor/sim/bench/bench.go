// Package bench measures the simulator's speed, beside a plain Python simulator and against the goals it is built to.
package bench

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berth-hpc/berth/components/advisor/sim/generate"
	"github.com/berth-hpc/berth/components/advisor/sim/metrics"
	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/pool"
	"github.com/berth-hpc/berth/components/advisor/sim/trace"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

//go:embed reference/easy.py
var reference []byte

// Line is one measurement. Goal is in words; Verdict is ok, short, or undecided where it could not be measured.
type Line struct {
	Name    string
	Value   float64
	Unit    string
	Ratio   float64 // to what it is compared with; 0 if nothing
	Goal    string
	Verdict string
}

// String is NAME value unit ratio goal verdict.
func (l Line) String() string {
	ratio := "-"
	if l.Ratio != 0 {
		ratio = fmt.Sprintf("%.3g", l.Ratio)
	}
	return fmt.Sprintf("%s %.6g %s %s %s %s", l.Name, l.Value, l.Unit, ratio, l.Goal, l.Verdict)
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "short"
}

// Processors and load of the standard bench.
const (
	procs = 256
	load  = 0.9
)

func easy() policy.Discipline { return policy.Discipline{Order: policy.FCFS, Backfill: policy.EASY} }

// byHand is a measurement that takes minutes and is made only when asked for.
const byHand = "large"

// Run measures everything but that and prints a line each; megabytes is how long the file is that large reads. shared is the folder with traces; what needs one that is missing is undecided.
func Run(w io.Writer, shared, only string, megabytes int64) error {
	if megabytes < 1 || megabytes > 1<<20 {
		return fmt.Errorf("--megabytes is %d; a file of 1 to 1048576 MiB can be read", megabytes)
	}
	benches := []struct {
		name string
		run  func(string) ([]Line, error)
	}{
		{"python", againstPython},
		{"million", million},
		{"growth", growth},
		{"philly", philly},
		{"openb", openbRun},
		{"env", envStep},
		{byHand, func(string) ([]Line, error) { return large(megabytes) }},
	}
	known := only == ""
	var names []string
	for _, b := range benches {
		known = known || b.name == only
		names = append(names, b.name)
	}
	if !known {
		return fmt.Errorf("no measurement is called %q; use %s", only, strings.Join(names, ", "))
	}
	for _, b := range benches {
		if only != b.name && (only != "" || b.name == byHand) {
			continue
		}
		lines, err := b.run(shared)
		if err != nil {
			return fmt.Errorf("bench %s: %w", b.name, err)
		}
		for _, l := range lines {
			if _, err := fmt.Fprintln(w, "sim."+l.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// lublin gives a workload as pool jobs.
func lublin(n int, load float64) ([]pool.Job, []workload.Job, error) {
	src, err := generate.Lublin{Procs: procs, Jobs: n, Load: load, Seed: 1}.Source()
	if err != nil {
		return nil, nil, err
	}
	jobs, err := workload.Collect(src)
	if err != nil {
		return nil, nil, err
	}
	out := make([]pool.Job, len(jobs))
	for i := range jobs {
		out[i] = pool.FromWorkload(&jobs[i])
	}
	return out, jobs, nil
}

// simulate times one run over jobs in memory.
func simulate(jobs []pool.Job, d policy.Discipline, sink func(*pool.Result)) (time.Duration, *pool.Stats, error) {
	e, err := pool.New(pool.Config{Procs: procs, Discipline: d}, sink)
	if err != nil {
		return 0, nil, err
	}
	begin := processor()
	for i := range jobs {
		if err := e.Submit(&jobs[i]); err != nil {
			return 0, nil, err
		}
	}
	e.Drain()
	return processor() - begin, e.Stats(), nil
}

// processor is the processor time this process has used. Comparisons are in processor time, so that a busy machine changes them
// little.
func processor() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// againstPython runs 20,000 Lublin jobs through EASY here and in the Python reference, in rounds, and checks that both give the same
// mean bounded slowdown; neither counts computing it. In a round the reference runs once, and then ours as often as it takes to use as
// much processor time: the round's ratio is that of one run's time to the mean of the others, which the same noise has met. The figure is
// the median of nine rounds; the second and the eighth enclose it with 96 %, and the verdict is theirs.
func againstPython(string) ([]Line, error) {
	const n, rounds, goal = 20000, 9, 200
	jobs, full, err := lublin(n, load)
	if err != nil {
		return nil, err
	}
	for i := range jobs { // the reference reads whole seconds
		whole := func(t int64) int64 { return (t + workload.Second/2) / workload.Second * workload.Second }
		jobs[i].Submit, full[i].Submit = whole(jobs[i].Submit), whole(full[i].Submit)
	}
	mean := 0.0
	if _, _, err := simulate(jobs, easy(), func(r *pool.Result) {
		mean += metrics.BoundedSlowdown(workload.InSeconds(r.Start-r.Submit), workload.InSeconds(r.End-r.Start)) / n
	}); err != nil {
		return nil, err
	}
	var ours, theirs, ratios []float64
	for range rounds {
		py, err := python(full)
		if errors.Is(err, exec.ErrNotFound) {
			return []Line{{Name: "easy.20000", Unit: "ms", Goal: "200x-python", Verdict: "undecided"}}, nil
		}
		if err != nil {
			return nil, err
		}
		if math.Abs(py.BSLD-mean) > 1e-9*mean {
			return nil, fmt.Errorf("the Python reference finds a mean bounded slowdown of %v, we find %v", py.BSLD, mean)
		}
		spent, runs := 0.0, 0
		for ; spent < py.Seconds; runs++ {
			d, _, err := simulate(jobs, easy(), nil)
			if err != nil {
				return nil, err
			}
			spent += d.Seconds()
		}
		one := spent / float64(runs)
		ours, theirs, ratios = append(ours, one*1000), append(theirs, py.Seconds*1000), append(ratios, py.Seconds/one)
	}
	for _, v := range [][]float64{ours, theirs, ratios} {
		slices.Sort(v)
	}
	l := Line{Name: "easy.20000", Value: ours[rounds/2], Unit: "ms", Ratio: ratios[rounds/2], Goal: "200x-python", Verdict: "undecided"}
	switch {
	case ratios[1] >= goal:
		l.Verdict = "ok"
	case ratios[rounds-2] < goal:
		l.Verdict = "short"
	}
	return []Line{l, {Name: "easy.20000.python", Value: theirs[rounds/2], Unit: "ms", Goal: "reference", Verdict: "ok"}}, nil
}

type pythonResult struct {
	BSLD, Wait, Seconds float64
}

// python runs the reference on a trace written to a temporary folder.
func python(jobs []workload.Job) (r pythonResult, err error) {
	exe, err := exec.LookPath("python3")
	if err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	script, swf := filepath.Join(dir, "easy.py"), filepath.Join(dir, "trace.swf")
	if err := os.WriteFile(script, reference, 0o600); err != nil {
		return r, err
	}
	var b bytes.Buffer
	if _, err := trace.WriteSWF(&b, workload.FromSlice(jobs), procs, nil); err != nil {
		return r, err
	}
	if err := os.WriteFile(swf, b.Bytes(), 0o600); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, exe, script, swf, fmt.Sprint(procs), "fcfs", "easy").Output()
	if err != nil {
		return r, fmt.Errorf("the Python reference failed: %w", err)
	}
	return r, json.Unmarshal(out, &r)
}

// million streams 1,000,000 generated jobs through EASY on one core. The time is that of the simulation and the generation
// together; memory is the largest the Go runtime held.
func million(string) ([]Line, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	debug.FreeOSMemory()
	src, err := generate.Lublin{Procs: procs, Jobs: 1_000_000, Load: load, Seed: 1}.Source()
	if err != nil {
		return nil, err
	}
	e, err := pool.New(pool.Config{Procs: procs, Discipline: easy()}, nil)
	if err != nil {
		return nil, err
	}
	var ms runtime.MemStats
	peak, n := uint64(0), 0
	begin := processor()
	for j, err := range src {
		if err != nil {
			return nil, err
		}
		p := pool.FromWorkload(&j)
		if err := e.Submit(&p); err != nil {
			return nil, err
		}
		if n++; n%100_000 == 0 {
			runtime.ReadMemStats(&ms)
			peak = max(peak, ms.Sys)
		}
	}
	e.Drain()
	took := (processor() - begin).Seconds()
	return []Line{
		{Name: "easy.1000000", Value: took, Unit: "s", Goal: "10s", Verdict: verdict(took <= 10)},
		{Name: "easy.1000000.memory", Value: float64(peak) / (1 << 20), Unit: "MiB", Goal: "300MB", Verdict: verdict(peak < 300e6)},
	}, nil
}

// growth measures the cost per event for queues that grow with the trace (offered load 1.5, so that a third of all jobs wait at
// the end), at 1e4, 1e5 and 1e6 jobs, and beside it the longest queue and how many nodes of its index an event looks into. The
// ratio is the cost at 1e6 over the cost at 1e4; it may not exceed the ratio of the logarithms of the longest queues.
func growth(string) ([]Line, error) {
	var lines []Line
	sizes := []int{10_000, 100_000, 1_000_000}
	all := map[int][]pool.Job{}
	for _, n := range sizes {
		jobs, _, err := lublin(n, 1.5)
		if err != nil {
			return nil, err
		}
		all[n] = jobs
	}
	for _, name := range []string{"fcfs", "sjf", "f1", "saf", "fcfs+easy", "sjf+easy", "f1+easy", "saf+easy"} {
		d, err := policy.ParseDiscipline(name)
		if err != nil {
			return nil, err
		}
		cost, queue, visits := make([]float64, len(sizes)), make([]float64, len(sizes)), make([]float64, len(sizes))
		// By turns, and each size as often as it takes to simulate as many jobs, in stretches of one size: the fastest stretch of either is
		// compared, and all are equally long, so that a disturbance is as likely to be in one as in another.
		const turns, stretch = 3, 1_000_000
		for i := range cost {
			cost[i] = math.Inf(1)
		}
		for range turns {
			for i, n := range sizes {
				took := time.Duration(0)
				for range stretch / n {
					d, st, err := simulate(all[n], d, nil)
					if err != nil {
						return nil, err
					}
					took += d
					queue[i], visits[i] = float64(st.MaxWaiting), float64(st.Visits)/float64(2*n)
				}
				cost[i] = min(cost[i], float64(took.Nanoseconds())/(2*stretch))
			}
		}
		for i, n := range sizes {
			lines = append(lines, Line{Name: fmt.Sprintf("growth.%s.%d", name, n), Value: cost[i], Unit: "ns/event",
				Goal: fmt.Sprintf("queue=%.0f,nodes=%.2f", queue[i], visits[i]), Verdict: "ok"})
		}
		bound := math.Log2(queue[2]) / math.Log2(max(queue[0], 2))
		ratio := cost[2] / cost[0]
		lines[len(lines)-1].Ratio = ratio
		lines[len(lines)-1].Goal = fmt.Sprintf("<=log-ratio-%.2f", bound)
		lines[len(lines)-1].Verdict = verdict(ratio <= bound)
	}
	return lines, nil
}
