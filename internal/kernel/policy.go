package kernel

import "github.com/tenon-cni/tenon/internal/netlink"

// PolicyRule selects a routing table for packets with a source address.
type PolicyRule = netlink.PolicyRule

// Protocol marks routes and rules of attachments.
const Protocol = netlink.Protocol

// Rules lists the rules of both families, each in the order of evaluation.
func (s Routes) Rules() ([]PolicyRule, error) { return s.space.rt.Routes.Rules() }

// AddRule adds a rule, which must have a source, with [Protocol]. A rule without a priority becomes
// the first of its family after the rule of table local, even if the same rule exists.
func (s Routes) AddRule(r PolicyRule) error {
	r.Protocol = Protocol
	return s.space.tx.set("rule "+r.String(),
		func() error { return s.space.rt.Routes.AddRule(r) },
		func() error { return errorOf(s.space.rt.Routes.DeleteRule(r)) })
}

// DeleteRule removes a rule that Rules listed and that a [PolicyRule] describes completely. It
// succeeds if the rule does not exist. Rollback adds it again with its priority and protocol.
func (s Routes) DeleteRule(r PolicyRule) error {
	return s.space.tx.change("delete rule "+r.String(),
		func() (bool, error) { return s.space.rt.Routes.DeleteRule(r) },
		func() error { return present(s.space.rt.Routes.AddRule(r)) })
}

// ReservedTable reports whether a routing table has a predefined meaning: unspecified, default,
// main and local.
func ReservedTable(table int) bool { return netlink.Reserved(table) }

// FreeTables returns the first n routing tables from 100 on without rules, routes of any type and
// VRFs.
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

// firstTable is also the first table of the upstream plugins.
const firstTable = 100
