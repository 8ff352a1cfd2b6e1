package secrets

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A rotation takes the key that waited, keeps the old one valid until the end, and touches the two files of Slurm's key alone.
func TestRotateAndFinish(t *testing.T) {
	identity, recipient := newIdentity(t)
	t.Setenv("SOPS_AGE_KEY_FILE", identity)
	root, s := t.TempDir(), labSite(recipient)
	if _, err := Init(root, s, s.Secrets.Recipients); err != nil {
		t.Fatal(err)
	}
	keys := func() keySet {
		t.Helper()
		data := opened(t, root, "slurm-slurm-auth-key.yaml").Data
		if workers := opened(t, root, "slurm-workers-slurm-auth-key.yaml").Data; !maps.EqualFunc(data, workers, slices.Equal) {
			t.Fatal("the two namespaces have different keys")
		}
		set, err := readKeySet(data)
		if err != nil {
			t.Fatal(err)
		}
		single, err := set.Keys[set.signer()].bytes()
		if err != nil || string(single) != string(data[singleKeyFile]) {
			t.Errorf("%s is not the key that signs (%v)", singleKeyFile, err)
		}
		return set
	}
	first, before := keys(), allFiles(t, root)
	if len(first.Keys) != 2 || first.signer() != 0 {
		t.Fatalf("a new site has %d keys, the %dth signs", len(first.Keys), first.signer())
	}

	// At once it is too soon: nothing is written.
	if _, err := Rotate(root, s, identity, time.Now()); !errors.Is(err, errTooSoon) {
		t.Errorf("rotated at once: %v", err)
	}
	if report, err := Finish(root, s, identity); err != nil || len(report.Files) > 0 {
		t.Errorf("finished what was not begun: %+v %v", report, err)
	}
	if !maps.Equal(before, allFiles(t, root)) {
		t.Error("nothing was to be done, and files changed")
	}

	report, err := Rotate(root, s, identity, time.Now().Add(time.Hour))
	want := []string{"clusters/lab/secrets/slurm-slurm-auth-key.yaml", "clusters/lab/secrets/slurm-workers-slurm-auth-key.yaml"}
	if err != nil || !slices.Equal(report.Files, want) || report.Published {
		t.Fatalf("%+v %v", report, err)
	}
	second := keys()
	if len(second.Keys) != 3 || second.signer() != 1 || second.Keys[0].Key != first.Keys[0].Key || second.Keys[1].Key != first.Keys[1].Key {
		t.Errorf("after a rotation: %d keys, the %dth signs", len(second.Keys), second.signer())
	}
	for name, text := range allFiles(t, root) {
		if (text != before[name]) != strings.Contains(name, "auth-key") {
			t.Errorf("%s: changed %v", name, text != before[name])
		}
	}
	if problems, err := Doctor(root, s, identity); err != nil || slices.ContainsFunc(problems, func(one Sealed) bool { return !one.Right() }) {
		t.Errorf("doctor: %+v %v", problems, err)
	}

	if report, err = Finish(root, s, identity); err != nil || len(report.Files) != 2 {
		t.Fatalf("%+v %v", report, err)
	}
	third := keys()
	if len(third.Keys) != 2 || third.signer() != 0 || third.Keys[0].Key != second.Keys[1].Key || third.Keys[1].Key != second.Keys[2].Key {
		t.Errorf("after its end: %d keys, the %dth signs", len(third.Keys), third.signer())
	}
	after := allFiles(t, root)
	if report, err := Finish(root, s, identity); err != nil || len(report.Files) > 0 || !maps.Equal(after, allFiles(t, root)) {
		t.Errorf("finished twice: %+v %v", report, err)
	}
}

// A site from before key sets: the first rotation publishes a key, under which the old daemons' messages, which name none, still
// count; the second signs with it.
func TestRotateASingleKey(t *testing.T) {
	identity, recipient := newIdentity(t)
	t.Setenv("SOPS_AGE_KEY_FILE", identity)
	root, s := t.TempDir(), labSite(recipient)
	if _, err := Init(root, s, s.Secrets.Recipients); err != nil {
		t.Fatal(err)
	}
	var single string
	for _, name := range []string{"slurm-slurm-auth-key.yaml", "slurm-workers-slurm-auth-key.yaml"} {
		secret := opened(t, root, name)
		delete(secret.Data, keySetFile)
		single = string(secret.Data[singleKeyFile])
		text, err := sealSecret(&secret, s.Secrets.Recipients)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "clusters/lab/secrets", name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	report, err := Rotate(root, s, identity, time.Now())
	if err != nil || !report.Published || report.Signs != firstID {
		t.Fatalf("%+v %v", report, err)
	}
	data := opened(t, root, "slurm-slurm-auth-key.yaml").Data
	set, err := readKeySet(data)
	if err != nil || len(set.Keys) != 2 || set.signer() != 0 || string(data[singleKeyFile]) != single {
		t.Errorf("%d keys, the %dth signs, %v", len(set.Keys), set.signer(), err)
	}
	if report, err = Rotate(root, s, identity, time.Now().Add(time.Hour)); err != nil || report.Published || !slices.Equal(report.Old, []string{firstID}) {
		t.Errorf("%+v %v", report, err)
	}
}

// What cannot be rotated is left as it is, with the reason.
func TestRotateRefuses(t *testing.T) {
	identity, recipient := newIdentity(t)
	stranger, _ := newIdentity(t)
	t.Setenv("SOPS_AGE_KEY_FILE", identity)
	root, s := t.TempDir(), labSite(recipient)
	if _, err := Init(root, s, s.Secrets.Recipients); err != nil {
		t.Fatal(err)
	}
	workers := filepath.Join(root, "clusters/lab/secrets/slurm-workers-slurm-auth-key.yaml")
	later := time.Now().Add(time.Hour)
	for _, test := range []struct{ identity, want string }{{"", "name an age identity file"}, {stranger, "of none of the recipients"}} {
		if _, err := Rotate(root, s, test.identity, later); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v", test.want, err)
		}
	}
	old, err := os.ReadFile(workers)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Rotate(root, s, identity, later); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(workers, old, 0o644); err != nil {
		t.Fatal(err)
	}
	before := allFiles(t, root)
	if _, err := Rotate(root, s, identity, later.Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "hold different keys") {
		t.Errorf("half a rotation: %v", err)
	}
	// A set that somebody else wrote, with a time at which a key ends: it must not be lost, nor shown.
	secret := opened(t, root, "slurm-slurm-auth-key.yaml")
	secret.Data[keySetFile] = []byte(`{"keys":[{"alg":"HS256","kty":"oct","kid":"a","k":"c2VjcmV0","use":"default","exp":1}]}`)
	if _, err := readKeySet(secret.Data); err == nil || strings.Contains(err.Error(), "c2VjcmV0") {
		t.Errorf("a foreign set: %v", err)
	}
	if !maps.Equal(before, allFiles(t, root)) {
		t.Error("a refused rotation changed files")
	}
}
