package firewall

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// backend is a firewall of the host.
type backend string

// The backends. Other values have the effect of [backendAuto], as in the upstream plugin.
const (
	backendAuto      backend = "auto"
	backendNFT       backend = "nftables"
	backendIPTables  backend = "iptables"
	backendFirewalld backend = "firewalld"
)

func (b backend) named() bool {
	return slices.Contains([]backend{backendNFT, backendIPTables, backendFirewalld}, b)
}

// choose returns the backend for addresses.
func (c *Config) choose(
	ctx context.Context, s *chained.Session, addrs []netip.Addr,
) (backend, error) {
	b := c.Backend
	if b.named() {
		return b, nil
	}
	if b != "" && b != backendAuto {
		s.Log.Warn("unknown backend; choosing one", "backend", string(b))
	}
	withoutNFT := s.Host.Rules.Available() != nil
	if withoutNFT && !c.open() { // only iptables can isolate then
		return backendIPTables, nil
	}
	switch err := running(ctx); {
	case err == nil && !c.denied(ctx):
		return backendFirewalld, nil
	case err == nil:
		s.Log.Warn("firewalld denies this process the access; choosing another backend")
	case ctx.Err() != nil:
		return "", err
	case errors.Is(err, errNoAnswer):
		return "", unanswered(cni.CodeIOFailure, err)
	}
	if withoutNFT {
		return backendIPTables, nil
	}
	if stops, err := iptablesStops(s, addrs); !stops || err != nil {
		return backendNFT, err
	}
	if err := kernel.IPTablesAvailable(families(addrs)...); err != nil {
		s.Log.Warn("the FORWARD chain of iptables drops the container's packets, "+
			"but the iptables tools are not usable", "err", err)
		return backendNFT, nil
	}
	return backendIPTables, nil
}

// iptablesStops reports whether iptables drops forwarded packets of addresses unless a rule accepts
// them.
func iptablesStops(s *chained.Session, addrs []netip.Addr) (bool, error) {
	for _, f := range families(addrs) {
		if drops, err := s.Host.Rules.IPTablesDrops(f); drops || err != nil {
			return drops, err
		}
	}
	return false, nil
}

// families returns the families of addresses, each once.
func families(addrs []netip.Addr) (list []kernel.Family) {
	for _, f := range []kernel.Family{kernel.IPv4, kernel.IPv6} {
		if len(ofFamily(f, addrs)) > 0 {
			list = append(list, f)
		}
	}
	return list
}

func ofFamily(f kernel.Family, addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
		return a.Is4() != (f == kernel.IPv4)
	})
}

// lacksIPTables returns an error with the given code if a tool of iptables is missing.
func lacksIPTables(code cni.Code, families ...kernel.Family) error {
	return session.LacksIPTables(code, "backend iptables", `use "backend": "nftables"`, families...)
}
