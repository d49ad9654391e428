package bridge_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/bridge"
)

// masqueradedBy returns the backends that masquerade for container c.
func masqueradedBy(r *plugintest.Runtime) string {
	var in []string
	for _, kind := range []string{"-nft", "-legacy"} {
		if strings.Contains(saved(r, kind), `name: \"net\" id: \"c\"`) {
			in = append(in, "iptables")
		}
	}
	if strings.Contains(r.Host.Command("nft", "list", "ruleset"), "net eth0 c\"") {
		in = append(in, "nftables")
	}
	return strings.Join(in, " and ")
}

func wantMasquerade(t *testing.T, r *plugintest.Runtime, want string) {
	t.Helper()
	if got := masqueradedBy(r); got != want {
		t.Errorf("masqueraded by %q, want %q", got, want)
	}
}

// TestExemption: an operator's exemption from masquerading keeps working for its destination, in
// either variant of iptables.
func TestExemption(t *testing.T) {
	run := func(t *testing.T, tool, want string) {
		r := runtime(t, gateway+`,"ipMasq":true`+ipamDual)
		outside := r.Uplink()
		outside.Command("ip", "route", "add", "10.1.2.0/24", "via", "192.0.2.1")
		outside.Command("ip", "address", "add", "198.51.100.1/32", "dev", "lo")
		r.Host.Command("ip", "route", "add", "198.51.100.1", "via", "192.0.2.2")
		r.Host.Command(tool, "-t", "nat", "-I", "POSTROUTING", "-s", "10.1.2.0/24", "-d",
			"192.0.2.0/24", "-j", "ACCEPT")
		r.Add("c")
		wantMasquerade(t, r, want)
		c, own := r.Container("c"), netip.MustParseAddr("10.1.2.2")
		exempted := func() {
			t.Helper()
			for to, want := range map[string]netip.Addr{
				"192.0.2.2": own, "198.51.100.1": netip.MustParseAddr("192.0.2.1"),
			} {
				if got := testnet.SourceSeen(t, c, outside, netip.MustParseAddr(to)); got != want {
					t.Errorf("%s sees %s, want %s", to, got, want)
				}
			}
		}
		exempted()
		r.Check("c")
		r.Host.Command(tool, "-t", "nat", "-D", "POSTROUTING", "2")
		if err := r.Repair("c"); err != nil {
			t.Error(err)
		}
		exempted()
		r.Check("c")
		r.Del("c")
		wantMasquerade(t, r, "")
	}
	t.Run("legacy", func(t *testing.T) { // first, because it changes PATH
		testnet.LegacyIPTables(t)
		run(t, "iptables", "iptables")
	})
	t.Run("nft", func(t *testing.T) {
		t.Parallel()
		testnet.Require(t, testnet.Tool("iptables-restore"))
		run(t, "iptables", "iptables")
	})
	t.Run("legacy rule with nft tool", func(t *testing.T) {
		t.Parallel()
		testnet.Require(t, testnet.Tool("iptables-legacy-restore"))
		// IPv4 with the legacy variant, IPv6 with the default one
		run(t, "iptables-legacy", "iptables and iptables")
	})
}

// TestNoExemption: rules about other sources, in the other family or about options without an
// equivalent in iptables keep masquerading with nftables.
func TestNoExemption(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables"))
	for name, row := range map[string]struct{ tool, rule, members, want string }{
		"source of other containers": {"iptables", "-s 172.17.0.0/16 ! -o docker0 -j MASQUERADE",
			"", "nftables"},
		"own network":  {"iptables", "-d 10.1.2.0/24 -j RETURN", "", "nftables"},
		"other family": {"ip6tables", "-j ACCEPT", "", "nftables"},
		"demanded": {"iptables", "-j ACCEPT", `,"ipMasqBackend":"nftables"`,
			"nftables"},
		"nftables only": {"iptables", "-j ACCEPT", `,"masquerade":{"sameSubnet":true}`,
			"nftables"},
		"auto": {"iptables", "-j ACCEPT", `,"ipMasqBackend":"auto"`,
			"iptables"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, gateway+`,"ipMasq":true`+row.members+ipam4)
			r.Host.Command(row.tool, append([]string{
				"-t", "nat", "-A", "POSTROUTING",
			}, strings.Fields(row.rule)...)...)
			r.Add("c")
			wantMasquerade(t, r, row.want)
		})
	}
}

// TestExemptionAfterADD: an exemption from masquerading that an operator adds after ADD takes
// effect with the next repair, and established connections continue.
func TestExemptionAfterADD(t *testing.T) {
	run := func(t *testing.T) {
		r := runtime(t, gateway+`,"ipMasq":true`+ipam4)
		outside := r.Uplink()
		outside.Command("ip", "route", "add", "10.1.2.0/24", "via", "192.0.2.1")
		outside.Command("ip", "address", "add", "198.51.100.1/32", "dev", "lo")
		r.Host.Command("ip", "route", "add", "198.51.100.1", "via", "192.0.2.2")
		r.Add("c")
		wantMasquerade(t, r, "nftables")
		still := converse(t, r.Container("c"), outside, "192.0.2.2:7000")
		exemption := []string{"-t", "nat", "-I", "POSTROUTING", "-s", "10.1.2.0/24", "-d",
			"192.0.2.0/24", "-j", "ACCEPT"}
		r.Host.Command("iptables", exemption...)
		if err := r.Repair("c"); err != nil {
			t.Fatal(err)
		}
		wantMasquerade(t, r, "iptables")
		masqueraded, own := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.1.2.2")
		for to, want := range map[string]netip.Addr{"192.0.2.2": own, "198.51.100.1": masqueraded} {
			if got := testnet.SourceSeen(t, r.Container("c"), outside,
				netip.MustParseAddr(to)); got != want {
				t.Errorf("%s sees %s, want %s", to, got, want)
			}
		}
		still()
		r.Check("c")
		r.Del("c")
		wantMasquerade(t, r, "")
	}
	t.Run("legacy", func(t *testing.T) { // first, because it changes PATH
		testnet.LegacyIPTables(t)
		run(t)
	})
	t.Run("nft", func(t *testing.T) {
		t.Parallel()
		testnet.Require(t, testnet.Tool("iptables-restore"))
		run(t)
	})
}

// converse connects to a server that it starts in another namespace, and returns a function that
// fails the test unless the connection still works.
func converse(t *testing.T, from, to *testnet.Namespace, address string) func() {
	t.Helper()
	var l net.Listener
	var client net.Conn
	var err error
	to.Do(func() { l, err = net.Listen("tcp4", address) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from.Do(func() { client, err = net.DialTimeout("tcp4", address, testnet.Patience) })
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return func() {
		t.Helper()
		_, err := client.Write([]byte("hello"))
		err = errors.Join(err, server.SetReadDeadline(time.Now().Add(testnet.Patience)))
		buf := make([]byte, 5)
		if _, wrong := io.ReadFull(server, buf); err != nil || wrong != nil {
			t.Errorf("established connection: %v, %v", err, wrong)
		}
	}
}

// TestLaterExemption: an attachment stays valid if the choice for the host changes. A repair moves
// it to iptables, but not back, and DEL and GC find it with either backend.
func TestLaterExemption(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables"))
	const exemption = "POSTROUTING -s 10.1.2.0/24 -d 192.0.2.0/24 -j ACCEPT"
	operator := func(r *plugintest.Runtime, command string) {
		r.Host.Command("iptables", append([]string{
			"-t", "nat", command,
		}, strings.Fields(exemption)...)...)
	}
	for first, remove := range map[string]func(*plugintest.Runtime){
		"nftables": func(r *plugintest.Runtime) { r.Must(r.Collect()) },
		"iptables": func(r *plugintest.Runtime) { r.Must(r.Request(cni.Del, "c")) },
	} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, gateway+`,"ipMasq":true`+ipam4)
			if first == "iptables" {
				operator(r, "-I")
			}
			r.Add("c")
			if first == "iptables" {
				operator(r, "-D")
			} else {
				operator(r, "-I")
			}
			r.Check("c")
			if err := r.Repair("c"); err != nil {
				t.Error(err)
			}
			wantMasquerade(t, r, "iptables")
			r.Check("c")
			remove(r)
			wantMasquerade(t, r, "")
		})
	}
}

// TestNoBackend: STATUS succeeds with either backend, and fails with a hint if neither works.
func TestNoBackend(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-legacy-save"))
	r := runtime(t, gateway+`,"ipMasq":true`+ipam4)
	stdin, err := json.Marshal(r.Conf)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	status := func(env ...string) (e cni.Error, err error) {
		cmd := exec.Command(self)
		cmd.Args[0] = "bridge" // see plugintest.Main
		cmd.Stdin = bytes.NewReader(stdin)
		cmd.Env = append(append(os.Environ(), "CNI_COMMAND=STATUS",
			"CNI_PATH="+r.Request(cni.Add, "c").Path), env...)
		var out bytes.Buffer
		cmd.Stdout = &out
		err = testnet.WithoutNFT(r.Host, cmd, unix.EPROTONOSUPPORT)
		if wrong := json.Unmarshal(out.Bytes(), &e); err != nil && wrong != nil {
			t.Errorf("not a CNI error: %q", &out)
		}
		return e, err
	}
	if e, err := status(); err != nil {
		t.Errorf("with iptables: %v: %v", err, &e)
	}
	e, err := status("PATH=" + t.TempDir())
	if err == nil || e.Code != cni.CodeNotAvailable || !strings.Contains(e.Details, "nf_tables") {
		t.Errorf("with neither: %v: %v", err, &e)
	}
}

// TestAdvise: before any ADD, the plugin reports its choice on this host, and changes nothing.
func TestAdvise(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables"))
	r := runtime(t, gateway+`,"ipMasq":true`+ipam4)
	request, err := json.Marshal(r.Conf)
	if err != nil {
		t.Fatal(err)
	}
	advice := func() string {
		var choices []string
		var err error
		r.Host.Do(func() { choices, err = bridge.Plugin.Advise(t.Context(), request) })
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(choices, "; ")
	}
	if got := advice(); got != "" {
		t.Errorf("without rules: %q", got)
	}
	r.Host.Command("iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "10.1.2.128/25",
		"-j", "ACCEPT")
	before := r.State()
	const want = "uses iptables on this host: rule 1 of chain POSTROUTING in table ip nat (nft): -s 10.1.2.128/25 -j ACCEPT"
	if got := advice(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.Unchanged(before)
}
