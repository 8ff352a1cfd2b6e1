package gitserver

import (
	"crypto/rand"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A push larger than git's buffer comes in chunks, which CGI can't take as they are.
func TestPushAndFetch(t *testing.T) {
	root := t.TempDir()
	if err := InitBare(filepath.Join(root, "site.git")); err != nil {
		t.Fatal(err)
	}
	h, err := Handler(root)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	url := server.URL + "/site.git"

	work := t.TempDir()
	git := func(dir string, args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@localhost", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@localhost")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git(work, "clone", "--quiet", url, "a")
	a := filepath.Join(work, "a")
	noise := make([]byte, 3<<20) // does not compress: the pack stays above 1 MiB
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a, "noise"), noise, 0o644); err != nil {
		t.Fatal(err)
	}
	git(a, "checkout", "--quiet", "-B", "main")
	git(a, "add", "noise")
	git(a, "commit", "--quiet", "-m", "noise")
	git(a, "push", "--quiet", "origin", "main")
	git(work, "clone", "--quiet", url, "b")
	got, err := os.ReadFile(filepath.Join(work, "b", "noise"))
	if err != nil || string(got) != string(noise) {
		t.Errorf("what came back differs from what was pushed (%d bytes, %v)", len(got), err)
	}
}
