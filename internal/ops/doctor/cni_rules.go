package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/plural"
	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/internal/repair"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/plugins/all"
)

// BrokenRules are missing rules of a plugin of an attachment.
type BrokenRules struct {
	cni.Attachment
	Plugin  string   `json:"plugin"`
	Missing []string `json:"missing"`
}

// readRules compares the rules of attachments in use with the rule sets of the host. It takes no
// locks of networks, unlike repair, and changes nothing. A comparison enters the namespace of a
// container, which is too slow for hundreds of them. Attachments with the same configuration and
// the same number of rules in each chain and set are therefore complete, or lack the same rules:
// readRules compares the first of them, and the others only if rules are missing.
func (s *State) readRules(ctx context.Context) (list []BrokenRules, err error) {
	c := s.Options.Client
	if c == nil {
		return nil, errors.New("no plugins to ask")
	}
	classes := map[string][]int{}
	counts := s.rulesByOwner()
	var order []string
	for i, a := range s.CNI.Attachments {
		if a.State != inspect.OK || s.Options.Records[i].List == nil {
			continue
		}
		key := shape(s.Options.Records[i], counts)
		if classes[key] == nil {
			order = append(order, key)
		}
		classes[key] = append(classes[key], i)
	}
	var first, rest []int
	for _, key := range order {
		first = append(first, classes[key][0])
	}
	if list, err = s.compare(ctx, first); len(list) == 0 || err != nil {
		return list, err
	}
	broken := map[cni.Attachment][]BrokenRules{}
	for _, b := range list {
		broken[b.Attachment] = append(broken[b.Attachment], b)
	}
	for _, key := range order {
		class := classes[key]
		like := broken[s.CNI.Attachments[class[0]].Attachment]
		if like == nil {
			continue
		}
		detailed := min(len(class), inDetail)
		rest = append(rest, class[1:detailed]...)
		for _, i := range class[detailed:] {
			for _, b := range like {
				list = append(list, BrokenRules{s.CNI.Attachments[i].Attachment, b.Plugin,
					[]string{"as " + b.Container}})
			}
		}
	}
	more, err := s.compare(ctx, rest)
	return append(list, more...), err
}

// inDetail limits the attachments of a class for which doctor lists the missing rules.
const inDetail = 8

// rulesByOwner counts the rules of containers by place. It returns the elements of Tenon by tag and
// set, and the rules of iptables by container ID and chain.
func (s *State) rulesByOwner() map[string]map[string]int {
	counts := map[string]map[string]int{}
	add := func(owner, place string) {
		if counts[owner] == nil {
			counts[owner] = map[string]int{}
		}
		counts[owner][place]++
	}
	own := s.Host.Own()
	if own.Ruleset == nil {
		return counts
	}
	for _, set := range own.Ruleset.Sets {
		if set.Table.Name != "tenon" {
			continue
		}
		for _, e := range set.Elements {
			add(e.Comment, set.Name)
		}
	}
	for _, r := range own.FilterRules(func(t kernel.Table, _ string) bool { return t.Name != "tenon" }) {
		if _, id, ok := strings.Cut(r.Comment, `id: "`); ok {
			add(strings.TrimSuffix(id, `"`), r.Table.Name+r.Chain)
		}
	}
	return counts
}

// shape describes the rules that an attachment needs and the ones that it has.
func shape(r network.Record, counts map[string]map[string]int) string {
	var b strings.Builder
	conf, _ := r.List.MarshalJSON() // the records of lists that cannot be encoded have no calls
	b.Write(conf)
	for _, name := range slices.Sorted(maps.Keys(r.Capabilities)) {
		var entries []json.RawMessage
		_ = json.Unmarshal(r.Capabilities[name], &entries) // not all are lists
		fmt.Fprintf(&b, " %s %d", name, len(entries))
	}
	if r.Result != nil {
		for _, ip := range r.Result.IPs {
			fmt.Fprintf(&b, " %d", ip.Address.Addr().BitLen())
		}
	}
	for _, owner := range []string{r.Attachment.Tag(), r.Attachment.Container} {
		for _, place := range slices.Sorted(maps.Keys(counts[owner])) {
			fmt.Fprintf(&b, " %s %d", place, counts[owner][place])
		}
	}
	return b.String()
}

// compare asks the plugins of attachments for their missing rules.
func (s *State) compare(ctx context.Context, attachments []int) (list []BrokenRules, err error) {
	c := s.Options.Client
	var calls []invoke.Call
	for _, i := range attachments {
		calls = append(calls, checkCalls(c, s.Options.Records[i])...)
	}
	outcomes, err := repair.Missing(ctx, all.Described(), calls, c.Caller)
	for i, o := range outcomes {
		if len(o.Restored) == 0 || o.Err != nil {
			continue
		}
		name, _, _ := cni.DecodeHeader(calls[i].Stdin)
		b := BrokenRules{calls[i].Env.Attachment(name), filepath.Base(calls[i].Path), nil}
		for _, missing := range o.Restored {
			line, _, _ := strings.Cut(missing, "\n") // of what a tool printed
			b.Missing = append(b.Missing, line)
		}
		list = append(list, b)
	}
	return list, err
}

// checkCalls returns the CHECK calls of an attachment, none for versions that lack CHECK.
func checkCalls(c *network.Client, r network.Record) (calls []invoke.Call) {
	if r.List == nil || r.Result == nil {
		return nil
	}
	env := cni.Env{Command: cni.Check, ContainerID: r.Attachment.Container, Netns: r.Netns,
		IfName: r.Attachment.IfName, Args: r.Args.String(),
		Path: strings.Join(c.PluginDirs, cni.PathSeparator())}
	if r.HostNetns {
		env.NetnsOverride = "1"
	}
	for i, p := range r.List.Plugins {
		path, err := invoke.Lookup(c.Caller, c.PluginDirs, p.Type)
		if err != nil {
			continue // reported as missing
		}
		stdin, err := r.List.Request(cni.Check, i,
			cni.RequestData{Capabilities: r.Capabilities, PrevResult: r.Result})
		if err == nil {
			calls = append(calls,
				invoke.Call{Path: path, Env: env, Stdin: stdin, Journaled: true})
		}
	}
	return calls
}

// longText limits the attachments that a text lists.
const longText = 4

// checkRules finds what repair would restore.
func checkRules(_ context.Context, s *State) ([]Finding, error) {
	if err := s.needs(partRules); err != nil {
		return nil, err
	}
	if len(s.CNI.Broken) == 0 {
		return nil, nil
	}
	var text, hit, networks, objects []string
	for _, b := range s.CNI.Broken {
		if len(text) < longText {
			text = append(text, fmt.Sprintf("%s: %s", b.Container, names(b.Missing)))
		}
		hit = append(hit, b.Container)
		objects = append(objects, topology.AttachmentID(b.Attachment))
		if !slices.Contains(networks, b.Network) {
			networks = append(networks, b.Network)
		}
	}
	slices.Sort(hit)
	hit = slices.Compact(hit)
	fix := Fix{Command: "tenon repair " + strings.Join(networks, " "), Safe: true,
		Effect: "adds the missing rules and changes no others"}
	if c := s.Options.Client; c != nil {
		fix.Apply = func(ctx context.Context) error { return restore(ctx, c, networks) }
	}
	return []Finding{{ID: "attachments.rules-missing", Severity: Error, Affects: hit,
		Objects: objects,
		Title: fmt.Sprintf("%s of %s are missing: another program has removed them or changed the firewall",
			kindsOf(s.CNI.Broken), names(hit)),
		Text: fmt.Sprintf(
			"Of %s: %s.",
			plural.Count(len(hit), "attachment"),
			strings.Join(text, "; "),
		),
		Evidence: []Evidence{{"nft list table inet tenon", ""}},
		Fix:      []Fix{fix}}}, nil
}

// kindsOf lists the functions of missing rules.
func kindsOf(list []BrokenRules) string {
	purposes := map[string]string{
		"bridge": "masquerade rules", "ptp": "masquerade rules", "portmap": "port maps",
		"firewall": "rules of the firewall plugin",
	}
	var kinds []string
	for _, b := range list {
		kind := purposes[b.Plugin]
		if kind == "" {
			kind = "rules of " + b.Plugin
		}
		kinds = append(kinds, kind)
	}
	return names(kinds)
}

func restore(ctx context.Context, c *network.Client, networks []string) error {
	_, err := c.Repair(ctx, networks, all.Repair)
	return err
}
