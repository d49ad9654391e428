package kernel_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// onParent are links that a parent can have only once, or only once with that address.
var onParent = []struct {
	name string
	link kernel.NewLink
}{
	{"macvlan with a MAC address", kernel.NewLink{Kind: "macvlan", Mode: "bridge", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}}},
	{"macvlan that needs the parent exclusively", kernel.NewLink{Kind: "macvlan", Mode: "passthru"}},
	{"ipvlan with an address", kernel.NewLink{Kind: "ipvlan", Mode: "l2"}},
	{"vlan", kernel.NewLink{Kind: "vlan", VLAN: 7}},
}

// eachOnParent runs a test for each of these links that the kernel supports, on a host with the
// parent ens1.
func eachOnParent(t *testing.T, test func(*testing.T, *bench, kernel.NewLink)) {
	t.Helper()
	for _, row := range onParent {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			testnet.Require(t, testnet.Kernel(kernel.Feature(row.link.Kind)))
			b := setup(t)
			b.device(t)
			b.Host.Batch("link set ens1 up")
			test(t, b, row.link)
		})
	}
}

// attach creates the link in a space in the way of attachments.
func (b *bench) attach(space *kernel.Space, n kernel.NewLink, owner string) error {
	parent, err := b.host.Links.ByName("ens1")
	if err != nil {
		return err
	}
	n.Name, n.Alias, n.Parent, n.ParentSpace = "eth0", owner, parent, b.host
	l, err := space.Links.Add(n)
	if err != nil {
		return err
	}
	address := netip.MustParsePrefix("10.1.2.3/24")
	if err := space.Links.Retry(l, b.host, func() error { return space.Addrs.Add(l, address) }); err != nil {
		return err
	}
	return space.Links.Retry(l, b.host, func() error { return space.Links.Up(l) })
}

// TestLinkAfterTheNamespace: the namespace of a link vanishes, and its successor repeatedly gets
// the same link at once.
func TestLinkAfterTheNamespace(t *testing.T) {
	t.Parallel()
	eachOnParent(t, func(t *testing.T, b *bench, n kernel.NewLink) {
		for i := range 30 {
			ns, err := netns.New()
			must(t, err)
			space, err := kernel.Begin(t.Context()).Open(ns)
			must(t, err)
			err = b.attach(space, n, "owner")
			space.Close()
			ns.Close()
			if err != nil {
				t.Fatalf("namespace %d: %v", i, err)
			}
		}
	})
}

// TestLinkOfAnotherOwner: Add fails if a link of another owner occupies the parent, the VLAN or the
// address.
func TestLinkOfAnotherOwner(t *testing.T) {
	t.Parallel()
	eachOnParent(t, func(t *testing.T, b *bench, n kernel.NewLink) {
		must(t, b.attach(open(t, b.tx, b.Container("other")), n, "other"))
		err := b.attach(b.container, n, "owner")
		if !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EINVAL) {
			t.Errorf("got %v", err)
		}
	})
}
