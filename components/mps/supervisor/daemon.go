package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/berth-hpc/berth/components/mps/card"
	"github.com/berth-hpc/berth/components/mps/control"
)

const step = 100 * time.Millisecond

// ready starts the daemon unless it runs, and its server for the user, and waits until that takes clients: before the job, so that
// a card which does not is the node's fault in Slurm's eyes and not the job's.
func (s *Supervisor) ready(ctx context.Context, c card.Card, uid int) error {
	ctl := s.control(c)
	if d := s.daemon(); d == nil || !d.alive() {
		if err := s.start(ctx, c, ctl); err != nil {
			return err
		}
	}
	servers, err := ctl.Servers(ctx)
	if err != nil {
		return err
	}
	if len(servers) == 0 {
		// A daemon starts a server for its first client by itself, so a refusal here ends nothing yet.
		if err := ctl.StartServer(ctx, uid); err != nil {
			s.Logger.Warn("the daemon started no server before the first client", "card", c.Name(), "error", err)
		}
	}
	deadline := time.Now().Add(s.Start)
	for {
		states, err := s.states(ctx, ctl)
		if err != nil {
			return err
		}
		if len(notActive(states)) == 0 && (len(states) > 0 || time.Now().After(deadline)) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the MPS server of card %s is %s after %s: %w", c.Name(), strings.Join(notActive(states), ", "), s.Start, errNotActive)
		}
		if err := wait(ctx, step); err != nil {
			return err
		}
	}
}

var errNotActive = errors.New("it takes no clients")

// states are those of the daemon's servers.
func (s *Supervisor) states(ctx context.Context, ctl control.Control) (map[int]string, error) {
	servers, err := ctl.Servers(ctx)
	if err != nil {
		return nil, err
	}
	states := map[int]string{}
	for _, server := range servers {
		if states[server], err = ctl.Status(ctx, server); err != nil {
			return nil, err
		}
	}
	return states, nil
}

func notActive(states map[int]string) []string {
	var bad []string
	for _, state := range states {
		if state != control.Active {
			bad = append(bad, state)
		}
	}
	return bad
}

// start starts the daemon in clean directories and waits for its first answer.
func (s *Supervisor) start(ctx context.Context, c card.Card, ctl control.Control) error {
	// What a daemon that vanished left would be taken for one that runs.
	if err := os.RemoveAll(ctl.Pipe); err != nil {
		return fmt.Errorf("mps: %w", err)
	}
	for _, dir := range []string{ctl.Pipe, ctl.Log} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("mps: %w", err)
		}
		// Whatever the umask: other users' processes go through it.
		if err := os.Chmod(dir, 0o755); err != nil {
			return fmt.Errorf("mps: %w", err)
		}
	}
	cmd := ctl.Daemon()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("mps: %w", err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("the MPS daemon does not start: %w (the driver's programs reach a pod with NVIDIA_DRIVER_CAPABILITIES=compute,utility)", err)
	}
	ended := make(chan struct{})
	go func() {
		s.relay(c, out)
		err := cmd.Wait()
		s.Logger.Info("the MPS daemon ended", "card", c.Name(), "pid", cmd.Process.Pid, "status", fmt.Sprint(err))
		close(ended)
	}()
	started, _, err := processStart(cmd.Process.Pid)
	if err == nil {
		err = s.update(func(st *state) { st.Daemon = &process{PID: cmd.Process.Pid, Start: started} })
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return fmt.Errorf("the MPS daemon of card %s ended at once: %w", c.Name(), err)
	}
	deadline := time.Now().Add(s.Start)
	for {
		_, err := ctl.Servers(ctx)
		if err == nil {
			s.Logger.Info("the MPS daemon runs", "card", c.Name(), "pid", cmd.Process.Pid, "multiuser", s.Shared)
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("the MPS daemon of card %s ended while it started; its words are in this pod's log", c.Name())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(step):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the MPS daemon of card %s does not answer within %s: %w", c.Name(), s.Start, err)
		}
	}
}

// relay passes on what the daemon prints.
func (s *Supervisor) relay(c card.Card, out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		s.Logger.Info("nvidia-cuda-mps-control: "+lines.Text(), "card", c.Name())
	}
	_, _ = io.Copy(io.Discard, out) // a line too long; the daemon must not wait for a reader
}

// stop ends the daemon and its servers: by its own command, then by signals. After it neither is there.
func (s *Supervisor) stop(ctx context.Context, c card.Card) error {
	s.faulty, s.badSince = false, time.Time{}
	ctl := s.control(c)
	d := s.daemon()
	if d != nil && d.alive() {
		if err := s.end(ctx, ctl, d); err != nil {
			return fmt.Errorf("the MPS daemon of card %s: %w", c.Name(), err)
		}
		s.Logger.Info("the MPS daemon is stopped", "card", c.Name(), "pid", d.PID)
	}
	if err := os.RemoveAll(ctl.Pipe); err != nil {
		return fmt.Errorf("mps: %w", err)
	}
	drained := false
	if err := s.update(func(st *state) { st.Daemon, drained = nil, st.Drained }); err != nil {
		return err
	}
	if !drained {
		return nil
	}
	// What was wrong went with the daemon; whether the card is well the next job's prolog finds out before the job starts.
	if err := s.Slurm.Undrain(ctx, Reason); err != nil {
		s.Logger.Warn("the drain was not ended", "error", err)
		return nil
	}
	return s.update(func(st *state) { st.Drained = false })
}

func (s *Supervisor) end(ctx context.Context, ctl control.Control, d *process) error {
	servers, err := ctl.Servers(ctx)
	if err == nil {
		err = ctl.Quit(ctx, s.Stop/2)
	}
	if err != nil {
		s.Logger.Warn("the MPS daemon does not obey; it is killed", "pid", d.PID, "error", err)
	} else if s.gone(d, s.Stop) {
		return nil
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		// Its session's first process is its group's, too; servers may have made their own.
		_ = syscall.Kill(-d.PID, signal)
		for _, server := range servers {
			_ = syscall.Kill(server, signal)
		}
		if s.gone(d, s.Stop/2) {
			return nil
		}
	}
	return fmt.Errorf("process %d survives SIGKILL: the card or its driver hangs", d.PID)
}

func (s *Supervisor) gone(d *process, within time.Duration) bool {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(step / 4) {
		if !d.alive() {
			return true
		}
	}
	return !d.alive()
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
