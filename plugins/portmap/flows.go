package portmap

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Where the protocol knows no beginning of a connection, the kernel goes on to send to where the first packet went, and a
// steady stream never ends. TCP does not need it, and pays nothing for it.

// forgetStale makes flows begin anew that have come for the ports and do not lead to the container.
func forgetStale(s *chained.Session, maps []kernel.PortMapping) error {
	return forget(s, maps, func(f kernel.Flow, m kernel.PortMapping) bool {
		to := netip.AddrPortFrom(m.To.Addr(), m.To.Port()+f.Orig.Dst.Port()-m.First)
		if f.Reply.Src == to {
			return false
		}
		local, err := s.Host.Addrs.IsLocal(f.Orig.Dst.Addr())
		return err == nil && local // what the host only routes is not meant
	})
}

// forgetGone makes flows begin anew that have led to the container.
func forgetGone(s *chained.Session, maps []kernel.PortMapping) error {
	return forget(s, maps, func(f kernel.Flow, m kernel.PortMapping) bool {
		return f.Reply.Src.Addr() == m.To.Addr() && f.Orig.Dst.Addr() != m.To.Addr()
	})
}

// forget deletes the flows that came for one of the mappings and match. The kernel lists those of a protocol, of one port if
// there is no other.
func forget(s *chained.Session, maps []kernel.PortMapping, match func(kernel.Flow, kernel.PortMapping) bool) error {
	var errs []error
	for _, filter := range []kernel.FlowFilter{{Protocol: udp}, {Protocol: sctp}, {IPv6: true, Protocol: udp}, {IPv6: true, Protocol: sctp}} {
		of := slices.DeleteFunc(slices.Clone(maps), func(m kernel.PortMapping) bool {
			return m.Protocol != filter.Protocol || m.To.Addr().Is6() != filter.IPv6
		})
		if len(of) == 0 {
			continue
		}
		if len(of) == 1 && of[0].First == of[0].Last {
			filter.DstPort = of[0].First
		}
		filter.Match = func(f kernel.Flow) bool {
			return slices.ContainsFunc(of, func(m kernel.PortMapping) bool { return cameFor(f, m) && match(f, m) })
		}
		errs = append(errs, s.Host.Rules.DeleteFlows(filter, func(err error) {
			s.Log.Warn("datagrams may go on to where they went before", "error", err)
		}))
	}
	return errors.Join(errs...)
}

// cameFor reports whether the first packet of a flow was for the ports of a mapping, as far as it alone can tell.
func cameFor(f kernel.Flow, m kernel.PortMapping) bool {
	to := f.Orig.Dst
	return m.First <= to.Port() && to.Port() <= m.Last && (!m.Host.IsValid() || m.Host == to.Addr())
}
