package pki

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
)

func TestIssuedCertificatesVerifyAndAreKept(t *testing.T) {
	dir := t.TempDir()
	a, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := Request{File: "apiserver", User: "kube-apiserver", Names: []string{"kubernetes"}, IPs: []string{"127.0.0.1"}}
	client := Request{File: "admin", User: "admin", Groups: []string{"system:masters"}}
	for _, r := range []Request{server, client} {
		if err := a.Issue(r); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	cert, _, err := read(dir, "apiserver")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "127.0.0.1"}); err != nil {
		t.Errorf("server certificate: %v", err)
	}
	cert, _, err = read(dir, "admin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("a client's certificate was accepted as a server's")
	}

	// Another start of the box keeps what is good, and replaces what is not.
	again, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	before := readFile(t, dir, "apiserver.crt")
	if err := again.Issue(server); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, readFile(t, dir, "apiserver.crt")) {
		t.Error("a good certificate was replaced")
	}
	server.IPs = append(server.IPs, "10.96.0.1")
	if err := again.Issue(server); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(before, readFile(t, dir, "apiserver.crt")) {
		t.Error("a certificate without the new address was kept")
	}
}

func readFile(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
