package supervisor

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// table holds the units and is the only one in this process that waits for
// children: package os/exec must not be used beside it.
type table struct {
	logDir, runDir string

	mu    sync.Mutex
	units map[string]*process
	byPid map[int]*process
	// spawned wakes the reaper when there may be a child to wait for.
	spawned chan struct{}
	closing bool
}

type process struct {
	State
	stopping bool
	ended    chan struct{} // closed when the current run has ended
	quick    int           // ends within ten seconds of the start, in a row
	timer    *time.Timer
}

func newTable(logDir, runDir string) *table {
	return &table{
		logDir: logDir, runDir: runDir,
		units: map[string]*process{}, byPid: map[int]*process{},
		spawned: make(chan struct{}, 1),
	}
}

// start runs the unit and keeps it running. A unit that already runs with the
// same definition is left alone; with another definition it is replaced.
func (t *table) start(u Unit) error {
	if err := u.validate(); err != nil {
		return err
	}
	t.mu.Lock()
	old, exists := t.units[u.Name]
	same := exists && reflect.DeepEqual(old.Unit, u) && !old.stopping
	t.mu.Unlock()
	if same {
		return nil
	}
	if exists {
		if err := t.stop(u.Name, 5*time.Second); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return errors.New("the box is shutting down")
	}
	p := &process{State: State{Unit: u}}
	if err := t.spawn(p); err != nil {
		return err
	}
	t.units[u.Name] = p
	return nil
}

// spawn starts one run of p; t.mu is held, so that the reaper cannot look the
// child up before it is in byPid.
func (t *table) spawn(p *process) error {
	log, err := os.OpenFile(filepath.Join(t.logDir, p.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("unit %s: %w", p.Name, err)
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("unit %s: %w", p.Name, err)
	}
	defer null.Close()
	argv := append([]string(nil), p.Argv...)
	if p.Arg0 != "" {
		argv[0] = p.Arg0
	}
	pid, err := syscall.ForkExec(p.Argv[0], argv, &syscall.ProcAttr{
		Dir: p.Dir, Env: p.Env,
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return fmt.Errorf("unit %s: start %s: %w", p.Name, p.Argv[0], err)
	}
	p.Pid, p.Since, p.ended = pid, time.Now(), make(chan struct{})
	t.byPid[pid] = p
	pidFile := filepath.Join(t.runDir, p.Name+".pid")
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(pid)+"\n"), 0o644); err != nil {
		slog.Warn("pid file not written", "unit", p.Name, "err", err)
	}
	select {
	case t.spawned <- struct{}{}:
	default:
	}
	return nil
}

// reap waits for children for ever: units, and the orphans of whatever ran in
// the box, which the kernel hands to process 1.
func (t *table) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD: nothing to wait for until something starts
			select {
			case <-t.spawned:
			case <-time.After(time.Second): // or an orphan arrives
			}
		default:
			t.exited(pid, ws)
		}
	}
}

func (t *table) exited(pid int, ws syscall.WaitStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.byPid[pid]
	if !ok {
		return // an orphan, reaped
	}
	delete(t.byPid, pid)
	ran := time.Since(p.Since)
	p.Pid, p.LastExit = 0, describe(ws)
	close(p.ended)
	if p.stopping || t.closing {
		return
	}
	if ran > 10*time.Second {
		p.quick = 0
	}
	delay := restartDelay(p.quick)
	p.quick++
	slog.Warn("unit ended", "unit", p.Name, "how", p.LastExit, "ran", ran.Round(time.Millisecond), "again_in", delay)
	p.timer = time.AfterFunc(delay, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if p.stopping || t.closing || p.Pid != 0 {
			return
		}
		p.Restarts++
		if err := t.spawn(p); err != nil {
			slog.Error("unit not restarted", "unit", p.Name, "err", err)
		}
	})
}

// stop ends the unit and its process group and forgets it: SIGTERM, and SIGKILL
// after grace. Stopping a unit that is not there is no error.
func (t *table) stop(name string, grace time.Duration) error {
	t.mu.Lock()
	p, ok := t.units[name]
	if !ok {
		t.mu.Unlock()
		return nil
	}
	p.stopping = true
	if p.timer != nil {
		p.timer.Stop()
	}
	pid, ended := p.Pid, p.ended
	t.mu.Unlock()
	if pid != 0 {
		_ = syscall.Kill(-pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(grace):
		}
		_ = syscall.Kill(-pid, syscall.SIGKILL) // what is left of its group
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			return fmt.Errorf("unit %s: process %d does not end even by SIGKILL", name, pid)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.units, name)
	_ = os.Remove(filepath.Join(t.runDir, name+".pid"))
	return nil
}

func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closing = true
}

// states lists the units by name.
func (t *table) states() []State {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]State, 0, len(t.units))
	for _, p := range t.units {
		all = append(all, p.State)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
}

func describe(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "killed by " + ws.Signal().String()
	}
	return fmt.Sprintf("exit status %d", ws.ExitStatus())
}
