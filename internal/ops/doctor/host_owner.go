package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/tenon-cni/tenon/internal/host/packet"
)

// Owners of rules that the checks distinguish. Others are named by the program of the rule set, or
// unknown.
const (
	ownerTenon     = "tenon"
	ownerCNI       = "cni"
	ownerDocker    = "docker"
	ownerFirewalld = "firewalld"
	ownerUFW       = "ufw"
	ownerUnknown   = "unknown"
)

// owner returns the program that owns a rule or a policy. Rules of iptables of an unknown owner belong
// to the program of the rule set.
func (s *State) owner(p packet.Place) string {
	if owner := packet.Owner(s.Host.Own().Ruleset, p); owner != "" {
		return owner
	}
	program, _ := p.Program()
	switch {
	case program == "":
		return ownerUnknown
	case strings.HasSuffix(program, "-legacy"):
		return program
	}
	return program + "-nft"
}

// placeTitle names a rule or a policy.
func placeTitle(p packet.Place) string {
	if p.Number == 0 {
		return "the policy of " + p.Title()
	}
	return fmt.Sprintf("rule %d of %s", p.Number, p.Title())
}

// chainTitle names a chain as its program does.
func chainTitle(p packet.Place) string { return p.Title() }

// listing returns the command that lists a chain.
func listing(p packet.Place) string { return p.Command() }

// opening is what a firewall has to accept: packets of a network at a hook.
type opening struct {
	place   packet.Place
	owner   string
	link    string // of the host to the containers
	subnets []netip.Prefix
	input   bool // packets to this host; else forwarded ones
}

// fixes returns the ways to accept the packets in the firewall that drops them.
func (o opening) fixes() []Fix {
	f := Fix{Effect: "opens forwarding for " + o.link}
	if o.input {
		f.Effect = "opens DNS on this host for " + o.link
	}
	switch {
	case o.owner == ownerDocker && !o.input:
		f.Command = fmt.Sprintf(
			"iptables -I DOCKER-USER -i %[1]s -j ACCEPT; iptables -I DOCKER-USER -o %[1]s -j "+
				"ACCEPT",
			o.link,
		)
	case o.owner == ownerFirewalld:
		var commands []string
		for _, p := range o.subnets {
			commands = append(
				commands,
				fmt.Sprintf("firewall-cmd --permanent --zone=trusted --add-source=%s", p),
			)
		}
		f.Command = strings.Join(append(commands, "firewall-cmd --reload"), "; ")
		f.Effect += "; firewalld then trusts the containers; run tenon repair after the reload"
	case o.owner == ownerUFW && o.input:
		f.Command = fmt.Sprintf("ufw allow in on %s to any port 53", o.link)
	case o.owner == ownerUFW:
		f.Command = fmt.Sprintf("ufw route allow in on %[1]s; ufw route allow out on %[1]s", o.link)
	default:
		f.Command = o.accept()
	}
	return []Fix{f}
}

// accept returns commands that insert accepting rules at the place.
func (o opening) accept() string {
	p := o.place
	if program, _ := p.Program(); program != "" {
		if o.input {
			return fmt.Sprintf(
				"%s -I %s -i %s -p udp --dport 53 -j ACCEPT",
				program,
				p.Chain,
				o.link,
			)
		}
		return fmt.Sprintf(
			"%[1]s -I %[2]s -i %[3]s -j ACCEPT; %[1]s -I %[2]s -o %[3]s -j ACCEPT",
			program,
			p.Chain,
			o.link,
		)
	}
	rule := fmt.Sprintf("nft insert rule %s %s %s", p.Table.Family, p.Table.Name, p.Chain)
	if o.input {
		return fmt.Sprintf("%s iifname %s udp dport 53 accept", rule, o.link)
	}
	return fmt.Sprintf(
		"%[1]s iifname %[2]s accept; %[1]s oifname %[2]s accept",
		rule,
		cmp.Or(o.link, "IFACE"),
	)
}
