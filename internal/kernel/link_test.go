package kernel_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netlink"
)

func TestLinkNotFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.host.Links.ByName("eth7")
	if !errors.Is(err, kernel.ErrNoLink) || err.Error() != `link "eth7": not found` {
		t.Errorf("by name: %v", err)
	}
	if _, err := b.host.Links.ByIndex(4711); !errors.Is(err, kernel.ErrNoLink) || !strings.Contains(err.Error(), "4711") {
		t.Errorf("by index: %v", err)
	}
}

func TestLinkByAlternativeName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, host := b.veth(t)
	for _, name := range []string{"short", "a-name-longer-than-15-bytes"} {
		b.Host.Command("ip", "link", "property", "add", "dev", "veth0", "altname", name)
		if l, err := b.host.Links.ByName(name); err != nil || l.Index != host.Index || l.Name != "veth0" {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
	if _, err := b.host.Links.ByName("another-name-longer-than-15-bytes"); !errors.Is(err, kernel.ErrNoLink) {
		t.Errorf("unknown long name: %v", err)
	}
}

func TestOperStateNames(t *testing.T) {
	t.Parallel()
	for state, want := range map[kernel.OperState]string{
		kernel.OperUp: "up", kernel.OperDown: "down", netlink.OperLowerLayerDown: "lowerlayerdown", netlink.OperUnknown: "unknown", 7: "operstate 7",
	} {
		if got := state.String(); got != want {
			t.Errorf("%d is %q, want %q", state, got, want)
		}
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, host := b.veth(t)
	br, _, err := b.host.Links.EnsureBridge(kernel.Bridge{Name: "br0"})
	must(t, err)
	must(t, b.host.Links.SetMaster(host, br))
	links, err := b.host.Links.All()
	must(t, err)
	var got []string
	for _, l := range links {
		got = append(got, l.Name+" "+l.Kind)
		if l.Name == "veth0" && (l.Master != br.Index || l.PeerNSID < 0) {
			t.Errorf("veth0: master %d, peer namespace %d", l.Master, l.PeerNSID)
		}
		if one, err := b.host.Links.ByIndex(l.Index); err != nil || one.Name != l.Name {
			t.Errorf("index %d: %v, %v", l.Index, one, err)
		}
	}
	slices.Sort(got)
	if want := []string{"br0 bridge", "lo device", "veth0 veth"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLinkChangesAreUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, host := b.veth(t)
	must(t, b.host.Links.SetAlias(host, "first"))
	b.tx.Keep()
	host, err := b.host.Links.ByName("veth0")
	must(t, err)
	before := b.snapshot(t)

	mac, _ := net.ParseMAC("02:11:22:33:44:55")
	must(t, b.host.Links.SetAlias(host, "second"))
	must(t, b.host.Links.SetMAC(host, mac))
	must(t, b.host.Links.SetPromisc(host, true))
	must(t, b.host.Links.SetAllMulticast(host, true))
	must(t, b.host.Links.SetMTU(host, 1400))
	must(t, b.host.Links.SetTxQLen(host, 77))
	must(t, b.host.Links.Up(host))
	now := show(t, b.Host, "link", "show", "veth0")
	if now["ifalias"] != "second" || now["address"] != mac.String() || now["promiscuity"] != 1.0 ||
		now["allmulti"] != nil && now["allmulti"] != 1.0 || // since Linux 6.0
		now["mtu"] != 1400.0 || now["txqlen"] != 77.0 {
		t.Errorf("changed link: %v", now)
	}
	if l, err := b.host.Links.ByName("veth0"); err != nil || !l.Up || l.Promisc != 1 || l.Alias != "second" || l.MAC.String() != mac.String() ||
		!l.Promiscuous || !l.AllMulticast || l.MTU != 1400 || l.TxQLen != 77 {
		t.Errorf("changed link: %+v, %v", l, err)
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

func TestLinkChangesThatChangeNothingAreNotUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, host := b.vethUp(t)
	must(t, b.host.Links.SetPromisc(host, true))
	b.tx.Keep()
	host, err := b.host.Links.ByName("veth0")
	must(t, err)
	before := b.snapshot(t)
	must(t, b.host.Links.SetPromisc(host, true))
	must(t, b.host.Links.Up(host))
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

func TestDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.vethUp(t)
	b.tx.Keep()
	host, err := b.host.Links.ByName("veth0")
	must(t, err)
	before := b.snapshot(t)
	must(t, b.host.Links.Down(host))
	down, err := b.host.Links.ByName("veth0")
	if err != nil || down.Up {
		t.Errorf("after Down: %+v, %v", down, err)
	}
	must(t, b.host.Links.Down(down)) // nothing to undo
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

func TestLinkChangesOfGoneLink(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, host := b.veth(t)
	mac, _ := net.ParseMAC("02:11:22:33:44:55")
	must(t, b.host.Links.SetAlias(host, "owner"))
	must(t, b.host.Links.SetMAC(host, mac))
	must(t, b.host.Links.SetPromisc(host, true))
	must(t, b.host.Links.SetAllMulticast(host, true))
	must(t, b.host.Links.SetMTU(host, 1400))
	must(t, b.host.Links.SetTxQLen(host, 77))
	must(t, b.host.Links.Up(host))
	must(t, b.host.Addrs.Add(host, prefix("10.1.2.3/24")))
	must(t, b.host.Routes.Add(host, kernel.Route{Dst: prefix("10.9.0.0/16")}))
	must(t, b.host.Sysctl.Set("net/ipv4/conf/veth0/arp_notify", "1"))
	b.Host.Command("ip", "link", "del", "veth0")
	must(t, b.tx.Rollback())
	for op, err := range map[string]error{
		"up":           b.host.Links.Up(host),
		"alias":        b.host.Links.SetAlias(host, "owner"),
		"mac":          b.host.Links.SetMAC(host, mac),
		"promisc":      b.host.Links.SetPromisc(host, true),
		"allmulticast": b.host.Links.SetAllMulticast(host, true),
		"mtu":          b.host.Links.SetMTU(host, 1400),
		"txqueuelen":   b.host.Links.SetTxQLen(host, 77),
	} {
		if !errors.Is(err, unix.ENODEV) && !errors.Is(err, kernel.ErrNoLink) {
			t.Errorf("%s: %v, want ErrNoLink", op, err)
		}
	}
}

// TestLinksWhileTheyChange: lists are complete while links come and go, which interrupts the
// kernel's dumps if they have more than one part.
func TestLinksWhileTheyChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const some = 60 // a part of 32 KiB has room for 25
	var script strings.Builder
	for i := range some {
		fmt.Fprintf(&script, "link add br%d type bridge\n", i)
	}
	batch := filepath.Join(t.TempDir(), "batch")
	must(t, os.WriteFile(batch, []byte(script.String()), 0o600))
	b.Host.Command("ip", "-batch", batch)
	done := make(chan struct{})
	churn := make(chan error)
	other := open(t, kernel.Begin(t.Context()), b.Host)
	go func() {
		for {
			_, _, err := other.Links.EnsureBridge(kernel.Bridge{Name: "churn"})
			if err == nil {
				err = deleteNamed(other, "churn")
			}
			select {
			case <-done:
				churn <- err
				return
			default:
			}
		}
	}()
	for range 100 {
		links, err := b.host.Links.All()
		if err != nil || len(links) < some+1 {
			t.Errorf("%d links, %v", len(links), err)
			break
		}
	}
	close(done)
	must(t, <-churn)
}
