// Package control speaks with NVIDIA's MPS control daemon through its own program, nvidia-cuda-mps-control: one command on
// standard input, the answer on standard output.
package control

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// States of a server (NVIDIA's MPS guide, "Architecture").
const (
	Initializing = "INITIALIZING"
	Active       = "ACTIVE"
	Fault        = "FAULT" // refuses new clients until all clients of the fault are gone
)

// Control is one daemon.
type Control struct {
	// Program is nvidia-cuda-mps-control, found in PATH or by its path.
	Program string
	// Pipe and Log are the daemon's directories; clients of it need Pipe.
	Pipe, Log string
	// Visible is the card as CUDA_VISIBLE_DEVICES names it: the daemon's clients see it as ordinal 0.
	Visible string
	// Shared serves all users by one server.
	Shared bool
	// Timeout bounds each command.
	Timeout time.Duration
}

// environment is the daemon's and the commands': nothing of a job's or a person's CUDA settings.
func (c Control) environment() []string {
	var env []string
	for _, line := range os.Environ() {
		if !strings.HasPrefix(line, "CUDA_") {
			env = append(env, line)
		}
	}
	return append(env, "CUDA_MPS_PIPE_DIRECTORY="+c.Pipe, "CUDA_MPS_LOG_DIRECTORY="+c.Log)
}

// Daemon is the command that runs the daemon. It stays in the foreground (-f; with -d it would leave its parent, and nobody would
// see its end), in a session of its own, so that it outlives whoever started it and can be ended with its servers.
func (c Control) Daemon() *exec.Cmd {
	args := []string{"-f"}
	if c.Shared {
		args = append(args, "-multiuser-server")
	}
	cmd := exec.Command(c.Program, args...)
	cmd.Env = append(c.environment(), "CUDA_VISIBLE_DEVICES="+c.Visible)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// ask runs one command. It fails where no daemon answers within the timeout.
func (c Control) ask(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Program)
	cmd.Env = c.environment()
	cmd.Stdin = strings.NewReader(command + "\n")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return "", fmt.Errorf("MPS: no answer to %q within %s", command, c.Timeout)
	case err != nil:
		return "", fmt.Errorf("MPS: %s: %w: %s", command, err, strings.TrimSpace(complaint.String()+" "+out.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// numbers reads one number a line.
func numbers(command, answer string) ([]int, error) {
	var all []int
	for _, field := range strings.Fields(answer) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("MPS: %s answered %q, which is no list of process ids", command, answer)
		}
		all = append(all, n)
	}
	return all, nil
}

// Servers lists the process ids of the daemon's servers; none before the first client.
func (c Control) Servers(ctx context.Context) ([]int, error) {
	answer, err := c.ask(ctx, "get_server_list")
	if err != nil {
		return nil, err
	}
	return numbers("get_server_list", answer)
}

// Status is a server's state.
func (c Control) Status(ctx context.Context, server int) (string, error) {
	return c.ask(ctx, "get_server_status "+strconv.Itoa(server))
}

// StartServer starts the server of a user; that of all users belongs to root.
func (c Control) StartServer(ctx context.Context, uid int) error {
	if c.Shared {
		uid = 0
	}
	_, err := c.ask(ctx, "start_server -uid "+strconv.Itoa(uid))
	return err
}

// Clients lists the process ids of a server's clients.
func (c Control) Clients(ctx context.Context, server int) ([]int, error) {
	answer, err := c.ask(ctx, "get_client_list "+strconv.Itoa(server))
	if err != nil {
		return nil, err
	}
	return numbers("get_client_list", answer)
}

// TerminateClient ends a client's work on the card in order, so that its process may be killed without harm to others.
func (c Control) TerminateClient(ctx context.Context, server, client int) error {
	_, err := c.ask(ctx, fmt.Sprintf("terminate_client %d %d", server, client))
	return err
}

// Quit ends the daemon and its servers, at the latest after some seconds.
func (c Control) Quit(ctx context.Context, after time.Duration) error {
	_, err := c.ask(ctx, fmt.Sprintf("quit -t %d", int(after.Seconds())))
	return err
}
