package nfttext_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/nft/nfttext"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// rules are rule sets with every expression that the package writes.
const rules = `
table inet fw {
	set nets {
		type ipv4_addr
		flags interval
		comment "own networks"
		elements = { 10.0.0.0/8, 192.0.2.7 comment "a host", 224.0.0.0-239.255.255.254 }
	}
	set pairs {
		type ipv6_addr . inet_service
		flags interval
		elements = { 2001:db8::/32 . 80-90, ::1 . 53 }
	}
	map ports {
		type inet_proto . inet_service : ipv4_addr . inet_service
		elements = { tcp . 8080 : 10.77.0.2 . 80 }
	}
	map marks {
		type ifname : mark
		elements = { "eth0" : 0x00000001 }
	}
	map verdicts {
		type ipv4_addr : verdict
		elements = { 10.0.0.1 : goto leaf, 10.0.0.2 comment "bad" : drop, * : accept }
	}
	chain leaf {
	}
	chain plain {
		ip saddr @nets counter accept comment "known"
		ip saddr != @nets log prefix "odd: " drop
		ip6 saddr . tcp dport @pairs accept
		ip daddr vmap @verdicts
		meta mark set iifname map @marks
		ct mark set meta mark
		return
	}
	chain base {
		type filter hook forward priority -5; policy drop;
		ct state established,related accept
		ct state invalid drop
		ct state vmap { new : jump plain, untracked : accept }
		ct status dnat accept
		ct direction reply accept
		ct original ip daddr 10.96.0.1 accept
		meta l4proto tcp ct original proto-dst 80 accept
		iifname "cni0" oifname != "cni*" accept
		meta mark & 0x00004000 == 0x00004000 accept
		meta mark 0x00000001 meta mark set 0x00000002
		ip saddr 10.77.0.0/20 accept
		ip saddr 10.0.0.0/8 ip daddr { 10.1.0.0/16, 10.2.0.3 } accept
		ip6 daddr fd00:77::/64 accept
		tcp dport 80 reject with tcp reset
		tcp dport { 80, 443, 8000-8100 } accept
		tcp flags & (fin|syn) == syn accept
		udp sport 1024-65535 accept
		icmp type 8 limit rate 10/second burst 5 packets accept
		icmpv6 type { 133, 134 } accept
		meta l4proto sctp accept
		meta pkttype multicast drop
		meta nfproto ipv6 reject with icmpx admin-prohibited
		fib daddr type local accept
		fib saddr . iif oif 0 drop
		ether saddr 02:00:00:00:00:01 accept
		limit rate over 1000 bytes/second drop
		jump plain
		goto plain
	}
	chain nat {
		type nat hook prerouting priority -100; policy accept;
		tcp dport 8080 dnat ip to 10.77.0.2:80
		tcp dport 8081 dnat ip6 to [fd77::2]:80
		udp dport 53 redirect to :5353
		dnat ip to meta l4proto . th dport map @ports
	}
	chain post {
		type nat hook postrouting priority 100; policy accept;
		ip saddr 10.77.0.2 oifname != "cni0" masquerade
		ip saddr 10.77.0.3 snat ip to 192.0.2.1-192.0.2.9 persistent
		masquerade random,fully-random
	}
	chain raw {
		type filter hook prerouting priority -300; policy accept;
		iif 1 notrack
	}
}
table ip off {
	flags dormant
	chain c {
		type nat hook output priority 0; policy accept;
		ip protocol tcp dnat to 10.0.0.1
		reject with icmp 3
	}
}
table bridge br {
	chain f {
		type filter hook forward priority 0; policy accept;
		ether type arp drop
	}
}
table netdev in {
	chain i {
		type filter hook ingress device "lo" priority 0; policy accept;
		counter packets 0 bytes 0 accept
	}
}
`

// TestRoundTrip: nft(8) reads what the package writes, and makes the same rule set of it.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("nft"))
	n := testnet.New(t, "copy")
	original, copied := n.Host, n.Container("copy")
	text := written(t, original, rules)
	if strings.Contains(text, "# also") {
		t.Errorf("something cannot be written:\n%s", text)
	}
	again := written(t, copied, text)
	if diff := cmp.Diff(text, again); diff != "" {
		t.Errorf("written again (-first +second)\n%s", diff)
	}
	if diff := cmp.Diff(sorted(listed(original)), sorted(listed(copied))); diff != "" {
		t.Errorf("nft list ruleset (-original +copy)\n%s", diff)
	}
}

// sorted returns the words of a listing, because nft(8) lists elements in the order of the kernel.
func sorted(listing string) []string {
	words := strings.Fields(strings.NewReplacer(",", " ", "{", " ", "}", " ").Replace(listing))
	slices.Sort(words)
	return words
}

// written loads a rule set with nft(8) and returns what the package writes.
func written(t *testing.T, ns *testnet.Namespace, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ns.Command("nft", "-f", file)
	conn, err := nftmsg.Open(testnet.NS(t, ns))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, err := conn.List()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := nfttext.Write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func listed(ns *testnet.Namespace) string { return ns.Command("nft", "list", "ruleset") }

// TestIPTables: rules of iptables-nft show their conditions, and name the matches that only iptables
// can write.
func TestIPTables(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-nft"))
	ns := testnet.New(t).Host
	ns.Command("iptables-nft", "-A", "FORWARD", "-s", "10.0.0.0/8", "-p", "tcp", "--dport", "80", "-m",
		"conntrack", "--ctstate", "NEW", "-j", "DROP")
	text := written(t, ns, "")
	const want = `ip saddr 10.0.0.0/8 `
	if !strings.Contains(text, want) || !strings.Contains(text, "# also match conntrack of iptables") {
		t.Errorf("without %q and a comment:\n%s", want, text)
	}
}
