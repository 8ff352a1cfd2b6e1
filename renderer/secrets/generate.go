// Package secrets makes a site's secrets once, and seals them: SOPS with age, only the values encrypted, so that a diff shows
// which secrets exist and nobody can read one. It never writes a value in clear, and never overwrites a secret that exists.
package secrets

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"time"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/site"
)

const (
	slurmKeyBytes  = 1024 // auth/slurm's key, the size that SchedMD's manual makes
	jwtKeyBytes    = 32   // HS256 uses a 256-bit key (RFC 7518, 3.2)
	passwordLength = 32   // of 62 characters: 190 bits
	rsaBits        = 3072 // NIST SP 800-57: 128 bits of strength
)

// passwordAlphabet needs no quoting in slurmdbd.conf, in SQL, in a shell or in YAML.
const passwordAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// Generate makes the Secrets that a site's pods expect, in clear and in memory.
func Generate(s *site.Site) ([]*corev1.Secret, error) {
	set, err := newKeySet(time.Now())
	if err != nil {
		return nil, err
	}
	slurmKeys, err := set.data()
	if err != nil {
		return nil, err
	}
	jwtKey, err := randomBytes(jwtKeyBytes)
	if err != nil {
		return nil, err
	}
	password, err := password()
	if err != nil {
		return nil, err
	}
	hostKeys, err := sshHostKeys(s.Cluster.Name)
	if err != nil {
		return nil, err
	}
	names, ns := s.Secrets.Names, s.Namespaces
	return []*corev1.Secret{
		// Whoever has this key can speak for any user to slurmctld; workers need it to check who speaks to them.
		secret(ns.Slurm, names.AuthKey, slurmKeys),
		secret(ns.Workers, names.AuthKey, slurmKeys),
		secret(ns.Slurm, names.JWTKey, map[string][]byte{"jwt_hs256.key": jwtKey}),
		secret(ns.Slurm, names.Database, map[string][]byte{"password": password}),
		secret(ns.Workers, names.SSHHost, hostKeys),
	}, nil
}

func secret(namespace, name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: naming.Labels(name)},
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
}

func randomBytes(n int) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(rand.Reader, b); err != nil {
		return nil, fmt.Errorf("read random bytes: %w", err)
	}
	return b, nil
}

func password() ([]byte, error) {
	out := make([]byte, passwordLength)
	for i := range out {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(passwordAlphabet))))
		if err != nil {
			return nil, fmt.Errorf("make the database password: %w", err)
		}
		out[i] = passwordAlphabet[n.Int64()]
	}
	return out, nil
}

// sshHostKeys are the login pods' keys in OpenSSH's own format, the public halves beside them.
func sshHostKeys(cluster string) (map[string][]byte, error) {
	_, ed25519Key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the ed25519 host key: %w", err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, rsaBits)
	if err != nil {
		return nil, fmt.Errorf("make the rsa host key: %w", err)
	}
	comment := "login@" + cluster
	data := map[string][]byte{}
	for _, key := range []struct {
		kind    string
		private any
		public  any
	}{{"ed25519", ed25519Key, ed25519Key.Public()}, {"rsa", rsaKey, rsaKey.Public()}} {
		block, err := ssh.MarshalPrivateKey(key.private, comment)
		if err != nil {
			return nil, fmt.Errorf("encode the %s host key: %w", key.kind, err)
		}
		public, err := ssh.NewPublicKey(key.public)
		if err != nil {
			return nil, fmt.Errorf("encode the %s host key: %w", key.kind, err)
		}
		line := ssh.MarshalAuthorizedKey(public)
		data["ssh_host_"+key.kind+"_key"] = pem.EncodeToMemory(block)
		data["ssh_host_"+key.kind+"_key.pub"] = []byte(string(line[:len(line)-1]) + " " + comment + "\n")
	}
	return data, nil
}
