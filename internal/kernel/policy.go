package kernel

import "github.com/tenon-cni/tenon/internal/netlink"

// PolicyRule has a routing table looked up for what has one source address.
type PolicyRule = netlink.PolicyRule

// Protocol marks the routes and rules that are made for attachments.
const Protocol = netlink.Protocol

// Rules lists the rules of both families, each in the order in which they are looked at.
func (s Routes) Rules() ([]PolicyRule, error) { return s.space.rt.Routes.Rules() }

// AddRule adds a rule, which must have a source and gets [Protocol]. Without a priority it becomes the first of its
// family, but for that of the table local, even if there is the same.
func (s Routes) AddRule(r PolicyRule) error {
	r.Protocol = Protocol
	return s.space.tx.set("rule "+r.String(),
		func() error { return s.space.rt.Routes.AddRule(r) },
		func() error { return errorOf(s.space.rt.Routes.DeleteRule(r)) })
}

// DeleteRule removes a rule that PolicyRules has listed, and that says no more than a [PolicyRule] does; one that is gone
// is as good as removed. Undone by adding it again with its priority and protocol.
func (s Routes) DeleteRule(r PolicyRule) error {
	return s.space.tx.change("delete rule "+r.String(),
		func() (bool, error) { return s.space.rt.Routes.DeleteRule(r) },
		func() error { return present(s.space.rt.Routes.AddRule(r)) })
}

// ReservedTable reports whether a routing table has a meaning of its own: unspecified, default, main and local.
func ReservedTable(table int) bool { return netlink.Reserved(table) }

// FreeTables returns the first n routing tables from 100 on that nobody uses: no rule, no route of any type and no VRF.
func (s Routes) FreeTables(n int) ([]int, error) {
	used, err := s.space.rt.Routes.Tables()
	if err != nil {
		return nil, err
	}
	rules, err := s.Rules()
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		used[r.Table] = true
	}
	links, err := s.space.Links.All()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		used[l.VRFTable] = true
	}
	var free []int
	for table := firstTable; len(free) < n; table++ {
		if !used[table] && !ReservedTable(table) {
			free = append(free, table)
		}
	}
	return free, nil
}

// firstTable is where the reference plugins begin, too.
const firstTable = 100
