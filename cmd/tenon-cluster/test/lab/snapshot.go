package lab

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// Backup is a backup of the store.
type Backup struct{ path string }

// Snapshot saves the store of a member. Only etcdctl of the same series can restore it.
func (c *Cluster) Snapshot() Backup {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testnet.Patience)
	defer cancel()
	r, err := c.Client(nil).Snapshot(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	b := Backup{filepath.Join(c.t.TempDir(), "snapshot")}
	f, err := os.OpenFile(b.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, r); err != nil {
		c.t.Fatal(err)
	}
	return b
}

// Restore kills all members and starts a cluster with the contents of a snapshot, as the manual of
// etcd says. Revisions go back, too.
func (c *Cluster) Restore(b Backup) {
	c.t.Helper()
	testnet.Require(c.t, testnet.Tool("etcdctl"))
	for _, m := range c.Members {
		m.Kill()
		if err := os.RemoveAll(m.dir); err != nil {
			c.t.Fatal(err)
		}
		conf := m.config()
		cmd := exec.Command("etcdctl", "snapshot", "restore", b.path, "--name", m.Name,
			"--data-dir", m.dir, "--initial-cluster", conf["initial-cluster"].(string),
			"--initial-advertise-peer-urls", m.peerURL())
		cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
		if out, err := cmd.CombinedOutput(); err != nil {
			c.t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	for _, m := range c.Members {
		m.Start()
	}
	c.healthy()
}

// Copy stops all members, copies their directories, and starts them again: a backup of the disks.
func (c *Cluster) Copy() Backup {
	c.t.Helper()
	b := Backup{c.t.TempDir()}
	c.stopped(func(m *Member) { c.copyDir(filepath.Join(b.path, m.Name), m.dir) })
	return b
}

// Rewind stops all members and starts them with the directories of [Cluster.Copy].
func (c *Cluster) Rewind(b Backup) {
	c.t.Helper()
	c.stopped(func(m *Member) {
		if err := os.RemoveAll(m.dir); err != nil {
			c.t.Fatal(err)
		}
		c.copyDir(m.dir, filepath.Join(b.path, m.Name))
	})
}

func (c *Cluster) copyDir(to, from string) {
	c.t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Chmod(to, 0o700); err != nil { // etcd insists
		c.t.Fatal(err)
	}
}

func (c *Cluster) stopped(do func(m *Member)) {
	c.t.Helper()
	for _, m := range c.Members {
		m.Kill()
	}
	for _, m := range c.Members {
		do(m)
	}
	for _, m := range c.Members {
		m.Start()
	}
	c.healthy()
}

// Compact discards all revisions before the present one and returns that.
func (c *Cluster) Compact() int64 {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testnet.Patience)
	defer cancel()
	client := c.Client(nil)
	now, err := client.Get(ctx, "x")
	if err == nil {
		_, err = client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return now.Header.Revision
}

// Fill writes until the members refuse writes, because their databases have reached the quota.
func (c *Cluster) Fill() {
	c.t.Helper()
	client := c.Client(nil)
	value := strings.Repeat("x", 1<<20)
	testnet.Eventually(c.t, func() error {
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			_, err := client.Put(ctx, "fill", value)
			cancel()
			if errors.Is(err, rpctypes.ErrNoSpace) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
}

// Clear does what an operator does after the quota: compact, defragment one member after another,
// disarm the alarm.
func (c *Cluster) Clear() {
	c.t.Helper()
	c.Compact()
	client := c.Client(nil)
	ctx, cancel := context.WithTimeout(context.Background(), testnet.Patience)
	defer cancel()
	for _, m := range c.Members {
		if _, err := client.Defragment(ctx, m.Endpoint); err != nil {
			c.t.Fatal(err)
		}
	}
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		c.t.Fatal(err)
	}
}

// Protect creates root, and a user with a password who may use the keys of a prefix, and turns
// authentication on. Clients with a certificate of that name are that user too.
func (c *Cluster) Protect(user, password, prefix string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testnet.Patience)
	defer cancel()
	a := c.Client(nil)
	for _, step := range []func() error{
		func() error { _, err := a.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := a.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := a.RoleAdd(ctx, user); return err },
		func() error {
			_, err := a.RoleGrantPermission(ctx, user, prefix, clientv3.GetPrefixRangeEnd(prefix),
				clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := a.UserAdd(ctx, user, password); return err },
		func() error { _, err := a.UserGrantRole(ctx, user, user); return err },
		func() error { _, err := a.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			c.t.Fatal(err)
		}
	}
}
