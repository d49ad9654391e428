package rtnl

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Protocol marks the routes and rules that are made for attachments (RTA_PROTOCOL, FRA_PROTOCOL). No other program is
// known to have this number (rtnetlink(7), /etc/iproute2/rt_protos).
const Protocol = 116

// PolicyRule has a routing table looked up for what has one source address (ip-rule(8)).
type PolicyRule struct {
	Src      netip.Prefix // not valid: whatever source
	Table    int          // 0: the rule does something else
	Priority int          // rules are looked at in ascending order; 0 in a new one: before all but the first, that of table local
	Protocol int          // who made it: [Protocol], or of another program; 0 is nobody in particular
	More     bool         // it says more than that: other conditions, other effects. There are no new ones of this kind
}

// String describes a rule as ip-rule(8) does: from 10.1.2.3/32 lookup 100.
func (r PolicyRule) String() string {
	from := "all"
	if r.Src.IsValid() {
		from = r.Src.String()
	}
	return fmt.Sprintf("from %s lookup %d", from, r.Table)
}

// PolicyRules lists the rules of both families, each in the order in which they are looked at.
func (c *Conn) PolicyRules() ([]PolicyRule, error) {
	var rules []PolicyRule
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rs, err := c.ruleList(family)
		if noRules(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list policy rules: %w", err)
		}
		for _, r := range rs {
			rules = append(rules, newPolicyRule(r))
		}
	}
	return rules, nil
}

// HasPolicyRules reports whether the kernel can choose routing tables by rules, in IPv4.
func (c *Conn) HasPolicyRules() (bool, error) {
	_, err := c.ruleList(netlink.FAMILY_V4)
	if noRules(err) {
		return false, nil
	}
	return err == nil, err
}

// ruleList asks without the strict check, which the library's request does not pass: its header is too long.
func (c *Conn) ruleList(family int) ([]netlink.Rule, error) {
	h, err := c.library()
	if err != nil {
		return nil, err
	}
	if err := h.SetStrictCheck(false); err == nil {
		defer func() { _ = h.SetStrictCheck(true) }()
	}
	return h.RuleList(family)
}

// noRules reports whether err says that the kernel has no rules for a family.
func noRules(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}

// AddPolicyRule adds a rule, which must have a source. Without a priority there may be any number of the same, of which the
// newest is the first; with one the error is EEXIST if there is the same.
func (c *Conn) AddPolicyRule(r PolicyRule) error {
	if !r.Src.IsValid() || r.Table == 0 {
		return fmt.Errorf("no source or no table: %w", unix.EINVAL)
	}
	h, err := c.library()
	if err != nil {
		return err
	}
	return h.RuleAdd(policyRule(r))
}

// DelPolicyRule removes the first rule that says the same, with any priority if r has none, and reports whether there was
// one.
func (c *Conn) DelPolicyRule(r PolicyRule) (existed bool, err error) {
	h, err := c.library()
	if err != nil {
		return false, err
	}
	err = h.RuleDel(policyRule(r))
	if errors.Is(err, unix.ENOENT) || noRules(err) {
		return false, nil
	}
	return err == nil, err
}

func policyRule(r PolicyRule) *netlink.Rule {
	n := netlink.NewRule()
	n.Src, n.Table, n.Protocol = ipNet(r.Src), r.Table, uint8(r.Protocol)
	if r.Priority != 0 {
		n.Priority = r.Priority
	}
	return n
}

func newPolicyRule(n netlink.Rule) PolicyRule {
	r := PolicyRule{Table: n.Table, Priority: n.Priority, Protocol: int(n.Protocol), More: says(n)}
	if n.Src != nil {
		r.Src = prefix(n.Src)
	}
	return r
}

// says reports whether a rule has other conditions than its source, or another effect than to look up its table.
func says(n netlink.Rule) bool {
	n.Priority, n.Family, n.Protocol, n.Src = -1, 0, 0, nil
	table := n.Table
	n.Table = 0
	return table == 0 || n != *netlink.NewRule()
}
