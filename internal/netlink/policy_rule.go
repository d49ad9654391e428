package netlink

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Protocol marks the routes and rules of attachments (RTA_PROTOCOL, FRA_PROTOCOL). No other program
// is known to use this number (rtnetlink(7), /etc/iproute2/rt_protos).
const Protocol = 116

// PolicyRule selects a routing table for packets with one source address (ip-rule(8)).
type PolicyRule struct {
	Src   netip.Prefix // invalid: any source
	Table int          // 0: the rule has another effect
	// Priority orders rules, the lowest first. A new rule with 0 comes before all rules except the
	// first, the rule of table local.
	Priority int
	Protocol int  // its creator: [Protocol], or the number of another program; 0: unspecified
	More     bool // it has other conditions or effects too; Tenon never creates such a rule
}

// String describes a rule as ip-rule(8) does: from 10.1.2.3/32 lookup 100.
func (r PolicyRule) String() string {
	from := "all"
	if r.Src.IsValid() {
		from = r.Src.String()
	}
	return fmt.Sprintf("from %s lookup %d", from, r.Table)
}

// Rules lists the rules of both families, each in the order of evaluation.
func (c Routes) Rules() ([]PolicyRule, error) {
	var rules []PolicyRule
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		rs, err := c.conn.rules(family)
		if err := unless(err, noRules...); err != nil {
			return nil, fmt.Errorf("list policy rules: %w", err)
		}
		rules = append(rules, rs...)
	}
	return rules, nil
}

// HasRules reports whether the kernel supports policy rules, in IPv4.
func (c Routes) HasRules() (bool, error) {
	_, err := c.conn.rules(unix.AF_INET)
	return err == nil, unless(err, noRules...)
}

func (c *Conn) rules(family uint8) ([]PolicyRule, error) {
	read := func(list []PolicyRule, m []byte) ([]PolicyRule, error) {
		var about RuleMsg
		values, err := ReadBody(m, &about)
		return append(list, newPolicyRule(about, values)), err
	}
	return list(c, unix.RTM_GETRULE, RuleMsg{Family: family}, nil, read)
}

// noRules are the errors of a kernel without rules for a family.
var noRules = []unix.Errno{unix.EAFNOSUPPORT, unix.EOPNOTSUPP}

// AddRule adds a rule, which must have a source. Without a priority, equal rules can exist any
// number of times, the newest first; with a priority, the error is EEXIST if an equal rule exists.
func (c Routes) AddRule(r PolicyRule) error {
	if !r.Src.IsValid() || r.Table == 0 {
		return fmt.Errorf("no source or no table: %w", unix.EINVAL)
	}
	about, attributes := r.message()
	return c.conn.change(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, about, attributes...)
}

// DeleteRule removes the first equal rule, with any priority if r has none, and reports whether
// there was one.
func (c Routes) DeleteRule(r PolicyRule) (existed bool, err error) {
	about, attributes := r.message()
	err = c.conn.change(unix.RTM_DELRULE, 0, about, attributes...)
	return err == nil, unless(unless(err, unix.ENOENT), noRules...)
}

// RuleMsg is struct fib_rule_hdr (linux/fib_rules.h), which comes before the attributes of a rule.
type RuleMsg struct {
	Family, DstLen, SrcLen, TOS uint8
	Table, _, _, Action         uint8
	Flags                       uint32
}

func (r PolicyRule) message() (RuleMsg, []Attribute) {
	about := RuleMsg{Family: familyOf(r.Src.Addr()), SrcLen: uint8(r.Src.Bits()),
		Action: unix.FR_ACT_TO_TBL}
	list := []Attribute{Bytes(unix.FRA_SRC, r.Src.Addr().AsSlice()),
		Uint32(unix.FRA_TABLE, uint32(r.Table))}
	if r.Priority != 0 {
		list = append(list, Uint32(unix.FRA_PRIORITY, uint32(r.Priority)))
	}
	if r.Protocol != 0 {
		list = append(list, Uint8(unix.FRA_PROTOCOL, uint8(r.Protocol)))
	}
	return about, list
}

// newPolicyRule is the inverse of message. It sets More for attributes that it does not know: other
// conditions than the source, or another effect than the table lookup.
func newPolicyRule(about RuleMsg, attributes []byte) PolicyRule {
	r := PolicyRule{More: about.Action != unix.FR_ACT_TO_TBL ||
		about.Flags&unix.FIB_RULE_INVERT != 0 || about.DstLen != 0 || about.TOS != 0}
	for kind, v := range Attributes(attributes) {
		switch kind {
		case unix.FRA_SRC:
			src, _ := netip.AddrFromSlice(v)
			r.Src = netip.PrefixFrom(src, int(about.SrcLen))
		case unix.FRA_TABLE:
			r.Table = number(v)
		case unix.FRA_PRIORITY:
			r.Priority = number(v)
		case unix.FRA_PROTOCOL:
			r.Protocol = number(v)
		case unix.FRA_SUPPRESS_PREFIXLEN: // always present, -1 if not set
			r.More = r.More || int32(number(v)) >= 0
		default:
			r.More = true
		}
	}
	return r
}
