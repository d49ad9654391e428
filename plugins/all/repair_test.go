package all_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/exefile"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// chains are networks of attachments with rules, one per line. A line contains the plugins; the
// first one is a bridge or ptp with its ipam. N stands for the number of the network, from 1 on.
var chains = []string{
	`{"type":"bridge","bridge":"brN","isDefaultGateway":true,"ipMasq":true,"macspoofchk":true,"ipam":IPAM}`,
	`{"type":"ptp","ipMasq":true,"ipam":IPAM}`,
	whole,
}

// whole is a chain of all plugins that have rules.
const whole = `{"type":"bridge","bridge":"brN","isDefaultGateway":true,"ipMasq":true,"ipam":IPAM},` +
	`{"type":"portmap","snat":true,"capabilities":{"portMappings":true}},` +
	`{"type":"firewall","backend":"nftables","ingressPolicy":"isolated"}`

// host is a host with networks; the library and the plugins run in this process.
type host struct {
	*testnet.Net
	*network.Client
	t        testing.TB
	networks []*config.Network
}

func newHost(t testing.TB, chains ...string) *host {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT), testnet.Tool("nft"))
	dir, self := t.TempDir(), executable(t)
	for _, d := range all.Plugins {
		if err := os.Symlink(self, filepath.Join(dir, d.Name)); err != nil {
			t.Fatal(err)
		}
	}
	h := &host{Net: testnet.New(t), t: t, Client: &network.Client{
		Caller: plugin.Caller(all.Plugins, false), PluginDirs: []string{dir}, Isolated: true,
		StateDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}}
	for i, chain := range chains {
		number := fmt.Sprint(i + 1)
		ipam := strings.NewReplacer("N", number, "DIR", t.TempDir()).Replace(
			`{"type":"host-local","dataDir":"DIR","ranges":[[{"subnet":"10.N.0.0/16"}],[{"subnet":"fd00:N::/64"}]]}`)
		text := strings.NewReplacer("N", number, "IPAM", ipam).Replace(chain)
		n, err := config.LoadBytes(
			[]byte(fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net%s","plugins":[%s]}`, number, text)))
		must(t, err)
		h.networks = append(h.networks, n)
	}
	return h
}

func executable(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	must(t, err)
	return path
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (h *host) add(n *config.Network, container string) error {
	c := h.Container(container)
	ports := fmt.Sprintf(
		`[{"hostPort":%d,"containerPort":80,"protocol":"tcp"},{"hostPort":%d,"containerPort":53,"protocol":"udp","hostIP":"127.0.0.1"},`+
			`{"hostPort":%[3]d,"containerPort":%[3]d,"range":9,"protocol":"tcp"}]`, 8000+
			c.Number, 9000+c.Number, 10000+10*c.Number)
	r := network.Request{Container: container, IfName: "eth0", Parameters: network.Parameters{
		Netns:        c.Path(),
		Capabilities: map[string]json.RawMessage{"portMappings": json.RawMessage(ports)},
	}}
	return h.Host.Run(func() error {
		_, err := h.Add(context.Background(), n, r)
		return err
	})
}

func (h *host) del(n *config.Network, container string) error {
	a := cni.Attachment{Network: n.Name, Container: container, IfName: "eth0"}
	return h.Host.Run(func() error { return h.Del(context.Background(), a, network.Fallback{}) })
}

// addMany attaches count containers and alternates between the networks.
func (h *host) addMany(count int) {
	h.t.Helper()
	for i := range count {
		must(h.t, h.add(h.networks[i%len(h.networks)], fmt.Sprintf("c%d", i)))
	}
}

func (h *host) repair(networks ...string) []network.Unrepaired {
	h.t.Helper()
	var passed []network.Unrepaired
	must(h.t, h.Host.Run(func() (err error) {
		passed, err = h.Repair(context.Background(), networks, all.Repair)
		return err
	}))
	return passed
}

// rules returns the sorted lines of the ruleset, because nft prints elements in any order. Values
// that change by themselves are omitted.
func (h *host) rules() string {
	text := h.Host.Command("nft", "-s", "list", "ruleset")
	lines := strings.FieldsFunc(regexp.MustCompile(`expires \S+`).
		ReplaceAllString(text, ""), func(r rune) bool {
		return r == '\n' || r == ','
	})
	for i, l := range lines {
		lines[i] = strings.Trim(strings.TrimPrefix(strings.TrimSpace(l), "elements = { "), " }")
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (h *host) generation() uint32 {
	h.t.Helper()
	n, err := testnet.Generation(h.Host)
	must(h.t, err)
	return n
}

func (h *host) wantRules(want string) {
	h.t.Helper()
	if diff := cmp.Diff(want, h.rules()); diff != "" {
		h.t.Errorf("ruleset (-before +after):\n%s", diff)
	}
}

// TestRepairManyAttachments: after a flush, one transaction restores all rules of 200 attachments,
// each once.
func TestRepairManyAttachments(t *testing.T) {
	t.Parallel()
	many := 200
	if testing.Short() {
		many = 40
	}
	h := newHost(t, chains...)
	h.addMany(many)
	before := h.rules()
	if n := strings.Count(before, "10."); n < 2*many {
		t.Fatalf("%d rules with addresses for %d attachments:\n%s", n, many, before)
	}
	h.Host.Command("nft", "flush", "ruleset")
	flushed := h.generation()
	if passed := h.repair(); len(passed) > 0 {
		t.Errorf("skipped: %v", passed)
	}
	h.wantRules(before)
	repaired := h.generation()
	if repaired != flushed+1 {
		t.Errorf("%d transactions", repaired-flushed)
	}
	h.repair()
	if again := h.generation(); again != repaired {
		t.Errorf("without missing rules there were %d transactions", again-repaired)
	}
	h.wantRules(before)
	for i := range many { // the repair created nothing that DEL does not find
		must(t, h.del(h.networks[i%len(h.networks)], fmt.Sprintf("c%d", i)))
	}
	if left := h.rules(); strings.Contains(left, "tenon:") {
		t.Errorf("left:\n%s", left)
	}
}

// TestRepairDamage: all missing rules are restored, and the rules of other programs stay.
func TestRepairDamage(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"everything":             "flush ruleset",
		"a table":                "delete table inet tenon",
		"the table of guards":    "delete table bridge tenon",
		"the rules":              "flush table inet tenon; flush table bridge tenon",
		"the rules of one chain": "flush chain inet tenon postrouting",
		"a set":                  "flush set inet tenon masq4",
		"the guards":             "flush set bridge tenon guarded; flush set bridge tenon macs",
		"nothing":                "list ruleset",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, chains...)
			h.addMany(4)
			before := h.rules()
			h.Host.Command("nft", damage)
			const foreign = `add table inet filter; add chain inet filter input { type filter hook input priority 0; }; add rule inet filter input accept`
			h.Host.Command("nft", foreign)
			h.repair()
			h.Host.Command("nft", "list chain inet filter input")
			h.Host.Command("nft", "delete table inet filter")
			h.wantRules(before)
		})
	}
}

// TestRepairOneNetwork: a repair of one network leaves the other networks alone.
func TestRepairOneNetwork(t *testing.T) {
	t.Parallel()
	h := newHost(t, chains...)
	h.addMany(2)
	before := h.rules()
	h.Host.Command("nft", "flush", "ruleset")
	h.repair("net2")
	if got := h.rules(); strings.Contains(got, "10.1.0.") || !strings.Contains(got, "10.2.0.") {
		t.Errorf("after the repair of net2:\n%s", got)
	}
	h.repair("net1")
	h.wantRules(before)
}

// TestRepairGoneContainer: a container that ended without DEL gets no rules, because another one
// may have its address.
func TestRepairGoneContainer(t *testing.T) {
	t.Parallel()
	h := newHost(t, chains...)
	h.addMany(2)
	before := h.rules()
	must(t, h.add(h.networks[0], "gone"))
	must(t, h.add(h.networks[1], "gone2"))
	for _, name := range []string{"gone", "gone2"} {
		h.Remove(name)
	}
	h.Host.Command("nft", "flush", "ruleset")
	h.repair()
	h.wantRules(before)
}

// TestRepairReusedNamespace: a container that ended without DEL gets no rules if another container
// has its namespace, and the new holder of its address keeps its rules.
func TestRepairReusedNamespace(t *testing.T) {
	t.Parallel()
	h := newHost(t, chains...)
	for i, n := range h.networks {
		container := fmt.Sprintf("gone%d", i)
		must(t, h.add(n, container))
		before := h.rules()
		h.Container(container).Command("ip", "link", "delete", "eth0")
		h.Host.Command("nft", "flush", "ruleset")
		h.repair(n.Name)
		if got := h.rules(); got != "" {
			t.Errorf("rules of %s:\n%s", container, got)
		}
		other := cni.Attachment{Network: "other", Container: container, IfName: "eth0"}
		h.Container(container).Command("ip", "link", "add", "eth0", "type", "veth", "peer", "name",
			container, "netns", h.Host.Path())
		h.Container(container).Command("ip", "address", "add", "10.9.0.9/24", "dev", "eth0")
		h.Host.Command("ip", "link", "set", container, "alias", other.Tag())
		h.repair(n.Name)
		if got := h.rules(); got != "" || before == "" {
			t.Errorf("rules of %s:\n%s", container, got)
		}
	}
}

// TestRepairBesideChanges: attachments come and go during repairs. In the end exactly the remaining
// ones have all rules.
func TestRepairBesideChanges(t *testing.T) {
	t.Parallel()
	h := newHost(t, chains...)
	h.addMany(10)
	steady := h.rules()
	const workers, rounds = 4, 8
	for i := range workers {
		h.Container(fmt.Sprintf("w%d", i)) // sequentially
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	errs := make([]error, workers)
	for i := range workers {
		wg.Go(func() {
			name := fmt.Sprintf("w%d", i)
			for range rounds {
				errs[i] = errors.Join(errs[i], h.add(h.networks[i%2], name),
					h.del(h.networks[i%2], name))
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	for repairs := 0; ; repairs++ {
		h.Host.Command("nft", "flush", "ruleset")
		h.repair()
		select {
		case <-done:
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
			h.repair()
			h.wantRules(steady)
			t.Logf("%d repairs", repairs)
			return
		default:
		}
	}
}

// TestRepairUnderTraffic: while existing rules are repaired, hosts outside never see the address of
// a container.
func TestRepairUnderTraffic(t *testing.T) {
	t.Parallel()
	h := newHost(t, chains...)
	h.addMany(20)
	outside, from := h.Uplink(), h.Container("c0")
	seen := func() netip.Addr {
		return testnet.SourceSeen(t, from, outside, netip.MustParseAddr("192.0.2.2"))
	}
	router := netip.MustParseAddr("192.0.2.1")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			h.Host.Command("nft",
				"flush chain bridge tenon prerouting; delete element inet tenon masq6 { fd00:1::2 }")
			h.repair()
		}
	}()
	for packets := 0; ; packets++ {
		if got := seen(); got != router {
			t.Errorf("outside sees %s, want %s", got, router)
		}
		select {
		case <-done:
			t.Logf("%d packets", packets)
			return
		default:
		}
	}
}

// TestRepairKeepsForgersOut: the repair restores the rules that refuse packets together with all
// others, so that a container that could not forge its address before cannot do so after a repair
// (CVE-2025-54388).
func TestRepairKeepsForgersOut(t *testing.T) {
	t.Parallel()
	h := newHost(t, chains[0])
	h.addMany(2)
	forger, gateway := h.Container("c0"), netip.MustParseAddr("10.1.0.1")
	testnet.Reaches(t, forger, gateway, true)
	forger.Command("ip", "link", "set", "eth0", "address", "02:00:00:00:00:99")
	testnet.Reaches(t, forger, gateway, false)
	h.Host.Command("nft", "flush", "ruleset")
	testnet.Reaches(t, forger, gateway, true)
	h.repair() // with the address of ADD, not the forged one
	testnet.Reaches(t, forger, gateway, false)
	testnet.Reaches(t, h.Container("c1"), gateway, true)
}

// TestRepairForeign: a repair does not guess the rules of a plugin that is not Tenon's, whatever
// its name.
func TestRepairForeign(t *testing.T) {
	t.Parallel()
	h := newHost(t, chains[1])
	h.addMany(1)
	h.Host.Command("nft", "flush", "ruleset")
	path := filepath.Join(h.PluginDirs[0], "ptp")
	must(t, os.Rename(path, path+".old"))
	must(t, exefile.Write(path, []byte("#!/bin/sh\nexit 1\n")))
	h.repair()
	if got := h.rules(); got != "" {
		t.Errorf("rules:\n%s", got)
	}
	must(t, os.Rename(path+".old", path))
	h.repair()
	if got := h.rules(); !strings.Contains(got, "10.1.0.2") {
		t.Errorf("rules:\n%s", got)
	}
}

// TestRepairIPTables: iptables rules are also restored, each once.
func TestRepairIPTables(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-restore"))
	h := newHost(t, strings.Replace(chains[1], `"ipMasq":true`,
		`"ipMasq":true,"ipMasqBackend":"iptables"`, 1), chains[0])
	h.addMany(4)
	before := h.rules()
	for _, damage := range []string{"flush ruleset", "flush chain ip nat POSTROUTING",
		"list ruleset"} {
		h.Host.Command("nft", damage)
		h.repair()
		h.repair()
		h.wantRules(before)
	}
}

// BenchmarkRepair repairs 200 attachments with the rules of all plugins after a flush.
func BenchmarkRepair(b *testing.B) {
	h := newHost(b, whole)
	h.addMany(200)
	for b.Loop() {
		b.StopTimer()
		h.Host.Command("nft", "flush", "ruleset")
		b.StartTimer()
		h.repair()
	}
}

// BenchmarkRepairNothing repairs 200 attachments without missing rules.
func BenchmarkRepairNothing(b *testing.B) {
	h := newHost(b, whole)
	h.addMany(200)
	for b.Loop() {
		h.repair()
	}
}
