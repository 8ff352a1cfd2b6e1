package build

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestKeyChangesWithWhatIsBuiltAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "m/main.go", "package main")
	put(t, dir, "m/go.mod", "module m")
	of := func(parts ...string) string {
		t.Helper()
		k, err := key(dir, []string{"m"}, parts...)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first := of("go1.26", "-s")
	put(t, dir, "m/main_test.go", "package main")
	put(t, dir, "m/.swap", "x")
	put(t, dir, "other/file", "x")
	if of("go1.26", "-s") != first {
		t.Error("a test, a hidden file or another directory changed the key")
	}
	if of("go1.27", "-s") == first || of("go1.26-s", "") == first {
		t.Error("other parts gave the same key")
	}
	put(t, dir, "m/main.go", "package  main")
	second := of("go1.26", "-s")
	if second == first {
		t.Error("a changed source gave the same key")
	}
	if err := os.Chmod(filepath.Join(dir, "m/main.go"), 0o755); err != nil {
		t.Fatal(err)
	}
	if of("go1.26", "-s") == second {
		t.Error("a file that became executable gave the same key")
	}
	if _, err := key(dir, []string{"none"}); err == nil {
		t.Error("a path that is not there gave a key")
	}
}

func TestCopied(t *testing.T) {
	got := copied(`FROM x AS build
COPY --from=build /a /b
COPY --chmod=0755 bin/guard images/a/start \
    images/a/stop /usr/libexec/
ADD images/a/files /files
RUN COPY is no instruction here
`)
	want := []string{"bin/guard", "images/a/start", "images/a/stop", "images/a/files"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOnceBuildsOnceAndKeepsNothingHalf(t *testing.T) {
	b := &Builder{Source: t.TempDir(), Cache: t.TempDir(), LogDir: t.TempDir()}
	runs := filepath.Join(t.TempDir(), "runs")
	build := func(script string) (string, error) {
		return b.once(t.Context(), "thing", nil, nil, func(out string) [][]string {
			return [][]string{{"sh", "-c", script, "sh", out, runs}}
		})
	}
	if _, err := build(`echo half > "$1/x"; echo sorry >&2; exit 1`); err == nil || !strings.Contains(err.Error(), "sorry") {
		t.Fatalf("a failed build: %v", err)
	}
	for range 2 {
		dir, err := build(`[ ! -e "$1/x" ] && echo y > "$1/y" && echo run >> "$2"`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "y")); err != nil {
			t.Error(err)
		}
	}
	if text, _ := os.ReadFile(runs); string(text) != "run\n" {
		t.Errorf("ran %q, want once", text)
	}
}

func TestScratchImageIsTheSameBytes(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "program", "#!")
	var a, b bytes.Buffer
	for _, w := range []io.Writer{&a, &b} {
		if err := ScratchImage(w, "localhost/x:y", filepath.Join(dir, "program")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two images of one program differ")
	}
}

// Layers that containerd has are left out; config and manifest never are.
func TestWriteArchiveLeavesOutWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "blobs/sha256/m", `{"config": {"digest": "sha256:c"}, "layers": [{"digest": "sha256:base"}, {"digest": "sha256:top"}]}`)
	for _, n := range []string{"c", "base", "top"} {
		put(t, dir, "blobs/sha256/"+n, n)
	}
	var out bytes.Buffer
	err := WriteArchive(&out, dir, map[string]string{"localhost/x:y": "sha256:m"}, func(d string) bool { return d == "sha256:base" })
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Name == "index.json" {
			if text, _ := io.ReadAll(r); !strings.Contains(string(text), `"io.containerd.image.name":"localhost/x:y"`) {
				t.Errorf("index: %s", text)
			}
		}
	}
	want := []string{"oci-layout", "blobs/sha256/m", "blobs/sha256/c", "blobs/sha256/top", "index.json"}
	if !reflect.DeepEqual(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}
