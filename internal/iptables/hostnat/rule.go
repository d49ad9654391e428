package hostnat

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Rule is a rule of a nat table: its conditions and its target.
type Rule struct {
	Target string // the verdict or target, as iptables names it; "" for a jump
	Chain  string // the chain that the rule jumps to; "" if it does not jump
	Goto   bool   // the end of Chain is the end of this chain
	// To is the lowest address and port to which target DNAT leads.
	To netip.AddrPort

	Source, Dest         Network
	SourceType, DestType AddrType
	In, Out              Word   // names of interfaces
	Protocol             Word   // number of the transport protocol
	Ports                Ports  // of the destination
	Comment              string // of the comment match
	Others               []string
}

// Network is a condition on an address. The zero value holds for every address.
type Network struct {
	netip.Prefix
	Not bool
}

// AddrType is a condition on the type of an address (addrtype of iptables).
type AddrType struct {
	Types uint16 // bit 1<<RTN_LOCAL and others; 0: no condition
	Not   bool
}

const localType = 1 << unix.RTN_LOCAL

// local reports whether the condition holds for addresses of this host.
func (t AddrType) local() bool { return t.Types == 0 || (t.Types&localType != 0) != t.Not }

// remote reports whether the condition can hold for an address that does not belong to this host.
func (t AddrType) remote() bool {
	return t.Types == 0 || t.Not || t.Types&^uint16(localType) != 0
}

// Word is a condition on a name or a number. The zero value always holds.
type Word struct {
	Text string
	Not  bool
}

// Ports is a condition on a port. The zero value always holds.
type Ports struct {
	Ranges []PortRange
	Not    bool
}

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

// String returns the rule without its chain, in the syntax of iptables.
func (r Rule) String() string {
	var words []string
	option := func(name, value string, not bool) {
		if value == "" {
			return
		}
		if not {
			words = append(words, "!")
		}
		words = append(words, name, value)
	}
	option("-s", r.Source.String(), r.Source.Not)
	option("-d", r.Dest.String(), r.Dest.Not)
	option("-i", r.In.Text, r.In.Not)
	option("-o", r.Out.Text, r.Out.Not)
	option("-p", protocolName(r.Protocol.Text), r.Protocol.Not)
	option("--dports", r.Ports.String(), r.Ports.Not)
	option("--src-type", r.SourceType.String(), r.SourceType.Not)
	option("--dst-type", r.DestType.String(), r.DestType.Not)
	for _, o := range r.Others {
		words = append(words, "-m", o)
	}
	if r.Comment != "" {
		option("--comment", strconv.Quote(r.Comment), false)
	}
	if r.Goto {
		option("-g", r.Chain, false)
	} else {
		option("-j", cmp.Or(r.Chain, r.Target), false)
	}
	return strings.Join(words, " ")
}

// String returns the network in CIDR notation, or "" for the zero value.
func (n Network) String() string {
	if !n.IsValid() {
		return ""
	}
	return n.Prefix.String()
}

// String returns the type of the address, or "" without a condition.
func (t AddrType) String() string {
	switch t.Types {
	case 0:
		return ""
	case localType:
		return "LOCAL"
	}
	return fmt.Sprintf("0x%x", t.Types)
}

// String returns the ports in the form of --dports.
func (c Ports) String() string {
	words := make([]string, len(c.Ranges))
	for i, r := range c.Ranges {
		words[i] = strconv.Itoa(int(r.First))
		if r.Last != r.First {
			words[i] += ":" + strconv.Itoa(int(r.Last))
		}
	}
	return strings.Join(words, ",")
}

// protocolName returns the name of a protocol with ports, by its number.
func protocolName(number string) string {
	return cmp.Or(map[string]string{"6": "tcp", "17": "udp", "132": "sctp"}[number], number)
}
