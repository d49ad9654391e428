package hostnat_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/iptables/hostnat"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// masqueraded returns the query for a container with address 10.1.2.3/24 or fd00:1::3/64.
func masqueraded(f iptables.Family) hostnat.Query {
	q := hostnat.Query{Base: "POSTROUTING"}
	one, nets := "10.1.2.3/32", []string{"10.1.2.0/24", "224.0.0.0/4", "192.0.2.0/24"}
	if f == iptables.IPv6 {
		one, nets = "fd00:1::3/128", []string{"fd00:1::/64", "ff00::/8"}
	}
	q.From = []netip.Prefix{netip.MustParsePrefix(one)}
	for _, n := range nets {
		q.NotTo = append(q.NotTo, netip.MustParsePrefix(n))
	}
	return q
}

// published returns the query for TCP port 8080 and UDP ports 9000 to 9010 of the host 172.31.0.1.
func published(base string) hostnat.Query {
	return hostnat.Query{Base: base, Until: "CNI-HOSTPORT-DNAT", Traffic: hostnat.Traffic{
		FromHost: true,
		Ports: []hostnat.Port{
			{Protocol: unix.IPPROTO_TCP, PortRange: hostnat.PortRange{First: 8080, Last: 8080}},
			{Protocol: unix.IPPROTO_UDP, PortRange: hostnat.PortRange{First: 9000, Last: 9010}},
		},
		IsLocal: func(a netip.Addr) bool { return a == netip.MustParseAddr("172.31.0.1") },
	}}
}

// TestFind checks that Find reports rules that decide, as both variants of the real iptables write
// them. It ignores rules of known software, about other traffic and after the chains of CNI
// plugins.
func TestFind(t *testing.T) {
	const post, pre = "-A POSTROUTING ", "-A PREROUTING "
	hairpin := hostnat.Query{Base: "POSTROUTING", Until: "CNI-HOSTPORT-MASQ", Inserted: true,
		Traffic: hostnat.Traffic{
			FromHost: true,
			From:     []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")},
			To:       []netip.Prefix{netip.MustParsePrefix("10.1.2.3/32")},
		}}
	v4 := masqueraded(iptables.IPv4)
	for _, row := range []struct {
		name  string
		query hostnat.Query
		rules string // of iptables-restore, one line each
		want  string // the expected rule, "" if there is none
	}{
		{"nothing", v4, "", ""},
		{"exemption", v4, post + "-s 10.1.2.0/24 -d 172.31.0.0/24 -j ACCEPT",
			"-s 10.1.2.0/24 -d 172.31.0.0/24 -j ACCEPT"},
		{"network of odd length", v4, post + "-s 10.1.0.0/18 -d 172.16.0.0/12 -j ACCEPT",
			"-s 10.1.0.0/18 -d 172.16.0.0/12 -j ACCEPT"},
		{"return in a base chain", v4, post + "-d 172.31.0.0/24 -j RETURN",
			"-d 172.31.0.0/24 -j RETURN"},
		{"other source", v4, post + "-s 10.1.3.0/24 -j ACCEPT", ""},
		{"all but other sources", v4, post + "! -s 10.1.3.0/24 -j ACCEPT",
			"! -s 10.1.3.0/24 -j ACCEPT"},
		{"all but this source", v4, post + "! -s 10.1.2.0/24 -j ACCEPT", ""},
		{"to its own network", v4, post + "-d 10.1.2.128/25 -j ACCEPT", ""},
		{"excluded destination", v4, post + "-d 192.0.2.7/32 -j SNAT --to-source 192.0.2.1", ""},
		{"to multicast", v4, post + "-d 224.0.0.251/32 -j RETURN", ""},
		{"masquerade by interface", v4, post + "-o eth0 -j MASQUERADE", "-o eth0 -j MASQUERADE"},
		{"source of the host", v4,
			post + "-o docker_gwbridge -m addrtype --src-type LOCAL -j MASQUERADE", ""},
		{"all but the host", v4, post + "-m addrtype ! --src-type LOCAL -j MASQUERADE",
			"! --src-type LOCAL -j MASQUERADE"},
		{"condition that is not evaluated", v4, post + "-m mark --mark 0x7 -j ACCEPT",
			"-m mark -j ACCEPT"},
		{"protocol and port", v4, post + "-p tcp -m tcp --dport 25 -j SNAT --to-source 192.0.2.1",
			"-p tcp --dports 25 -j SNAT"},
		{"target that does not decide", v4, post + "-j MARK --set-xmark 0x1/0x1", ""},
		{"Docker", v4, ":DOCKER -\n" + post + "-s 172.17.0.0/16 ! -o docker0 -j MASQUERADE\n" + pre + "-m addrtype --dst-type LOCAL -j DOCKER", ""},
		{"kube-proxy", v4, ":KUBE-POSTROUTING -\n-A KUBE-POSTROUTING -j MASQUERADE\n" + post + `-m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`, ""},
		{"libvirt", v4, ":LIBVIRT_PRT -\n-A LIBVIRT_PRT -j ACCEPT\n" + post + "-j LIBVIRT_PRT", ""},
		{"flannel", v4, post + `-m comment --comment "flanneld masq" -j MASQUERADE`, ""},
		{"flannel's chain", v4,
			":FLANNEL-POSTRTG -\n-A FLANNEL-POSTRTG -j MASQUERADE\n" + post + "-j FLANNEL-POSTRTG",
			""},
		{"Calico", v4, ":cali-POSTROUTING -\n-A cali-POSTROUTING -j ACCEPT\n" + post + `-m comment --comment "cali:x" -j cali-POSTROUTING`, ""},
		{"firewalld", v4, ":POSTROUTING_ZONES -\n-A POSTROUTING_ZONES -j ACCEPT\n" + post + "-j POSTROUTING_ZONES", ""},
		{"CNI", v4, ":CNI-x -\n-A CNI-x -j MASQUERADE\n" + post + "-j CNI-x", ""},
		{"own chain", v4, ":MINE -\n-A MINE -d 172.31.0.0/24 -j ACCEPT\n" + post + "-s 10.1.2.0/24 -j MINE", "-d 172.31.0.0/24 -j ACCEPT"},
		{"own chain for other sources", v4,
			":MINE -\n-A MINE -d 172.31.0.0/24 -j ACCEPT\n" + post + "-s 10.9.2.0/24 -j MINE", ""},
		{"return in an own chain", v4, ":MINE -\n-A MINE -j RETURN\n" + post + "-j MINE", ""},
		{"after a return in an own chain", v4,
			":MINE -\n-A MINE -j RETURN\n-A MINE -j ACCEPT\n" + post + "-j MINE", ""},
		{"after a return for some packets", v4,
			":MINE -\n-A MINE -o eth1 -j RETURN\n-A MINE -j ACCEPT\n" + post + "-j MINE",
			"-j ACCEPT"},
		{"return in the target of a goto", v4, ":MINE -\n-A MINE -j RETURN\n" + post + "-g MINE",
			"-j RETURN"},
		{"goto ends the base chain", v4, ":MINE -\n" + post + "-g MINE\n" + post + "-j ACCEPT",
			"-g MINE"},
		{"after a jump", v4, ":MINE -\n" + post + "-j MINE\n" + post + "-j ACCEPT", "-j ACCEPT"},
		{"two chains deep", v4, ":A -\n:B -\n-A A -j B\n-A B -j ACCEPT\n" + post + "-j A",
			"-j ACCEPT"},

		{"access rule", published("PREROUTING"),
			pre + "-s 172.31.0.2/32 -p tcp -m tcp --dport 8080 -j ACCEPT",
			"-s 172.31.0.2/32 -p tcp --dports 8080 -j ACCEPT"},
		{"redirect", published("PREROUTING"),
			pre + "-p tcp -m tcp --dport 8000:8100 -j REDIRECT --to-ports 99",
			"-p tcp --dports 8000:8100 -j REDIRECT"},
		{"other port", published("PREROUTING"), pre + "-p tcp -m tcp --dport 8081 -j ACCEPT", ""},
		{"all but this port", published("PREROUTING"),
			pre + "-p tcp -m tcp ! --dport 8080 -j ACCEPT", ""},
		{"other protocol", published("PREROUTING"), pre + "-p sctp -j ACCEPT", ""},
		{"end of a range", published("PREROUTING"),
			pre + "-p udp -m udp --dport 9010:9999 -j DNAT --to-destination 10.0.0.1",
			"-p udp --dports 9010:9999 -j DNAT"},
		{"several ports", published("PREROUTING"),
			pre + "-p tcp -m multiport --dports 80,8000:8090 -j ACCEPT",
			"-p tcp --dports 80,8000:8090 -j ACCEPT"},
		{"several other ports", published("PREROUTING"),
			pre + "-p tcp -m multiport --dports 80,443 -j ACCEPT", ""},
		{"source ports", published("PREROUTING"), pre + "-p tcp -m tcp --sport 8081 -j ACCEPT",
			"-p tcp -m tcp -j ACCEPT"},
		{"address of the host", published("PREROUTING"), pre + "-d 172.31.0.1/32 -j ACCEPT",
			"-d 172.31.0.1/32 -j ACCEPT"},
		{"address of another host", published("PREROUTING"),
			pre + "-d 10.96.0.10/32 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.1",
			""},
		{"not for addresses of the host", published("PREROUTING"),
			pre + "-m addrtype ! --dst-type LOCAL -j ACCEPT", ""},
		{"after the chain of CNI", published("PREROUTING"),
			":CNI-HOSTPORT-DNAT -\n" + pre + "-m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n" +
				pre + "-j ACCEPT", ""},
		{"before the chain of CNI", published("PREROUTING"),
			":CNI-HOSTPORT-DNAT -\n" + pre + "-i eth0 -j ACCEPT\n" + pre +
				"-m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT", "-i eth0 -j ACCEPT"},
		{"other base chain", published("OUTPUT"), pre + "-j ACCEPT", ""},
		{"of the host itself", published("OUTPUT"),
			"-A OUTPUT -d 127.0.0.0/8 -p tcp -m tcp --dport 8080 -j RETURN",
			"-d 127.0.0.0/8 -p tcp --dports 8080 -j RETURN"},

		{"hairpin before the chain of CNI", hairpin,
			":CNI-HOSTPORT-MASQ -\n" + post + "-s 10.1.0.0/16 -j ACCEPT\n" + post +
				"-j CNI-HOSTPORT-MASQ", "-s 10.1.0.0/16 -j ACCEPT"},
		{"hairpin after the chain of CNI", hairpin,
			":CNI-HOSTPORT-MASQ -\n" + post + "-j CNI-HOSTPORT-MASQ\n" + post + "-j ACCEPT", ""},
		{"hairpin without the chain of CNI", hairpin, post + "-j ACCEPT", ""},
		{"hairpin of other addresses", hairpin,
			":CNI-HOSTPORT-MASQ -\n" + post + "-s 10.1.2.0/24 -d 172.31.0.0/24 -j ACCEPT\n" + post +
				"-j CNI-HOSTPORT-MASQ", ""},

		{"IPv6 exemption", masqueraded(iptables.IPv6),
			post + "-s fd00:1::/64 -d fd00:9::/61 -j ACCEPT",
			"-s fd00:1::/64 -d fd00:9::/61 -j ACCEPT"},
		{"IPv6 of another source", masqueraded(iptables.IPv6),
			post + "-s fd00:2::/64 -p udp -j ACCEPT", ""},
		{"IPv6 port", masqueraded(iptables.IPv6),
			post + "! -d fd00:9::/48 -o eth+ -p udp -m udp --dport 53 -j MASQUERADE",
			"! -d fd00:9::/48 -o eth+ -p udp --dports 53 -j MASQUERADE"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			family, tool := iptables.IPv4, "iptables"
			if strings.HasPrefix(row.name, "IPv6") {
				family, tool = iptables.IPv6, "ip6tables"
			}
			for _, variant := range []string{"nft", "legacy"} {
				testnet.Require(t, testnet.Tool(tool+"-"+variant+"-restore"))
				host := testnet.New(t).Host
				restore(t, host, tool+"-"+variant+"-restore", row.rules)
				found, err := open(t, host, family).Find(row.query)
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				if found != nil {
					got = found.Rule.String()
					if !strings.Contains(found.String(), "("+variant+")") {
						t.Errorf("%s: %s", variant, found)
					}
				}
				if got != row.want {
					t.Errorf("%s: found %q, want %q", variant, got, row.want)
				}
			}
		})
	}
}

// restore loads rules into the nat table. Lines that begin with a colon create chains.
func restore(t testing.TB, ns *testnet.Namespace, tool, rules string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(rules) {
		line = strings.TrimSpace(line)
		if chain, ok := strings.CutPrefix(line, ":"); ok {
			line = "-N " + strings.TrimSuffix(chain, " -")
		}
		lines = append(lines, line)
	}
	for _, make := range []bool{true, false} { // chains first
		table := []string{"*nat"}
		for _, line := range lines {
			if strings.HasPrefix(line, "-N ") == make {
				table = append(table, line)
			}
		}
		ns.Command("sh", "-c", "printf '%s\\n' \"$1\" | "+tool+" --noflush", "sh",
			strings.Join(append(table, "COMMIT"), "\n"))
	}
}

// TestTo: the destination of a target DNAT is known in both variants, with ranges too.
func TestTo(t *testing.T) {
	t.Parallel()
	for _, variant := range []string{"nft", "legacy"} {
		for f, row := range [][2]string{iptables.IPv4: {"iptables", "10.1.2.3"},
			iptables.IPv6: {"ip6tables", "[fd00::3]"}} {
			tool := row[0] + "-" + variant
			testnet.Require(t, testnet.Tool(tool))
			host := testnet.New(t).Host
			for _, to := range []string{row[1] + ":80", row[1] + ":80-99"} {
				host.Command(tool, "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "--dport", "8080:8099",
					"-j", "DNAT", "--to-destination", to)
			}
			host.Command(tool, "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "-j", "REDIRECT",
				"--to-ports", "80")
			rules, err := open(t, host, iptables.Family(f)).Rules("PREROUTING")
			var got []string
			for _, r := range rules {
				got = append(got, r.To.String())
			}
			want := []string{row[1] + ":80", row[1] + ":80", "invalid AddrPort"}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %q, %v, want %q", tool, got, err, want)
			}
		}
	}
}
