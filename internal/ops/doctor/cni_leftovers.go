package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ops/plural"
	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/internal/session"
)

func leftoverChecks() []Check {
	return []Check{
		{ID: "leftovers.links", Title: "interfaces on the host without an attachment",
			Run: privileged(checkLinks)},
		{
			ID:    "leftovers.rules",
			Title: "rules of Tenon without an attachment",
			Run:   privileged(checkOwnRules),
		},
		{ID: "leftovers.upstream", Title: "rules of upstream's plugins without a container",
			Run: privileged(checkUpstream)},
	}
}

// checkLinks finds links of the host that carry the owner of an attachment that does not exist.
func checkLinks(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.knowsHolders(); err != nil {
		return nil, err
	}
	known, own := s.recorded(), s.Host.Own()
	var proven, unsure []host.Link
	for _, l := range own.Links {
		owner, ours := cni.ParseTag(l.Alias)
		if !ours || known[owner] {
			continue
		}
		switch n, peer := s.Host.Peer(own, &l); {
		case n == own && peer != nil, l.Kind != "veth" && l.LowerNSID == nil:
			proven = append(proven, l)
		case peer == nil:
			unsure = append(unsure, l)
		}
		// Otherwise a container has the peer, and its runtime keeps records elsewhere.
	}
	if len(proven) > 0 {
		fix := Fix{Command: "ip link del " + proven[0].Name + more(len(proven)), Safe: true,
			Effect: "no container has the other end",
			Apply:  func(ctx context.Context) error { return deleteLinks(ctx, proven) }}
		list = append(list, s.linkFinding(proven, Warning, fix))
	}
	if len(unsure) > 0 {
		list = append(list, s.linkFinding(unsure, Info, Fix{Command: "ip link del " + unsure[0].Name +
			more(len(unsure)), Effect: "a process may hold the namespace of the other end open"}))
	}
	return list, nil
}

func (s *State) linkFinding(links []host.Link, severity Severity, fix Fix) Finding {
	var list, objects []string
	for _, l := range links {
		list = append(list, l.Name)
		objects = append(objects, topology.InterfaceID(s.Host.Own().ID, l.Index))
	}
	verb := "belong"
	if len(list) == 1 {
		verb = "belongs"
	}
	return Finding{ID: "leftovers.links", Severity: severity, Objects: objects,
		Title: fmt.Sprintf("%s %s to no attachment: %s", plural.Count(len(list), "interface"), verb,
			names(list)),
		Text: fmt.Sprintf("Tenon made %s for %s, which no runtime has recorded.", list[0],
			session.Holder(links[0].Alias)),
		Evidence: []Evidence{{"ip -d link show " + list[0], "alias " + links[0].Alias}},
		Fix:      []Fix{fix}}
}

// deleteLinks deletes links that still have their name, index and alias.
func deleteLinks(ctx context.Context, links []host.Link) error {
	space, closeSpace, err := kernel.OpenHost(ctx)
	if err != nil {
		return err
	}
	defer closeSpace()
	var errs []error
	for _, l := range links {
		now, err := space.Links.ByIndex(l.Index)
		if err != nil {
			errs = append(errs, kernel.UnlessNoLink(err))
			continue
		}
		if now.Name == l.Name && now.Alias == l.Alias {
			errs = append(errs, space.Links.Delete(now))
		}
	}
	return errors.Join(errs...)
}

// checkOwnRules finds elements of Tenon's rule sets without an owner: no record, no link with the
// alias, and no address in any namespace belongs to it.
func checkOwnRules(_ context.Context, s *State) ([]Finding, error) {
	if err := s.knowsHolders(); err != nil {
		return nil, err
	}
	ruleset := s.Host.Own().Ruleset
	if ruleset == nil {
		return nil, Skip("the rules of the host could not be read")
	}
	known, alive := s.recorded(), s.tags()
	inUse := s.containerAddresses()
	elements, leaked := map[string]int{}, map[string]bool{}
	for _, set := range ruleset.Sets {
		if set.Table.Name != "tenon" {
			continue
		}
		for _, e := range set.Elements {
			owner, ours := cni.ParseTag(e.Comment)
			if !ours || known[owner] || alive[e.Comment] {
				continue
			}
			elements[e.Comment]++
			used := slices.ContainsFunc(inUse, func(a []byte) bool {
				return bytes.Contains(e.Key, a) || bytes.Contains(e.Value, a)
			})
			if earlier, seen := leaked[e.Comment]; !seen {
				leaked[e.Comment] = !used
			} else {
				leaked[e.Comment] = earlier && !used
			}
		}
	}
	return ownerless(elements, leaked), nil
}

func ownerless(elements map[string]int, leaked map[string]bool) []Finding {
	var tags, holders []string
	n := 0
	for tag, yes := range leaked {
		if yes {
			tags, n = append(tags, tag), n+elements[tag]
			holders = append(holders, session.Holder(tag))
		}
	}
	if n == 0 {
		return nil
	}
	slices.Sort(tags)
	verb := "belong"
	if n == 1 {
		verb = "belongs"
	}
	return []Finding{{ID: "leftovers.rules", Severity: Warning,
		Title: fmt.Sprintf(
			"%s of Tenon %s to containers that no longer exist: %s",
			plural.Count(n, "rule"),
			verb,
			names(holders),
		),
		Text: "No runtime has recorded them, and no namespace has their addresses. Published ports " +
			"and addresses stay in use until the rules are removed.",
		Evidence: []Evidence{{"nft list table inet tenon", fmt.Sprintf("comment %q", tags[0])}},
		Fix: []Fix{{Command: "tenon doctor leftovers.rules --fix", Safe: true,
			Effect: "removes these elements of the tables inet tenon and bridge tenon",
			Apply:  func(ctx context.Context) error { return releaseRules(ctx, tags) }}}}}
}

// releaseRules removes the elements of owners.
func releaseRules(ctx context.Context, tags []string) error {
	space, closeSpace, err := kernel.OpenHost(ctx)
	if err != nil {
		return err
	}
	defer closeSpace()
	match := func(tag string) bool { return slices.Contains(tags, tag) }
	return space.Rules.Release(match, kernel.OwnedRuleSets()...)
}

// tags returns the aliases of all links of all namespaces.
func (s *State) tags() map[string]bool {
	tags := map[string]bool{}
	for _, n := range s.Host.Namespaces {
		for _, l := range n.Links {
			tags[l.Alias] = true
		}
	}
	return tags
}

// containerAddresses returns the global addresses of all namespaces except the host's own, encoded.
func (s *State) containerAddresses() (list [][]byte) {
	for _, n := range s.Host.Namespaces[1:] {
		for _, a := range n.Addrs {
			if a.Scope == "global" {
				list = append(list, a.Prefix.Addr().AsSlice())
			}
		}
	}
	return list
}

// leftover is a rule of an upstream plugin that belongs to a container, and where its other rules
// are.
type leftover struct {
	host.FilterRule
	network, container string // "" if the rule does not name it
	chains             []string
}

// upstreamComments match the comments of upstream's rules. The chains of containers are named after
// a hash.
type upstreamComments struct{ masquerade, hostPort, nft *regexp.Regexp }

func newUpstreamComments() upstreamComments {
	return upstreamComments{
		masquerade: regexp.MustCompile(`^name: "([^"]+)" id: "([^"]+)"$`),
		hostPort:   regexp.MustCompile(`^dnat name: "([^"]+)" id: "([^"]+)"$`),
		nft:        regexp.MustCompile(`^[0-9a-f]{16}-[0-9a-f]{16}, net: (.+), if: .+, id: (.+)$`),
	}
}

const (
	hostPortChain = "CNI-HOSTPORT-DNAT"
	masqTable     = "cni_plugins_masquerade"
	hostPortTable = "cni_hostport"
)

// parse returns a rule of a container of upstream's plugins; ok is false for other rules.
func (u upstreamComments) parse(r host.FilterRule) (l leftover, ok bool) {
	l.FilterRule = r
	named := func(pattern *regexp.Regexp) bool {
		m := pattern.FindStringSubmatch(r.Comment)
		if m == nil {
			return false
		}
		l.network, l.container = m[1], m[2]
		return true
	}
	switch {
	case r.Table.Name == "nat" && r.Chain == "POSTROUTING" && strings.HasPrefix(r.Jump, "CNI-"):
		l.chains = []string{r.Jump}
		return l, named(u.masquerade)
	case r.Table.Name == "nat" && r.Chain == hostPortChain && strings.HasPrefix(r.Jump, "CNI-DN-"):
		l.chains = []string{r.Jump}
		return l, named(u.hostPort)
	case r.Table.Name == masqTable && r.Chain == "masq_checks":
		return l, named(u.nft)
	case r.Table.Name == hostPortTable && r.Comment != "":
		l.container = r.Comment
		return l, true
	}
	return l, false
}

// checkUpstream finds rules of upstream's plugins for containers that no longer exist: the container
// has no record, and no namespace has its address.
func checkUpstream(_ context.Context, s *State) ([]Finding, error) {
	if err := s.knowsHolders(); err != nil {
		return nil, err
	}
	own := s.Host.Own()
	targets := map[string][]netip.Addr{} // of the chains of containers
	comments := newUpstreamComments()
	var found []leftover
	for _, r := range own.FilterRules(func(t kernel.Table, chain string) bool {
		return t.Name == "nat" && (chain == "POSTROUTING" || strings.HasPrefix(chain, "CNI-")) ||
			t.Name == masqTable || t.Name == hostPortTable
	}) {
		if l, ok := comments.parse(r); ok {
			found = append(found, l)
		}
		if r.DNAT.IsValid() {
			key := r.Table.Family.String() + r.Chain
			targets[key] = append(targets[key], r.DNAT.Addr())
		}
	}
	live := map[netip.Addr]bool{}
	for _, n := range s.Host.Namespaces[1:] {
		for _, a := range n.Addrs {
			live[a.Prefix.Addr()] = true
		}
	}
	held := s.holders()
	containers := map[string]bool{}
	for key := range held {
		containers[key[1]] = true
	}
	found = slices.DeleteFunc(found, func(l leftover) bool {
		if l.network != "" && held[[3]string{l.network, l.container}] ||
			l.network == "" && containers[l.container] {
			return true
		}
		addrs := []netip.Addr{l.Source, l.Dest, l.DNAT.Addr()}
		for _, chain := range l.chains {
			addrs = append(addrs, targets[l.Table.Family.String()+chain]...)
		}
		return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return live[a] })
	})
	return upstreamFindings(found), nil
}

func upstreamFindings(found []leftover) (list []Finding) {
	var ours, legacy []leftover
	for _, l := range found {
		if l.Legacy {
			legacy = append(legacy, l)
		} else {
			ours = append(ours, l)
		}
	}
	if len(ours) > 0 {
		f := upstreamFinding(ours)
		f.Fix[0].Safe = true
		f.Fix[0].Apply = func(ctx context.Context) error { return prune(ctx, ours) }
		list = append(list, f)
	}
	if len(legacy) > 0 {
		list = append(list, upstreamFinding(legacy))
	}
	return list
}

func upstreamFinding(found []leftover) Finding {
	var ids []string
	for _, l := range found {
		ids = append(ids, l.container)
	}
	verb := "belong"
	if len(found) == 1 {
		verb = "belongs"
	}
	show, remove := found[0].commands()
	return Finding{ID: "leftovers.upstream", Severity: Warning, Owner: "upstream's plugins",
		Title: fmt.Sprintf("%s of upstream's plugins %s to containers that no longer exist: %s",
			plural.Count(len(found), "rule"), verb, names(ids)),
		Text: "No runtime has recorded them, and no namespace has their addresses. The next container " +
			"with such an address inherits the rules.",
		Evidence: []Evidence{{show, fmt.Sprintf("comment %s", strconv.Quote(found[0].Comment))}},
		Fix: []Fix{{Command: remove + more(len(found)),
			Effect: "removes the rules and the chains of these containers"}}}
}

// commands returns the commands that show and remove a rule.
func (l leftover) commands() (show, remove string) {
	program := map[byte]string{byte(kernel.TableIPv4): "iptables", byte(kernel.TableIPv6): "ip6tables"}[byte(l.Table.Family)]
	if l.Table.Name != "nat" || program == "" {
		chain := fmt.Sprintf("%s %s %s", l.Table.Family, l.Table.Name, l.Chain)
		return "nft -a list chain " + chain, fmt.Sprintf(
			"nft delete rule %s handle %d",
			chain,
			l.Handle(),
		)
	}
	if l.Legacy {
		program += "-legacy"
	}
	chain := cmp.Or(strings.Join(l.chains, " "), l.Chain)
	return fmt.Sprintf("%s -t nat -S %s", program, l.Chain),
		fmt.Sprintf(
			"%[1]s -t nat -S %[2]s | grep -- %[3]s | sed 's/^-A/-D/' | xargs -L1 %[1]s -t nat; "+
				"%[1]s -t nat -F %[3]s; %[1]s -t nat -X %[3]s",
			program,
			l.Chain,
			chain,
		)
}

// prune removes rules with the chains of their containers.
func prune(ctx context.Context, found []leftover) error {
	space, closeSpace, err := kernel.OpenHost(ctx)
	if err != nil {
		return err
	}
	defer closeSpace()
	var errs []error
	for _, l := range found {
		errs = append(
			errs,
			space.Rules.Prune(kernel.Pruning{Table: l.Table, Base: l.Chain, Chains: l.chains,
				Match: func(r kernel.Rule) bool {
					return r.Comment == l.Comment && r.Jump == l.Jump && r.Source == l.Source
				}}),
		)
	}
	return errors.Join(errs...)
}
