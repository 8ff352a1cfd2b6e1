package bench

import (
	"bufio"
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
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed reference/learner.py
var reference []byte

// Goals of choosing for one state, in microseconds at the 99th percentile, and how many choices a round makes.
const (
	goalActor, goalCritics   = 20, 200
	callsActor, callsCritics = 20_000, 4_000
)

// errNoTorch says that there is nothing to compare with.
var errNoTorch = errors.New("no python3 here has torch (Debian: apt install python3-torch libopenblas0-pthread)")

// peer is PyTorch in a process of its own.
type peer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// python finds an interpreter with torch.
func python(ctx context.Context) (string, error) {
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exe, err := exec.LookPath(name); err == nil && exec.CommandContext(ctx, exe, "-c", "import torch").Run() == nil {
			return exe, nil
		}
	}
	return "", errNoTorch
}

// environment is what PyTorch runs fastest with: as many threads as it is given, OpenBLAS's own choice of kernels, and an allocator
// that keeps its memory, without which most of its time goes into page faults.
func environment(threads int) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "OPENBLAS_CORETYPE=") {
			env = append(env, v)
		}
	}
	n := fmt.Sprint(threads)
	return append(env, "OMP_NUM_THREADS="+n, "OPENBLAS_NUM_THREADS="+n, "MALLOC_TOP_PAD_=268435456", "MALLOC_MMAP_THRESHOLD_=4294967296", "MALLOC_TRIM_THRESHOLD_=4294967296")
}

func startPeer(ctx context.Context, exe, dir string, s Shape, threads int) (*peer, error) {
	script := filepath.Join(dir, "learner.py")
	if err := os.WriteFile(script, reference, 0o600); err != nil {
		return nil, err
	}
	shape, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &peer{cmd: exec.CommandContext(ctx, exe, script, string(shape), fmt.Sprint(threads))}
	p.cmd.Env, p.cmd.Stderr = environment(threads), os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.cmd.Start()
}

func (p *peer) ask(format string, args ...any) (answer []float64, err error) {
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		return nil, fmt.Errorf("PyTorch has ended: %w", err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("PyTorch gives no answer: %w", err)
	}
	return answer, json.Unmarshal(line, &answer)
}

func (p *peer) stop() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
}

// Run measures and prints a line a figure: NAME value unit ratio goal verdict. only restricts it to figures whose names contain it.
func Run(ctx context.Context, w, notes io.Writer, only string, rounds int) error {
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	exe, err := python(ctx)
	if err != nil {
		fmt.Fprintln(notes, "advisor:", err)
	}
	found := false
	for _, s := range Shapes {
		for _, threads := range []int{1, 2} {
			name := fmt.Sprintf("learner-update-%s/%d", s.Name, threads)
			if !strings.Contains(name, only) {
				continue
			}
			found = true
			if err := updates(ctx, w, notes, exe, dir, name, s, threads, rounds); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	for _, what := range []string{"actor", "critics"} {
		if name := "learner-infer-" + what; strings.Contains(name, only) || strings.Contains(name+"/cpu", only) || strings.Contains(name+"/allocations", only) {
			found = true
			if err := inference(ctx, w, exe, dir, name, what, rounds); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if !found {
		return fmt.Errorf("no figure's name contains %q; they begin with learner-update- and learner-infer-", only)
	}
	return nil
}

// compare holds the losses of one update against PyTorch's: what is timed must be the same.
func compare(u *update, p *peer) error {
	want, err := p.ask("check")
	if err != nil {
		return err
	}
	got, err := u.run(u.checked)
	if err != nil {
		return err
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d losses, PyTorch has %d", len(got), len(want))
	}
	for i, v := range got {
		if d := math.Abs(float64(v) - want[i]); !(d <= 1e-4*max(1, math.Abs(want[i]))) {
			return fmt.Errorf("loss %d is %v, PyTorch's is %v", i, v, want[i])
		}
	}
	return nil
}

// updates measures updates a second, ours and PyTorch's in turn. With one thread processor time is what counts, so that other work
// on the machine changes it little. With two it must be the clock, and PyTorch is asked with two threads and with one, of which the
// faster counts: where other work takes a processor away, its threads wait for each other and two are slower than one.
func updates(ctx context.Context, w, notes io.Writer, exe, dir, name string, s Shape, threads, rounds int) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
	u, err := newUpdate(s, threads)
	if err != nil {
		return err
	}
	defer u.close()
	var peers []*peer
	if exe != "" {
		for n := range threads {
			p, err := startPeer(ctx, exe, dir, s, n+1)
			if err != nil {
				return err
			}
			defer p.stop()
			peers = append(peers, p)
		}
		if err := compare(u, peers[0]); err != nil {
			return err
		}
	}
	goal, unit, which := s.ratioAlone, "1/cpu-s", 1
	if threads > 1 {
		goal, unit, which = s.ratioOnTwo, "1/s", 0
	}
	var rate, theirs, ratio []float64
	for round := range rounds + 1 {
		begin, used := time.Now(), processor()
		for range s.steps {
			if _, err := u.run(u.drawn); err != nil {
				return err
			}
		}
		took := []float64{time.Since(begin).Seconds(), (processor() - used).Seconds()}[which]
		other := math.Inf(1)
		for _, p := range peers {
			answer, err := p.ask("run %d", s.steps)
			if err != nil {
				return err
			}
			other = min(other, answer[which])
		}
		if round == 0 { // memory grows, caches fill
			continue
		}
		rate, theirs, ratio = append(rate, float64(s.steps)/took), append(theirs, float64(s.steps)/other), append(ratio, other/took)
	}
	if len(peers) == 0 {
		return line(w, name, median(rate), unit, 0, goal, "undecided")
	}
	fmt.Fprintf(notes, "%s: ours %.4g, fastest %.4g; PyTorch %.4g, fastest %.4g %s; ratios %.3g\n", name, median(rate), slices.Max(rate), median(theirs), slices.Max(theirs), unit, ratio)
	low, high := inner(ratio)
	return line(w, name, median(rate), unit, median(ratio), goal, verdict(low >= goal, high < goal))
}

// inference measures choosing for one state at the shape M, by the clock and in processor time: on a busy machine a hundredth of all
// choices is interrupted by something else.
func inference(ctx context.Context, w io.Writer, exe, dir, name, what string, rounds int) error {
	s := Shapes[1]
	u, err := newUpdate(s, 1)
	if err != nil {
		return err
	}
	defer u.close()
	calls, goal := callsActor, float64(goalActor)
	if what == "critics" {
		calls, goal = callsCritics, goalCritics
	}
	var p *peer
	if exe != "" {
		if p, err = startPeer(ctx, exe, dir, s, 1); err != nil {
			return err
		}
		defer p.stop()
	}
	c := u.chooser()
	took, used := make([]float64, calls), make([]float64, calls)
	var ours, cpu, theirs, theirCPU []float64
	runtime.LockOSThread() // for its clock
	defer runtime.UnlockOSThread()
	var before, after runtime.MemStats
	allocations := uint64(math.MaxUint64)
	for round := range rounds + 1 {
		runtime.GC() // what the update left behind is no part of a choice
		runtime.ReadMemStats(&before)
		for i := range took {
			begin := time.Now()
			c.choose(what == "critics")
			took[i] = time.Since(begin).Seconds() * 1e6
		}
		runtime.ReadMemStats(&after)
		for i := range used {
			begin := onThread()
			c.choose(what == "critics")
			used[i] = (onThread() - begin).Seconds() * 1e6
		}
		var other []float64
		if p != nil {
			if other, err = p.ask("infer %d %s", calls, what); err != nil {
				return err
			}
		}
		if round == 0 {
			continue
		}
		allocations = min(allocations, (after.Mallocs-before.Mallocs)/uint64(calls))
		ours, cpu = append(ours, percentile(took, .99)), append(cpu, percentile(used, .99))
		if p != nil {
			theirs, theirCPU = append(theirs, 1e6*percentile(other[:calls], .99)), append(theirCPU, 1e6*percentile(other[calls:], .99))
		}
	}
	for _, f := range []struct {
		name         string
		ours, theirs []float64
	}{{name, ours, theirs}, {name + "/cpu", cpu, theirCPU}} {
		ratio := 0.0
		if p != nil {
			ratio = median(f.ours) / median(f.theirs)
		}
		low, high := inner(f.ours)
		if err := line(w, f.name, median(f.ours), "us-p99", ratio, goal, verdict(high <= goal, low > goal)); err != nil {
			return err
		}
	}
	return line(w, name+"/allocations", float64(allocations), "1/call", 0, 0, verdict(allocations == 0, allocations > 0))
}

func line(w io.Writer, name string, value float64, unit string, ratio, goal float64, verdict string) error {
	r := "-"
	if ratio != 0 {
		r = fmt.Sprintf("%.3g", ratio)
	}
	_, err := fmt.Fprintf(w, "%s %.4g %s %s %g %s\n", name, value, unit, r, goal, verdict)
	return err
}

func verdict(ok, short bool) string {
	switch {
	case ok:
		return "ok"
	case short:
		return "short"
	}
	return "undecided"
}

func percentile(x []float64, p float64) float64 {
	s := slices.Clone(x)
	slices.Sort(s)
	return s[int(p*float64(len(s)-1))]
}

func median(x []float64) float64 { return percentile(x, .5) }

// inner gives the second value from below and from above: of nine, these enclose the median with 96 %.
func inner(x []float64) (low, high float64) {
	s := slices.Clone(x)
	slices.Sort(s)
	return s[min(1, len(s)-1)], s[max(len(s)-2, 0)]
}

// onThread is the processor time this thread has used.
func onThread() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// processor is the processor time this process has used.
func processor() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
