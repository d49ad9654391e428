package settings

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/stats"
)

// ErrNoEndpoints reports that the settings name no member of etcd.
var ErrNoEndpoints = errors.New("no endpoints of etcd are set")

const (
	dialTimeout = 5 * time.Second
	// A client notices a silent member after the sum of these times.
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 5 * time.Second
	// maxReconnect limits the pause between attempts to connect. Nodes that know more than others
	// about a restored store have little time to say so.
	maxReconnect = 3 * time.Second
)

// Connections counts the connections of a client. It implements [stats.Handler].
type Connections struct {
	mu     sync.Mutex
	open   int
	breaks uint64
}

// Breaks returns how often the last open connection has ended.
func (c *Connections) Breaks() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.breaks
}

// HandleConn implements [stats.Handler].
func (c *Connections) HandleConn(_ context.Context, s stats.ConnStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s.(type) {
	case *stats.ConnBegin:
		c.open++
	case *stats.ConnEnd:
		if c.open--; c.open == 0 {
			c.breaks++
		}
	}
}

// TagConn implements [stats.Handler].
func (c *Connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return ctx
}

// HandleRPC implements [stats.Handler].
func (c *Connections) HandleRPC(context.Context, stats.RPCStats) {}

// TagRPC implements [stats.Handler].
func (c *Connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return ctx
}

// Connect returns a client of etcd. It does not wait for a connection, unless it logs in with a
// password: a request shows whether etcd answers. The error wraps [ErrNoEndpoints] if the settings
// name none. connections counts its connections, if not nil.
func (s *Settings) Connect(
	ctx context.Context, connections *Connections,
) (*clientv3.Client, error) {
	if len(s.Endpoints) == 0 {
		return nil, ErrNoEndpoints
	}
	c := clientv3.Config{
		Context:              ctx,
		Endpoints:            s.Endpoints,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		Logger:               zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: time.Second, Multiplier: backoff.DefaultConfig.Multiplier,
				Jitter: backoff.DefaultConfig.Jitter, MaxDelay: maxReconnect},
			MinConnectTimeout: dialTimeout,
		})},
	}
	if connections != nil {
		c.DialOptions = append(c.DialOptions, grpc.WithStatsHandler(connections))
	}
	var err error
	if c.TLS, err = s.tls(); err != nil {
		return nil, err
	}
	if s.Username != "" {
		password, err := os.ReadFile(s.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("password of user %s: %w", s.Username, err)
		}
		c.Username, c.Password = s.Username, strings.TrimRight(string(password), "\r\n")
	}
	client, err := clientv3.New(c)
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(s.Endpoints, ", "), err)
	}
	return client, nil
}

// tls returns the configuration of TLS, or nil if the settings and endpoints do not ask for it. It
// reads the client certificate for each connection, so that a renewed one is used without a
// restart.
func (s *Settings) tls() (*tls.Config, error) {
	if s.CA == "" && s.Cert == "" && !s.secure() {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		content, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("ca: %s contains no certificate in PEM", s.CA)
		}
	}
	if s.Cert != "" {
		if _, err := s.certificate(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return s.certificate()
		}
	}
	return c, nil
}

// certificate reads the client certificate and its key.
func (s *Settings) certificate() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	return &pair, nil
}

func (s *Settings) secure() bool {
	for _, e := range s.Endpoints {
		if strings.HasPrefix(e, "https://") {
			return true
		}
	}
	return false
}
