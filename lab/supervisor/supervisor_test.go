package supervisor

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is process 1 of the test's box when it is run again.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "init" {
		var c Config
		text, err := os.ReadFile(os.Args[2])
		if err == nil {
			err = json.Unmarshal(text, &c)
		}
		if err == nil {
			err = Run(c)
		}
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// startBox runs process 1 in namespaces of its own, with one door.
func startBox(t *testing.T) (client *Client, dir, door string, first *exec.Cmd) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to make namespaces")
	}
	dir = t.TempDir()
	c := Config{
		Dir: dir, Socket: filepath.Join(dir, "box.sock"), LogDir: dir, RunDir: dir, Hostname: "box",
		Mounts: []Mount{{Target: "/run"}},
		Setup:  [][]string{{"/bin/sh", "-c", "ip link set lo up"}},
		Doors:  []string{"127.0.0.1:9000"}, Devices: map[string]string{"/run/card": "1:3"},
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "init.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	door = l.Addr().String()
	l.Close()
	first = exec.Command(os.Args[0], "init", file)
	first.Stderr = os.Stderr
	first.ExtraFiles = []*os.File{f}
	first.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	t.Cleanup(func() {
		_ = first.Process.Kill()
		_ = first.Wait()
	})
	client = NewClient(c.Socket)
	eventually(t, "the socket answers", func() bool { _, err := client.Units(t.Context()); return err == nil })
	return client, dir, door, first
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 10 s: %s", what)
		}
	}
}

func shell(name, script string) Unit {
	return Unit{Name: name, Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}
}

func unit(t *testing.T, c *Client, name string) State {
	t.Helper()
	states, err := c.Units(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.Name == name {
			return s
		}
	}
	return State{}
}

func TestUnitThatEndsIsStartedAgain(t *testing.T) {
	c, _, _, _ := startBox(t)
	if err := c.Start(t.Context(), shell("short", "exit 3")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two restarts", func() bool { return unit(t, c, "short").Restarts >= 2 })
	if got := unit(t, c, "short").LastExit; got != "exit status 3" {
		t.Errorf("last exit %q", got)
	}
	if err := c.Stop(t.Context(), "short"); err != nil {
		t.Fatal(err)
	}
	if got := unit(t, c, "short"); got.Name != "" {
		t.Errorf("after stop: %v", got)
	}
}

func TestStartIsIdempotentAndReplacesWhatChanged(t *testing.T) {
	c, dir, _, _ := startBox(t)
	for range 2 {
		if err := c.Start(t.Context(), shell("daemon", "exec sleep 1000")); err != nil {
			t.Fatal(err)
		}
	}
	pid := unit(t, c, "daemon").Pid
	text, err := os.ReadFile(filepath.Join(dir, "daemon.pid"))
	if err != nil || strings.TrimSpace(string(text)) == "" || pid == 0 {
		t.Fatalf("pid %d, pid file %q, %v", pid, text, err)
	}
	if err := c.Start(t.Context(), shell("daemon", "exec sleep 2000")); err != nil {
		t.Fatal(err)
	}
	if again := unit(t, c, "daemon").Pid; again == pid {
		t.Error("a changed definition did not replace the process")
	}
	if err := c.Start(t.Context(), Unit{Name: "Bad Name", Argv: []string{"/bin/true"}}); err == nil {
		t.Error("a name that is no file name was taken")
	}
	if err := c.Start(t.Context(), Unit{Name: "none", Argv: []string{"/no/such/program"}}); err == nil {
		t.Error("a program that is not there was taken")
	}
}

// Whatever runs in the box, in whatever group or session, ends with it.
func TestNothingOutlivesTheBox(t *testing.T) {
	c, dir, _, first := startBox(t)
	script := "setsid sh -c 'trap \"\" TERM; echo $$ > " + dir + "/stubborn; while :; do sleep 100; done' & exec sleep 1000"
	if err := c.Start(t.Context(), shell("family", script)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stubborn child runs", func() bool { _, err := os.Stat(dir + "/stubborn"); return err == nil })
	inside, err := os.Readlink("/proc/" + strconv.Itoa(first.Process.Pid) + "/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if n := living(inside); n < 3 {
		t.Fatalf("%d processes in the box, want at least three: the test would prove nothing", n)
	}
	if err := c.Shutdown(t.Context(), 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	if n := living(inside); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

func TestDoorLeadsIn(t *testing.T) {
	c, dir, door, _ := startBox(t)
	// A server in the box, on its loopback: the test binary's own echo would do,
	// but the shell's tools show that any program is reached.
	if err := os.WriteFile(dir+"/page", []byte("inside\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3, for a server")
	}
	u := Unit{Name: "server", Argv: []string{"/usr/bin/env", "python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", dir, "9000"}, Env: []string{"PATH=/usr/bin:/bin"}}
	if err := c.Start(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the page through the door", func() bool {
		conn, err := net.Dial("tcp", door)
		if err != nil {
			return false
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("GET /page HTTP/1.0\r\n\r\n")); err != nil {
			return false
		}
		answer, _ := io.ReadAll(conn)
		return strings.HasSuffix(string(answer), "inside\n")
	})
}

func TestDeviceNumber(t *testing.T) {
	if major, minor, err := deviceNumber("195:255"); major != 195 || minor != 255 || err != nil {
		t.Errorf("got %d %d %v", major, minor, err)
	}
	for _, bad := range []string{"", "1", "1:", "a:b", "256:0", "-1:0"} {
		if _, _, err := deviceNumber(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestRestartDelayGrowsToFiveSeconds(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: 200 * time.Millisecond, 1: 400 * time.Millisecond, 4: 3200 * time.Millisecond, 5: 5 * time.Second, 99: 5 * time.Second} {
		if got := restartDelay(failures); got != want {
			t.Errorf("after %d quick ends: %s, want %s", failures, got, want)
		}
	}
}

// living counts the processes, zombies left out, in the network namespace.
func living(netns string) int {
	n := 0
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if id, err := os.Readlink("/proc/" + e.Name() + "/ns/net"); err == nil && id == netns {
			n++
		}
	}
	return n
}
