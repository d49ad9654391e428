package nat_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/nat"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestList decodes rules that nft and both variants of iptables made.
func TestList(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("nft"), testnet.Tool("iptables-nft"))
	n := testnet.New(t)
	n.Host.Command("nft", `add table ip net
		add chain ip net pre { type nat hook prerouting priority -100; }
		add rule ip net pre tcp dport 8080 counter dnat to 10.0.0.2:80 comment "web"
		add rule ip net pre ip daddr 192.0.2.1 udp dport 53 dnat to 10.0.0.3
		add rule ip net pre dnat to 10.0.0.4
		add chain ip net post { type nat hook postrouting priority 100; }
		add rule ip net post ip saddr 10.0.0.2 oifname "up0" masquerade
		add rule ip net post masquerade`)
	n.Host.Command("iptables-nft", "-t", "nat", "-N", "CNI-DN-1")
	n.Host.Command("iptables-nft", "-t", "nat", "-A", "PREROUTING", "-m", "comment", "--comment",
		`dnat name: "pods" id: "web"`, "-j", "CNI-DN-1")
	n.Host.Command("iptables-nft", "-t", "nat", "-A", "CNI-DN-1", "-p", "tcp", "--dport", "443:444",
		"-j", "DNAT",
		"--to-destination", "10.0.0.5:4430")
	n.Host.Command("iptables-nft", "-t", "nat", "-A", "POSTROUTING", "-s", "172.17.0.0/16", "!",
		"-o", "docker0",
		"-j", "MASQUERADE")
	var h *host.Host
	err := n.Host.Run(func() (err error) {
		h, err = host.Read(t.Context(), host.Options{OnlyPaths: true, Brief: true})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	list, others := nat.List(h.Own().Ruleset)
	var got []string
	for _, x := range list {
		got = append(got,
			fmt.Sprintf("%s %s: %s %s %d-%d to %s, from %s by %q, %q, counted %t, conditional %t", x.Kind,
				x.Place,
				x.Protocol, x.Host, x.First, x.Last, x.To, x.Source, x.Out, x.Comment, x.Packets != nil,
				x.Conditional))
	}
	want := []string{
		`dnat chain pre of table ip net: tcp invalid IP 8080-8080 to 10.0.0.2:80, from invalid IP by "", "web", counted true, conditional true`,
		`dnat chain pre of table ip net: udp 192.0.2.1 53-53 to 10.0.0.3:53, from invalid IP by "", "", counted false, conditional true`,
		`masquerade chain post of table ip net:  invalid IP 0-0 to invalid AddrPort, from 10.0.0.2 by "up0", "", counted false, conditional false`,
		`masquerade chain post of table ip net:  invalid IP 0-0 to invalid AddrPort, from invalid IP by "", "", counted false, conditional false`,
		`dnat chain CNI-DN-1 of table ip nat: tcp invalid IP 443-444 to 10.0.0.5:4430, from invalid IP by "", "dnat name: \"pods\" id: \"web\"", counted true, conditional true`,
		`masquerade chain POSTROUTING of table ip nat:  invalid IP 0-0 to invalid AddrPort, from 172.17.0.0 by "", "", counted true, conditional true`,
	}
	if diff := cmp.Diff(want, got); diff != "" || others != 1 {
		t.Errorf("%d others, want 1 (-want +got):\n%s", others, diff)
	}
	if list, others := nat.List(nil); list != nil || others != 0 {
		t.Errorf("no ruleset: %v, %d", list, others)
	}
}
