package all_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
)

// tenant is a chain in the subnets 10.7.0.0/24 and fd00:7::/64, whatever its number.
const tenant = `{"type":"bridge","bridge":"brN","isDefaultGateway":true,"ipMasq":true,` +
	`"masquerade":{"dropInvalid":true},"ipam":{"type":"host-local","dataDir":"DIR",` +
	`"ranges":[[{"subnet":"10.7.0.0/24"}],[{"subnet":"fd00:7::/64"}]]}},` +
	`{"type":"portmap","snat":true,"capabilities":{"portMappings":true}},` +
	`{"type":"firewall","backend":"nftables"}`

// newTenants returns a host with networks that have the same subnets.
func newTenants(t testing.TB, count int) *host {
	chains := make([]string, count)
	for i := range chains {
		chains[i] = strings.ReplaceAll(tenant, "DIR", t.TempDir())
	}
	return newHost(t, chains...)
}

func (h *host) check(i int, container string) error {
	a := cni.Attachment{Network: h.networks[i].Name, Container: container, IfName: "eth0"}
	return h.Host.Run(func() error {
		return h.Check(context.Background(), a, h.networks[i])
	})
}

// inForce reports whether the rules treat the first address of the subnets as all of its owners
// want.
func (h *host) inForce() bool {
	rules := h.rules()
	for _, set := range []string{"masq4", "masq6", "valid4", "valid6", "admitted4", "admitted6"} {
		address := "10.7.0.2"
		if strings.HasSuffix(set, "6") {
			address = "fd00:7::2"
		}
		if err := h.Host.Try("nft", "get", "element", "inet", "tenon", set, "{ "+address+" }"); err != nil {
			h.t.Logf("set %s lacks %s: %v\n%s", set, address, err, rules)
			return false
		}
	}
	return true
}

// TestTenants attaches containers of several networks with the same address, and detaches them in
// each order. Until the last one is gone, the rules for the address stay, CHECK passes, and a
// repair changes nothing. Afterwards nothing is left.
func TestTenants(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			h := newTenants(t, 3)
			name := func(i int) string { return fmt.Sprintf("c%d", i) }
			for i := range h.networks {
				must(t, h.add(h.networks[i], name(i)))
			}
			left := map[int]bool{0: true, 1: true, 2: true}
			for _, gone := range order {
				for i := range left {
					if err := h.check(i, name(i)); err != nil {
						t.Errorf("%d left: CHECK of %s: %v", len(left), name(i), err)
					}
				}
				if !h.inForce() {
					t.Errorf("%d left: the address is not in force", len(left))
				}
				before := h.generation()
				h.repair()
				if after := h.generation(); after != before {
					t.Errorf("%d left: a repair made %d transactions", len(left), after-before)
				}
				must(t, h.del(h.networks[gone], name(gone)))
				delete(left, gone)
			}
			if rules := h.rules(); strings.Contains(rules, "tenon:") {
				t.Errorf("left:\n%s", rules)
			}
		})
	}
}

// TestTenantsRepaired flushes the ruleset, and separately the elements in force.
func TestTenantsRepaired(t *testing.T) {
	t.Parallel()
	for _, damage := range []string{"flush ruleset", "flush set inet tenon masq4", "delete set inet tenon masq4_waiting"} {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()
			h := newTenants(t, 2)
			for i, n := range h.networks {
				must(t, h.add(n, fmt.Sprintf("c%d", i)))
			}
			h.Host.Command("nft", strings.Fields(damage)...)
			failed := 0
			for i := range h.networks {
				if err := h.check(i, fmt.Sprintf("c%d", i)); err != nil {
					failed++
				}
			}
			if failed == 0 {
				t.Error("CHECK of both containers passes on the damaged host")
			}
			if passed := h.repair(); len(passed) > 0 {
				t.Errorf("skipped: %v", passed)
			}
			if !h.inForce() {
				t.Error("not in force after the repair")
			}
			for i, n := range h.networks {
				if err := h.check(i, fmt.Sprintf("c%d", i)); err != nil {
					t.Error(err)
				}
				must(t, h.del(n, fmt.Sprintf("c%d", i)))
			}
			if rules := h.rules(); strings.Contains(rules, "tenon:") {
				t.Errorf("left:\n%s", rules)
			}
		})
	}
}

// TestTenantsConverted starts with the rules that Tenon made while the second network still took
// the address over: the first container had lost its elements.
func TestTenantsConverted(t *testing.T) {
	t.Parallel()
	h := newTenants(t, 2)
	for i, n := range h.networks {
		must(t, h.add(n, fmt.Sprintf("c%d", i)))
	}
	h.Host.Command("nft", "flush", "ruleset")
	h.repair("net2")
	if err := h.check(0, "c0"); err == nil {
		t.Fatalf("the first network still has its elements:\n%s", h.rules())
	}
	h.repair()
	for i := range h.networks {
		if err := h.check(i, fmt.Sprintf("c%d", i)); err != nil {
			t.Error(err)
		}
	}
	must(t, h.del(h.networks[1], "c1"))
	if err := h.check(0, "c0"); err != nil || !h.inForce() {
		t.Errorf("the first container lost its rules: %v", err)
	}
}

// TestTenantsCollected: GC of a network passes its addresses to the other networks.
func TestTenantsCollected(t *testing.T) {
	t.Parallel()
	h := newTenants(t, 2)
	for i, n := range h.networks {
		must(t, h.add(n, fmt.Sprintf("c%d", i)))
	}
	must(t, h.Host.Run(func() error {
		return h.GC(context.Background(), h.networks[0],
			network.Keep{Attachments: []cni.ValidAttachment{}})
	}))
	if err := h.check(1, "c1"); err != nil || !h.inForce() {
		t.Errorf("the other network lost its rules: %v", err)
	}
	if rules := h.rules(); strings.Contains(rules, " net1 ") {
		t.Errorf("left:\n%s", rules)
	}
}
