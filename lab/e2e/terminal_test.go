package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// terminal is a person's window on the login service.
type terminal struct {
	r       *run
	conn    net.Conn
	session *ssh.Session
	input   io.Writer
	lock    sync.Mutex
	text    strings.Builder
}

func (t *terminal) Write(p []byte) (int, error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.text.Write(p)
}

func (t *terminal) shown() string {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.text.String()
}

// terminal opens a window of 30 lines and 90 columns as the user, and runs a command in it.
func (r *run) terminal(user string, key ssh.Signer, command string) *terminal {
	r.Helper()
	address := r.kubectl("get", "service", "-n", workers, "slurm-login", "-o", "jsonpath={.spec.clusterIP}")
	ctx, cancel := context.WithTimeout(r.ctx, 15*time.Second)
	defer cancel()
	conn, err := r.node().dial(ctx, address, 22)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		r.Fatal(err)
	}
	session, err := ssh.NewClient(c, channels, requests).NewSession()
	if err != nil {
		r.Fatal(err)
	}
	t := &terminal{r: r, conn: conn, session: session}
	session.Stdout, session.Stderr = t, t
	if t.input, err = session.StdinPipe(); err == nil {
		err = session.RequestPty("xterm", 30, 90, ssh.TerminalModes{ssh.ECHO: 0})
	}
	if err == nil {
		err = session.Start(command)
	}
	if err != nil {
		r.Fatal(err)
	}
	return t
}

func (t *terminal) types(keys string) {
	t.r.Helper()
	if _, err := io.WriteString(t.input, keys); err != nil {
		t.r.Fatalf("type %q: %v; the terminal shows\n%s", keys, err, t.shown())
	}
}

// shows waits until the terminal has text that matches, and returns the match.
func (t *terminal) shows(bound time.Duration, pattern string) string {
	t.r.Helper()
	var found string
	t.r.eventually(bound, "the terminal shows "+pattern, func() (bool, string) {
		found = regexp.MustCompile(pattern).FindString(t.shown())
		return found != "", t.shown()
	})
	return found
}

// L15: a window that becomes larger does so for the program on the worker, Ctrl-C reaches that program and not the session, and a
// connection that is gone gives the nodes of its salloc back at once.
func TestTerminal(t *testing.T) {
	r := begin(t, 10*time.Minute)
	key := newKey(t)
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey())))
	r.mustAs(student, "mkdir -p -m 700 $HOME/.ssh && echo '"+line+" e2e' >> $HOME/.ssh/authorized_keys && chmod 600 $HOME/.ssh/authorized_keys")
	defer func() {
		ctx, cancel := aftermath()
		defer cancel()
		r.ctx = ctx
		if out, err := r.as(student, `sed -i '/ e2e$/d' $HOME/.ssh/authorized_keys`); err != nil {
			t.Errorf("take the key away: %v: %s", err, out)
		}
	}()

	window := r.terminal(student, key, "srun --quiet --partition=cpu --time=10 --pty bash --norc -i")
	window.types("echo on-$(hostname) $(stty size)\n")
	window.shows(workerStarts, `on-slurm-worker-cpu-[0-9]+ 30 90`)
	if err := window.session.WindowChange(41, 123); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	window.types("echo now $(stty size)\n")
	window.shows(20*time.Second, `now 41 123`)
	window.types("sleep 500; echo slept-$?\n")
	time.Sleep(2 * time.Second)
	window.types("\x03")
	window.types("echo back on $(hostname)\n")
	window.shows(20*time.Second, `back on slurm-worker-cpu-[0-9]+`)
	if strings.Contains(window.shown(), "slept-0") {
		t.Errorf("Ctrl-C did not end the program:\n%s", window.shown())
	}
	window.types("exit 3\n")
	if err := window.session.Wait(); err == nil || !strings.Contains(err.Error(), "status 3") {
		t.Errorf("the shell's status came back as %v, want 3", err)
	}

	laptop := r.terminal(student, key, "salloc --partition=cpu --nodes=2 --time=10")
	laptop.types("echo job-$SLURM_JOB_ID\n")
	id := strings.TrimPrefix(laptop.shows(workerStarts, `job-[0-9]+`), "job-")
	r.submitted = append(r.submitted, id)
	r.waitJob(id, "RUNNING", 30*time.Second)
	laptop.types("srun sleep 500\n")
	r.eventually(30*time.Second, "its step runs", func() (bool, string) {
		out, err := r.inController("squeue --steps --noheader --format=%i --jobs=" + id)
		return err == nil && strings.Contains(out, id+".0"), fmt.Sprint(out, err)
	})
	if err := laptop.conn.Close(); err != nil {
		t.Fatal(err)
	}
	r.eventually(90*time.Second, "the allocation is given back", func() (bool, string) {
		j, err := r.lookJob(id)
		return err == nil && ended(j.state), fmt.Sprint(j, err)
	})
	r.eventually(30*time.Second, "nothing of it is left in the login pod", func() (bool, string) {
		out, err := r.inLogin("pgrep -u " + student + " -l 'salloc|srun' || true")
		return err == nil && strings.TrimSpace(out) == "", fmt.Sprint(out, err)
	})
}
