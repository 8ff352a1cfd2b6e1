package emit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// generatedText is a file as render writes it.
func generatedText(body string) []byte { return []byte(marker + "\n" + body + "\n") }

var (
	oldTree = Tree{
		"overlays/lab/slurm/a.yaml":       generatedText("a: 1"),
		"overlays/lab/slurm/b.yaml":       generatedText("b: 1"),
		"overlays/lab/gone/c.yaml":        generatedText("c: 1"),
		"clusters/lab/kustomization.yaml": generatedText("k: 1"),
	}
	newTree = Tree{
		"overlays/lab/slurm/a.yaml":       generatedText("a: 2"),
		"overlays/lab/slurm/b.yaml":       generatedText("b: 1"),
		"overlays/lab/fresh/d.yaml":       generatedText("d: 1"),
		"clusters/lab/kustomization.yaml": generatedText("k: 2"),
	}
	// What a person put beside the generated files.
	foreign = Tree{
		"overlays/lab/slurm/notes.txt":                []byte("mine\n"),
		"overlays/lab/slurm/own.yaml":                 []byte("own: true\n"),
		"overlays/lab/patches/slurm/p.yaml":           generatedText("looks: generated"),
		"clusters/lab/secrets/slurm-x.yaml":           []byte("sealed: x\n"),
		"clusters/lab/flux-system/kustomization.yaml": generatedText("flux bootstrap's"),
		"clusters/lab.cue":                            []byte("package clusters\n"),
	}
)

// repository is a folder with the old tree, and a person's files.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range foreign {
		put(t, root, name, text)
	}
	if _, err := Write(root, "lab", oldTree); err != nil {
		t.Fatal(err)
	}
	return root
}

func put(t *testing.T, root, name string, text []byte) {
	t.Helper()
	target := filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// wantFiles demands that the repository holds exactly these files and the person's.
func wantFiles(t *testing.T, root string, tree Tree) {
	t.Helper()
	want := map[string]string{}
	for _, part := range []Tree{tree, foreign} {
		for name, text := range part {
			want[name] = string(text)
		}
	}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, file)
		text, err := os.ReadFile(file)
		if expected, ok := want[filepath.ToSlash(name)]; !ok {
			t.Errorf("%s should not be there", name)
		} else if expected != string(text) {
			t.Errorf("%s holds %q, want %q", name, text, expected)
		}
		delete(want, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
}

func TestWriteChangesPrunesAndKeeps(t *testing.T) {
	root := repository(t)
	wantFiles(t, root, oldTree)
	changes, err := Write(root, "lab", newTree)
	if err != nil {
		t.Fatal(err)
	}
	wantFiles(t, root, newTree)
	got := map[string]string{}
	for _, change := range changes {
		got[change.Path] = change.Action
	}
	for name, action := range map[string]string{
		"overlays/lab/slurm/a.yaml": "update", "clusters/lab/kustomization.yaml": "update", "overlays/lab/fresh/d.yaml": "create", "overlays/lab/gone/c.yaml": "remove",
	} {
		if got[name] != action {
			t.Errorf("%s: %q, want %q", name, got[name], action)
		}
	}
	if len(got) != 4 {
		t.Errorf("changes %v, want 4", got)
	}
	if _, err := os.Stat(filepath.Join(root, "overlays/lab/gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the folder of a layer that is gone is still there")
	}
}

func TestWritingAgainChangesNothing(t *testing.T) {
	root := repository(t)
	before, err := os.Stat(filepath.Join(root, "overlays/lab/slurm/a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	changes, err := Write(root, "lab", oldTree)
	if err != nil || len(changes) != 0 {
		t.Fatalf("second write: %v, %v", changes, err)
	}
	after, _ := os.Stat(filepath.Join(root, "overlays/lab/slurm/a.yaml"))
	if !os.SameFile(before, after) {
		t.Error("an unchanged file was written again")
	}
}

func TestAFileInTheWayStaysAndStopsTheRender(t *testing.T) {
	root := repository(t)
	put(t, root, "overlays/lab/fresh/d.yaml", []byte("a person's\n"))
	_, err := Write(root, "lab", newTree)
	if err == nil || !strings.Contains(err.Error(), "overlays/lab/fresh/d.yaml: the file is in the way") {
		t.Fatalf("error %v", err)
	}
	os.Remove(filepath.Join(root, "overlays/lab/fresh/d.yaml"))
	os.Remove(filepath.Join(root, "overlays/lab/fresh"))
	wantFiles(t, root, oldTree)
}

// A write that fails half-way (a folder's place is taken by a file) leaves the old tree, without a trace of the new one.
func TestAFailingWriteLeavesTheOldTree(t *testing.T) {
	root := repository(t)
	put(t, root, "overlays/lab/fresh", []byte("not a folder\n"))
	if _, err := Write(root, "lab", newTree); err == nil {
		t.Fatal("no error")
	}
	os.Remove(filepath.Join(root, "overlays/lab/fresh"))
	wantFiles(t, root, oldTree)
}

// A render that is killed while it stages leaves the old tree; the next command clears up after it.
func TestKilledBeforeTheJournal(t *testing.T) {
	root := repository(t)
	changes, err := plan(root, newTree, oldTree)
	if err != nil {
		t.Fatal(err)
	}
	if err := stage(root, "lab", newTree, changes); err != nil {
		t.Fatal(err)
	}
	os.Remove(journalPath(root, "lab")) // killed just before it was written
	for name, text := range oldTree {
		if have, _ := os.ReadFile(filepath.Join(root, name)); string(have) != string(text) {
			t.Errorf("%s changed before the commit", name)
		}
	}
	if err := Recover(root, "lab"); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(root, "overlays/lab/fresh")) // an empty folder, which Git does not see
	wantFiles(t, root, oldTree)
}

// A render that is killed after any number of renames is completed by the next command.
func TestKilledWhileCommitting(t *testing.T) {
	for renamed := range 4 {
		root := repository(t)
		changes, err := plan(root, newTree, oldTree)
		if err != nil {
			t.Fatal(err)
		}
		if err := stage(root, "lab", newTree, changes); err != nil {
			t.Fatal(err)
		}
		for _, change := range changes[:min(renamed, len(changes))] {
			target := filepath.Join(root, change.Path)
			if change.Action == "remove" {
				os.Remove(target)
			} else if err := os.Rename(stagedPath(target), target); err != nil {
				t.Fatal(err)
			}
		}
		if drifts, err := Check(root, "lab", newTree); err != nil || len(drifts) == 0 {
			t.Fatalf("after %d renames the drift check is content: %v %v", renamed, drifts, err)
		}
		if err := Recover(root, "lab"); err != nil {
			t.Fatal(err)
		}
		wantFiles(t, root, newTree)
	}
}

func TestDriftSaysWhereAChangeBelongs(t *testing.T) {
	root := repository(t)
	if drifts, err := Check(root, "lab", oldTree); err != nil || len(drifts) != 0 {
		t.Fatalf("drift in a fresh tree: %v %v", drifts, err)
	}
	put(t, root, "overlays/lab/slurm/a.yaml", generatedText("a: edited"))
	os.Remove(filepath.Join(root, "overlays/lab/slurm/b.yaml"))
	put(t, root, "overlays/lab/slurm/left.yaml", generatedText("left: over"))
	put(t, root, "clusters/lab/kustomization.yaml", []byte("the header is gone\n"))
	drifts, err := Check(root, "lab", oldTree)
	if err != nil {
		t.Fatal(err)
	}
	why := map[string]Drift{}
	for _, drift := range drifts {
		why[drift.Path] = drift
	}
	for name, want := range map[string]string{
		"overlays/lab/slurm/a.yaml":       "as a patch in overlays/lab/patches/slurm/",
		"overlays/lab/slurm/b.yaml":       "the file is missing; run berth render lab",
		"overlays/lab/slurm/left.yaml":    "render no longer makes this file",
		"clusters/lab/kustomization.yaml": "a change belongs in the site lab in clusters/",
	} {
		if !strings.Contains(why[name].Why, want) {
			t.Errorf("%s: %q, want %q", name, why[name].Why, want)
		}
	}
	if len(drifts) != 4 {
		t.Errorf("%d files drift, want 4", len(drifts))
	}
	if diff := why["overlays/lab/slurm/a.yaml"].Unified; !strings.Contains(diff, "-a: edited\n+a: 1\n") {
		t.Errorf("diff:\n%s", diff)
	}
	if have, _ := os.ReadFile(filepath.Join(root, "overlays/lab/slurm/a.yaml")); string(have) != string(generatedText("a: edited")) {
		t.Error("the check wrote")
	}
}

func TestClearSecretsAreRefused(t *testing.T) {
	const sealed = "kind: Secret\napiVersion: v1\nmetadata: {name: x}\ndata: {key: \"ENC[AES256_GCM,data:x]\"}\nsops: {mac: m}\n"
	for text, want := range map[string]string{
		sealed: "",
		"kind: Secret\napiVersion: v1\nmetadata: {name: x}\ndata: {key: c2VjcmV0}\n":                                         "it carries no sops block",
		strings.Replace(sealed, "ENC[AES256_GCM,data:x]", "c2VjcmV0", 1):                                                     `the value of key "key" is readable`,
		sealed + "---\nkind: Secret\napiVersion: v1\nmetadata: {name: y}\nstringData: {password: hunter2}\nsops: {mac: m}\n": `the value of key "password" is readable`,
	} {
		err := CheckSealed("clusters/lab/secrets", map[string][]byte{"x.yaml": []byte(text)})
		switch {
		case want == "" && err != nil:
			t.Errorf("a sealed secret is refused: %v", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("error %v, want %q", err, want)
		case err != nil && (strings.Contains(err.Error(), "c2VjcmV0") || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}
