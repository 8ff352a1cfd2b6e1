package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// daemon is the control daemon with at most one server.
type daemon struct {
	multiuser bool

	mu        sync.Mutex
	changed   *sync.Cond // clients that wait look again
	server    *exec.Cmd  // nil before the first client
	input     io.Closer
	uid       int // the server's user
	state     string
	stick     bool
	clients   map[int]net.Conn // by process id
	hung      bool
	listening net.Listener
}

func serve(pipe string, multiuser bool) error {
	listener, err := net.Listen("unix", socket(pipe))
	if err != nil {
		return fmt.Errorf("an instance of this daemon is already running: %w", err)
	}
	// Other users' clients connect.
	if err := os.Chmod(socket(pipe), 0o666); err != nil {
		return err
	}
	fmt.Printf("Starting control daemon in foreground for devices %s multiuser %t\n", os.Getenv("CUDA_VISIBLE_DEVICES"), multiuser)
	d := &daemon{multiuser: multiuser, clients: map[int]net.Conn{}, listening: listener}
	d.changed = sync.NewCond(&d.mu)
	for {
		conn, err := listener.Accept()
		if err != nil {
			select {} // quit ends the process
		}
		go d.call(conn.(*net.UnixConn))
	}
}

func (d *daemon) call(conn *net.UnixConn) {
	defer conn.Close()
	lines := bufio.NewReader(conn)
	line, err := lines.ReadString('\n')
	if err != nil {
		return
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	var who *syscall.Ucred
	_ = raw.Control(func(fd uintptr) { who, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED) })
	if err != nil {
		return
	}
	words := strings.Fields(line)
	if d.isHung() {
		select {}
	}
	switch {
	case len(words) == 1 && words[0] == "client":
		d.attach(conn, lines, int(who.Pid), int(who.Uid))
	case int(who.Uid) != os.Geteuid():
		fmt.Fprintln(conn, "You do not have permission to do this")
	case len(words) > 0:
		fmt.Fprint(conn, d.command(words))
	}
}

func (d *daemon) isHung() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hung
}

// attach waits for a server of the client's user, as CUDA's start-up does, and lets it in.
func (d *daemon) attach(conn net.Conn, lines *bufio.Reader, pid, uid int) {
	if d.multiuser {
		uid = os.Geteuid()
	}
	d.mu.Lock()
	for d.server != nil && d.uid != uid {
		if len(d.clients) == 0 {
			d.endServer()
			break
		}
		d.changed.Wait()
	}
	if d.server == nil {
		if err := d.startServer(uid); err != nil {
			d.mu.Unlock()
			fmt.Fprintln(conn, "not ready")
			return
		}
	}
	for d.state == "INITIALIZING" {
		d.changed.Wait()
	}
	if d.state != "ACTIVE" {
		d.mu.Unlock()
		fmt.Fprintln(conn, "not ready")
		return
	}
	d.clients[pid] = conn
	d.mu.Unlock()
	fmt.Fprintln(conn, "attached")
	line, err := lines.ReadString('\n')
	if err == nil && line == "fault\n" {
		d.fault()
		_, _ = lines.ReadString('\n')
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.clients, pid)
	if len(d.clients) == 0 && d.state == "FAULT" && !d.stick {
		d.state = "ACTIVE"
	}
	d.changed.Broadcast()
}

// fault is told to all clients; the server takes no new ones until they are gone.
func (d *daemon) fault() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state = "FAULT"
	for _, conn := range d.clients {
		fmt.Fprintln(conn, "fault")
	}
}

func (d *daemon) startServer(uid int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server := &exec.Cmd{Path: self, Args: []string{serverName}, SysProcAttr: &syscall.SysProcAttr{}}
	if os.Geteuid() == 0 {
		server.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	input, err := server.StdinPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	d.server, d.input, d.uid, d.state = server, input, uid, "INITIALIZING"
	go func() {
		time.Sleep(50 * time.Millisecond)
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.server == server && d.state == "INITIALIZING" {
			d.state = "ACTIVE"
		}
		d.changed.Broadcast()
	}()
	return nil
}

func (d *daemon) endServer() {
	if d.server != nil {
		_ = d.input.Close()
		_ = d.server.Wait()
		d.server = nil
	}
}

// command answers to one of NVIDIA's commands, or to one of the stand-in's own.
func (d *daemon) command(words []string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	server := 0
	if d.server != nil {
		server = d.server.Process.Pid
	}
	number := func(i int) int {
		if i >= len(words) {
			return -1
		}
		n, err := strconv.Atoi(words[i])
		if err != nil {
			return -1
		}
		return n
	}
	switch words[0] {
	case "get_server_list":
		if server == 0 {
			return ""
		}
		return fmt.Sprintln(server)
	case "get_server_status":
		if number(1) != server {
			return fmt.Sprintf("Server %d not found\n", number(1))
		}
		return d.state + "\n"
	case "start_server":
		if server == 0 {
			if err := d.startServer(number(2)); err != nil {
				return fmt.Sprintln(err)
			}
		}
	case "get_client_list":
		var pids []int
		for pid := range d.clients {
			pids = append(pids, pid)
		}
		slices.Sort(pids)
		var out strings.Builder
		for _, pid := range pids {
			fmt.Fprintln(&out, pid)
		}
		return out.String()
	case "terminate_client":
		if conn, ok := d.clients[number(2)]; ok && number(1) == server {
			fmt.Fprintln(conn, "terminated")
			return ""
		}
		return fmt.Sprintf("Client %d not found\n", number(2))
	case "quit":
		d.endServer()
		go func() {
			time.Sleep(20 * time.Millisecond) // for the answer
			_ = d.listening.Close()
			os.Exit(0)
		}()
	case "standin":
		switch strings.Join(words[1:], " ") {
		case "hang":
			d.hung = true
		case "vanish":
			os.Exit(7)
		case "stick":
			d.stick = true
		}
	default:
		return "Unknown command\n"
	}
	return ""
}
