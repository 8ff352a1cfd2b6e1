package supervisor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/mps/card"
	"github.com/berth-hpc/berth/components/mps/control"
)

// standIn is the program that stands for NVIDIA's two.
var standIn string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "mps-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		// Servers and clients run as other users.
		if err := os.Chmod(dir, 0o755); err != nil {
			panic(err)
		}
		standIn = filepath.Join(dir, "nvidia-cuda-mps-control")
		build := exec.Command("go", "build", "-o", standIn, "../standin/nvidia-cuda-mps-control")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			panic(fmt.Sprintf("build the stand-in: %v", err))
		}
		return m.Run()
	}())
}

// slurmd plays Slurm: it remembers what it was told.
type slurmd struct {
	mu       sync.Mutex
	states   map[string]string
	told     []string
	drained  string
	killWait time.Duration
}

func (s *slurmd) States(_ context.Context, jobs []string) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := map[string]string{}
	for _, id := range jobs {
		if state, ok := s.states[id]; ok {
			got[id] = state
		}
	}
	return got, nil
}

func (s *slurmd) Drain(_ context.Context, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained = reason
	return nil
}

func (s *slurmd) Undrain(_ context.Context, prefix string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasPrefix(s.drained, prefix) {
		s.drained = ""
	}
	return nil
}

func (s *slurmd) Comment(_ context.Context, job, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, job+": "+text)
	return nil
}

func (s *slurmd) KillWait() time.Duration { return s.killWait }

func (s *slurmd) set(id, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[id] = state
}

func (s *slurmd) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drained
}

func (s *slurmd) hears(job, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.told, job+": "+text)
}

// world is a supervisor with a card of 12 GiB, and its Slurm.
type world struct {
	*Supervisor
	t     *testing.T
	slurm *slurmd
}

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	w := &world{t: t, slurm: &slurmd{states: map[string]string{}, killWait: 30 * time.Second}}
	c := Config{
		Root: filepath.Join(dir, "run"), Log: filepath.Join(dir, "log"), Program: standIn, Reserve: 512 << 20,
		Cards: func() ([]card.Card, string, error) { return []card.Card{{UUID: "GPU-1", Memory: 12 << 30}}, "", nil },
		Slurm: w.slurm, JobOf: func(int) (string, bool) { return "", false },
		Start: 5 * time.Second, Stop: 2 * time.Second, Command: time.Second,
		Recover: time.Hour, Poll: 20 * time.Millisecond, Ask: time.Hour,
		Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}
	if change != nil {
		change(&c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	w.Supervisor = s
	t.Cleanup(func() {
		if d := s.daemon(); d != nil && d.alive() {
			_ = syscall.Kill(-d.PID, syscall.SIGKILL)
			w.eventually("the daemon is gone", func() bool { return !d.alive() })
		}
	})
	return w
}

// testWriter is the test's log; lines after the test's end are dropped.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not in time: %s", what)
		}
	}
}

// watch looks after the card until the test's end.
func (w *world) watch() {
	done := make(chan struct{})
	go func() { defer close(done); w.Watch(w.t.Context()) }()
	w.t.Cleanup(func() { <-done })
}

func (w *world) share(id string, uid, percent int) {
	w.t.Helper()
	w.slurm.set(id, "RUNNING")
	if err := w.StartShare(context.Background(), id, Job{UID: uid, Percent: percent}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) end(id string) {
	w.t.Helper()
	if err := w.EndShare(context.Background(), id); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pid() int {
	if d := w.daemon(); d != nil && d.alive() {
		return d.PID
	}
	return 0
}

// tell gives the stand-in one of its own commands.
func (w *world) tell(command string) {
	w.t.Helper()
	cmd := exec.Command(standIn)
	cmd.Env = []string{"CUDA_MPS_PIPE_DIRECTORY=" + w.pipe()}
	cmd.Stdin = strings.NewReader("standin " + command + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("standin %s: %v %s", command, err, out)
	}
}

func (w *world) pipe() string { return filepath.Join(w.Root, "GPU-1") }

// program is a CUDA program that runs, as some user.
type program struct {
	*exec.Cmd
	in   io.WriteCloser
	said *bufio.Reader
}

func (w *world) program(uid int, args ...string) *program {
	w.t.Helper()
	cmd := exec.Command(standIn, append([]string{"client"}, args...)...)
	cmd.Env = []string{"CUDA_MPS_PIPE_DIRECTORY=" + w.pipe()}
	if uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &program{cmd, in, bufio.NewReader(out)}
}

func (p *program) says(t *testing.T, want string) {
	t.Helper()
	line, err := p.said.ReadString('\n')
	if strings.TrimSpace(line) != want {
		t.Fatalf("the program said %q, %v; want %q", line, err, want)
	}
}

// Four jobs share one daemon, which is there for them alone.
func TestOneDaemonForFour(t *testing.T) {
	w := newWorld(t, nil)
	w.share("1", os.Geteuid(), 25)
	first := w.pid()
	if first == 0 {
		t.Fatal("no daemon for the first job")
	}
	for _, id := range []string{"2", "3", "4"} {
		w.share(id, os.Geteuid(), 25)
	}
	if info, err := os.Stat(w.pipe()); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("pipe directory: %v %v; want 0755, for other users", info, err)
	}
	p := w.program(os.Geteuid())
	p.says(t, "attached")
	for _, id := range []string{"3", "1", "4"} {
		w.end(id)
		if w.pid() != first {
			t.Fatalf("after job %s the daemon is %d, not %d", id, w.pid(), first)
		}
	}
	_ = p.in.Close()
	w.end("2")
	if w.daemon() != nil || (&process{PID: first}).alive() {
		t.Error("the daemon outlives the last share")
	}
	if _, err := os.Stat(w.pipe()); !os.IsNotExist(err) {
		t.Errorf("the pipe directory is left, for a whole-card job to stumble over: %v", err)
	}
	w.end("2") // an epilog that runs again
	w.share("5", os.Geteuid(), 100)
	if w.pid() == 0 {
		t.Error("no daemon for the next job")
	}
}

func TestEnvironment(t *testing.T) {
	w := newWorld(t, nil)
	w.share("1", os.Geteuid(), 25)
	e, ok := w.Environment("1")
	if !ok || e.Pipe != w.pipe() || e.Visible != "0" || e.Percent != 25 {
		t.Errorf("%+v %v", e, ok)
	}
	// A quarter of 12 GiB less half a GiB.
	if got := e.Limit(25); got != "0=2944M" {
		t.Errorf("limit %s, want 0=2944M", got)
	}
	if got := (Environment{}).Limit(25); got != "" {
		t.Errorf("a card of unknown size has the limit %s", got)
	}
	if _, ok := w.Environment("2"); ok {
		t.Error("a job without a share has an environment")
	}

	declared := newWorld(t, func(c *Config) {
		c.Memory = 8 << 30
		c.Cards = func() ([]card.Card, string, error) { return []card.Card{{UUID: "GPU-1"}}, "no NVML", nil }
	})
	declared.share("1", os.Geteuid(), 50)
	if e, _ := declared.Environment("1"); e.Limit(50) != "0=3840M" {
		t.Errorf("limit %s of the 8 GiB that the site declares, want 0=3840M", e.Limit(50))
	}
}

func TestUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("servers and clients of other users need root")
	}
	w := newWorld(t, func(c *Config) { c.Shared = true })
	w.share("1", 2001, 25)
	w.share("2", 2002, 25)
	a, b := w.program(2001), w.program(2002)
	a.says(t, "attached")
	b.says(t, "attached")
	w.eventually("both jobs are told", func() bool { return w.slurm.hears("1", sharedNote) && w.slurm.hears("2", sharedNote) })

	// One user a card: the server is the user's, and a second user's program waits for it to be free.
	w = newWorld(t, nil)
	w.share("1", 2001, 25)
	a = w.program(2001)
	a.says(t, "attached")
	b = w.program(2002)
	said := make(chan string, 1)
	go func() { line, _ := b.said.ReadString('\n'); said <- line }()
	select {
	case line := <-said:
		t.Fatalf("the second user's program said %q beside the first's", line)
	case <-time.After(200 * time.Millisecond):
	}
	_ = a.in.Close()
	if line := <-said; line != "attached\n" {
		t.Errorf("the second user's program said %q once the first's is gone", line)
	}
}

func TestWholeCard(t *testing.T) {
	w := newWorld(t, nil)
	w.share("1", os.Geteuid(), 25)
	if err := w.Whole(context.Background(), "9"); err == nil || !strings.Contains(err.Error(), "1 has a share") {
		t.Errorf("a whole-card job beside a sharer: %v", err)
	}
	if w.pid() == 0 {
		t.Error("the daemon was taken from a job that shares")
	}
	// Slurm has forgotten it: its epilog was lost.
	w.slurm.mu.Lock()
	delete(w.slurm.states, "1")
	w.slurm.mu.Unlock()
	w.Ask = 0
	if err := w.Whole(context.Background(), "9"); err != nil || w.daemon() != nil {
		t.Errorf("a whole-card job after a lost epilog: %v, daemon %v", err, w.daemon())
	}
}

// A supervisor that is started again has the daemon and the jobs of the one before.
func TestRestart(t *testing.T) {
	w := newWorld(t, nil)
	w.share("1", os.Geteuid(), 25)
	w.share("2", os.Geteuid(), 25)
	pid := w.pid()
	p := w.program(os.Geteuid())
	p.says(t, "attached")

	again, err := New(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	w.Supervisor = again
	if w.pid() != pid {
		t.Fatalf("the daemon is %d, not %d", w.pid(), pid)
	}
	w.share("3", os.Geteuid(), 25)
	if w.pid() != pid {
		t.Error("a second daemon for the same card")
	}
	for _, id := range []string{"1", "2", "3"} {
		w.end(id)
	}
	if w.daemon() != nil {
		t.Error("a daemon that was taken over is not stopped")
	}
	p.says(t, "server gone")
}

func TestFault(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Recover, c.Start = 300*time.Millisecond, 2*time.Second })
	w.watch()
	w.share("1", os.Geteuid(), 25)
	w.share("2", os.Geteuid(), 25)
	neighbour := w.program(os.Geteuid())
	neighbour.says(t, "attached")
	culprit := w.program(os.Geteuid(), "fault")
	culprit.says(t, "attached")
	culprit.says(t, "fault")
	neighbour.says(t, "fault")
	_ = culprit.Wait()
	_ = neighbour.Wait()
	// Faster than a look it may be over; one that stays is seen, told, and drains the node.
	w.tell("stick")
	culprit = w.program(os.Geteuid(), "fault")
	culprit.says(t, "attached")
	culprit.says(t, "fault")
	w.eventually("both jobs are told", func() bool { return w.slurm.hears("1", faultNote) && w.slurm.hears("2", faultNote) })
	w.eventually("the node is drained", func() bool { return w.slurm.reason() != "" })
	if want := Reason + "card GPU-1 takes no clients for 300ms: the server is FAULT"; w.slurm.reason() != want {
		t.Errorf("drained for %q, want %q", w.slurm.reason(), want)
	}
	late := w.program(os.Geteuid())
	late.says(t, "not ready")
	if err := w.StartShare(context.Background(), "3", Job{UID: os.Geteuid(), Percent: 25}); err == nil {
		t.Error("a job starts on a card that takes no clients")
	}
	w.end("1")
	if w.slurm.reason() == "" {
		t.Error("the drain ends while a job is there")
	}
	w.end("2")
	if w.slurm.reason() != "" {
		t.Errorf("the drain stays after a new start of everything: %q", w.slurm.reason())
	}
	w.share("4", os.Geteuid(), 25)
}

func TestDaemonVanishes(t *testing.T) {
	w := newWorld(t, nil)
	w.share("1", os.Geteuid(), 25)
	first := w.pid()
	_ = exec.Command("sh", "-c", "echo standin vanish | CUDA_MPS_PIPE_DIRECTORY="+w.pipe()+" "+standIn).Run()
	w.eventually("it is gone", func() bool { return w.pid() == 0 })
	w.watch()
	w.eventually("there is another, and the job is told", func() bool { return w.pid() != 0 && w.pid() != first && w.slurm.hears("1", goneNote) })
	w.eventually("it takes clients", func() bool { return exec.Command("test", "-S", w.pipe()+"/control").Run() == nil })
	p := w.program(os.Geteuid())
	p.says(t, "attached")
}

func TestDaemonHangs(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Recover, c.Command = 100*time.Millisecond, 300*time.Millisecond })
	w.share("1", os.Geteuid(), 25)
	pid := w.pid()
	w.tell("hang")
	if err := w.StartShare(context.Background(), "2", Job{UID: os.Geteuid(), Percent: 25}); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("a job starts with a daemon that hangs: %v", err)
	}
	w.watch()
	w.eventually("the node is drained", func() bool { return strings.Contains(w.slurm.reason(), "no answer") })
	w.end("1")
	if (&process{PID: pid}).alive() || w.pid() != 0 {
		t.Error("a daemon that hangs survives the last share")
	}
	if w.slurm.reason() != "" {
		t.Errorf("the drain stays: %q", w.slurm.reason())
	}
	w.share("3", os.Geteuid(), 25)
}

// scancel: the job has its own last words first, then its work on the card is ended in order, and nobody else's.
func TestCancel(t *testing.T) {
	owner := map[int]string{}
	var mu sync.Mutex
	w := newWorld(t, func(c *Config) {
		c.Ask = 50 * time.Millisecond
		c.JobOf = func(pid int) (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			job, ok := owner[pid]
			return job, ok
		}
	})
	w.slurm.killWait = margin + 400*time.Millisecond
	w.share("1", os.Geteuid(), 25)
	w.share("2", os.Geteuid(), 25)
	w.share("3", os.Geteuid(), 25)
	one, two := w.program(os.Geteuid()), w.program(os.Geteuid())
	one.says(t, "attached")
	two.says(t, "attached")
	mu.Lock()
	owner[one.Process.Pid], owner[two.Process.Pid] = "1", "2"
	mu.Unlock()
	w.watch()
	cancelled := time.Now()
	w.slurm.set("1", "COMPLETING")
	one.says(t, "terminated")
	if after := time.Since(cancelled); after < 150*time.Millisecond {
		t.Errorf("terminated %s after SIGTERM; the job has had no time", after)
	}
	// Its neighbour works on.
	ctl := w.control(card.Card{UUID: "GPU-1"})
	servers, err := ctl.Servers(t.Context())
	if err != nil || len(servers) != 1 {
		t.Fatalf("%v %v", servers, err)
	}
	clients, err := ctl.Clients(t.Context(), servers[0])
	if err != nil || !slices.Equal(clients, []int{two.Process.Pid}) {
		t.Errorf("clients %v, %v; want the neighbour %d alone", clients, err, two.Process.Pid)
	}
	if state, err := ctl.Status(t.Context(), servers[0]); state != control.Active {
		t.Errorf("%s, %v", state, err)
	}
	// A job that ended without an epilog is forgotten.
	w.slurm.mu.Lock()
	delete(w.slurm.states, "3")
	w.slurm.mu.Unlock()
	w.eventually("job 3 is forgotten", func() bool { return slices.Equal(w.jobs(), []string{"1", "2"}) })
}

func TestNoSuchCard(t *testing.T) {
	for _, cards := range [][]card.Card{nil, {{Minor: 0}, {Minor: 1}}} {
		w := newWorld(t, func(c *Config) { c.Cards = func() ([]card.Card, string, error) { return cards, "", nil } })
		err := w.StartShare(context.Background(), "1", Job{UID: 1000, Percent: 25})
		if want := fmt.Sprintf("this worker has %d cards", len(cards)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		w.end("1")
	}
	w := newWorld(t, func(c *Config) { c.Program = "/nonexistent/nvidia-cuda-mps-control" })
	if err := w.StartShare(context.Background(), "1", Job{UID: 1000, Percent: 25}); err == nil || !strings.Contains(err.Error(), "NVIDIA_DRIVER_CAPABILITIES") {
		t.Errorf("%v", err)
	}
	if jobs := w.jobs(); len(jobs) > 0 {
		t.Errorf("%v have a share of a card without MPS", jobs)
	}
}

// Everybody may ask for an environment, and nobody but root for the card.
func TestServe(t *testing.T) {
	w := newWorld(t, nil)
	go func() { _ = w.Serve(t.Context()) }()
	ask := func(r Request) (Answer, error) { return Ask(w.Root, r, 5*time.Second, 10*time.Second) }
	if _, err := ask(Request{Do: "share", Job: "1", UID: os.Geteuid(), Percent: 40}); err != nil {
		t.Fatal(err)
	}
	got, err := ask(Request{Do: "environment", Job: "1"})
	if err != nil || got.Environment == nil || got.Environment.Percent != 40 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ask(Request{Do: "environment", Job: "2"}); err != nil || got.Environment != nil {
		t.Errorf("a job without a share: %+v, %v", got, err)
	}
	for _, r := range []Request{{Do: "share", Job: "2", Percent: 101}, {Do: "share", Percent: 5}, {Do: "dance"}} {
		if _, err := ask(r); err == nil {
			t.Errorf("%+v is granted", r)
		}
	}
	if os.Geteuid() == 0 {
		if _, err := w.answer(t.Context(), Request{Do: "end", Job: "1"}, 1000); err == nil {
			t.Error("a user ends another's share")
		}
	}
	if _, err := ask(Request{Do: "end", Job: "1"}); err != nil || w.pid() != 0 {
		t.Errorf("%v, daemon %d", err, w.pid())
	}
}
