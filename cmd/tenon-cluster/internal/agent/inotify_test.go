package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestWatchAddresses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old := filepath.Join(dir, "addresses", "old")
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	changed, done := make(chan string, 1000), make(chan error, 1)
	go func() { done <- agent.WatchAddresses(dir)(ctx, func(pool string) { changed <- pool }) }()
	if got := <-changed; got != "old" { // it may have been filled before
		t.Errorf("pool %s, expected old", got)
	}
	touch := func(pool, address string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "addresses", pool, address), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := <-changed; got != pool {
			t.Errorf("pool %s, expected %s", got, pool)
		}
	}
	touch("old", "10.0.0.1")
	if err := os.Mkdir(filepath.Join(dir, "addresses", "new"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := <-changed; got != "new" {
		t.Errorf("pool %s, expected new", got)
	}
	touch("new", "10.0.0.1")
	if err := os.RemoveAll(old); err != nil {
		t.Fatal(err)
	}
	testnet.Eventually(t, func() error { // the directory is made again and watched again
		if err := os.MkdirAll(old, 0o700); err != nil {
			return err
		}
		select {
		case <-changed:
			return nil
		default:
			return errors.New("no event")
		}
	})
	cancel()
	if err := <-done; err == nil {
		t.Error("the watch has ended without an error")
	}
}
