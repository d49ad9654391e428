package portmap

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// For protocols without connections the kernel sends packets to the destination of the flow's first
// packet, and a steady stream never ends its flow. TCP does not have this problem, so the functions
// below make no query for it.

// forgetStale deletes flows to the ports that lead to another destination than the container.
func forgetStale(s *chained.Session, maps []kernel.PortMapping) error {
	return forget(s, maps, func(f kernel.Flow, m kernel.PortMapping) bool {
		to := netip.AddrPortFrom(m.To.Addr(), m.To.Port()+f.Orig.Dst.Port()-m.First)
		if f.Reply.Src == to {
			return false
		}
		local, err := s.Host.Addrs.IsLocal(f.Orig.Dst.Addr())
		return err == nil && local // not for packets that the host only routes
	})
}

// forgetGone deletes flows that led to the container.
func forgetGone(s *chained.Session, maps []kernel.PortMapping) error {
	return forget(s, maps, func(f kernel.Flow, m kernel.PortMapping) bool {
		return f.Reply.Src.Addr() == m.To.Addr() && f.Orig.Dst.Addr() != m.To.Addr()
	})
}

// forget deletes the flows that came for one of the mappings and that match. The kernel lists the
// flows of a protocol, and for a single port the flows of that port.
func forget(
	s *chained.Session, maps []kernel.PortMapping, match func(kernel.Flow, kernel.PortMapping) bool,
) error {
	var errs []error
	for _, filter := range []kernel.FlowFilter{{Protocol: udp}, {Protocol: sctp},
		{IPv6: true, Protocol: udp}, {IPv6: true, Protocol: sctp}} {
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
			return slices.ContainsFunc(of, func(m kernel.PortMapping) bool {
				return cameFor(f, m) && match(f, m)
			})
		}
		errs = append(errs, s.Host.Rules.DeleteFlows(filter, func(err error) {
			s.Log.Warn("datagrams may still reach their previous destination", "error", err)
		}))
	}
	return errors.Join(errs...)
}

// cameFor reports whether the first packet of a flow matched the ports and address of a mapping.
func cameFor(f kernel.Flow, m kernel.PortMapping) bool {
	to := f.Orig.Dst
	return m.First <= to.Port() && to.Port() <= m.Last && (!m.Host.IsValid() || m.Host == to.Addr())
}
