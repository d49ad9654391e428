package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// PKI is a certification authority with the certificates that it has issued.
type PKI struct {
	t    testing.TB
	ca   string // its certificate, a file
	dir  string // NAME.crt and NAME.key
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newPKI(t testing.TB) *PKI {
	t.Helper()
	p := &PKI{dir: t.TempDir(), t: t}
	p.ca = filepath.Join(p.dir, "ca.crt")
	p.key = p.newKey()
	p.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lab"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	p.write("ca", p.cert, p.key)
	return p
}

func (p *PKI) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	return key
}

// write signs a certificate and writes it and its key.
func (p *PKI) write(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	p.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, p.cert, &key.PublicKey, p.key)
	if err != nil {
		p.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "EC PRIVATE KEY", Bytes: secret},
	} {
		err := os.WriteFile(filepath.Join(p.dir, file), pem.EncodeToMemory(block), 0o600)
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *PKI) leaf(name string, until time.Time) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		p.t.Fatal(err)
	}
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
}

// server issues a certificate of a member.
func (p *PKI) server(name, addr string) (cert, key string) {
	p.t.Helper()
	leaf := p.leaf(name, time.Now().Add(time.Hour))
	leaf.IPAddresses = []net.IP{net.ParseIP(addr)}
	return p.issue(name, leaf)
}

// issue signs a certificate with a new key, and returns the files of both.
func (p *PKI) issue(name string, leaf *x509.Certificate) (cert, key string) {
	p.t.Helper()
	p.write(name, leaf, p.newKey())
	return filepath.Join(p.dir, name+".crt"), filepath.Join(p.dir, name+".key")
}

// Client returns the TLS configuration of a client with a certificate of this name. etcd takes the
// name as the user if authentication is on.
func (p *PKI) Client(name string) *tls.Config {
	p.t.Helper()
	return p.Until(name, time.Now().Add(time.Hour))
}

// Until is Client with a certificate that ends at a time.
func (p *PKI) Until(name string, end time.Time) *tls.Config {
	p.t.Helper()
	conf := p.Stranger()
	cert, err := tls.LoadX509KeyPair(p.issue(name, p.leaf(name, end)))
	if err != nil {
		p.t.Fatal(err)
	}
	conf.Certificates = []tls.Certificate{cert}
	return conf
}

// Stranger returns the TLS configuration of a client without certificate.
func (p *PKI) Stranger() *tls.Config {
	p.t.Helper()
	text, err := os.ReadFile(p.ca)
	if err != nil {
		p.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}
