package settings

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"
)

// Diagnose explains why etcd does not answer: it connects to each endpoint and reads certificates.
// It returns a sentence for each cause that it finds; now is the time against which it checks
// certificates. The client of etcd reports such causes as text only.
func (s *Settings) Diagnose(ctx context.Context, now time.Time) (causes []string) {
	if s.Cert != "" {
		if cause := s.certificateCause(now); cause != "" {
			causes = append(causes, cause)
		}
	}
	config, err := s.tls()
	if err != nil {
		return append(causes, err.Error())
	}
	for _, e := range s.Endpoints {
		if cause := endpointCause(ctx, e, config); cause != "" {
			causes = append(causes, fmt.Sprintf("%s: %s", e, cause))
		}
	}
	return causes
}

// certificateCause checks the dates of the client certificate.
func (s *Settings) certificateCause(now time.Time) string {
	pair, err := s.certificate()
	if err != nil {
		return err.Error()
	}
	switch leaf := pair.Leaf; {
	case leaf == nil:
		return ""
	case now.After(leaf.NotAfter):
		return fmt.Sprintf("the client certificate %s expired on %s; renew it", s.Cert,
			leaf.NotAfter.UTC().Format(time.DateOnly))
	case now.Before(leaf.NotBefore):
		return fmt.Sprintf("the client certificate %s is valid from %s; check the clock", s.Cert,
			leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return ""
}

// endpointCause connects to one endpoint and returns why that fails, or "".
func endpointCause(ctx context.Context, endpoint string, config *tls.Config) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return "it is not a URL such as https://10.0.0.1:2379"
	}
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		if isTimeout(err) {
			return "no answer within " + patience.String()
		}
		return err.Error()
	}
	defer conn.Close()
	if u.Scheme != "https" {
		return plainCause(ctx, conn)
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config = config.Clone()
	config.ServerName = u.Hostname()
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return certificateText(err)
	}
	// A member that refuses the client certificate says so after the handshake of TLS 1.3.
	_ = secure.SetReadDeadline(time.Now().Add(patience / 4))
	if _, err := secure.Read(make([]byte, 1)); err != nil && !isTimeout(err) {
		return certificateText(err)
	}
	return ""
}

// plainCause reports a member that expects TLS on a connection without it.
func plainCause(ctx context.Context, conn net.Conn) string {
	// Only whether the member answers in TLS matters here, so that no certificate is checked.
	probe := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // sends nothing
	err := probe.HandshakeContext(ctx)
	if err == nil || isAlert(err) {
		return "the member uses TLS; write https:// and set ca, cert and key"
	}
	return ""
}

// isAlert reports whether the other side ended a handshake of TLS with an alert.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// certificateText explains the errors of a handshake that have a remedy.
func certificateText(err error) string {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("etcd's certificate is valid from %s to %s; renew it, or check the clock",
			invalid.Cert.NotBefore.UTC().Format(time.DateOnly),
			invalid.Cert.NotAfter.UTC().Format(time.DateOnly))
	case errors.As(err, &unknown):
		return "the ca of the settings did not sign etcd's certificate"
	case errors.As(err, &host):
		return "etcd's certificate is not for this name or address"
	case errors.As(err, &plain):
		return "the member does not use TLS; write http:// instead of https://"
	case isAlert(err):
		return fmt.Sprintf("etcd refuses the client certificate: %v", errors.Unwrap(err))
	}
	return err.Error()
}
