package hostnat

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Rule is a rule of a nat table: its conditions and its target.
type Rule struct {
	Target string // what happens to the packet, as iptables names it; "" for a jump
	Chain  string // the chain that the rule jumps to; "" if it does not jump
	Goto   bool   // the end of Chain is the end of this chain

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

// AddrType is a condition on the kind of an address (addrtype of iptables).
type AddrType struct {
	Types uint16 // bit 1<<RTN_LOCAL and others; 0: no condition
	Not   bool
}

const localType = 1 << unix.RTN_LOCAL

// local reports whether the condition holds for addresses of this host.
func (t AddrType) local() bool { return t.Types == 0 || (t.Types&localType != 0) != t.Not }

// remote reports whether the condition can hold for an address that is not of this host.
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

// String returns the rule without its chain, in the words of iptables.
func (r Rule) String() string {
	var b strings.Builder
	option := func(not bool, words ...string) {
		if not {
			words = append([]string{"!"}, words...)
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strings.Join(words, " "))
	}
	word := func(name string, w Word) {
		if w.Text != "" {
			option(w.Not, name, w.Text)
		}
	}
	for _, n := range []struct {
		name string
		Network
	}{{"-s", r.Source}, {"-d", r.Dest}} {
		if n.IsValid() {
			option(n.Not, n.name, n.Prefix.String())
		}
	}
	word("-i", r.In)
	word("-o", r.Out)
	word("-p", Word{protocolName(r.Protocol.Text), r.Protocol.Not})
	if len(r.Ports.Ranges) > 0 {
		option(r.Ports.Not, "--dports", r.Ports.String())
	}
	for _, t := range []struct {
		name string
		AddrType
	}{{"--src-type", r.SourceType}, {"--dst-type", r.DestType}} {
		switch t.Types {
		case 0:
		case localType:
			option(t.Not, t.name, "LOCAL")
		default:
			option(t.Not, t.name, fmt.Sprintf("0x%x", t.Types))
		}
	}
	for _, o := range r.Others {
		option(false, "-m", o)
	}
	if r.Comment != "" {
		option(false, "--comment", strconv.Quote(r.Comment))
	}
	switch {
	case r.Goto:
		option(false, "-g", r.Chain)
	case r.Chain != "":
		option(false, "-j", r.Chain)
	case r.Target != "":
		option(false, "-j", r.Target)
	}
	return b.String()
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

func protocolName(number string) string {
	switch number {
	case strconv.Itoa(unix.IPPROTO_TCP):
		return "tcp"
	case strconv.Itoa(unix.IPPROTO_UDP):
		return "udp"
	case strconv.Itoa(unix.IPPROTO_SCTP):
		return "sctp"
	}
	return number
}
