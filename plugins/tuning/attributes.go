package tuning

import (
	"bytes"
	"cmp"
	"net"
	"slices"
	"strconv"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Attributes are attributes of the container's interface. Absent attributes are left unchanged. The
// upstream plugin saves the attributes that it changed in this form and order.
type Attributes struct {
	// MAC is the MAC address. MAC in CNI_ARGS takes precedence over it, the capability mac over
	// both, and args.cni.mac over all.
	MAC string `json:"mac,omitempty"`

	// Promisc enables promiscuous mode, in which the interface receives all frames. False leaves
	// the mode unchanged.
	Promisc *bool `json:"promisc,omitempty"`

	// MTU is the MTU in bytes. 0 leaves it unchanged. Below 1280 the interface loses its IPv6
	// addresses.
	MTU *int `json:"mtu,omitempty" min:"0" max:"65535"`

	// AllMulti enables or disables the reception of all multicast frames. An absent key leaves the
	// mode unchanged.
	AllMulti *bool `json:"allmulti,omitempty"`

	// TxQLen is the length of the transmit queue in packets. An absent key leaves it unchanged.
	TxQLen *int `json:"txQLen,omitempty" min:"0" max:"4294967295"`
}

const (
	maxMTU    = 1<<16 - 1
	maxTxQLen = 1<<32 - 1
)

// clean drops values that mean no change, and refuses values that no interface can have.
func (a *Attributes) clean() error {
	if a.Promisc != nil && !*a.Promisc {
		a.Promisc = nil
	}
	if a.MTU != nil && *a.MTU == 0 {
		a.MTU = nil
	}
	if a.MAC != "" {
		if _, err := net.ParseMAC(a.MAC); err != nil {
			return cni.Errorf(cni.CodeInvalidConfig, "invalid args %s for MAC addr: %w", a.MAC, err)
		}
	}
	if a.MTU != nil && (*a.MTU < 0 || *a.MTU > maxMTU) {
		return cni.Errorf(cni.CodeInvalidConfig, "mtu: %d is not within 0 to %d", *a.MTU, maxMTU)
	}
	if a.TxQLen != nil && (*a.TxQLen < 0 || int64(*a.TxQLen) > maxTxQLen) {
		return cni.Errorf(cni.CodeInvalidConfig, "txQLen: %d is not within 0 to %d",
			*a.TxQLen, int64(maxTxQLen))
	}
	return nil
}

func (a Attributes) none() bool { return a == Attributes{} }

// or returns a, with attributes from b that a lacks.
func (a Attributes) or(b Attributes) Attributes {
	return Attributes{
		MAC:      cmp.Or(a.MAC, b.MAC),
		Promisc:  cmp.Or(a.Promisc, b.Promisc),
		MTU:      cmp.Or(a.MTU, b.MTU),
		AllMulti: cmp.Or(a.AllMulti, b.AllMulti),
		TxQLen:   cmp.Or(a.TxQLen, b.TxQLen),
	}
}

// of returns the values that a link has for the attributes in a.
func (a Attributes) of(l kernel.Link) Attributes {
	if a.MAC != "" {
		a.MAC = l.MAC.String()
	}
	if a.Promisc != nil {
		a.Promisc = &l.Promiscuous
	}
	if a.MTU != nil {
		a.MTU = &l.MTU
	}
	if a.AllMulti != nil {
		a.AllMulti = &l.AllMulticast
	}
	if a.TxQLen != nil {
		a.TxQLen = &l.TxQLen
	}
	return a
}

// difference is an attribute of a link that differs from the wanted value, and the function that
// sets it.
type difference struct {
	name, want, have string
	text             string // of upstream's CHECK; operands: the interface, want, have
	set              func() error
}

// differ returns the differences between a link and a.
func (a Attributes) differ(s *kernel.Space, l kernel.Link) (all []difference) {
	if mac, err := net.ParseMAC(a.MAC); err == nil && !bytes.Equal(mac, l.MAC) {
		all = append(all, difference{"mac", a.MAC, l.MAC.String(),
			"Error: Tuning configured Ethernet of %s is %s, current value is %s",
			func() error { return s.Links.SetMAC(l, mac) }})
	}
	if on := a.Promisc; on != nil && *on != l.Promiscuous {
		all = append(all, difference{"promisc", strconv.FormatBool(*on),
			strconv.Itoa(int(l.Promisc)),
			"Error: Tuning link %s configured promisc is %s, current value is %s",
			func() error { return s.Links.SetPromisc(l, *on) }})
	}
	if mtu := a.MTU; mtu != nil && *mtu != l.MTU {
		all = append(all, difference{"mtu", strconv.Itoa(*mtu), strconv.Itoa(l.MTU),
			"Error: Tuning configured MTU of %s is %s, current value is %s",
			func() error { return s.Links.SetMTU(l, *mtu) }})
	}
	if on := a.AllMulti; on != nil && *on != l.AllMulticast {
		all = append(all, difference{"allmulti", strconv.FormatBool(*on), strconv.FormatBool(!*on),
			"Error: Tuning configured all-multicast mode of %s is %s, current value is %s",
			func() error { return s.Links.SetAllMulticast(l, *on) }})
	}
	if n := a.TxQLen; n != nil && *n != l.TxQLen {
		all = append(all, difference{"txQLen", strconv.Itoa(*n), strconv.Itoa(l.TxQLen),
			"Error: Tuning configured Transmit Queue Length of %s is %s, current value is %s",
			func() error { return s.Links.SetTxQLen(l, *n) }})
	}
	return all
}

// show writes the new MAC address and MTU into the result, and removes IPv6 addresses and routes
// that the kernel has removed from the interface because of the MTU.
func (a Attributes) show(s *chained.Session, r *cni.Result) {
	if a.MTU != nil && *a.MTU < kernel.MinMTU6 {
		own := s.Own(r)
		dropped := len(r.IPs)
		r.IPs = slices.DeleteFunc(r.IPs, func(ip cni.IP) bool {
			i, ok := ip.Interface.Get()
			return ip.Address.Addr().Is6() && (!ok || slices.Contains(own, i))
		})
		if dropped -= len(r.IPs); dropped > 0 {
			r.Routes = slices.DeleteFunc(r.Routes, func(rt cni.Route) bool {
				return rt.Dst.Addr().Is6()
			})
			s.Log.Warn("the interface has lost its IPv6 addresses, which need an MTU of 1280",
				"ifname", s.IfName, "mtu", *a.MTU, "addresses", dropped)
		}
	}
	for _, i := range s.Own(r) {
		if a.MAC != "" {
			r.Interfaces[i].MAC = a.MAC
		}
		if known := r.Interfaces[i].MTU != 0; a.MTU != nil && (known || s.Version >= cni.V110) {
			r.Interfaces[i].MTU = *a.MTU
		}
	}
}
