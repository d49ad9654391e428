package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/iptables/hostnat"
	"github.com/tenon-cni/tenon/internal/netns"
)

// NATBackend is a subsystem of the kernel that translates addresses.
type NATBackend string

// The backends.
const (
	NATByNFTables NATBackend = "nftables"
	NATByIPTables NATBackend = "iptables"
)

// NATChoice is the backend for a host, and the reason for it.
type NATChoice struct {
	Backend NATBackend
	Reason  string
	// Void is a rule of the operator that has no effect with this backend, "" if there is none.
	Void string
}

// NATQuery asks which rule of iptables decides about traffic of one family.
type NATQuery struct {
	Family Family
	NATPath
}

type (
	// NATPath is the path of traffic through a nat table of iptables.
	NATPath = hostnat.Query
	// NATTraffic is the traffic of a [NATQuery].
	NATTraffic = hostnat.Traffic
	// NATPort is a range of ports of the host.
	NATPort = hostnat.Port
	// NATRule is a rule of a nat table of iptables.
	NATRule = hostnat.Rule
)

// PortOf returns the host ports of a mapping.
func PortOf(m PortMapping) NATPort {
	return NATPort{
		Protocol: m.Protocol, Host: m.Host, PortRange: hostnat.PortRange{First: m.First, Last: m.Last},
	}
}

// ErrNoNAT reports that no backend works on the host.
var ErrNoNAT = errors.New("neither nftables nor iptables works on this host")

// ChooseNAT chooses the backend for the traffic of queries: nftables, unless the error nftables
// says that it is unusable, or an operator's rules in the nat tables of iptables decide about the
// traffic. Such rules have no effect on a table of nftables, because each table decides
// independently. The error wraps [ErrNoNAT] if neither backend works.
func (s Rules) ChooseNAT(nftables error, queries ...NATQuery) (NATChoice, error) {
	if err := nftables; err != nil {
		if !errors.Is(err, ErrNoNFT) {
			return NATChoice{}, err
		}
		if other := iptablesWorks(s.space.tx.ctx, s.space.NS, familiesOf(queries)); other != nil {
			return NATChoice{}, fmt.Errorf("%w: nftables: %w; iptables: %w", ErrNoNAT, err, other)
		}
		return NATChoice{Backend: NATByIPTables, Reason: err.Error()}, nil
	}
	found, err := s.space.decidingRules(queries)
	if err != nil {
		return NATChoice{}, err
	}
	choice := NATChoice{Backend: NATByNFTables, Reason: "no iptables rule decides about this traffic"}
	for _, rule := range found {
		err := s.space.canObey(rule, familiesOf(queries))
		switch {
		case err == nil && choice.Backend == NATByNFTables:
			choice.Backend, choice.Reason = NATByIPTables, rule.String()
		case err != nil && choice.Void == "":
			choice.Void = rule.String()
			if choice.Backend == NATByNFTables {
				choice.Reason = err.Error()
			}
		}
	}
	return choice, nil
}

// canObey returns nil if the tool for the variant of a rule is installed; rules of the other
// variant would be in a separate table. Later edits use that variant.
func (s *Space) canObey(found *hostnat.Found, families []Family) error {
	if err := IPTablesAvailable(families...); err != nil {
		return err
	}
	if found.Legacy {
		if err := iptables.LegacyAvailable(s.tx.ctx, s.NS, found.Family); err != nil {
			return err
		}
	}
	if s.legacyNAT == nil {
		s.legacyNAT = map[Family]bool{}
	}
	s.legacyNAT[found.Family] = found.Legacy
	return nil
}

// SuitableNAT is [Rules.ChooseNAT] for the current namespace, which it does not change: it builds
// the rule set in a new namespace to find out whether the kernel supports it.
func SuitableNAT(ctx context.Context, rs *RuleSet, queries ...NATQuery) (NATChoice, error) {
	s, closeAll, err := OpenHost(ctx)
	if err != nil {
		return NATChoice{}, err
	}
	defer closeAll()
	return s.Rules.ChooseNAT(Buildable(ctx, rs), queries...)
}

// Build creates the skeleton of a rule set, unless it exists. The error wraps [ErrNoNFT] if the
// kernel does not support it.
func (s Rules) Build(rs *RuleSet) error {
	c, err := s.space.rules()
	if err != nil {
		return err
	}
	if built, err := c.Built(rs); built || err != nil {
		return err
	}
	return s.space.tx.Do(fmt.Sprintf("build %s", rs), func() error { return c.Build(s.space.tx.ctx, rs) }, nil)
}

// IPTablesWorks returns nil if iptables can be used in the current namespace without nftables. It
// starts processes.
func IPTablesWorks(ctx context.Context) error {
	ns, err := netns.Current()
	if err != nil {
		return err
	}
	defer ns.Close()
	return iptablesWorks(ctx, ns, []Family{IPv4})
}

func iptablesWorks(ctx context.Context, ns *netns.NS, families []Family) error {
	for _, f := range families {
		t := iptables.Table{Family: f, Name: "nat", Legacy: true}
		if err := t.Works(ctx, ns); err != nil {
			return err
		}
	}
	return nil
}

func familiesOf(queries []NATQuery) (list []Family) {
	for _, q := range queries {
		if len(list) == 0 || list[len(list)-1] != q.Family {
			list = append(list, q.Family)
		}
	}
	return list
}

// decidingRules returns for each family the first rule that decides about the traffic of one of the
// queries, which are sorted by family.
func (s *Space) decidingRules(queries []NATQuery) (list []*hostnat.Found, err error) {
	for _, f := range familiesOf(queries) {
		t, err := s.Rules.NATTables(f)
		if err != nil {
			return nil, err
		}
		defer t.Close()
		for _, q := range queries {
			if q.Family != f {
				continue
			}
			found, err := t.Find(q.NATPath)
			if err != nil {
				return nil, err
			}
			if found != nil {
				list = append(list, found)
				break
			}
		}
	}
	return list, nil
}

// NATTables opens the nat tables of iptables. The caller must close them.
func (s Rules) NATTables(f Family) (*hostnat.Tables, error) {
	c, err := s.space.rules()
	if UnlessNoNFT(err) != nil {
		return nil, err
	}
	return hostnat.Open(s.space.NS, f, c), nil
}

// OfNAT lists the rules of a chain in the nat tables of iptables, of both variants.
func (s Rules) OfNAT(f Family, chain string) ([]NATRule, error) {
	t, err := s.NATTables(f)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	rules, err := t.Rules(chain)
	return rules, UnlessNoNFT(err)
}
