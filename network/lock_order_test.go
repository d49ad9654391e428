package network_test

import (
	"context"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
)

// waiting is an observer that reports the start of each wait for a lock.
type waiting chan cni.Attachment

func (w waiting) Begin(
	ctx context.Context, e network.Event,
) (context.Context, func(network.Outcome)) {
	if e.Kind == network.Lock {
		w <- e.Attachment
	}
	return ctx, nil
}

// free reports whether another process could take a lock now.
func free(t *testing.T, path string, lock func(context.Context, string) (func(), error)) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	release, err := lock(ctx, path)
	if err == nil {
		release()
	}
	return err == nil
}

// LIF-06: locks are taken in one order: networks by name, then the container. An operation that
// waits for the lock of a network holds neither the lock of the container nor the lock of a later
// network, so two operations never wait for each other.
func TestLockOrder(t *testing.T) {
	t.Parallel()
	for name, op := range map[string]func(*rig, []network.Join) error{
		"Setup, not in the order of names": func(r *rig, joins []network.Join) error {
			_, err := r.manager(nil).Setup(r.t.Context(),
				sandbox("c1", []network.Join{joins[1], joins[0]}))
			return err
		},
		"Remove": func(r *rig, _ []network.Join) error {
			return r.manager(nil).Remove(r.t.Context(), "c1", nil)
		},
		"Add": func(r *rig, joins []network.Join) error {
			_, err := r.Add(r.t.Context(), joins[0].Network, request("c2"))
			return err
		},
		"Del": func(r *rig, joins []network.Join) error {
			return r.Del(r.t.Context(), request("c1").Attachment("n0"),
				network.Fallback{Network: joins[0].Network})
		},
		"GC": func(r *rig, joins []network.Join) error {
			return r.GC(r.t.Context(), joins[0].Network, keep())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			joins := r.networks(2)
			if name == "Remove" || name == "Del" {
				if _, err := r.manager(nil).Setup(t.Context(),
					sandbox("c1", []network.Join{joins[1], joins[0]})); err != nil {
					t.Fatal(err)
				}
			}
			release, err := network.LockExclusive(t.Context(), r.NetworkLock("n0"))
			if err != nil {
				t.Fatal(err)
			}
			waits := make(waiting, 100)
			r.Observer = waits
			done := make(chan error, 1)
			go func() { done <- op(r, joins) }()
			if first := <-waits; first != (cni.Attachment{Network: "n0"}) {
				t.Errorf("the first lock is for %v", first)
			}
			for _, path := range []string{r.NetworkLock("n1"), r.ContainerLock("c1"),
				r.ContainerLock("c2")} {
				if !free(t, path, network.LockExclusive) {
					t.Errorf("%s is held", path)
				}
			}
			release()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// LIF-08: GC that waits for the container of a stale attachment holds the lock of its network.
func TestLockOrderOfStale(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	r.addAll(n, "c1")
	release, err := network.LockExclusive(t.Context(), r.ContainerLock("c1"))
	if err != nil {
		t.Fatal(err)
	}
	waits := make(waiting, 100)
	r.Observer = waits
	done := make(chan error, 1)
	go func() { done <- r.GC(t.Context(), n, keep()) }()
	for _, want := range []cni.Attachment{{Network: "red"}, {Container: "c1"}} {
		if got := <-waits; got != want {
			t.Errorf("waits for %v, want %v", got, want)
		}
	}
	if free(t, r.NetworkLock("red"), network.LockShared) {
		t.Error("the network is not locked")
	}
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
