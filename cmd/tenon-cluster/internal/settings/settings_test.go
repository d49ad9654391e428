package settings

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// load loads settings from a file, an environment and flags.
func load(
	t *testing.T, file string, environment map[string]string, args ...string,
) (Settings, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.json")
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddFlags(set)
	AddAgentFlags(set)
	if err := set.Parse(append([]string{"--config", path}, args...)); err != nil {
		t.Fatal(err)
	}
	return Load(set, func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	})
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	got, err := load(t,
		`{"cluster": "file", "endpoints": ["http://a:1"], "node": "n1", "routes": {"mode": "host-gw", "vni": 7},
			"username": "u", "passwordFile": "p"}`,
		map[string]string{"TENON_CLUSTER_ENDPOINTS": "http://b:1,http://c:1", "TENON_CLUSTER_NODE": "n2",
			"TENON_CLUSTER_ROUTES": "vxlan", "TENON_CLUSTER_LABELS": "zone=a,rack=3"},
		"--this-node", "n3", "--vni", "9", "--dir", "/state")
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Cluster: "file", Endpoints: []string{"http://b:1", "http://c:1"}, Node: "n3", Dir: "/state",
		Socket: "/run/tenon/cluster.sock", Username: "u", PasswordFile: "p",
		Routes: Routes{Mode: "vxlan", VNI: 9}, Labels: map[string]string{"zone": "a", "rack": "3"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := load(t, `{}`, nil)
	if err != nil || got.Cluster != "default" || got.Node == "" || got.Dir == "" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := got.Connect(t.Context(), nil); !errors.Is(err, ErrNoEndpoints) {
		t.Error(err)
	}
}

func TestWrongSettings(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		file        string
		environment map[string]string
		args        []string
		want        string
	}{
		"unknown key":               {file: `{"endpoint": []}`, want: `unknown field "endpoint"`},
		"no JSON":                   {file: `endpoints`, want: "cluster.json"},
		"certificate without key":   {file: `{"cert": "a"}`, want: "both cert and key"},
		"user without password":     {file: `{"username": "a"}`, want: "passwordFile"},
		"name that is no file name": {file: `{"cluster": "a/b"}`, want: "cluster"},
		"number":                    {file: `{}`, environment: map[string]string{"TENON_CLUSTER_VNI": "x"}, want: "TENON_CLUSTER_VNI"},
		"port":                      {file: `{"routes": {"port": 70000}}`, want: "port 70000"},
		"label":                     {file: `{}`, args: []string{"--labels", "zone"}, want: "--labels"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, row.file, row.environment, row.args...)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// authority signs certificates.
type authority struct {
	*testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{T: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", time.Now().Add(time.Hour), nil)
	return a
}

// issue writes NAME.crt and NAME.key.
func (a *authority) issue(name string, end time.Time, issuer *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: end.Add(-48 * time.Hour), NotAfter: end, IsCA: issuer == nil, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	a.write(name+".crt", "CERTIFICATE", der)
	a.write(name+".key", "EC PRIVATE KEY", private)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.Fatal(err)
	}
	return cert, key
}

func (a *authority) write(name, kind string, content []byte) {
	a.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
	if err := os.WriteFile(filepath.Join(a.dir, name), text, 0o600); err != nil {
		a.Fatal(err)
	}
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// serve accepts TLS connections with a certificate and returns the address.
func (a *authority) serve(name string, clients bool) string {
	a.Helper()
	pair, err := tls.LoadX509KeyPair(a.path(name+".crt"), a.path(name+".key"))
	if err != nil {
		a.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if clients {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		config.ClientCAs.AddCert(a.cert)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = c.Read(make([]byte, 1))
				c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// TestDiagnose: each way in which a connection can fail has an explanation.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	now := time.Now()
	a.issue("good", now.Add(time.Hour), a)
	a.issue("expired", now.Add(-24*time.Hour), a)
	other.issue("foreign", now.Add(time.Hour), other)
	good, expired := a.serve("good", false), a.serve("expired", false)
	strict := a.serve("good", true)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	go func() {
		for {
			c, err := plain.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			c.Close()
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for name, row := range map[string]struct {
		s    Settings
		want string
	}{
		"good":                {Settings{Endpoints: []string{"https://" + good}, CA: a.path("ca.crt")}, ""},
		"good, with client":   {Settings{Endpoints: []string{"https://" + strict}, CA: a.path("ca.crt"), Cert: a.path("good.crt"), Key: a.path("good.key")}, ""},
		"etcd expired":        {Settings{Endpoints: []string{"https://" + expired}, CA: a.path("ca.crt")}, "etcd's certificate is valid from"},
		"another authority":   {Settings{Endpoints: []string{"https://" + good}, CA: other.path("ca.crt")}, "did not sign"},
		"client expired":      {Settings{Endpoints: []string{"https://" + good}, CA: a.path("ca.crt"), Cert: a.path("expired.crt"), Key: a.path("expired.key")}, "expired on"},
		"no client":           {Settings{Endpoints: []string{"https://" + strict}, CA: a.path("ca.crt")}, "refuses the client certificate"},
		"foreign client":      {Settings{Endpoints: []string{"https://" + strict}, CA: a.path("ca.crt"), Cert: other.path("foreign.crt"), Key: other.path("foreign.key")}, "refuses the client certificate"},
		"http to TLS":         {Settings{Endpoints: []string{"http://" + good}}, "uses TLS"},
		"TLS to http":         {Settings{Endpoints: []string{"https://" + plain.Addr().String()}, CA: a.path("ca.crt")}, "does not use TLS"},
		"http":                {Settings{Endpoints: []string{"http://" + plain.Addr().String()}}, ""},
		"nothing listens":     {Settings{Endpoints: []string{"http://" + closed.Addr().String()}}, "refused"},
		"no URL":              {Settings{Endpoints: []string{"10.0.0.1:2379"}}, "not a URL"},
		"name does not match": {Settings{Endpoints: []string{"https://localhost:" + port(good)}, CA: a.path("ca.crt")}, "not for this name"},
		"missing ca":          {Settings{Endpoints: []string{"https://" + good}, CA: a.path("none")}, "no such file"},
		"ca is no PEM":        {Settings{Endpoints: []string{"https://" + good}, CA: "/dev/null"}, "no certificate in PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			causes := row.s.Diagnose(context.Background(), now)
			text := strings.Join(causes, "\n")
			if (row.want == "") != (text == "") || !strings.Contains(text, row.want) {
				t.Errorf("causes: %s", text)
			}
		})
	}
}

func port(address string) string {
	_, p, _ := net.SplitHostPort(address)
	return p
}
