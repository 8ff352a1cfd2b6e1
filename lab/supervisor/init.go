package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Config is what process 1 of a box is told.
type Config struct {
	// Dir is the box's directory on the machine's file system.
	Dir string `json:"dir"`
	// Socket is where process 1 takes requests (client.go).
	Socket string `json:"socket"`
	LogDir string `json:"logDir"`
	RunDir string `json:"runDir"`
	// Hostname is the node's name.
	Hostname string `json:"hostname"`
	// Mounts are made in order, in the box's own mount namespace.
	Mounts []Mount `json:"mounts"`
	// Setup are commands run in order once the mounts stand; the first that
	// fails ends the box.
	Setup [][]string `json:"setup"`
	// Sysctls are written as path below /proc/sys → value. A path that does not
	// exist is logged and left out.
	Sysctls map[string]string `json:"sysctls"`
	// Devices are character devices that stand for cards: path → "major:minor".
	Devices map[string]string `json:"devices"`
	// Doors are addresses inside the box to which the connections of inherited
	// listeners (file descriptors 3, 4, …, opened outside) are passed. It is the
	// only way into the box's network, and there is none out.
	Doors []string `json:"doors"`
}

// Mount is a tmpfs (Source "") or a bind mount.
type Mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Run is process 1 of the box. It returns only by an error before the box
// stands; afterwards it serves requests until it is told to stop, and exits.
func Run(c Config) error {
	if os.Getpid() != 1 {
		return errors.New("init: only for process 1 of a box, which `box up` starts")
	}
	if err := c.mount(); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(c.Hostname)); err != nil {
		return fmt.Errorf("set host name %s: %w", c.Hostname, err)
	}
	for path, value := range c.Sysctls {
		if err := os.WriteFile("/proc/sys/"+path, []byte(value), 0o644); err != nil {
			slog.Warn("sysctl not set", "path", path, "err", err)
		}
	}
	if err := c.devices(); err != nil {
		return err
	}
	for _, argv := range c.Setup {
		if err := runSetup(argv); err != nil {
			return err
		}
	}
	for i, target := range c.Doors {
		inherited := os.NewFile(uintptr(3+i), target)
		l, err := net.FileListener(inherited) // a copy that units don't inherit
		if err != nil {
			return fmt.Errorf("door to %s: %w", target, err)
		}
		inherited.Close()
		go serveDoor(l, target)
	}
	t := newTable(c.LogDir, c.RunDir)
	go t.reap()
	return serve(c.Socket, t)
}

func (c Config) mount() error {
	// Slave: what the machine unmounts later disappears here too. Shared: a
	// volume with bidirectional propagation works between pods.
	for _, flags := range []uintptr{syscall.MS_REC | syscall.MS_SLAVE, syscall.MS_REC | syscall.MS_SHARED} {
		if err := syscall.Mount("", "/", "", flags, ""); err != nil {
			return fmt.Errorf("make the box's mounts its own: %w", err)
		}
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc of the box: %w", err)
	}
	for _, m := range c.Mounts {
		var err error
		if m.Source == "" {
			err = syscall.Mount("tmpfs", m.Target, "tmpfs", syscall.MS_NOSUID, "mode=755")
		} else {
			err = syscall.Mount(m.Source, m.Target, "", syscall.MS_BIND|syscall.MS_REC, "")
		}
		if err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.Source, m.Target, err)
		}
	}
	return nil
}

func (c Config) devices() error {
	for path, number := range c.Devices {
		major, minor, err := deviceNumber(number)
		if err != nil {
			return fmt.Errorf("device %s: %w", path, err)
		}
		if err := os.MkdirAll(path[:strings.LastIndexByte(path, '/')], 0o755); err != nil {
			return err
		}
		// The kernel's encoding for numbers below 256.
		if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, major<<8|minor); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("device %s: %w", path, err)
		}
		if err := os.Chmod(path, 0o666); err != nil { // whatever the umask
			return err
		}
	}
	return nil
}

func deviceNumber(s string) (major, minor int, err error) {
	a, b, ok := strings.Cut(s, ":")
	if ok {
		major, err = strconv.Atoi(a)
		if err == nil {
			minor, err = strconv.Atoi(b)
		}
	}
	if !ok || err != nil || major < 0 || major > 255 || minor < 0 || minor > 255 {
		return 0, 0, fmt.Errorf("device number %q: want major:minor, each below 256", s)
	}
	return major, minor, nil
}

func runSetup(argv []string) error {
	// Not os/exec's Cmd with pipes: output goes to the log of process 1 as it is.
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	st, err := p.Wait()
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	if !st.Success() {
		return fmt.Errorf("%s: %s (its message is above)", strings.Join(argv, " "), st)
	}
	return nil
}

// serveDoor passes each connection of l to target inside the box.
func serveDoor(l net.Listener, target string) {
	for {
		in, err := l.Accept()
		if err != nil {
			slog.Error("door closed", "target", target, "err", err)
			return
		}
		go func() {
			defer in.Close()
			out, err := net.DialTimeout("tcp", target, 5*time.Second)
			if err != nil {
				return // the caller sees a closed connection, as of a server that is down
			}
			defer out.Close()
			done := make(chan struct{})
			go func() {
				_, _ = io.Copy(out, in)
				_ = out.(*net.TCPConn).CloseWrite()
				close(done)
			}()
			_, _ = io.Copy(in, out)
			if c, ok := in.(*net.TCPConn); ok {
				_ = c.CloseWrite()
			}
			<-done
		}()
	}
}

func serve(socket string, t *table) error {
	_ = os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	stop := make(chan time.Duration, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /units", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(t.states())
	})
	mux.HandleFunc("PUT /units", func(w http.ResponseWriter, r *http.Request) {
		var u Unit
		if err := json.NewDecoder(r.Body).Decode(&u); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := t.start(u); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		}
	})
	mux.HandleFunc("DELETE /units/{name}", func(w http.ResponseWriter, r *http.Request) {
		if err := t.stop(r.PathValue("name"), 5*time.Second); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST /stop", func(_ http.ResponseWriter, r *http.Request) {
		grace, err := time.ParseDuration(r.URL.Query().Get("grace"))
		if err != nil {
			grace = 5 * time.Second
		}
		select {
		case stop <- grace:
		default:
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("control socket", "err", err)
		}
	}()
	signals, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	grace := 5 * time.Second
	select {
	case grace = <-stop:
	case <-signals.Done():
	}
	t.close()
	endAll(grace)
	os.Exit(0) // the kernel ends what is left with SIGKILL
	return nil
}

// endAll asks every process of the box to end and waits until none is left, at
// most for grace.
func endAll(grace time.Duration) {
	_ = syscall.Kill(-1, syscall.SIGTERM)
	for deadline := time.Now().Add(grace); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if !anyoneElse() {
			return
		}
	}
}

func anyoneElse() bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != 1 {
			return true
		}
	}
	return false
}
