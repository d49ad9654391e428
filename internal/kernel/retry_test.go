package kernel_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/kernel/netns"
	"github.com/tenon-cni/tenon/internal/kernel/probe"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// onParent are links of which a parent has one at a time, or one with that address.
var onParent = []struct {
	name string
	link kernel.NewLink
}{
	{"macvlan with a MAC address", kernel.NewLink{Kind: "macvlan", Mode: "bridge", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}}},
	{"macvlan that has the parent for itself", kernel.NewLink{Kind: "macvlan", Mode: "passthru"}},
	{"ipvlan with an address", kernel.NewLink{Kind: "ipvlan", Mode: "l2"}},
	{"vlan", kernel.NewLink{Kind: "vlan", VLAN: 7}},
}

// attach makes the link in a space as attachments do.
func (b *bench) attach(space *kernel.Space, n kernel.NewLink, owner string) error {
	parent, err := b.host.Link("ens1")
	if err != nil {
		return err
	}
	n.Name, n.Alias, n.Parent, n.ParentSpace = "eth0", owner, parent, b.host
	l, err := space.AddLink(n)
	if err != nil {
		return err
	}
	address := netip.MustParsePrefix("10.1.2.3/24")
	if err := space.Retry(l, b.host, func() error { return space.AddAddr(l, address) }); err != nil {
		return err
	}
	return space.Retry(l, b.host, func() error { return space.Up(l) })
}

// TestLinkAfterTheNamespace: the namespace of a link vanishes, and its successor gets such a link at once, again and again.
func TestLinkAfterTheNamespace(t *testing.T) {
	t.Parallel()
	for _, row := range onParent {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			testnet.Require(t, testnet.Kernel(probe.Feature(row.link.Kind)))
			b := setup(t)
			b.device(t)
			b.Host.Batch("link set ens1 up")
			for i := range 30 {
				ns, err := netns.New()
				must(t, err)
				space, err := kernel.Begin(t.Context()).Open(ns)
				must(t, err)
				err = b.attach(space, row.link, "owner")
				space.Close()
				ns.Close()
				if err != nil {
					t.Fatalf("namespace %d: %v", i, err)
				}
			}
		})
	}
}

// TestLinkOfAnotherOwner: what is in use by a link that can be found is refused.
func TestLinkOfAnotherOwner(t *testing.T) {
	t.Parallel()
	for _, row := range onParent {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			testnet.Require(t, testnet.Kernel(probe.Feature(row.link.Kind)))
			b := setup(t)
			b.device(t)
			b.Host.Batch("link set ens1 up")
			must(t, b.attach(open(t, b.tx, b.Container("other")), row.link, "other"))
			err := b.attach(b.container, row.link, "owner")
			if !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EINVAL) {
				t.Errorf("got %v", err)
			}
		})
	}
}
