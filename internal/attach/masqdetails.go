package attach

import (
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Masquerade changes the defaults of masquerading.
type Masquerade struct {
	// V4 masquerades the IPv4 addresses.
	V4 *bool `json:"v4" default:"true"`
	// V6 masquerades the IPv6 addresses.
	V6 *bool `json:"v6" default:"true"`
	// ExcludeCIDRs are further networks that see the container's own address, in addition to its
	// own network. They need a route back.
	ExcludeCIDRs []netip.Prefix `json:"excludeCIDRs"`
	// SameSubnet also masquerades packets that the host routes to the container's own network and,
	// with br_netfilter, packets that it bridges there. It requires nftables.
	SameSubnet bool `json:"sameSubnet"`
	// DropInvalid drops packets of connections unknown to the kernel, which would leave with the
	// container's own address, except packets to networks that see that address anyway. It requires
	// nftables.
	DropInvalid bool `json:"dropInvalid"`
	// ToSource are the source addresses of masqueraded packets, at most one per family, instead of
	// the address of the outgoing interface. Replies to them must be routed to this host. At most
	// 4096 containers of a host can have one. It requires nftables.
	ToSource []netip.Addr `json:"toSource"`
}

// details returns the configured details, or the defaults.
func (m *Masq) details() Masquerade {
	if m.Masquerade == nil {
		return Masquerade{}
	}
	return *m.Masquerade
}

func (m *Masq) validateDetails() error {
	if m.Masquerade == nil {
		return nil
	}
	invalid := func(format string, args ...any) *cni.Error {
		return cni.Errorf(cni.CodeInvalidConfig, "masquerade"+format, args...)
	}
	d := m.details()
	if !m.IPMasq {
		return invalid(" has no effect without ipMasq").WithDetails(`add "ipMasq": true, or remove masquerade`)
	}
	if d.off(true) && d.off(false) {
		return invalid(": v4 and v6 are both off").WithDetails(`use "ipMasq": false instead`)
	}
	for _, n := range d.ExcludeCIDRs {
		if !n.IsValid() || n.Addr().Is4In6() {
			return invalid(".excludeCIDRs: %q is not a network", n)
		}
	}
	for i, a := range d.ToSource {
		switch {
		case !a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "":
			return invalid(".toSource: %q cannot be a source address of packets to other hosts", a)
		case d.off(a.Is4()):
			return invalid(".toSource: the family of %s is not masqueraded", a)
		case slices.ContainsFunc(d.ToSource[:i], func(b netip.Addr) bool { return b.Is4() == a.Is4() }):
			return invalid(".toSource: %s is the second of its family", a)
		}
	}
	if m.IPMasqBackend == IPTables {
		return d.needNFTables()
	}
	return nil
}

// needNFTables returns an error if an option requires the backend nftables.
func (d Masquerade) needNFTables() error {
	for _, o := range []struct {
		key    string
		wanted bool
	}{{"sameSubnet", d.SameSubnet}, {"dropInvalid", d.DropInvalid}, {"toSource", len(d.ToSource) > 0}} {
		if o.wanted {
			return cni.Errorf(cni.CodeUnsupportedField, "masquerade.%s: not supported by ipMasqBackend %q", o.key, IPTables).
				WithDetails(`set ipMasqBackend to "nftables"`)
		}
	}
	return nil
}

// off reports whether a family is not masqueraded.
func (d Masquerade) off(is4 bool) bool {
	on := d.V6
	if is4 {
		on = d.V4
	}
	return on != nil && !*on
}

// masqueraded returns the addresses that are masqueraded, with their prefix lengths.
func (d Masquerade) masqueraded(ips []cni.IP) (list []netip.Prefix) {
	for _, ip := range ips {
		if !d.off(ip.Address.Addr().Is4()) {
			list = append(list, ip.Address)
		}
	}
	return list
}

func (d Masquerade) masq() kernel.Masq {
	return kernel.Masq{Exclude: d.ExcludeCIDRs, SameSubnet: d.SameSubnet, ToSource: d.ToSource, DropInvalid: d.DropInvalid}
}
