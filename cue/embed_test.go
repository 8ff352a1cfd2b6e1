package schema_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	schema "github.com/berth-hpc/berth/cue"
)

func TestVendor(t *testing.T) {
	root := t.TempDir()
	if stale, err := schema.Stale(root); err != nil || len(stale) == 0 {
		t.Errorf("a repository without the schema is not current: %v %v", stale, err)
	}
	if err := schema.Vendor(root); err != nil {
		t.Fatal(err)
	}
	if stale, err := schema.Stale(root); err != nil || len(stale) > 0 {
		t.Errorf("just vendored, and stale: %v %v", stale, err)
	}

	// What an older berth left behind goes, what the lab wrote into module.cue stays.
	module := filepath.Join(root, "cue.mod", "module.cue")
	own := "module: \"hpc.example.org/sites@v0\"\nlanguage: version: \"v0.17.0\"\n"
	old := filepath.Join(schema.VendorDir(root), "dropped.cue")
	for path, text := range map[string]string{module: own, old: "package site\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if stale, _ := schema.Stale(root); len(stale) != 1 || stale[0] != old {
		t.Errorf("a dropped file is not told: %v", stale)
	}
	if err := schema.Vendor(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("a dropped file of the schema stays")
	}
	if text, _ := os.ReadFile(module); string(text) != own {
		t.Errorf("module.cue was rewritten: %s", text)
	}
}

func TestVendorLeavesBerthsOwnRepositoryAlone(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "cue.mod"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "cue.mod", "module.cue"), []byte("module: \""+schema.Module+"@v0\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := schema.Vendor(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(schema.VendorDir(root)); err == nil {
		t.Error("a second copy of the schema lies beside the first")
	}
}

// The embedded files are the schema and nothing else.
func TestFiles(t *testing.T) {
	files, err := schema.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"site.cue", "hosts.cue", "pools.cue", "slurm.cue", "storage.cue", "box.cue"} {
		if !strings.Contains(string(files[name]), "\npackage site\n") && !strings.HasPrefix(string(files[name]), "package site\n") {
			t.Errorf("%s is not embedded, or of another package", name)
		}
	}
}
