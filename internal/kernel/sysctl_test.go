package kernel_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// TestSysctl: keys with dots and with slashes work for an interface with a dot in its name.
func TestSysctl(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, host, err := b.container.Links.AddVeth(kernel.Veth{Name: "eth0.100", Host: b.host, HostName: "veth0"})
	must(t, err)
	b.tx.Keep()
	before := b.snapshot(t)
	read := func(key, want string) {
		t.Helper()
		if got, err := b.container.Sysctl.Read(key); got != want || err != nil {
			t.Errorf("%s = %q, %v; want %q", key, got, err, want)
		}
	}
	read("net/ipv4/conf/eth0.100/arp_notify", "0")
	must(t, b.container.Sysctl.Set("net.ipv4.conf.eth0/100.arp_notify", "1"))
	read("net/ipv4/conf/eth0.100/arp_notify", "1")
	read("/net/ipv4/conf/eth0.100/arp_notify", "1")
	must(t, b.container.Sysctl.Set("net/ipv4/conf/eth0.100/arp_notify", "1")) // no change
	must(t, b.container.Sysctl.SetAll([]kernel.Setting{
		{Key: "net/ipv6/conf/eth0.100/accept_dad", Value: "0"},
		{Key: "net/ipv6/conf/eth0.100/no_such_setting", Value: "1", Optional: true},
		{Key: "net/ipv6/conf/eth0.100/mtu", Value: "100", Optional: true}, // below what IPv6 allows
		{Key: "net/ipv4/ip_local_port_range", Value: "20000 30000"},
	}))
	read("net/ipv6/conf/eth0.100/accept_dad", "0")
	read("net/ipv4/ip_local_port_range", "20000\t30000")
	if got, err := b.host.Sysctl.Read("net/ipv4/ip_local_port_range"); err != nil || strings.HasPrefix(got, "20000") {
		t.Errorf("another namespace: %q, %v", got, err)
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
	_, _ = inside, host
}

func TestSysctlErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.snapshot(t)
	const missing = "net/ipv4/conf/eth7/arp_notify"
	if err := b.host.Sysctl.Set(missing, "1"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "sysctl "+missing+"=1") {
		t.Errorf("set: %v", err)
	}
	if _, err := b.host.Sysctl.Read(missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "sysctl "+missing) {
		t.Errorf("read: %v", err)
	}
	err := b.host.Sysctl.SetAll([]kernel.Setting{{Key: "net/ipv4/ip_forward", Value: "1"}, {Key: missing, Value: "1"}})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("several: %v", err)
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

func TestSysctlOptionalStillFaults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fault := errors.New("fault")
	b.tx.Watch(func(string) error { return fault })
	s := open(t, b.tx, b.Host)
	err := s.Sysctl.SetAll([]kernel.Setting{{Key: "net/ipv4/ip_forward", Value: "1", Optional: true}})
	if !errors.Is(err, fault) {
		t.Errorf("got %v, want the fault", err)
	}
}

func TestEnsureSysctlStays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t, b.host.Sysctl.Ensure([]kernel.Setting{{Key: "net/ipv4/ip_forward", Value: "1"}}))
	must(t, b.tx.Rollback())
	if got, err := b.host.Sysctl.Read("net/ipv4/ip_forward"); got != "1" || err != nil {
		t.Errorf("after rollback: %q, %v", got, err)
	}
}

// TestSysctlWithEmptyValue: an empty value can be set and is restored.
func TestSysctlWithEmptyValue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const key = "net/ipv4/ip_local_reserved_ports"
	before := b.snapshot(t)
	must(t, b.host.Sysctl.Set(key, "2000-2002,3000"))
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
	must(t, b.host.Sysctl.Set(key, "4000"))
	must(t, b.host.Sysctl.Set(key, ""))
	if got, err := b.host.Sysctl.Read(key); got != "" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestSysctlsThatCannotBeRead: settings that cannot be read are written: a command, and a secret
// that has not been set.
func TestSysctlsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const command, secret, plain = "net/ipv4/route/flush", "net/ipv6/conf/default/stable_secret", "net/ipv4/ip_forward"
	keys := []string{command, plain, secret, "net/ipv4/none"}
	values, err := b.host.Sysctl.Values(keys)
	if err != nil || len(values) != 1 || values[0].Key != plain {
		t.Errorf("values %v, %v", values, err)
	}
	must(t, b.host.Sysctl.Set(command, "1"))
	must(t, b.host.Sysctl.Set(secret, "2001:db8::1"))
	must(t, b.tx.Rollback())
	if values, err = b.host.Sysctl.Values(keys); err != nil || len(values) != 2 || values[1].Value != "2001:0db8:0000:0000:0000:0000:0000:0001" {
		t.Errorf("values %v, %v", values, err)
	}
}
