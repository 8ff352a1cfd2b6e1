package secrets

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/getsops/sops/v3/decrypt"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/site"
)

func labSite(recipient string) *site.Site {
	s := &site.Site{Name: "lab"}
	s.Cluster.Name = "lab"
	s.Namespaces = site.Namespaces{Slurm: "slurm", Workers: "slurm-workers", Flux: "flux-system"}
	s.Secrets = site.Secrets{Recipients: []string{recipient}, Names: site.SecretNames{
		AuthKey: "slurm-auth-key", JWTKey: "slurm-jwt-key", Database: "slurm-database", SSHHost: "slurm-ssh-host-keys", AgeKey: "sops-age",
	}}
	return s
}

// sealedLab makes a repository with sealed secrets, and lets sops find the identity the way Flux does.
func sealedLab(t *testing.T) (root string, s *site.Site) {
	t.Helper()
	root = t.TempDir()
	keyFile := filepath.Join(t.TempDir(), "lab.agekey")
	recipient, err := NewKey(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOPS_AGE_KEY_FILE", keyFile)
	s = labSite(recipient)
	if _, err := Init(root, s, s.Secrets.Recipients); err != nil {
		t.Fatal(err)
	}
	return root, s
}

func opened(t *testing.T, root, name string) corev1.Secret {
	t.Helper()
	clear, err := decrypt.File(filepath.Join(root, "clusters/lab/secrets", name), "yaml")
	if err != nil {
		t.Fatalf("sops cannot open %s: %v", name, err)
	}
	var secret corev1.Secret
	if err := yaml.Unmarshal(clear, &secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestSopsOpensWhatInitSealed(t *testing.T) {
	root, _ := sealedLab(t)
	auth := opened(t, root, "slurm-slurm-auth-key.yaml")
	if n := len(auth.Data["slurm.key"]); n != 1024 {
		t.Errorf("slurm.key has %d bytes, want 1024", n)
	}
	if other := opened(t, root, "slurm-workers-slurm-auth-key.yaml"); string(other.Data["slurm.key"]) != string(auth.Data["slurm.key"]) {
		t.Error("workers and controller have different slurm keys; no worker could register")
	}
	if n := len(opened(t, root, "slurm-slurm-jwt-key.yaml").Data["jwt_hs256.key"]); n != 32 {
		t.Errorf("jwt_hs256.key has %d bytes, want 32", n)
	}
	password := string(opened(t, root, "slurm-slurm-database.yaml").Data["password"])
	if !regexp.MustCompile(`^[A-Za-z0-9]{32}$`).MatchString(password) {
		t.Error("the database password is not 32 letters and digits")
	}
	hosts := opened(t, root, "slurm-workers-slurm-ssh-host-keys.yaml")
	for _, kind := range []string{"ed25519", "rsa"} {
		private := hosts.Data["ssh_host_"+kind+"_key"]
		if !strings.HasPrefix(string(private), "-----BEGIN OPENSSH PRIVATE KEY-----") {
			t.Errorf("%s: not in OpenSSH's format", kind)
		}
		signer, err := ssh.ParsePrivateKey(private)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		public, _, _, _, err := ssh.ParseAuthorizedKey(hosts.Data["ssh_host_"+kind+"_key.pub"])
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if string(public.Marshal()) != string(signer.PublicKey().Marshal()) {
			t.Errorf("%s: the public half belongs to another key", kind)
		}
	}
}

func TestNothingSealedIsReadable(t *testing.T) {
	root, s := sealedLab(t)
	in, err := emit.ReadInputs(root, "lab")
	if err != nil {
		t.Fatalf("render refuses what init sealed: %v", err)
	}
	for name, text := range in.Secrets {
		if name == "kustomization.yaml" {
			continue
		}
		for _, value := range opened(t, root, name).Data {
			encoded := base64.StdEncoding.EncodeToString(value)
			if strings.Contains(string(text), encoded) || strings.Contains(string(text), string(value)) {
				t.Errorf("%s: a value is readable", name)
			}
		}
		if !strings.Contains(string(text), "namespace: slurm") {
			t.Errorf("%s: more than the values is encrypted; a diff could not say which secret it is", name)
		}
	}
	for _, recipient := range s.Secrets.Recipients {
		if !strings.Contains(string(in.Secrets["slurm-slurm-jwt-key.yaml"]), recipient) {
			t.Errorf("recipient %s is not in the file", recipient)
		}
	}
}

func TestAnotherIdentityCannotOpen(t *testing.T) {
	root, _ := sealedLab(t)
	other := filepath.Join(t.TempDir(), "other.agekey")
	if _, err := NewKey(other); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOPS_AGE_KEY_FILE", other)
	if _, err := decrypt.File(filepath.Join(root, "clusters/lab/secrets/slurm-slurm-jwt-key.yaml"), "yaml"); err == nil {
		t.Fatal("a stranger's identity opened the secret")
	}
}

func TestInitRefusesASiteWithSecrets(t *testing.T) {
	root, s := sealedLab(t)
	before := read(t, root)
	_, err := Init(root, s, s.Secrets.Recipients)
	if !errors.Is(err, ErrExist) {
		t.Fatalf("second init: %v, want ErrExist", err)
	}
	if after := read(t, root); after != before {
		t.Error("the second init changed the secrets")
	}
}

func TestInitWithoutARecipientWritesNothing(t *testing.T) {
	root := t.TempDir()
	for _, recipients := range [][]string{nil, {"age1nonsense"}} {
		if _, err := Init(root, labSite(""), recipients); err == nil {
			t.Fatalf("recipients %q: no error", recipients)
		}
		if entries, _ := filepath.Glob(filepath.Join(root, "clusters/*/*")); len(entries) > 0 {
			t.Fatalf("recipients %q: left %v", recipients, entries)
		}
	}
}

func TestNewKeyNeverOverwrites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lab.agekey")
	recipient, err := NewKey(file)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o600 {
		t.Errorf("the identity's mode is %v, want 0600", info.Mode().Perm())
	}
	if _, err := NewKey(file); err == nil {
		t.Fatal("the second key overwrote the first")
	}
	if again, err := Recipient(file); err != nil || again != recipient {
		t.Errorf("Recipient = %q, %v; want %q", again, err, recipient)
	}
}

func read(t *testing.T, root string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "clusters/lab/secrets/slurm-slurm-auth-key.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
