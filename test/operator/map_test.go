package operator

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/network"
)

// mapOf reads the node as "tenon map" does.
func (n *node) mapOf() *topology.Map {
	n.t.Helper()
	var paths []string
	var records []network.Record
	for _, c := range []string{"web", "db", "outside"} {
		paths = append(paths, n.Container(c).Path())
	}
	for _, c := range []string{"web", "db"} {
		records = append(records, n.records[c])
	}
	var h *host.Host
	err := n.Host.Run(func() (err error) {
		h, err = host.Read(n.t.Context(), host.Options{OnlyPaths: true, Paths: paths, Brief: true})
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return topology.Build(&why.Places{Host: h, Records: records})
}

// lines returns the map as text, one line for each row.
func lines(t *testing.T, m *topology.Map) string {
	t.Helper()
	var b strings.Builder
	if err := text.Map(&b, m.Tree(false)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// mapped are hosts with faults that are independent of each other, and patterns for the lines of the
// map with the problems.
var mapped = []struct {
	create string
	want   []string
}{
	{`web ip route del default
		db ip addr add 10.77.0.2/24 dev eth0
		ip link set up0 mtu 1200
		nft flush set inet tenon masq4
		nft 'add table ip old; add chain ip old pre { type nat hook prerouting priority -110; }'
		nft 'add rule ip old pre tcp dport 8090 dnat to 10.77.0.250:80'`, []string{
		`web .*✗ no IPv4 default route`, `web .*✗ address 10.77.0.2 is also on eth0 in db`,
		`db .*✗ address 10.77.0.2 is also on eth0 in web`, `up0 .*! MTU 1200, less than 1500 of cni0`,
		`web .*✗ no masquerade for 10.77.0.2`, `db .*✗ no masquerade for 10.77.0.3`,
		`tcp 8090 -> 10.77.0.250:80 .*✗ leads to 10.77.0.250, which no container has`}},
	{`ip route del default
		ip link set $VETH down
		db ip addr del 10.77.0.3/24 dev eth0
		ip addr del 10.77.0.1/24 dev cni0
		sysctl -qw net.ipv4.ip_forward=0`, []string{
		`host-name .*! no IPv4 default route`, `host-name .*✗ net.ipv4.ip_forward is 0`,
		`web .*✗ host side veth\w+ is down`, `db .*✗ address 10.77.0.3/24 is missing`,
		`cni0 .*✗ lost 10.77.0.1, the gateway of network pods`}},
	{`web ip link set eth0 down
		db ip link set eth0 mtu 9000
		nft flush ruleset`, []string{
		`web .*✗ eth0 is down`, `db .*! eth0 has MTU 9000, its peer veth\w+ 1500`,
		`web .*✗ no masquerade for 10.77.0.2`}},
	{`ip link add br9 type bridge; ip link set br9 up; ip addr add 10.77.0.9/24 dev br9`, []string{
		`br9 .*! 10.77.0.0/24 is also on cni0, where the host sends packets for it`}},
	{`web ip link del eth0
		ip link set cni0 down`, []string{`web .*✗ interface eth0 is missing`, `cni0 .*✗ down`}},
}

// TestMapOfBrokenHosts breaks a host, and checks that only the map of the broken host has the
// problem, and that reading changes nothing.
func TestMapOfBrokenHosts(t *testing.T) {
	t.Parallel()
	for i, row := range mapped {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			if got := lines(t, n.mapOf()); !strings.HasSuffix(got, "2 attachments in 1 network; no problems found\n") {
				t.Errorf("the healthy host:\n%s", got)
			}
			n.shell(row.create)
			before := testnet.Snapshot(t, n.Spaces())
			m := n.mapOf()
			if diff := testnet.Diff(before, testnet.Snapshot(t, n.Spaces())); diff != "" {
				t.Errorf("reading has changed:\n%s", diff)
			}
			got := lines(t, m)
			for _, want := range row.want {
				want = strings.Replace(want, "host-name", regexp.QuoteMeta(m.Host), 1)
				if !regexp.MustCompile("(?m)" + want).MatchString(got) {
					t.Errorf("no line matches %q:\n%s", want, got)
				}
			}
		})
	}
}

// TestMapOfOtherPrograms shows bridges, containers and published ports of other programs.
func TestMapOfOtherPrograms(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables"))
	n := newNode(t)
	n.shell(`ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up
		iptables -t nat -N DOCKER; iptables -t nat -A PREROUTING -j DOCKER
		iptables -t nat -A DOCKER ! -i docker0 -p tcp --dport 8081 -j DNAT --to-destination 10.77.0.3:81
		iptables -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE`)
	m := n.mapOf()
	got := lines(t, m)
	for _, want := range []string{
		`web +10\.77\.0\.2, fd77::2 +:8080 -> 80$`, `db +10\.77\.0\.3, fd77::3 +:8081 -> 81 \(docker\)`,
		`docker0 +172\.17\.0\.1/16 +not Tenon's \(docker\), no ports`,
		`cni0 +10\.77\.0\.1/24, fd77::1/64 +network pods, 2 attachments`,
	} {
		if !regexp.MustCompile("(?m)" + want).MatchString(got) {
			t.Errorf("no line matches %q:\n%s", want, got)
		}
	}
	var rules []string
	for _, x := range m.Nodes {
		if x.Translated != nil {
			rules = append(rules, fmt.Sprintf("%s by %s: %s, counted %t", x.Name, x.Owner, x.Translated.Place, x.Translated.Packets != nil))
		}
	}
	for _, want := range []string{
		"tcp 8080 -> 10.77.0.2:80 by tenon: map dnat4 of table inet tenon, counted false",
		"tcp 8081 -> 10.77.0.3:81 by docker: chain DOCKER of table ip nat, counted true",
		"masquerade 10.77.0.2 by tenon: set masq4 of table inet tenon, counted false",
		"masquerade 172.17.0.0/16 by unknown: chain POSTROUTING of table ip nat, counted true",
	} {
		if !strings.Contains(strings.Join(rules, "\n")+"\n", want+"\n") {
			t.Errorf("no rule %q:\n%s", want, strings.Join(rules, "\n"))
		}
	}
}
