// Package slurmtest starts a real Slurm in namespaces of its own, for tests of what talks with it: a chroot of a root
// file system with Debian's Slurm packages, one host, no Kubernetes, up in seconds. It needs root and Linux; tests skip
// where BERTH_SLURM_ROOT names no such root file system.
package slurmtest

import (
	"bufio"
	"crypto/rand"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed setup.sh
var setup string

// RootVariable names a Debian root file system with slurmctld, slurmd, slurmdbd, slurmrestd, the JWT and MySQL plugins,
// MariaDB and iproute2. It is not written to.
const RootVariable = "BERTH_SLURM_ROOT"

// Machine is a host with Slurm's programs, without anything running yet.
type Machine struct {
	// Dir is the test's directory, under the same path inside and outside.
	Dir string

	t       testing.TB
	init    int // process that holds the namespaces
	daemons []*exec.Cmd
}

// Start makes a machine whose further host names all stand for it. It ends with the test.
func Start(t testing.TB, hosts ...string) *Machine {
	t.Helper()
	root := os.Getenv(RootVariable)
	switch {
	case root == "":
		t.Skipf("%s is not set: no root file system with Slurm to test with", RootVariable)
	case os.Geteuid() != 0:
		t.Skip("a real Slurm in namespaces needs root")
	case testing.Short():
		t.Skip("a real Slurm takes seconds")
	}
	// Short, because unix sockets' paths are.
	dir, err := os.MkdirTemp("", "slurm-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // slurmrestd is nobody in particular
		t.Fatal(err)
	}
	machine := &Machine{Dir: dir, t: t}
	for _, sub := range []string{".root", "state", "spool", "run", "log", "keys"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := filepath.Join(dir, "setup.sh")
	if err := os.WriteFile(script, []byte(setup), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"slurm.key", "jwt_hs256.key"} {
		machine.writeKey(key)
	}
	command := exec.Command("bash", append([]string{script, root, dir}, hosts...)...)
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL, Setpgid: true,
	}
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("make the namespaces: %v", err)
	}
	machine.init = command.Process.Pid
	t.Cleanup(func() {
		// The end of the namespaces' first process ends all others in them.
		_ = command.Process.Kill()
		_ = command.Wait()
		for _, daemon := range machine.daemons {
			_ = daemon.Wait()
		}
		_ = os.RemoveAll(dir)
	})
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil || strings.TrimSpace(line) != "ready" {
		t.Fatalf("the machine did not come up: %q, %v", line, err)
	}
	return machine
}

func (m *Machine) writeKey(name string) {
	m.t.Helper()
	key := make([]byte, 1024)
	if _, err := rand.Read(key); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.Key(name), key, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// Key is the path of a key: slurm.key or jwt_hs256.key.
func (m *Machine) Key(name string) string { return filepath.Join(m.Dir, "keys", name) }

// Prefix is what goes before a command to run it on the machine.
func (m *Machine) Prefix() []string {
	return []string{
		"nsenter", "-t", fmt.Sprint(m.init), "-m", "-n", "-p", "-u", "-i", "--",
		"chroot", filepath.Join(m.Dir, ".root", "merged"), "env", "SLURM_SACK_KEY=" + m.Key("slurm.key"),
	}
}

// Command makes a command that runs on the machine.
func (m *Machine) Command(name string, args ...string) *exec.Cmd {
	words := append(append(m.Prefix(), name), args...)
	return exec.Command(words[0], words[1:]...)
}

// Run runs a command on the machine and returns what it printed; its failure fails the test.
func (m *Machine) Run(name string, args ...string) string {
	m.t.Helper()
	out, err := m.Command(name, args...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Daemon starts a program that stays, its output in the log directory. It ends with the machine.
func (m *Machine) Daemon(log string, name string, args ...string) *exec.Cmd {
	m.t.Helper()
	file, err := os.Create(filepath.Join(m.Dir, "log", log))
	if err != nil {
		m.t.Fatal(err)
	}
	command := m.Command(name, args...)
	command.Stdout, command.Stderr = file, file
	if err := command.Start(); err != nil {
		m.t.Fatal(err)
	}
	_ = file.Close() // the daemon has its own
	m.daemons = append(m.daemons, command)
	return command
}

// Log is a daemon's output until now.
func (m *Machine) Log(log string) string {
	text, _ := os.ReadFile(filepath.Join(m.Dir, "log", log))
	return string(text)
}

// Eventually waits until what holds, and fails the test with the last reason where it does not within the bound.
func Eventually(t testing.TB, within time.Duration, what string, holds func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		ok, why := holds()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s (%s)", within, what, why)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
