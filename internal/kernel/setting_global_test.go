package kernel_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestGlobal: settings that are writable in a namespace and not Global have a separate value there.
// The test changes each number and compares; it omits settings that are not numbers, which are few
// (CVE-2021-38209).
func TestGlobal(t *testing.T) {
	t.Parallel()
	net := testnet.New(t, "a", "b")
	a, b := testnet.NS(t, net.Container("a")), testnet.NS(t, net.Container("b"))
	keys := writable(t, a)
	if len(keys) < 100 {
		t.Fatalf("only %d settings", len(keys))
	}
	changed := 0
	for _, key := range keys {
		if (kernel.Setting{Key: key}).Global() {
			continue
		}
		before, ok := read(t, b, key)
		if !ok {
			continue
		}
		undo := change(t, a, key)
		if undo == nil {
			continue
		}
		changed++
		if after, _ := read(t, b, key); after != before {
			t.Errorf("%s acts on other namespaces too: value changed from %q to %q", key, before, after)
		}
		undo()
	}
	if t.Logf("%d of %d settings changed", changed, len(keys)); changed < 100 {
		t.Error("too few settings changed")
	}
}

// writable lists the settings below net that are writable in a namespace.
func writable(t *testing.T, n *netns.NS) (keys []string) {
	t.Helper()
	err := n.Run(func() error {
		return filepath.WalkDir("/proc/sys/net", func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() {
				return nil
			}
			if err != nil {
				return err
			}
			if info, err := d.Info(); err == nil && info.Mode().Perm()&0o200 != 0 {
				keys = append(keys, strings.TrimPrefix(path, "/proc/sys/"))
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func read(t *testing.T, n *netns.NS, key string) (value string, ok bool) {
	t.Helper()
	err := n.Run(func() (err error) {
		value, err = kernel.ReadSetting(key)
		return err
	})
	return value, err == nil
}

// change changes a number, if the kernel accepts another value, and returns the undo.
func change(t *testing.T, n *netns.NS, key string) (undo func()) {
	t.Helper()
	err := n.Run(func() error {
		old, err := kernel.ReadSetting(key)
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(old)
		if err != nil {
			return err
		}
		for _, by := range []int{1, -1, 100} {
			restore, err := kernel.Setting{Key: key, Value: strconv.Itoa(number + by)}.Apply()
			if err != nil || restore == nil {
				continue
			}
			undo = func() { _ = n.Run(restore) } // some fail, and end with the namespace
			return nil
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return undo
}

func TestGlobalByName(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"net/netfilter/nf_hooks_lwtunnel": true, "net/netfilter/nf_conntrack_max": true, "net/netfilter/nf_conntrack_acct": false,
		"net/ipv4/ip_forward": false, "net.netfilter.nf_conntrack_max": false,
	} {
		if (kernel.Setting{Key: key}).Global() != want {
			t.Errorf("%s: %t", key, !want)
		}
	}
}
