package kernel_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// BenchmarkAttach creates and removes an attachment to a bridge and reports each call separately.
func BenchmarkAttach(b *testing.B) {
	n := setup(b)
	must(b, n.container.Sysctl.Ensure([]kernel.Setting{{Key: "net/ipv6/conf/default/accept_dad", Value: "0"}}))
	// Create the skeleton.
	must(b, n.host.Rules.Masquerade("first", kernel.Masq{}, []netip.Prefix{prefix("10.1.2.2/24")}))
	var tx *kernel.Tx
	var host, container *kernel.Space
	hostNS, containerNS := testnet.NS(b, n.Host), testnet.NS(b, n.Container("container"))
	var bridge, inside, outer kernel.Link
	steps := []struct {
		name string
		do   func() error
	}{
		{"Open×2", func() (err error) {
			tx = kernel.Begin(b.Context())
			if host, err = tx.Open(hostNS); err != nil {
				return err
			}
			container, err = tx.Open(containerNS)
			return err
		}},
		{"EnsureBridge", func() (err error) {
			bridge, _, err = host.Links.EnsureBridge(kernel.Bridge{Name: "br0"})
			return err
		}},
		{"AddVeth", func() (err error) {
			inside, outer, err = container.Links.AddVeth(kernel.Veth{Name: "eth0", Host: host, HostName: "veth0", Alias: "owner"})
			return err
		}},
		{"SetMaster", func() error { return host.Links.SetMaster(outer, bridge) }},
		{"SetPort", func() error { return host.Links.SetPort(outer, kernel.Port{Hairpin: true}) }},
		{"UpHost", func() error { return host.Links.Up(outer) }},
		{"Sysctls×3", func() error {
			return container.Sysctl.SetAll([]kernel.Setting{
				{Key: "net/ipv4/conf/eth0/arp_notify", Value: "1"},
				{Key: "net/ipv6/conf/eth0/accept_dad", Value: "0"},
				{Key: "net/ipv6/conf/eth0/keep_addr_on_down", Value: "1"},
			})
		}},
		{"AddAddr", func() error { return container.Addrs.Add(inside, prefix("10.1.2.3/24")) }},
		{"Up", func() error { return container.Links.Up(inside) }},
		{"AddRoute", func() error {
			return container.Routes.Add(inside, kernel.Route{Dst: prefix("0.0.0.0/0"), GW: addr("10.1.2.1")})
		}},
		{"Masquerade", func() error {
			return host.Rules.Masquerade("owner", kernel.Masq{}, []netip.Prefix{prefix("10.1.2.3/24")})
		}},
		{"WaitUp", func() error { return host.Links.WaitUp(b.Context(), outer) }},
		{"Delete", func() error { return container.Links.Delete(inside) }},
		{"Unmasquerade", func() error {
			_, err := host.Rules.Remove(nft.Masquerading, func(tag string) bool { return tag == "owner" })
			return err
		}},
		{"Close×2", func() error {
			host.Close()
			container.Close()
			return nil
		}},
	}
	spent := make([]time.Duration, len(steps))
	for b.Loop() {
		for i, step := range steps {
			start := time.Now()
			must(b, step.do())
			spent[i] += time.Since(start)
		}
	}
	for i, step := range steps {
		b.ReportMetric(float64(spent[i].Microseconds())/float64(b.N), step.name+"-µs")
	}
}
