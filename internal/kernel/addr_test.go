package kernel_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAddAddr(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, _ := b.veth(t)
	for _, row := range []struct{ addr, broadcast string }{
		{"10.1.2.3/24", "10.1.2.255"},
		{"10.2.0.1/30", "10.2.0.3"},
		{"10.3.0.0/31", ""},
		{"10.4.0.1/32", ""},
		{"fd00::3/64", ""},
		{"fd01::3/128", ""},
	} {
		must(t, b.container.Addrs.Add(inside, prefix(row.addr)))
		i := slices.IndexFunc(addrInfo(t, b), func(a map[string]any) bool {
			return row.addr == addrOf(a)
		})
		if i < 0 {
			t.Errorf("%s: not there", row.addr)
			continue
		}
		got, _ := addrInfo(t, b)[i]["broadcast"].(string)
		if scope := addrInfo(t, b)[i]["scope"]; got != row.broadcast || scope != "global" {
			t.Errorf("%s: broadcast %q, scope %s; want %q, global", row.addr, got, scope, row.broadcast)
		}
		if err := b.container.Addrs.Add(inside, prefix(row.addr)); !errors.Is(err, unix.EEXIST) ||
			!strings.Contains(err.Error(), row.addr) || !strings.Contains(err.Error(), "eth0") {
			t.Errorf("%s again: %v", row.addr, err)
		}
	}
}

func addrInfo(t *testing.T, b *bench) []map[string]any {
	t.Helper()
	list := show(t, b.Container("container"), "addr", "show", "eth0")["addr_info"].([]any)
	out := make([]map[string]any, len(list))
	for i, a := range list {
		out[i] = a.(map[string]any)
	}
	return out
}

func addrOf(info map[string]any) string {
	return netip.PrefixFrom(addr(info["local"].(string)), int(info["prefixlen"].(float64))).String()
}

func TestAddrsAreOfTheLink(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, _ := b.veth(t)
	b.Container("container").Command("ip", "link", "set", "lo", "up")
	want := []netip.Prefix{prefix("10.1.2.3/24"), prefix("10.1.2.4/24"), prefix("fd00::3/64")}
	for _, p := range want {
		must(t, b.container.Addrs.Add(inside, p))
	}
	got, err := b.container.Addrs.Of(inside)
	must(t, err)
	slices.SortFunc(got, netip.Prefix.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAddrChangesAreUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, _ := b.vethUp(t)
	old, oldv6 := prefix("10.9.2.3/24"), prefix("fd09::3/64")
	must(t, b.container.Addrs.Add(inside, old))
	must(t, b.container.Addrs.Add(inside, oldv6))
	b.tx.Keep()
	before := b.snapshot(t)
	must(t, b.container.Addrs.Add(inside, prefix("10.1.2.3/24")))
	must(t, b.container.Addrs.Add(inside, prefix("fd00::3/64")))
	must(t, b.container.Addrs.Delete(inside, old))
	must(t, b.container.Addrs.Delete(inside, oldv6))
	must(t, b.container.Addrs.Delete(inside, prefix("10.7.7.7/8"))) // does not exist
	if as, err := b.container.Addrs.Of(inside); err != nil || slices.Contains(as, old) || slices.Contains(as, oldv6) {
		t.Errorf("not removed: %v, %v", as, err)
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

func TestEnsureGateway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, host := b.veth(t)
	b.tx.Keep()
	for _, want := range []bool{true, false} {
		if added, err := b.host.Addrs.EnsureGateway(host, prefix("10.1.2.1/24")); added != want || err != nil {
			t.Errorf("added %t, %v; want %t", added, err, want)
		}
	}
	before := b.snapshot(t)
	must(t, b.tx.Rollback())
	b.unchanged(t, before) // the bridge is shared
}
