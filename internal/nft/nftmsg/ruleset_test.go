package nftmsg_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// TestList lists a ruleset that nft(8) and iptables made, and compares it with their input.
func TestList(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	if r, err := c.List(); err != nil || r.Tables != nil {
		t.Errorf("an empty ruleset: %+v, %v", r, err)
	}
	ns.Command("nft", `add table inet fw
		add chain inet fw base { type filter hook forward priority -5; policy drop; }
		add chain inet fw plain
		add set inet fw nets { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.0.2.7, 224.0.0.0-255.255.255.255 } }
		add map inet fw ports { type ipv4_addr . inet_service : verdict; flags interval; elements = { 10.0.0.1 . 80 : goto plain } }
		add rule inet fw base ip saddr @nets counter accept comment "own networks"
		add rule inet fw base jump plain
		add table ip6 off { flags dormant; }`)
	r, err := c.List()
	must(t, err)
	fw := nftmsg.Table{Family: nftmsg.INet, Name: "fw"}
	want := []nftmsg.TableState{{Table: fw},
		{Table: nftmsg.Table{Family: nftmsg.IPv6, Name: "off"}, Dormant: true}}
	if diff := cmp.Diff(want, r.Tables); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
	chains := []nftmsg.ListedChain{
		{Table: fw, Name: "base", Base: true, Hook: unix.NF_INET_FORWARD, Type: "filter", Priority: -5, Drops: true},
		{Table: fw, Name: "plain"},
	}
	if diff := cmp.Diff(chains, r.Chains); diff != "" {
		t.Errorf("chains (-want +got):\n%s", diff)
	}
	var rules []string
	for _, x := range r.Rules {
		var names []string
		for _, e := range x.Exprs {
			names = append(names, e.Name)
		}
		rules = append(rules, fmt.Sprintf("%s %q %s", x.Chain, x.Comment, strings.Join(names, " ")))
	}
	// in an inet table, nft first compares the protocol of the network layer
	if diff := cmp.Diff([]string{`base "own networks" meta cmp payload lookup counter immediate`,
		`base "" immediate`}, rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	nets, ports := set(r, "nets"), set(r, "ports")
	var ranges []string
	for _, e := range nets.Elements {
		ranges = append(ranges, fmt.Sprint(e.Key, e.KeyEnd))
	}
	slices.Sort(ranges)
	if diff := cmp.Diff([]string{"[10 0 0 0] [10 255 255 255]", "[192 0 2 7] [192 0 2 7]",
		"[224 0 0 0] [255 255 255 255]"}, ranges); diff != "" {
		t.Errorf("intervals (-want +got):\n%s", diff)
	}
	key := []byte{10, 0, 0, 1, 0, 80, 0, 0}
	element := nftmsg.Element{Key: key, KeyEnd: key,
		Verdict: &nftmsg.Verdict{Code: unix.NFT_GOTO, Chain: "plain"}}
	if diff := cmp.Diff([]nftmsg.Element{element}, ports.Elements); diff != "" ||
		!slices.Equal(ports.Fields, []uint32{4, 2}) {
		t.Errorf("verdict map with fields %v (-want +got):\n%s", ports.Fields, diff)
	}
	text, err := json.Marshal(r)
	must(t, err)
	var again *nftmsg.Ruleset
	must(t, json.Unmarshal(text, &again))
	if diff := cmp.Diff(r, again); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func set(r *nftmsg.Ruleset, name string) nftmsg.ListedSet {
	i := slices.IndexFunc(r.Sets, func(s nftmsg.ListedSet) bool { return s.Name == name })
	return r.Sets[i]
}

// TestListWhileChanging lists a ruleset that transactions change all the time: each answer is from
// one generation.
func TestListWhileChanging(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	ns.Command("nft", "add table inet a; add chain inet a both; add table inet b; add chain inet b both")
	other := open(t, ns)
	done := make(chan error)
	go func() {
		var err error
		for range 500 {
			var tx nftmsg.Transaction
			for _, name := range []string{"a", "b"} {
				chain := nftmsg.Chain{Table: nftmsg.Table{Family: nftmsg.INet, Name: name}, Name: "both"}
				tx.AddRule(chain, []nftmsg.Expr{nftmsg.Verdict{Code: nftmsg.Accept}})
			}
			if err = other.Commit(&tx); err != nil {
				break
			}
		}
		done <- err
	}()
	lists := 0
	for {
		select {
		case failed := <-done:
			must(t, failed)
			if lists == 0 {
				t.Error("no list was complete")
			}
			return
		default:
		}
		r, err := c.List()
		if err != nil {
			continue // it changes too often
		}
		lists++
		if len(r.Rules)%2 != 0 {
			t.Fatalf("%d rules: half of a transaction", len(r.Rules))
		}
	}
}
