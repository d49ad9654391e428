package attach

import (
	"context"
	"encoding/json"
	"net/netip"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// advise explains why masquerading of networks uses iptables. It returns nothing if the backend is
// nftables.
func (m *Masq) advise(ctx context.Context, nets []netip.Prefix) ([]string, error) {
	if !m.IPMasq || m.backend() != Auto || len(nets) == 0 {
		return nil, nil
	}
	return session.AdviseNAT(ctx, kernel.Masquerading, masqQueries(nets, m.details())...)
}

// subnets returns the networks that an ipam section names in its subnets, ranges and addresses.
func subnets(request []byte) (nets []netip.Prefix) {
	type named struct{ Subnet, Address string }
	var conf struct {
		IPAM struct {
			named
			Ranges    [][]named
			Addresses []named
		}
	}
	if json.Unmarshal(request, &conf) != nil {
		return nil
	}
	all := append([]named{conf.IPAM.named}, conf.IPAM.Addresses...)
	for _, set := range conf.IPAM.Ranges {
		all = append(all, set...)
	}
	for _, n := range all {
		for _, text := range []string{n.Subnet, n.Address} {
			if p, err := netip.ParsePrefix(text); err == nil {
				nets = append(nets, p)
			}
		}
	}
	return nets
}
