package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// SocketName is the socket's name in Config.Root. Every user may ask for a job's environment, root alone for anything else.
const SocketName = "supervisor"

// Request is one line of JSON on the socket, and Answer the line that comes back.
type Request struct {
	// Do is share, end, whole or environment.
	Do  string `json:"do"`
	Job string `json:"job"`
	// UID and Percent are those of a share that begins.
	UID     int `json:"uid,omitempty"`
	Percent int `json:"percent,omitempty"`
}

// Answer has an Error, or what was asked for.
type Answer struct {
	Error       string       `json:"error,omitempty"`
	Environment *Environment `json:"environment,omitempty"`
}

const (
	longest = 4096            // bytes of a request
	reading = 2 * time.Second // for a request
	callers = 32              // at once; a user who holds all up delays others by reading at most
)

// Serve answers on the socket until ctx ends.
func (s *Supervisor) Serve(ctx context.Context) error {
	path := filepath.Join(s.Root, SocketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("mps: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("mps: %w", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return fmt.Errorf("mps: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	slots := make(chan struct{}, callers)
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		conn, err := listener.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("mps: %w", err)
		}
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			s.call(context.WithoutCancel(ctx), conn)
		})
	}
}

func (s *Supervisor) call(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(reading))
	var request Request
	answer := Answer{}
	uid, err := peer(conn)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(conn, longest)).Decode(&request)
	}
	if err == nil {
		answer.Environment, err = s.answer(ctx, request, uid)
	}
	if err != nil {
		answer.Error = err.Error()
	}
	_ = conn.SetWriteDeadline(time.Now().Add(reading))
	_ = json.NewEncoder(conn).Encode(answer)
}

func (s *Supervisor) answer(ctx context.Context, r Request, uid int) (*Environment, error) {
	if r.Do == "environment" {
		if e, ok := s.Environment(r.Job); ok {
			return &e, nil
		}
		return nil, nil
	}
	if uid != os.Geteuid() {
		return nil, fmt.Errorf("uid %d may not ask for %q", uid, r.Do)
	}
	switch r.Do {
	case "share":
		return nil, s.StartShare(ctx, r.Job, Job{UID: r.UID, Percent: r.Percent})
	case "end":
		return nil, s.EndShare(ctx, r.Job)
	case "whole":
		return nil, s.Whole(ctx, r.Job)
	}
	return nil, fmt.Errorf("%q is nothing that can be asked for", r.Do)
}

// peer is the user at the other end.
func peer(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		credentials, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return int(credentials.Uid), nil
}

// Ask sends a request to the supervisor that listens in root. While none does, it tries again until patience is over: a supervisor that
// ended is started again at once.
func Ask(root string, r Request, patience, timeout time.Duration) (Answer, error) {
	var conn net.Conn
	var err error
	for deadline := time.Now().Add(patience); ; time.Sleep(step) {
		if conn, err = net.DialTimeout("unix", filepath.Join(root, SocketName), time.Second); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		return Answer{}, fmt.Errorf("the MPS supervisor does not listen: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	var answer Answer
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return answer, fmt.Errorf("the MPS supervisor does not take %q: %w", r.Do, err)
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return answer, fmt.Errorf("the MPS supervisor does not answer to %q: %w", r.Do, err)
	}
	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}
