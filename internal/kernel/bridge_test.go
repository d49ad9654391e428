package kernel_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
)

func TestEnsureBridgeCreates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	br, created, err := b.host.Links.EnsureBridge(kernel.Bridge{Name: "br0", MTU: 1400, Promisc: true})
	must(t, err)
	if !created || br.Kind != "bridge" || br.MTU != 1400 || !br.Up || br.Promisc != 1 {
		t.Errorf("created %t: %+v", created, br)
	}
	before := b.snapshot(t)
	must(t, b.tx.Rollback())
	b.unchanged(t, before) // the bridge is shared
}

func TestEnsureBridgeUsesExisting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Host.Command("ip", "link", "add", "br0", "mtu", "1300", "type", "bridge", "ageing_time", "100")
	was, err := b.host.Links.ByName("br0")
	must(t, err)
	br, created, err := b.host.Links.EnsureBridge(kernel.Bridge{Name: "br0", MTU: 1400})
	must(t, err)
	if created || br.Index != was.Index || br.MTU != 1300 || !br.Up || br.Promisc != 0 {
		t.Errorf("created %t: %+v", created, br)
	}
	before := b.snapshot(t)
	_, created, err = b.host.Links.EnsureBridge(kernel.Bridge{Name: "br0", MTU: 1400})
	if created || err != nil {
		t.Errorf("second time: created %t, %v", created, err)
	}
	b.unchanged(t, before)
}

func TestEnsureBridgePromiscWithOtherUsers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	br, _, err := b.host.Links.EnsureBridge(kernel.Bridge{Name: "br0"})
	must(t, err)
	b.Host.Command("ip", "link", "set", "br0", "promisc", "on")
	for range 2 {
		br, _, err = b.host.Links.EnsureBridge(kernel.Bridge{Name: "br0", Promisc: true})
		if err != nil || br.Promisc != 1 {
			t.Errorf("%+v, %v", br, err)
		}
	}
	// A capture counts too, but only while it runs.
	b.Host.Command("ip", "link", "set", "br0", "promisc", "off")
	b.Host.Do(func() {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		defer unix.Close(fd)
		must(t, unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &unix.PacketMreq{
			Ifindex: int32(br.Index), Type: unix.PACKET_MR_PROMISC,
		}))
		br, _, err = b.host.Links.EnsureBridge(kernel.Bridge{Name: "br0", Promisc: true})
		if err != nil || br.Promisc != 2 {
			t.Errorf("during a capture: %+v, %v", br, err)
		}
	})
}

func TestEnsureBridgeRefusesOtherLinks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.veth(t)
	before := b.snapshot(t)
	_, _, err := b.host.Links.EnsureBridge(kernel.Bridge{Name: "veth0"})
	if !errors.Is(err, kernel.ErrNotBridge) || !strings.Contains(err.Error(), `link "veth0" is a veth`) {
		t.Errorf("got %v", err)
	}
	b.unchanged(t, before)
}

func TestEnsureBridgeRace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var created atomic.Int32
	var index atomic.Int32
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range 50 {
		s := open(t, kernel.Begin(t.Context()), b.Host)
		wg.Go(func() {
			<-start
			br, made, err := s.Links.EnsureBridge(kernel.Bridge{Name: "br0", MTU: 1400})
			if err != nil {
				t.Error(err)
				return
			}
			if made {
				created.Add(1)
			}
			if old := index.Swap(int32(br.Index)); old != 0 && old != int32(br.Index) || !br.Up || br.MTU != 1400 {
				t.Errorf("%+v, another one has index %d", br, old)
			}
		})
	}
	close(start)
	wg.Wait()
	if created.Load() != 1 {
		t.Errorf("%d calls report that they created it", created.Load())
	}
}

func TestSetMaster(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, host := b.veth(t)
	first, _, err := b.host.Links.EnsureBridge(kernel.Bridge{Name: "br0"})
	must(t, err)
	must(t, b.host.Links.SetMAC(first, first.MAC)) // otherwise it changes with the ports
	second, _, err := b.host.Links.EnsureBridge(kernel.Bridge{Name: "br1"})
	must(t, err)
	must(t, b.host.Links.SetMAC(second, second.MAC))
	b.tx.Keep()
	before := b.snapshot(t)

	must(t, b.host.Links.SetMaster(host, first))
	must(t, b.host.Links.SetPort(host, kernel.Port{Hairpin: true, Isolated: true}))
	host, err = b.host.Links.ByName("veth0")
	must(t, err)
	if host.Master != first.Index {
		t.Errorf("master %d, want %d", host.Master, first.Index)
	}
	must(t, b.host.Links.SetMaster(host, second))
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

func TestSetPort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, host := b.veth(t)
	br, _, err := b.host.Links.EnsureBridge(kernel.Bridge{Name: "br0"})
	must(t, err)
	if err := b.host.Links.SetPort(host, kernel.Port{}); err == nil {
		t.Error("SetPort succeeds for a link that is not a port")
	}
	must(t, b.host.Links.SetMaster(host, br))
	for _, want := range []kernel.Port{{Hairpin: true}, {Isolated: true}, {}, {Hairpin: true, Isolated: true}} {
		must(t, b.host.Links.SetPort(host, want))
		info := show(t, b.Host, "link", "show", "veth0")["linkinfo"].(map[string]any)["info_slave_data"].(map[string]any)
		if got := (kernel.Port{Hairpin: info["hairpin"].(bool), Isolated: info["isolated"].(bool)}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
