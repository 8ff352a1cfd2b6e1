package secrets

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func newIdentity(t *testing.T) (file, recipient string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "x.agekey")
	recipient, err := NewKey(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, recipient
}

func allFiles(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob(filepath.Join(root, "clusters/lab/secrets/*"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%v %v", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = string(text)
	}
	return out
}

// Somebody comes, somebody goes: doctor tells who can read what, reseal makes it what the site says, and the values stay.
func TestDoctorAndReseal(t *testing.T) {
	old, oldRecipient := newIdentity(t)
	come, newRecipient := newIdentity(t)
	root := t.TempDir()
	s := labSite(oldRecipient)
	if _, err := Init(root, s, s.Secrets.Recipients); err != nil {
		t.Fatal(err)
	}
	check := func(identity string, right bool) []Sealed {
		t.Helper()
		report, err := Doctor(root, s, identity)
		if err != nil {
			t.Fatal(err)
		}
		if len(report) != 5 {
			t.Fatalf("%d files, a site has 5", len(report))
		}
		for _, one := range report {
			if one.Right() != right {
				t.Errorf("%+v: right %v, want %v", one, one.Right(), right)
			}
		}
		return report
	}
	check("", true)
	check(old, true)
	if report := check(come, false); !strings.Contains(report[0].Problem, "of none of the recipients") {
		t.Errorf("a stranger's identity: %+v", report[0])
	}

	s.Secrets.Recipients = []string{newRecipient}
	report := check("", false)
	if !slices.Equal(report[0].Strangers, []string{oldRecipient}) || !slices.Equal(report[0].Without, []string{newRecipient}) {
		t.Errorf("who comes and who goes: %+v", report[0])
	}
	t.Setenv("SOPS_AGE_KEY_FILE", old)
	before := string(opened(t, root, "slurm-slurm-auth-key.yaml").Data["slurm.key"])
	untouched := allFiles(t, root)

	// With an identity that opens nothing, nothing is written.
	if written, err := Reseal(root, s, come); err == nil || len(written) > 0 {
		t.Errorf("resealed with a stranger's identity: %v %v", written, err)
	}
	if !maps.Equal(untouched, allFiles(t, root)) {
		t.Error("a failed reseal changed files")
	}

	written, err := Reseal(root, s, old)
	if err != nil || len(written) != 5 {
		t.Fatalf("%v %v", written, err)
	}
	check(come, true)
	t.Setenv("SOPS_AGE_KEY_FILE", come)
	if after := string(opened(t, root, "slurm-slurm-auth-key.yaml").Data["slurm.key"]); after != before {
		t.Error("resealing changed a value")
	}

	// The same recipients: the same bytes, and no identity is needed.
	resealed := allFiles(t, root)
	if written, err := Reseal(root, s, ""); err != nil || len(written) > 0 {
		t.Errorf("nothing changed, and %v was written: %v", written, err)
	}
	if !maps.Equal(resealed, allFiles(t, root)) {
		t.Error("unchanged secrets have other bytes")
	}
}

// A file that somebody changed after it was sealed, and one that never was.
func TestDoctorFindsWhatIsNotAsItWasSealed(t *testing.T) {
	identity, recipient := newIdentity(t)
	root := t.TempDir()
	s := labSite(recipient)
	if _, err := Init(root, s, s.Secrets.Recipients); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "clusters/lab/secrets/slurm-slurm-jwt-key.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "namespace: slurm", "namespace: other", 1)
	if changed == string(text) {
		t.Fatal("the file has no namespace to change")
	}
	clear := "apiVersion: v1\nkind: Secret\nmetadata:\n  name: clear\nstringData:\n  password: hunter2\n"
	for path, text := range map[string]string{file: changed, filepath.Join(filepath.Dir(file), "clear.yaml"): clear} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	report, err := Doctor(root, s, identity)
	if err != nil {
		t.Fatal(err)
	}
	problems := map[string]string{}
	for _, one := range report {
		problems[filepath.Base(one.File)] = one.Problem
	}
	if p := problems["clear.yaml"]; !strings.HasPrefix(p, "not sealed") || strings.Contains(p, "hunter2") {
		t.Errorf("clear.yaml: %q", p)
	}
	if p := problems["slurm-slurm-jwt-key.yaml"]; !strings.Contains(p, "authentication code is wrong") {
		t.Errorf("a changed file: %q", p)
	}
	if p := problems["slurm-slurm-auth-key.yaml"]; p != "" {
		t.Errorf("a right file: %q", p)
	}
}
