package attach

import (
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Masquerade says what is masqueraded, and how, where the usual is not right.
type Masquerade struct {
	// V4 masquerades the IPv4 addresses.
	V4 *bool `json:"v4" default:"true"`
	// V6 masquerades the IPv6 addresses.
	V6 *bool `json:"v6" default:"true"`
	// ExcludeCIDRs are networks that see the container's own address, beside its own network. They need a route back.
	ExcludeCIDRs []netip.Prefix `json:"excludeCIDRs"`
	// SameSubnet masquerades also what the host routes to the own network of the container, and where br_netfilter is on,
	// what it bridges there. With nftables only.
	SameSubnet bool `json:"sameSubnet"`
	// DropInvalid drops packets of connections that the kernel does not know, which would leave with the container's own
	// address; not those to networks that see it anyway. With nftables only.
	DropInvalid bool `json:"dropInvalid"`
	// ToSource are the addresses that others see, at most one of each family, instead of that of the interface by which
	// packets leave. Answers to them have to come to this host. 4096 containers of a host can have one. With nftables only.
	ToSource []netip.Addr `json:"toSource"`
}

// details are those that are configured, or the usual.
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
		return invalid(" is nothing without ipMasq").WithDetails(`add "ipMasq": true, or remove masquerade`)
	}
	if d.off(true) && d.off(false) {
		return invalid(": v4 and v6 are both off").WithDetails(`"ipMasq": false says so`)
	}
	for _, n := range d.ExcludeCIDRs {
		if !n.IsValid() || n.Addr().Is4In6() {
			return invalid(".excludeCIDRs: %q is not a network", n)
		}
	}
	for i, a := range d.ToSource {
		switch {
		case !a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "":
			return invalid(".toSource: %q cannot be the source of packets to others", a)
		case d.off(a.Is4()):
			return invalid(".toSource: addresses of the family of %s are not masqueraded", a)
		case slices.ContainsFunc(d.ToSource[:i], func(b netip.Addr) bool { return b.Is4() == a.Is4() }):
			return invalid(".toSource: %s is the second of its family", a)
		}
	}
	if m.IPMasqBackend == IPTables {
		return d.needNFTables()
	}
	return nil
}

// needNFTables refuses what only the backend nftables can do.
func (d Masquerade) needNFTables() error {
	for _, o := range []struct {
		key    string
		wanted bool
	}{{"sameSubnet", d.SameSubnet}, {"dropInvalid", d.DropInvalid}, {"toSource", len(d.ToSource) > 0}} {
		if o.wanted {
			return cni.Errorf(cni.CodeUnsupportedField, "masquerade.%s: ipMasqBackend %q cannot do it", o.key, IPTables).
				WithDetails(`use "nftables"`)
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
