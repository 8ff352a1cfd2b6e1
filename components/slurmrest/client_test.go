package slurmrest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/berth-hpc/berth/components/slurmrest"
)

func tokens(t *testing.T, key string) *slurmrest.TokenSource {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jwt_hs256.key")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	return &slurmrest.TokenSource{KeyFile: file, User: "slurm"}
}

// L11: a token is what slurmctld takes, and is replaced before it ends.
func TestTokenIsWhatSlurmctldChecks(t *testing.T) {
	const key = "0123456789abcdef0123456789abcdef"
	source := tokens(t, key)
	now := time.Now()
	source.Now = func() time.Time { return now }
	first, err := source.Token()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jwt.Parse(first, func(*jwt.Token) (any, error) { return []byte(key), nil }, jwt.WithValidMethods([]string{"HS256"}))
	if err != nil {
		t.Fatal(err)
	}
	if user := parsed.Claims.(jwt.MapClaims)["sun"]; user != "slurm" {
		t.Errorf("user %v, want slurm", user)
	}
	ends, _ := parsed.Claims.GetExpirationTime()

	now = now.Add(time.Minute)
	if again, _ := source.Token(); again != first {
		t.Error("a fresh token was thrown away")
	}
	now = ends.Add(-time.Minute)
	if later, _ := source.Token(); later == first {
		t.Error("one minute before its end the token was not replaced")
	}
	// The Secret is rotated: the next token is signed with the new key.
	if err := os.WriteFile(source.KeyFile, []byte("fedcba9876543210fedcba9876543210"), 0o600); err != nil {
		t.Fatal(err)
	}
	source.Forget()
	rotated, _ := source.Token()
	if _, err := jwt.Parse(rotated, func(*jwt.Token) (any, error) { return []byte(key), nil }); err == nil {
		t.Error("the token is still signed with the old key")
	}
}

func TestTokenNeedsAKey(t *testing.T) {
	if _, err := tokens(t, "short").Token(); err == nil || !strings.Contains(err.Error(), "at least 16") {
		t.Errorf("error %v, want one about the key's length", err)
	}
	if _, err := (&slurmrest.TokenSource{KeyFile: "/nonexistent/key"}).Token(); err == nil {
		t.Error("no error without a key")
	}
}

func TestClientCalls(t *testing.T) {
	type request struct{ method, path, body string }
	var got []request
	refuse := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, request{r.Method, r.URL.String(), string(body)})
		switch {
		case r.Header.Get("X-SLURM-USER-NAME") != "slurm" || r.Header.Get("X-SLURM-USER-TOKEN") == "":
			w.WriteHeader(http.StatusUnauthorized)
		case refuse > 0:
			refuse--
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "Authentication failure")
		case r.URL.Query().Has("update_time"):
			w.WriteHeader(http.StatusNotModified)
		case r.Method == http.MethodPost:
			_, _ = w.Write(recorded(t, "node-update"))
		default:
			_, _ = w.Write(recorded(t, "nodes-busy"))
		}
	}))
	defer server.Close()
	client, err := slurmrest.New(server.URL, tokens(t, "0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()

	refuse = 1 // the key was rotated: one refusal is answered by a new token
	list, err := client.Nodes(ctx, time.Time{})
	if err != nil || len(list.Nodes) != 4 {
		t.Fatalf("%v, %v", list, err)
	}
	if _, err := client.Nodes(ctx, list.AsOf); !errors.Is(err, slurmrest.ErrUnchanged) {
		t.Errorf("error %v, want ErrUnchanged", err)
	}
	refuse = 2
	if _, err := client.Nodes(ctx, time.Time{}); err == nil || !strings.Contains(err.Error(), "Authentication failure") {
		t.Errorf("error %v, want slurmrestd's refusal", err)
	}

	got = nil
	if err := client.UpdateJob(ctx, 7, slurmrest.JobUpdate{RequiredNodes: slurmrest.AnyNode}); err != nil {
		t.Fatal(err)
	}
	if got[0].path != "/slurm/v0.0.42/job/7" || got[0].body != `{"required_nodes":[""]}` {
		t.Errorf("sent %+v", got[0])
	}
	got = nil
	if err := client.UpdateNode(ctx, "slurm-worker-cpu-0", slurmrest.PowerDown|slurmrest.PowerDrain, "berth: new template"); err != nil {
		t.Fatal(err)
	}
	var update struct {
		State  []string `json:"state"`
		Reason string   `json:"reason"`
	}
	if err := json.Unmarshal([]byte(got[0].body), &update); err != nil {
		t.Fatal(err)
	}
	if got[0].path != "/slurm/v0.0.42/node/slurm-worker-cpu-0" || strings.Join(update.State, " ") != "POWER_DOWN POWER_DRAIN" || update.Reason != "berth: new template" {
		t.Errorf("sent %+v", got[0])
	}
}

// A slurmrestd that hangs ends by the caller's deadline, not by TCP's.
func TestCallsAreBounded(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	client, err := slurmrest.New(server.URL, tokens(t, "0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the deadline", err)
	}
}

func TestAddresses(t *testing.T) {
	for _, bad := range []string{"", "slurm-rest:6820", "ftp://slurm-rest", "http://"} {
		if _, err := slurmrest.New(bad, nil); err == nil {
			t.Errorf("%q is taken for an address", bad)
		}
	}
}

// slurmrestd 24.11 fails a request for changes when nodes changed and partitions did not: all nodes are asked for then.
func TestNodesRepeatsWithoutUpdateTime(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("update_time") {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"errors":[{"error_number":-1,"error":"Unable to query partitions"}]}`)
			return
		}
		_, _ = w.Write(recorded(t, "nodes-busy"))
	}))
	defer server.Close()
	client, err := slurmrest.New(server.URL, tokens(t, "0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Nodes(context.Background(), time.Unix(1, 0))
	if err != nil || len(list.Nodes) != 4 {
		t.Errorf("got %v, %v, want the four nodes", list, err)
	}
}
