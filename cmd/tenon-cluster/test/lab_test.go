package test

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/embedded"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/lab"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// servers are the servers that the lab knows.
var servers = map[string]func() lab.Server{
	"debian":   func() lab.Server { return lab.Debian },
	"embedded": embedded.Server,
}

// each runs a test with both servers.
func each(t *testing.T, test func(t *testing.T, s lab.Server)) {
	for name, server := range servers {
		t.Run(name, func(t *testing.T) { test(t, server()) })
	}
}

// within returns a context with a limit.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func put(t testing.TB, c *clientv3.Client, key, value string) {
	t.Helper()
	testnet.Eventually(t, func() error {
		_, err := c.Put(within(t, 5*time.Second), key, value)
		return err
	})
}

func get(t testing.TB, c *clientv3.Client, key string) (value string) {
	t.Helper()
	testnet.Eventually(t, func() error {
		r, err := c.Get(within(t, 5*time.Second), key)
		if err == nil && len(r.Kvs) > 0 {
			value = string(r.Kvs[0].Value)
		}
		return err
	})
	return value
}

// TestLab checks that the faults of the lab are what they say. A request that failed during a fault
// can still succeed later, so that the test looks only at keys that it wrote without a fault.
func TestLab(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s lab.Server) {
		t.Parallel()
		c := lab.Start(t, lab.Options{Server: s})
		node := c.Node()
		client := c.Client(node)
		put(t, client, "before", "1")

		leader := c.WaitLeader()
		leader.Kill()
		c.WaitLeader(leader)
		put(t, client, "killed", "1")
		c.Heal()

		leader = c.WaitLeader()
		leader.Pause()
		c.WaitLeader(leader)
		put(t, client, "paused", "1")
		c.Heal()

		leader = c.WaitLeader()
		leader.Cut()
		put(t, client, "cut", "1")
		c.Heal()

		node.Cut()
		if _, err := client.Put(within(t, time.Second), "lost", "late"); err == nil {
			t.Error("a node without link reaches etcd")
		}
		node.Join()
		put(t, client, "kept", "1")

		var b lab.Backup
		if s.Env == nil {
			b = c.Snapshot()
		} else {
			b = c.Copy()
		}
		put(t, client, "undone", "1")
		if s.Env == nil {
			c.Restore(b)
		} else {
			c.Rewind(b)
		}
		if kept, undone := get(t, client, "kept"), get(t, client, "undone"); kept != "1" || undone != "" {
			t.Errorf("after the restore: kept %q, undone %q", kept, undone)
		}
	})
}

// TestLabQuota checks the alarm NOSPACE and its end.
func TestLabQuota(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s lab.Server) {
		t.Parallel()
		c := lab.Start(t, lab.Options{Server: s, Members: 1, Quota: 8 << 20})
		c.Fill()
		client := c.Client(nil)
		if _, err := client.Put(within(t, time.Minute), "y", "1"); err == nil {
			t.Error("a put succeeds beyond the quota")
		}
		c.Clear()
		put(t, client, "y", "2")
	})
}

// TestLabTLS checks client certificates, and users by certificate and by password.
func TestLabTLS(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s lab.Server) {
		t.Parallel()
		c := lab.Start(t, lab.Options{Server: s, TLS: true})
		conf := c.Config(nil)
		conf.TLS = c.PKI.Stranger()
		if _, err := c.Dial(conf).Put(within(t, 2*time.Second), "x", "1"); err == nil {
			t.Error("a client without certificate writes")
		}
		c.Protect("tenon", "password", "/tenon/c/")
		put(t, c.Client(nil), "/tenon/c/x", "1") // by certificate
		conf = c.Config(nil)
		conf.Username, conf.Password = "tenon", "password"
		conf.TLS = c.PKI.Client("host")
		user := c.Dial(conf)
		put(t, user, "/tenon/c/x", "2")
		_, err := user.Put(within(t, testnet.Patience), "/other", "1")
		if err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("a key outside the prefix: %v", err)
		}
	})
}
