package portmap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

const reference = "/usr/lib/cni"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOwnChain compares chain names with upstream's.
func TestOwnChain(t *testing.T) {
	for _, row := range []struct{ network, container, want string }{
		{"test", "1234", "CNI-DN-2bbe0c48b91a7d1b8a675"},
		{"net1", "cid1", "CNI-DN-e8f6f419596f7f47b3468"},
	} {
		if got := ownChain(row.network, row.container); got != row.want {
			t.Errorf("%s %s: got %s, want %s", row.network, row.container, got, row.want)
		}
		if got, want := oldOwnChain(row.network, row.container), strings.Replace(row.want, "DN",
			"SN", 1); got != want {
			t.Errorf("%s %s: got %s, want %s", row.network, row.container, got, want)
		}
	}
}

// TestEntryComment: a comment of more than 255 bytes is truncated, so that iptables accepts it.
func TestEntryComment(t *testing.T) {
	for n := 220; n < 250; n++ {
		container := strings.Repeat("x", n)
		got, whole := entryComment("net1", container), fmt.Sprintf(`dnat name: "net1" id: "%s"`,
			container)
		if len(whole) <= iptables.MaxComment && got != whole {
			t.Errorf("got %q, want %q", got, whole)
		}
		if len(whole) > iptables.MaxComment &&
			(len(got) != iptables.MaxComment || got != whole[:252]+"...") {
			t.Errorf("%d bytes: got %q", len(whole), got)
		}
	}
}

func TestGrouped(t *testing.T) {
	list := func(n int, port string) (ports []string) { return slices.Repeat([]string{port}, n) }
	for _, row := range []struct {
		ports []string
		want  []int
	}{
		{list(1, "80"), []int{1}},
		{list(15, "80"), []int{15}},
		{list(16, "80"), []int{15, 1}},
		{list(8, "80:90"), []int{7, 1}},
		{append(list(14, "80"), "80:90", "80"), []int{14, 2}},
	} {
		var got []int
		for _, g := range grouped(row.ports) {
			got = append(got, len(g))
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%v: got %v, want %v", row.ports, got, row.want)
		}
	}
}

func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

// TestRules compares the rules with upstream's, with ports and other options.
func TestRules(t *testing.T) {
	tables := ipTables{network: "net1", container: "cid1", snat: true, markBit: 13,
		forwards: []forward{
			{protocol: "tcp", hostPort: 8080, containerPort: 80},
			{protocol: "udp", hostPort: 8053, containerPort: 53},
			{protocol: "tcp", hostPort: 9090, containerPort: 90, hostIP: addr("127.0.0.1")},
			{protocol: "sctp", hostPort: 9091, containerPort: 91, hostIP: addr("::1")},
			{protocol: "tcp", hostPort: 7000, containerPort: 7000, count: 10, hostIP: addr("::")},
			{protocol: "tcp", hostPort: 7100, containerPort: 100, count: 10},
		}}
	const comment = ` -m comment --comment "dnat name: \"net1\" id: \"cid1\""`
	for address, want := range map[string]string{
		"10.1.2.2/24": `-A CNI-HOSTPORT-DNAT -p sctp` + comment + ` -m multiport --dports 9091 -j OWN
-A CNI-HOSTPORT-DNAT -p tcp` + comment + ` -m multiport --dports 8080,9090,7000:7009,7100:7109 -j OWN
-A CNI-HOSTPORT-DNAT -p udp` + comment + ` -m multiport --dports 8053 -j OWN
-A OWN -s 10.1.2.0/24 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK
-A OWN -s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK
-A OWN -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.1.2.2:80
-A OWN -s 10.1.2.0/24 -p udp -m udp --dport 8053 -j CNI-HOSTPORT-SETMARK
-A OWN -s 127.0.0.1/32 -p udp -m udp --dport 8053 -j CNI-HOSTPORT-SETMARK
-A OWN -p udp -m udp --dport 8053 -j DNAT --to-destination 10.1.2.2:53
-A OWN -s 10.1.2.0/24 -d 127.0.0.1/32 -p tcp -m tcp --dport 9090 -j CNI-HOSTPORT-SETMARK
-A OWN -s 127.0.0.1/32 -d 127.0.0.1/32 -p tcp -m tcp --dport 9090 -j CNI-HOSTPORT-SETMARK
-A OWN -d 127.0.0.1/32 -p tcp -m tcp --dport 9090 -j DNAT --to-destination 10.1.2.2:90
-A OWN -s 10.1.2.0/24 -p tcp -m tcp --dport 7100:7109 -j CNI-HOSTPORT-SETMARK
-A OWN -s 127.0.0.1/32 -p tcp -m tcp --dport 7100:7109 -j CNI-HOSTPORT-SETMARK
-A OWN -p tcp -m tcp --dport 7100:7109 -j DNAT --to-destination 10.1.2.2:100-109/7100`,
		"2001:db8:1::2/64": `-A CNI-HOSTPORT-DNAT -p sctp` + comment + ` -m multiport --dports 9091 -j OWN
-A CNI-HOSTPORT-DNAT -p tcp` + comment + ` -m multiport --dports 8080,9090,7000:7009,7100:7109 -j OWN
-A CNI-HOSTPORT-DNAT -p udp` + comment + ` -m multiport --dports 8053 -j OWN
-A OWN -s 2001:db8:1::/64 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK
-A OWN -p tcp -m tcp --dport 8080 -j DNAT --to-destination [2001:db8:1::2]:80
-A OWN -s 2001:db8:1::/64 -p udp -m udp --dport 8053 -j CNI-HOSTPORT-SETMARK
-A OWN -p udp -m udp --dport 8053 -j DNAT --to-destination [2001:db8:1::2]:53
-A OWN -s 2001:db8:1::/64 -d ::1/128 -p sctp -m sctp --dport 9091 -j CNI-HOSTPORT-SETMARK
-A OWN -d ::1/128 -p sctp -m sctp --dport 9091 -j DNAT --to-destination [2001:db8:1::2]:91
-A OWN -s 2001:db8:1::/64 -p tcp -m tcp --dport 7000:7009 -j CNI-HOSTPORT-SETMARK
-A OWN -p tcp -m tcp --dport 7000:7009 -j DNAT --to-destination 2001:db8:1::2
-A OWN -s 2001:db8:1::/64 -p tcp -m tcp --dport 7100:7109 -j CNI-HOSTPORT-SETMARK
-A OWN -p tcp -m tcp --dport 7100:7109 -j DNAT --to-destination [2001:db8:1::2]:100-109/7100`,
	} {
		got := strings.ReplaceAll(strings.Join(tables.rules(netip.MustParsePrefix(address)), "\n"),
			"CNI-DN-e8f6f419596f7f47b3468", "OWN")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", address, diff)
		}
	}
}

// TestMasqAll: with masqAll all connections are masqueraded, and localhost needs no separate rule.
// Debian's upstream plugin lacks the option.
func TestMasqAll(t *testing.T) {
	tables := ipTables{network: "net1", container: "cid1", snat: true, masqAll: true,
		forwards: []forward{
			{protocol: "tcp", hostPort: 8080, containerPort: 80}, {protocol: "tcp", hostPort: 8081,
				containerPort: 81, hostIP: addr("192.168.0.2")},
		}}
	want := `-A OWN -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK
-A OWN -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.1.2.2:80
-A OWN -d 192.168.0.2/32 -p tcp -m tcp --dport 8081 -j CNI-HOSTPORT-SETMARK
-A OWN -d 192.168.0.2/32 -p tcp -m tcp --dport 8081 -j DNAT --to-destination 10.1.2.2:81`
	got := strings.ReplaceAll(strings.Join(tables.rules(addresses[0])[1:], "\n"),
		"CNI-DN-e8f6f419596f7f47b3468", "OWN")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// host is a host with a transaction.
type host struct {
	*testnet.Namespace
	tx    *kernel.Tx
	space *kernel.Space
}

func newHost(t *testing.T) *host {
	t.Helper()
	testnet.Require(t, testnet.Tool("iptables-restore"))
	ns := testnet.New(t).Host
	tx := kernel.Begin(t.Context())
	space, err := tx.Open(testnet.NS(t, ns))
	must(t, err)
	t.Cleanup(space.Close)
	return &host{ns, tx, space}
}

var addresses = []netip.Prefix{
	netip.MustParsePrefix("10.1.2.2/24"), netip.MustParsePrefix("2001:db8:1::2/64"),
}

func tableOf(a netip.Prefix) iptables.Table {
	return iptables.Table{Family: familyOf(a.Addr()), Name: "nat"}
}

func (h *host) add(t *testing.T, what ipTables) {
	t.Helper()
	for _, a := range addresses {
		must(t, h.space.Rules.EditIPTables(tableOf(a), what.edit(a)))
	}
}

func (h *host) check(what ipTables) error {
	var errs []error
	for _, a := range addresses {
		errs = append(errs, h.space.Rules.CheckIPTables(tableOf(a), what.rules(a)))
	}
	return errors.Join(errs...)
}

func (h *host) remove(t *testing.T, what ...iptables.Removal) {
	t.Helper()
	for _, r := range what {
		must(t, h.space.Rules.RemoveIPTables(kernel.IPTables{Table: "nat", Removal: r}))
	}
}

func (h *host) saved() string { return testnet.IPTables(h.Namespace, "", "nat") }

// conf returns the part of the configuration that is the same for the upstream plugin.
func (t ipTables) conf(external map[string]any) map[string]any {
	var mappings []any
	for _, f := range t.forwards {
		m := map[string]any{
			"hostPort": f.hostPort, "containerPort": f.containerPort, "protocol": f.protocol,
		}
		if f.hostIP.IsValid() {
			m["hostIP"] = f.hostIP.String()
		}
		mappings = append(mappings, m)
	}
	c := map[string]any{
		"cniVersion": "1.0.0", "name": t.network, "type": "portmap", "snat": t.snat,
		"runtimeConfig": map[string]any{"portMappings": mappings},
		"prevResult": map[string]any{
			"cniVersion": "1.0.0",
			"interfaces": []any{map[string]any{"name": "eth0", "sandbox": "/proc/self/ns/net"}},
			"ips": []any{map[string]any{"address": "10.1.2.2/24", "interface": 0},
				map[string]any{"address": "2001:db8:1::2/64", "interface": 0}},
		},
	}
	for key, value := range external {
		c[key] = value
	}
	return c
}

func (h *host) reference(t *testing.T, verb, container string, conf map[string]any) {
	t.Helper()
	testnet.Require(t, testnet.Tool(filepath.Join(reference, "portmap")))
	stdin, err := json.Marshal(conf)
	must(t, err)
	h.Do(func() {
		cmd := exec.Command(filepath.Join(reference, "portmap"))
		cmd.Env = append(cmd.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+container,
			"CNI_NETNS=/proc/self/ns/net", "CNI_IFNAME=eth0", "CNI_PATH="+reference)
		cmd.Stdin = bytes.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("upstream %s: %v: %s", verb, err, out)
		}
	})
}

// cases returns configurations with the corresponding keys of the upstream plugin.
func cases() map[string]struct {
	ipTables
	conf map[string]any
} {
	eight := []forward{
		{protocol: "tcp", hostPort: 8080, containerPort: 80},
		{protocol: "tcp", hostPort: 8081, containerPort: 80},
		{protocol: "udp", hostPort: 8080, containerPort: 81},
		{protocol: "udp", hostPort: 8082, containerPort: 82},
		{protocol: "tcp", hostPort: 8083, containerPort: 83, hostIP: addr("192.168.0.2")},
		{protocol: "tcp", hostPort: 8084, containerPort: 84, hostIP: addr("0.0.0.0")},
		{protocol: "tcp", hostPort: 8085, containerPort: 85, hostIP: addr("2001:db8:a::1")},
		{protocol: "sctp", hostPort: 8086, containerPort: 86, hostIP: addr("::")},
	}
	plain := ipTables{network: "net1", container: "cid1", forwards: eight, snat: true, markBit: 13}
	type row = struct {
		ipTables
		conf map[string]any
	}
	rows := map[string]row{"eight mappings": {plain, nil}}
	add := func(name string, conf map[string]any, change func(*ipTables)) {
		with := plain
		change(&with)
		rows[name] = row{with, conf}
	}
	add("many ports", nil, func(t *ipTables) {
		t.forwards = nil
		for i := range uint16(31) {
			t.forwards = append(t.forwards, forward{
				protocol: "tcp", hostPort: 9000 + i, containerPort: 80 + i,
			})
		}
	})
	add("without snat", nil, func(t *ipTables) { t.snat = false })
	add("an external mark chain", map[string]any{"externalSetMarkChain": "KUBE-MARK-MASQ"},
		func(t *ipTables) { t.markChain = "KUBE-MARK-MASQ" })
	add("mark bit 5", map[string]any{"markMasqBit": 5}, func(t *ipTables) { t.markBit = 5 })
	add("mark bit 31", map[string]any{"markMasqBit": 31}, func(t *ipTables) { t.markBit = 31 })
	c4, c6 := []string{"-s", "1.2.3.4", "-i", "eth1"}, []string{"!", "-s", "12::34"}
	add("conditions", map[string]any{"conditionsV4": c4, "conditionsV6": c6}, func(t *ipTables) {
		t.conditions = [2][]string{c4, c6}
	})
	return rows
}

// foreign makes rules of other programs in the same chains.
func (h *host) foreign() {
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, rule := range []string{
			"-N KUBE-MARK-MASQ", "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000", "-N CANARY",
			"-A POSTROUTING -o eth9 -j MASQUERADE", "-A PREROUTING -j CANARY", "-A OUTPUT -j CANARY",
		} {
			h.Command(tool, append([]string{"-t", "nat"}, strings.Fields(rule)...)...)
		}
	}
}

// canary makes rules of another program in the shared chain.
func (h *host) canary() {
	for _, tool := range []string{"iptables", "ip6tables"} {
		h.Command(tool, "-t", "nat", "-N", hostPorts)
		h.Command(tool, "-t", "nat", "-A", hostPorts, "-m", "comment", "--comment", "canary",
			"-j", "CANARY")
	}
}

// TestAsTheReference compares the rules with upstream's, byte for byte; each implementation removes
// the rules of the other.
func TestAsTheReference(t *testing.T) {
	t.Parallel()
	for name, c := range cases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			theirs, ours := newHost(t), newHost(t)
			conf := c.ipTables.conf(c.conf)
			for _, h := range []*host{theirs, ours} {
				h.foreign()
				h.canary()
			}
			theirs.reference(t, "ADD", "cid1", conf)
			ours.add(t, c.ipTables)
			if diff := cmp.Diff(theirs.saved(), ours.saved()); diff != "" {
				t.Fatalf("(-upstream +Tenon):\n%s", diff)
			}
			must(t, theirs.check(c.ipTables))
			both := ours.saved()
			ours.reference(t, "ADD", "cid1", conf)
			if diff := cmp.Diff(both, ours.saved()); diff != "" {
				t.Errorf("ADD of the upstream plugin after Tenon's (-before +after):\n%s", diff)
			}
			ours.reference(t, "DEL", "cid1", conf)
			theirs.remove(t, leftovers("net1", "cid1")...)
			if diff := cmp.Diff(ours.saved(), theirs.saved()); diff != "" ||
				strings.Contains(theirs.saved(), "CNI-DN-") {
				t.Errorf("removed (-by upstream +by Tenon):\n%s", diff)
			}
			if !strings.Contains(theirs.saved(), "--comment canary") {
				t.Error("the canary rule is gone")
			}
			if err := ours.check(c.ipTables); !errors.Is(err, iptables.ErrMissing) ||
				!strings.Contains(err.Error(), "CNI-DN-") {
				t.Errorf("check of removed rules: %v", err)
			}
		})
	}
}

// TestAgain: another ADD removes the rules of an earlier ADD with other ports, and a failed ADD
// restores them.
func TestAgain(t *testing.T) {
	t.Run("legacy", func(t *testing.T) { // first, because it changes PATH
		testnet.LegacyIPTables(t)
		testAgain(t, func(*testing.T) {})
	})
	testAgain(t, (*testing.T).Parallel)
}

func testAgain(t *testing.T, parallel func(*testing.T)) {
	rows := cases()
	all := rows["eight mappings"]
	all.masqAll = true
	rows["masqAll"] = all
	for name, c := range rows {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			h := newHost(t)
			h.foreign()
			before := h.saved()
			h.add(t, c.ipTables)
			if h.saved() == before {
				t.Error("no rules were made")
			}
			must(t, h.tx.Rollback())
			if diff := cmp.Diff(before, h.saved()); diff != "" {
				t.Errorf("rolled back (-before +after):\n%s", diff)
			}
			other := c.ipTables
			other.container = "cid2"
			h.add(t, other)
			h.tx.Keep()
			second := h.saved()
			h.add(t, c.ipTables)
			h.tx.Keep()
			want := h.saved()
			h.add(t, c.ipTables)
			if diff := cmp.Diff(want, h.saved()); diff != "" {
				t.Errorf("once more (-before +after):\n%s", diff)
			}
			must(t, h.tx.Rollback())
			if diff := cmp.Diff(want, h.saved()); diff != "" {
				t.Errorf("once more, rolled back (-before +after):\n%s", diff)
			}
			changed := c.ipTables
			changed.forwards = append([]forward{{protocol: "tcp", hostPort: 1234,
				containerPort: 4321}}, changed.forwards[1:]...)
			h.add(t, changed)
			must(t, h.check(changed))
			if port := fmt.Sprint(c.forwards[0].hostPort); strings.Count(h.saved(),
				"--dport 1234 ") < 2 ||
				strings.Contains(h.saved(),
					"-p tcp -m tcp --dport "+port+" -j DNAT --to-destination 10.1.2.2:80") != strings.Contains(second,
					"-j DNAT") {
				t.Errorf("port %s stays:\n%s", port, h.saved())
			}
			must(t, h.tx.Rollback())
			if diff := cmp.Diff(want, h.saved()); diff != "" {
				t.Errorf("changed, rolled back (-before +after):\n%s", diff)
			}
			h.remove(t, leftoversBut("net1", []string{"cid2"})) // GC
			if diff := cmp.Diff(second, h.saved()); diff != "" {
				t.Errorf("GC (-before +after):\n%s", diff)
			}
			h.remove(t, leftoversBut("other", nil))
			h.remove(t, leftovers("net1", "cid1")...)
			if diff := cmp.Diff(second, h.saved()); diff != "" {
				t.Errorf("removal of missing rules (-before +after):\n%s", diff)
			}
		})
	}
}

// TestOldChain: very old versions made an additional chain.
func TestOldChain(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	chain := oldOwnChain("net1", "cid1")
	for _, rule := range []string{"-N CNI-HOSTPORT-SNAT", "-N " + chain,
		"-A " + chain + " -j MASQUERADE", "-A CNI-HOSTPORT-SNAT -p tcp -j " + chain} {
		h.Command("iptables", append([]string{"-t", "nat"}, strings.Fields(rule)...)...)
	}
	h.remove(t, leftovers("net1", "cid1")...)
	if out := h.saved(); strings.Contains(out, "CNI-SN") ||
		!strings.Contains(out, ":CNI-HOSTPORT-SNAT") {
		t.Errorf("left:\n%s", out)
	}
}

// TestParallel: ten concurrent calls of each kind, for the same container and for others.
func TestParallel(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.foreign()
	h.canary()
	c := cases()["eight mappings"].ipTables
	inParallel := func(do func(*kernel.Space, ipTables) error) {
		var wg sync.WaitGroup
		for i := range 10 {
			space, err := kernel.Begin(t.Context()).Open(testnet.NS(t, h.Namespace))
			must(t, err)
			defer space.Close()
			mine := c
			mine.container = fmt.Sprintf("c%d", i/2)
			wg.Go(func() {
				if err := do(space, mine); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	inParallel(func(s *kernel.Space, mine ipTables) error {
		return s.Rules.EditIPTables(tableOf(addresses[0]), mine.edit(addresses[0]))
	})
	if got := strings.Count(h.saved(), "-A CNI-HOSTPORT-DNAT"); got != 2+3*5 {
		t.Errorf("%d entries:\n%s", got, h.saved())
	}
	inParallel(func(s *kernel.Space, mine ipTables) error {
		var errs []error
		for _, r := range leftovers(mine.network, mine.container) {
			errs = append(errs, s.Rules.RemoveIPTables(kernel.IPTables{Table: "nat", Removal: r}))
		}
		return errors.Join(errs...)
	})
	if got := h.saved(); strings.Contains(got, "CNI-DN") || strings.Count(got, "canary") != 2 {
		t.Errorf("left:\n%s", got)
	}
}

// TestLineBreak: a line break in a word is refused, and does not start another rule.
func TestLineBreak(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	c := cases()["conditions"].ipTables
	c.conditions[0] = []string{"-s", "1.2.3.4\n-F"}
	if err := h.space.Rules.EditIPTables(tableOf(addresses[0]), c.edit(addresses[0])); err == nil {
		t.Error("a line break is accepted")
	}
}

// TestRange: a range is one rule that keeps the order of its ports, and iptables accepts it.
func TestRange(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	c := ipTables{network: "net1", container: "cid1", snat: true, markBit: 13, forwards: []forward{
		{protocol: "tcp", hostPort: 7000, containerPort: 7000, count: 10},
		{protocol: "udp", hostPort: 7100, containerPort: 100, count: 10},
	}}
	h.add(t, c)
	must(t, h.check(c))
	before := h.saved()
	h.add(t, c)
	if diff := cmp.Diff(before, h.saved()); diff != "" {
		t.Errorf("once more (-before +after):\n%s", diff)
	}
}
