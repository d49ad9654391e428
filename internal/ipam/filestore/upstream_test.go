package filestore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/storetest"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// upstream is the host-local plugin of Debian's package containernetworking-plugins.
const upstream = "/usr/lib/cni/host-local"

// runUpstream returns the addresses that ADD returned.
func runUpstream(verb, path string, o ipam.Owner) ([]string, error) {
	cmd := exec.Command(upstream)
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + o.Container, "CNI_IFNAME=" + o.IfName,
		"CNI_NETNS=/no/such/namespace", "CNI_PATH=/no/such/directory",
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"ipam":{"type":"host-local","dataDir":%q,
		"ranges":[[{"subnet":"10.0.0.0/26"}],[{"subnet":"2001:db8::/64"}]]}}`, filepath.Base(path), filepath.Dir(path)))
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", verb, o, err, out)
	}
	if verb != "ADD" {
		return nil, nil
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	err = json.Unmarshal(out, &result)
	var addrs []string
	for _, ip := range result.IPs {
		addrs = append(addrs, ip.Address.Addr().String())
	}
	return addrs, err
}

// wantUpstream compares the addresses that ADD returned, or the error.
func wantUpstream(t *testing.T, verb, path string, o ipam.Owner, want string) {
	t.Helper()
	addrs, err := runUpstream(verb, path, o)
	got := strings.Join(addrs, " ")
	if err != nil {
		got = err.Error()
	}
	if !strings.Contains(got, want) || want == "" && got != "" {
		t.Errorf("%s of %s: got %q, want %q", verb, o, got, want)
	}
}

func TestUpstreamTakesOver(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(upstream))
	path := newPath(t)
	n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/26", "2001:db8::/64")
	mustAllocate(t, n, owner("c1"), sets)
	mustAllocate(t, n, ipam.Owner{Container: "c1", IfName: "eth1"}, sets)
	wantUpstream(t, "CHECK", path, owner("c1"), "")
	wantUpstream(t, "CHECK", path, owner("c2"), "Failed to find address added by container c2")
	wantUpstream(t, "ADD", path, owner("c1"),
		"10.0.0.2 has been allocated to c1, duplicate allocation is not allowed")
	wantUpstream(t, "ADD", path, owner("c2"), "10.0.0.4 2001:db8::4")
	wantUpstream(t, "DEL", path, owner("c1"), "")
	n.Want(t, "10.0.0.3 container c1 interface eth1", "10.0.0.4 container c2 interface eth0",
		"2001:db8::3 container c1 interface eth1", "2001:db8::4 container c2 interface eth0",
		"last 0 10.0.0.4", "last 1 2001:db8::4")
	wantConsistent(t, path, sets)
}

func TestTakeOverFromUpstream(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(upstream))
	path := newPath(t)
	n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/26", "2001:db8::/64")
	wantUpstream(t, "ADD", path, owner("c1"), "10.0.0.2 2001:db8::2")
	wantUpstream(t, "ADD", path, owner("c2"), "10.0.0.3 2001:db8::3")
	_, err := n.Allocate(ctx, ipam.Request{Owner: owner("c1"), Sets: sets})
	var duplicate *ipam.DuplicateError
	if !errors.As(err, &duplicate) || duplicate.Held.Addr != addr("10.0.0.2") {
		t.Errorf("second address: %v", err)
	}
	mustRelease(t, n, owner("c1"))
	if got := mustAllocate(t, n, owner("c3"), sets); got[0].Addr != addr("10.0.0.4") ||
		got[1].Addr != addr("2001:db8::4") {
		t.Errorf("got %v", got)
	}
	mustRelease(t, n, owner("c2"))
	wantUpstream(t, "DEL", path, owner("c3"), "")
	n.Want(t, "last 0 10.0.0.4", "last 1 2001:db8::4")
}

// TestUpstreamIgnoresCaches: upstream compares every file below the directory with the container
// ID. It must not take a bitmap with bits that spell a container ID for a reservation of that
// container.
func TestUpstreamIgnoresCaches(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(upstream))
	path := newPath(t)
	set := ipam.RangeSet{{Subnet: netip.MustParsePrefix("10.0.0.0/24"), End: addr("10.0.0.8"),
		Gateway: addr("10.9.0.1")}}
	if err := set[0].Canonicalize(); err != nil {
		t.Fatal(err)
	}
	for i, bits := 0, 'a'; bits>>i > 0; i++ {
		if a, _ := set[0].At(uint64(i)); bits>>i&1 == 1 {
			_, err := network(path, bootID).Allocate(ctx, ipam.Request{
				Owner: owner(fmt.Sprint("c", i)), Sets: []ipam.RangeSet{set},
				Addrs: []netip.Addr{a},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	network(path, bootID).Do(t, nil, func(s ipam.Store) {
		if used, err := s.Used(ctx, set[0]); err != nil || used != 3 {
			t.Fatalf("used: %d, %v", used, err)
		}
	})
	wantUpstream(t, "CHECK", path, owner("a"), "Failed to find address added by container a")
	before := listing(t, filepath.Join(path, ".owners"))
	wantUpstream(t, "DEL", path, owner("a"), "")
	if diff := cmp.Diff(before, listing(t, filepath.Join(path, ".owners"))); diff != "" ||
		len(before) != 2 {
		t.Errorf("%d caches (-before +after):\n%s", len(before), diff)
	}
}

// TestTogetherWithUpstream: both implementations work in one directory at the same time, and each
// deletes attachments of the other: no address has two holders, no reservation is left, and the
// caches agree with the files afterwards.
func TestTogetherWithUpstream(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(upstream))
	if !inMemory(t) {
		return
	}
	path, claims := newPath(t), t.TempDir()
	n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/26", "2001:db8::/64")
	ours := implementation{
		add: func(o ipam.Owner) ([]string, error) {
			all, err := n.Allocate(ctx, ipam.Request{Owner: o, Sets: sets})
			var addrs []string
			for _, a := range all {
				addrs = append(addrs, a.Addr.String())
			}
			return addrs, err
		},
		del: func(o ipam.Owner) error { return n.Release(ctx, o) },
	}
	theirs := implementation{
		add: func(o ipam.Owner) ([]string, error) { return runUpstream("ADD", path, o) },
		del: func(o ipam.Owner) error {
			_, err := runUpstream("DEL", path, o)
			return err
		},
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 25 {
				adds, dels := ours, ours
				if (i+j)%2 == 0 {
					adds = theirs
				}
				if (i+j)%4 < 2 {
					dels = theirs
				}
				if err := churnWith(adds, dels, claims, fmt.Sprintf("c-%d-%d", i, j)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wantNoLeases(t, path)
	wantConsistent(t, path, sets)
	mustAllocate(t, n, owner("last"), sets)
	wantUpstream(t, "CHECK", path, owner("last"), "")
	wantUpstream(t, "ADD", path, owner("last"), "duplicate allocation is not allowed")
	mustRelease(t, n, owner("last"))
	wantConsistent(t, path, sets)
}

// implementation is Tenon's or upstream's.
type implementation struct {
	add func(ipam.Owner) ([]string, error)
	del func(ipam.Owner) error
}

// churnWith attaches with one implementation and detaches with the other.
func churnWith(adds, dels implementation, claims, container string) error {
	addrs, err := adds.add(owner(container))
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if err := claim(claims, a, container); err != nil {
			return err
		}
	}
	for _, a := range addrs {
		if err := os.Remove(filepath.Join(claims, a)); err != nil {
			return err
		}
	}
	return dels.del(owner(container))
}

// TestTakeOverInPlace: Tenon takes over a directory that upstream has used for a long time:
// reservations in both formats, last addresses, debris, and files without an owner. Upstream takes
// over the directory from Tenon in the same way.
func TestTakeOverInPlace(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(upstream))
	path := newPath(t)
	n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/26", "2001:db8::/64")
	for name, content := range map[string]string{
		"10.0.0.2": "old-1", "10.0.0.3": "new-1\r\neth0", "2001:db8::2": "new-1\r\neth0",
		"10.0.0.4": "old-2\n",
		"10.0.0.5": "", "10.0.0.60": "new-2\r\neth0", "last_reserved_ip.0": "10.0.0.60",
		"last_reserved_ip.1": "2001:db8::2",
		"last_reserved_ip.7": "what?", "lock": "", "notes.txt": "old-1",
		"10.0.0.6.bak": "new-1\r\neth0",
	} {
		write(t, filepath.Join(path, name), content)
	}
	if got := mustAllocate(t, n, owner("c1"), sets); got[0].Addr != addr("10.0.0.61") ||
		got[1].Addr != addr("2001:db8::3") {
		t.Errorf("Tenon: got %v", got)
	}
	wantUpstream(t, "ADD", path, owner("c2"), "10.0.0.62 2001:db8::4")
	// wraps around over reserved addresses
	if got := mustAllocate(t, n, owner("c3"), sets); got[0].Addr != addr("10.0.0.5") {
		t.Errorf("Tenon: got %v", got)
	}
	for _, c := range []string{"old-1", "new-1"} {
		mustRelease(t, n, owner(c))
	}
	for _, c := range []string{"old-2", "new-2", "c1", "c3"} {
		wantUpstream(t, "DEL", path, owner(c), "")
	}
	mustRelease(t, n, owner("c2"))
	wantConsistent(t, path, sets)
	var names []string
	for _, line := range listing(t, path) {
		names = append(names, strings.Fields(line)[0])
	}
	want := []string{"10.0.0.6.bak", "last_reserved_ip.0", "last_reserved_ip.1",
		"last_reserved_ip.7", "lock", "notes.txt"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
