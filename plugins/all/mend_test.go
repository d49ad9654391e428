package all_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/plugins/all"
)

// TestRepairObjects: a repair restores deleted links, addresses, routes and settings as they were,
// and a second repair finds nothing to do.
func TestRepairObjects(t *testing.T) {
	t.Parallel()
	outside := func(h *host, commands ...string) {
		for _, c := range commands {
			h.Host.Command("ip", strings.Fields(c)...)
		}
	}
	inside := func(h *host, commands ...string) {
		for _, c := range commands {
			h.Container("c0").Command("ip", strings.Fields(c)...)
		}
	}
	for _, row := range []struct {
		name   string
		chain  int
		damage func(*host)
	}{
		{"bridge down", 2, func(h *host) { outside(h, "link set br1 down") }},
		{"bridge deleted", 2, func(h *host) { outside(h, "link delete br1") }},
		{"bridge replaced", 2, func(h *host) { outside(h, "link delete br1", "link add br1 type bridge") }},
		{"bridge and rules gone", 2, func(h *host) {
			outside(h, "link delete br1")
			h.Host.Command("nft", "flush", "ruleset")
		}},
		{"gateway addresses deleted", 2, func(h *host) { outside(h, "address flush dev br1 scope global") }},
		{"port down", 2, func(h *host) { outside(h, "link set "+hostEnd(h)+" down") }},
		{"port in no bridge", 2, func(h *host) { outside(h, "link set "+hostEnd(h)+" nomaster") }},
		{"forwarding off", 2, func(h *host) { h.Host.Command("sysctl", "-qw", "net.ipv4.ip_forward=0") }},
		{"address in the container", 2, func(h *host) { inside(h, "address flush dev eth0 scope global") }},
		{"routes in the container", 2, func(h *host) { inside(h, "route flush dev eth0", "-6 route del default") }},
		{"interface of the container down", 2, func(h *host) { inside(h, "link set eth0 down") }},
		{"ptp: host-side veth down", 1, func(h *host) { outside(h, "link set "+hostEnd(h)+" down") }},
		{"ptp: routes to the container", 1, func(h *host) { outside(h, "route flush dev "+hostEnd(h)) }},
		{"ptp: routes in the container", 1, func(h *host) { inside(h, "route flush dev eth0") }},
		{"ptp: address in the container", 1, func(h *host) { inside(h, "address flush dev eth0 scope global") }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, chains[row.chain])
			h.addMany(2)
			before := h.snapshot(t)
			row.damage(h)
			if h.snapshot(t) == before {
				t.Fatal("nothing is damaged")
			}
			if passed := h.repair(); len(passed) > 0 {
				t.Errorf("skipped: %v", passed)
			}
			testnet.Eventually(t, func() error { // the carrier comes back
				if diff := testnet.Diff(before, h.snapshot(t)); diff != "" {
					return fmt.Errorf("after the repair:\n%s", diff)
				}
				return nil
			})
			generation := h.generation()
			h.repair()
			if diff := testnet.Diff(before, h.snapshot(t)); diff != "" || h.generation() != generation {
				t.Errorf("after the second repair:\n%s", diff)
			}
		})
	}
}

// TestRepairLeavesOthers: a repair does not touch an interface that belongs to another attachment
// now, nor a default route that leads through another interface of the container.
func TestRepairLeavesOthers(t *testing.T) {
	t.Parallel()
	h := newHost(t, chains[0])
	h.addMany(2)
	vpn := h.Container("c0")
	vpn.Batch("link add tun type veth peer name tun1", "link set tun up", "link set tun1 up",
		"route delete default", "route add default dev tun")
	other := h.Container("c1")
	other.Batch("link delete eth0", "link add eth0 type veth peer name eth1", "link set eth0 up")
	before := testnet.Snapshot(t, []*testnet.Namespace{vpn, other})
	var passed []network.Unrepaired
	must(t, h.Host.Run(func() (err error) {
		passed, err = h.Repair(context.Background(), nil, all.Repair)
		return err
	}))
	if len(passed) != 0 {
		t.Errorf("skipped: %v", passed)
	}
	if diff := testnet.Diff(before, testnet.Snapshot(t, []*testnet.Namespace{vpn, other})); diff != "" {
		t.Errorf("the repair changed:\n%s", diff)
	}
}

// hostEnd returns the name of the host-side veth of container c0.
func hostEnd(h *host) string {
	return regexp.MustCompile(`veth\w{11}`).FindString(h.Host.Command("ip", "-br", "link", "show", "type",
		"veth"))
}

// volatile matches facts that a repair does not restore: numbers of links and bridge ports, the
// protocol and the source of routes that the kernel had added or changed, and settings of a bridge
// that another program created.
var volatile = regexp.MustCompile(`(?m)^.* info_slave_data (id|no) .*\n| ifindex \d+|.*/br1/accept_dad = .*|,"protocol":"(boot|kernel)"|,"prefsrc":"fd00[^"]*"`)

// snapshot returns the state of the host and its containers, without volatile facts.
func (h *host) snapshot(t *testing.T) string {
	t.Helper()
	text := testnet.Snapshot(t, []*testnet.Namespace{h.Host, h.Container("c0"), h.Container("c1")})
	return volatile.ReplaceAllString(text, "")
}
