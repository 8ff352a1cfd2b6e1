package command

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/advisor/policy"
	"github.com/berth-hpc/berth/components/advisor/service"
)

// served runs `advisor serve` with a settings file and gives its directory and a client of its socket.
func served(t *testing.T, settings string, more ...string) (dir string, client *http.Client, log *buffer) {
	t.Helper()
	dir, err := os.MkdirTemp("", "advisor-")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "settings.json", settings)
	socket := filepath.Join(dir, "a.sock")
	ctx, cancel := context.WithCancel(context.Background())
	log = &buffer{}
	done := make(chan int)
	go func() {
		done <- Run(ctx, io.Discard, log, append([]string{"serve", "--socket", socket, "--settings", filepath.Join(dir, "settings.json"), "--state", filepath.Join(dir, "state"), "--checkpoints", dir}, more...))
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != ExitOK {
			t.Errorf("serve ends with %d: %s", code, log)
		}
		if _, err := os.Stat(socket); err == nil {
			t.Error("the socket stays behind")
		}
		os.RemoveAll(dir)
	})
	client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	eventually(t, "it serves", func() bool { _, err := client.Get("http://advisor/healthz"); return err == nil })
	return dir, client, log
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 300 {
		if holds() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("not in 15 s: %s", what)
}

func health(t *testing.T, client *http.Client) service.Health {
	t.Helper()
	response, err := client.Get("http://advisor/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var h service.Health
	if err := json.NewDecoder(response.Body).Decode(&h); err != nil {
		t.Fatal(err)
	}
	return h
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// A changed settings file is taken up without a restart: mode, and the checkpoint by its digest; one that is refused leaves the
// one before in force, until its file is there.
// Whoever scrapes gets the metrics without a token, and nothing else.
func TestMetricsAlone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	served(t, `{"mode":"shadow"}`, "--metrics", address)
	eventually(t, "it is scraped", func() bool {
		response, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return strings.Contains(string(text), "advisor_abstentions_total")
	})
	for _, path := range []string{"/decide", "/act", "/snapshot", "/healthz"} {
		response, err := http.Post("http://"+address+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
}

func TestServeFollowsItsSettings(t *testing.T) {
	dir, client, log := served(t, `{"mode":"shadow","topology":"a:1x1","maxBoost":100}`)
	if h := health(t, client); h.Mode != service.Shadow || h.Actions != 1 {
		t.Errorf("%+v", h)
	}
	checkpoint := `{"schema":1,"kind":"order","parameters":{"order":"sjf"}}`
	digest := policy.Digest([]byte(checkpoint))
	write(t, dir, "settings.json", `{"mode":"live","topology":"a:1x1","maxBoost":100,"checkpoint":"`+digest+`"}`)
	eventually(t, "the missing checkpoint is told", func() bool { h := health(t, client); return h.Refused != "" && h.Policy == "saf" })
	write(t, dir, strings.Replace(digest, ":", "-", 1), checkpoint)
	eventually(t, "the checkpoint is taken", func() bool { h := health(t, client); return h.Checkpoint == digest && h.Mode == service.Live })
	write(t, dir, "settings.json", `{"mode":"nonsense"}`)
	eventually(t, "nonsense is told", func() bool { return strings.Contains(log.String(), "nonsense") })
	if h := health(t, client); h.Mode != service.Live {
		t.Errorf("nonsense changed the mode: %+v", h)
	}
}

// On TCP the token is wanted; on the socket it is not, and the socket is the owner's and the group's.
func TestServeLetsInByToken(t *testing.T) {
	key := filepath.Join(t.TempDir(), "jwt.key")
	if err := os.WriteFile(key, bytes.Repeat([]byte("k"), 32), 0o600); err != nil {
		t.Fatal(err)
	}
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := probe.Addr().String()
	probe.Close()
	dir, client, _ := served(t, `{"mode":"shadow","topology":"a:1x1"}`, "--listen", address, "--jwt-key", key)
	// The socket that served waits for may be there a moment before the port.
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			break
		}
	}
	ask := func(c *http.Client, url, token string) int {
		r, _ := http.NewRequest("POST", url+"/decide", strings.NewReader("{}"))
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	if ask(client, "http://advisor", "") != 200 || ask(http.DefaultClient, "http://"+address, "") != 401 ||
		ask(http.DefaultClient, "http://"+address, service.Token(bytes.Repeat([]byte("k"), 32))) != 200 {
		t.Error("the wrong ones are let in")
	}
	if info, err := os.Stat(filepath.Join(dir, "a.sock")); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	var out bytes.Buffer
	if code := Run(context.Background(), &out, io.Discard, []string{"serve", "health", "--socket", filepath.Join(dir, "a.sock")}); code != ExitOK || !strings.Contains(out.String(), `"mode":"shadow"`) {
		t.Errorf("%d %s", code, out.String())
	}
	if code := Run(context.Background(), io.Discard, io.Discard, []string{"serve", "health", "--socket", dir + "/nobody"}); code == ExitOK {
		t.Error("nobody is healthy")
	}
}

func TestServeRefusesToBeOpen(t *testing.T) {
	for _, args := range [][]string{
		{"serve"}, {"serve", "--settings", "x"}, {"serve", "--settings", "x", "--listen", ":0"},
	} {
		var errs bytes.Buffer
		if code := Run(context.Background(), io.Discard, &errs, args); code != ExitError || errs.Len() == 0 {
			t.Errorf("%v: %d %s", args, code, errs.String())
		}
	}
}

// The address of the second advisor is in the file that job_submit.lua reads.
func TestServeAnnounces(t *testing.T) {
	dir := t.TempDir()
	key, file := filepath.Join(dir, "jwt.key"), filepath.Join(dir, "service")
	if err := os.WriteFile(key, bytes.Repeat([]byte("k"), 32), 0o600); err != nil {
		t.Fatal(err)
	}
	served(t, `{"mode":"shadow","topology":"a:1x1"}`, "--jwt-key", key, "--service", "127.0.0.1:8080", "--service-file", file)
	want := "127.0.0.1 8080 " + service.Token(bytes.Repeat([]byte("k"), 32)) + "\n"
	eventually(t, "the address is there", func() bool { data, _ := os.ReadFile(file); return string(data) == want })
}
