package filestore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/filestore"
	"github.com/tenon-cni/tenon/internal/ipam/storetest"
)

// TestOwnerWithNetwork: the network is a third line and part of the identity of the owner, the
// namespace a fourth line and not. Both survive a rebuild of the index.
func TestOwnerWithNetwork(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/26")
	in := func(network, namespace string) ipam.Owner {
		return ipam.Owner{Container: "c1", IfName: "eth0", Network: network, Namespace: namespace}
	}
	for _, o := range []ipam.Owner{in("a", "shop"), in("b", "shop"), in("c", ""), owner("c1")} {
		mustAllocate(t, n, o, sets)
	}
	for name, want := range map[string]string{"10.0.0.2": "c1\r\neth0\r\na\r\nshop",
		"10.0.0.3": "c1\r\neth0\r\nb\r\nshop", "10.0.0.4": "c1\r\neth0\r\nc",
		"10.0.0.5": "c1\r\neth0"} {
		got, err := os.ReadFile(filepath.Join(path, name))
		if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	var leases []string
	n.Do(t, nil, func(s ipam.Store) {
		all, err := s.Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			leases = append(leases, fmt.Sprintf("%s %s/%s", l.Addr, l.Owner.Network,
				l.Owner.Namespace))
		}
	})
	want := []string{"10.0.0.2 a/shop", "10.0.0.3 b/shop", "10.0.0.4 c/", "10.0.0.5 /"}
	if diff := cmp.Diff(want, leases); diff != "" {
		t.Error(diff)
	}
	mustRelease(t, n, in("a", "")) // DEL may not know the namespace
	n.Do(t, nil, func(s ipam.Store) {
		freed, err := s.Collect(ctx, []ipam.Owner{in("b", ""), owner("c1")})
		if err != nil || len(freed) != 1 || freed[0].Addr.String() != "10.0.0.4" {
			t.Errorf("freed %v, %v", freed, err)
		}
	})
	mustRelease(t, n, in("b", "bank"))
	mustRelease(t, n, owner("c1"))
	wantNoLeases(t, path)
	wantConsistent(t, path, sets)
}

// TestForget: Forget precedes each permanent removal of a reservation, and an error keeps the
// reservation. The undo of a reservation does not call it.
func TestForget(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	sets := storetest.Sets(t, "10.0.0.0/26")
	var forgotten []string
	var refuse error
	open := func(boot string, change ipam.Change) *filestore.Store {
		s, err := filestore.Open(ctx, filestore.Options{Dir: filepath.Dir(path),
			Network: filepath.Base(path), Create: true, BootID: boot, Change: change,
			Forget: func(l ipam.Lease) error {
				if _, err := os.Stat(filepath.Join(path, l.Addr.String())); err != nil {
					t.Errorf("already removed: %v", err)
				}
				forgotten = append(forgotten, l.Addr.String()+" "+l.Owner.Container)
				return refuse
			}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	steps := func(boot string, do func(s *filestore.Store) error) error {
		s := open(boot, nil)
		return errors.Join(do(s), s.Close())
	}
	add := func(c string) func(s *filestore.Store) error {
		return func(s *filestore.Store) error {
			_, err := ipam.Allocate(ctx, s, ipam.Request{Owner: owner(c), Sets: sets})
			return err
		}
	}
	release := func(c string) func(s *filestore.Store) error {
		return func(s *filestore.Store) error { return s.Release(ctx, owner(c)) }
	}
	want := func(lines ...string) {
		t.Helper()
		if diff := cmp.Diff(lines, forgotten); diff != "" {
			t.Error(diff)
		}
		forgotten = nil
	}
	for _, c := range []string{"c1", "c2", "c3"} {
		if err := steps(bootID, add(c)); err != nil {
			t.Fatal(err)
		}
	}
	var tx storetest.Tx
	s := open(bootID, tx.Do)
	if err := errors.Join(add("undone")(s), tx.Rollback(), s.Close()); err != nil {
		t.Fatal(err)
	}
	want()
	refuse = errors.New("refused")
	if err := steps(bootID, release("c1")); !errors.Is(err, refuse) {
		t.Error(err)
	}
	want("10.0.0.2 c1")
	collect := func(s *filestore.Store) error {
		_, err := s.Collect(ctx, []ipam.Owner{owner("c1"), owner("c3")})
		return err
	}
	if err := steps(bootID, collect); !errors.Is(err, refuse) {
		t.Error(err)
	}
	want("10.0.0.3 c2")
	refuse = nil
	if err := errors.Join(steps(bootID, release("c1")), steps(bootID, collect)); err != nil {
		t.Error(err)
	}
	want("10.0.0.2 c1", "10.0.0.3 c2")
	free := func(s *filestore.Store) error {
		held, err := s.Held(ctx, owner("c3"))
		return errors.Join(err, s.Free(ctx, held[0]))
	}
	if err := errors.Join(steps(bootID, add("c4")), steps(bootID, free)); err != nil {
		t.Error(err)
	}
	want("10.0.0.4 c3")
	if err := steps("next boot", release("unknown")); err != nil { // c4 is outdated
		t.Error(err)
	}
	want("10.0.0.5 c4")
	wantNoLeases(t, path)
}
