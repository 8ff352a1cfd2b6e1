// Package pki makes the box's certificates: one authority, and from it the
// serving and client certificates of the Kubernetes components. They are good
// for a year, for one box, and never leave the machine.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const validity = 365 * 24 * time.Hour

// Request describes one certificate.
type Request struct {
	// File is the base name: <File>.crt and <File>.key.
	File string
	// User and Groups are what the API server takes a client for.
	User   string
	Groups []string
	// Names and IPs are what a server answers for; a request without either is
	// a client's only.
	Names []string
	IPs   []string
}

// Authority signs certificates into a directory.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Open reads the authority (ca.crt, ca.key) of dir, or makes one.
func Open(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	a := &Authority{dir: dir}
	cert, key, err := read(dir, "ca")
	switch {
	case err == nil && time.Until(cert.NotAfter) > 30*24*time.Hour:
		a.cert, a.key = cert, key
		return a, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("pki: %w (remove %s to start over)", err, dir)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "berth-lab"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a.cert, a.key, err = a.issue("ca", template)
	return a, err
}

// Issue makes the certificate unless dir has one that this authority signed
// for the same names and that is good for another month.
func (a *Authority) Issue(r Request) error {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: r.User, Organization: r.Groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames:    r.Names,
	}
	for _, s := range r.IPs {
		ip := net.ParseIP(s)
		if ip == nil {
			return fmt.Errorf("pki: %s: %q is no IP address", r.File, s)
		}
		template.IPAddresses = append(template.IPAddresses, ip)
	}
	if len(r.Names)+len(r.IPs) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if cert, _, err := read(a.dir, r.File); err == nil && a.serves(cert, template) {
		return nil
	}
	_, _, err := a.issue(r.File, template)
	return err
}

// serves tells whether cert is still what template asks for.
func (a *Authority) serves(cert, template *x509.Certificate) bool {
	if cert.CheckSignatureFrom(a.cert) != nil || time.Until(cert.NotAfter) < 30*24*time.Hour {
		return false
	}
	if cert.Subject.String() != template.Subject.String() || len(cert.ExtKeyUsage) != len(template.ExtKeyUsage) {
		return false
	}
	for _, n := range template.DNSNames {
		if cert.VerifyHostname(n) != nil {
			return false
		}
	}
	for _, ip := range template.IPAddresses {
		if cert.VerifyHostname(ip.String()) != nil {
			return false
		}
	}
	return true
}

// issue signs template with a new key, by itself when the authority has no
// certificate yet.
func (a *Authority) issue(file string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %s: %w", file, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %s: %w", file, err)
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour) // clocks that are set back
	template.NotAfter = time.Now().Add(validity)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %s: %w", file, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %s: %w", file, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %s: %w", file, err)
	}
	// The key first: a certificate on disk always has its key beside it.
	if err := write(filepath.Join(a.dir, file+".key"), "EC PRIVATE KEY", keyDER, 0o600); err != nil {
		return nil, nil, err
	}
	return cert, key, write(filepath.Join(a.dir, file+".crt"), "CERTIFICATE", der, 0o644)
}

func write(path, kind string, der []byte, mode os.FileMode) error {
	temp := path + ".new"
	if err := os.WriteFile(temp, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	return nil
}

func read(dir, file string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certDER, err := readPEM(filepath.Join(dir, file+".crt"))
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := readPEM(filepath.Join(dir, file+".key"))
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, nil, fmt.Errorf("%s.crt: %w", file, err)
	}
	key, err := x509.ParseECPrivateKey(keyDER)
	if err != nil {
		return nil, nil, fmt.Errorf("%s.key: %w", file, err)
	}
	return cert, key, nil
}

func readPEM(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s: not PEM", path)
	}
	return block.Bytes, nil
}
