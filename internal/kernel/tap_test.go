package kernel_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
)

func TestAddTap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.snapshot(t)
	owner, group := uint32(0), uint32(4294967294)
	want := kernel.Tap{
		TapDevice: kernel.TapDevice{Name: "tap0", MultiQueue: true, Owner: &owner, Group: &group},
		MAC:       net.HardwareAddr{2, 0, 0, 0, 0, 1}, MTU: 1400, Alias: "owner",
	}
	l, err := b.container.Links.AddTap(want)
	must(t, err)
	if l.Kind != "tun" || l.MTU != 1400 || l.MAC.String() != want.MAC.String() || l.Alias != "owner" || l.Up {
		t.Errorf("made %+v", l)
	}
	if i := l.Tun; !i.Tap || !i.Persistent || !i.MultiQueue || i.PI || i.VNetHdr || *i.Owner != owner || *i.Group != group {
		t.Errorf("made %+v", l.Tun)
	}
	if _, err := b.container.Links.AddTap(want); !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), `link "tap0" exists`) {
		t.Errorf("second device with the name: %v", err)
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

// TestAddTapFails: a failure during or after the creation of the device leaves nothing behind.
func TestAddTapFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.snapshot(t)
	nobody := ^uint32(0)
	for _, wrong := range []kernel.Tap{
		{TapDevice: kernel.TapDevice{Name: "tap0", Group: &nobody}},
		{TapDevice: kernel.TapDevice{Name: "tap0"}, MTU: 1 << 20},
		{TapDevice: kernel.TapDevice{Name: "tap0"}, MAC: net.HardwareAddr{1, 0, 0, 0, 0, 1}},
		{TapDevice: kernel.TapDevice{Name: "tap0"}, Alias: strings.Repeat("x", 300)},
	} {
		if _, err := b.container.Links.AddTap(wrong); err == nil {
			t.Errorf("made %+v", wrong)
		}
		must(t, b.tx.Rollback())
		b.unchanged(t, before)
	}
}

func TestCheckTap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Host.Batch("tuntap add mode tun name tun0", "tuntap add mode tap name tap0 user 7 group 8")
	seven, eight := uint32(7), uint32(8)
	for _, row := range []struct {
		name string
		want kernel.TapDevice
		says string
	}{
		{"tun0", kernel.TapDevice{}, "expected a tap device, found a tun device"},
		{"tap0", kernel.TapDevice{}, ""},
		{"tap0", kernel.TapDevice{Owner: &seven, Group: &eight}, ""},
		{"tap0", kernel.TapDevice{Owner: &eight}, "expected owner 8, found 7"},
		{"tap0", kernel.TapDevice{Group: &seven}, "expected group 7, found 8"},
		{"tap0", kernel.TapDevice{MultiQueue: true}, "expected several queues"},
	} {
		l, err := b.host.Links.ByName(row.name)
		must(t, err)
		err = kernel.CheckTap(l, row.want)
		if row.says == "" && err != nil || row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
			t.Errorf("%s, %+v: %v, want %q", row.name, row.want, err, row.says)
		}
	}
}
