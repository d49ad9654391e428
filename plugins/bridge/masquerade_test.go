package bridge_test

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

const byIPTables = `,"ipMasq":true,"ipMasqBackend":"iptables"`

// saved returns the nat tables of both families as iptables-save prints them.
func saved(r *plugintest.Runtime, kind string) string {
	return testnet.IPTables(r.Host, kind, "nat")
}

// foreign makes rules of other programs in both families.
func foreign(r *plugintest.Runtime) {
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, rule := range []string{
			"-N CNI-of-another-program", "-A CNI-of-another-program -j RETURN", "-A POSTROUTING -j CNI-of-another-program",
			"-A POSTROUTING -o eth9 -j MASQUERADE", "-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE",
		} {
			r.Host.Command(tool, append([]string{"-t", "nat"}, strings.Fields(rule)...)...)
		}
	}
	r.Host.Command("nft", `add table inet other
		add chain inet other postrouting { type nat hook postrouting priority srcnat; }
		add rule inet other postrouting ip saddr 10.0.0.0/8 oifname "eth9" masquerade comment "theirs"`)
}

// TestIPTablesAsTheReference compares the rules with upstream's, byte for byte.
func TestIPTablesAsTheReference(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(filepath.Join(reference, "bridge")))
	for name, ipam := range map[string]string{
		"IPv4": ipam4, "IPv6": ipam6, "dual stack": ipamDual,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := map[string]string{}
			for _, who := range []string{"reference", "tenon"} {
				r := runtime(t, gateway+byIPTables+ipam)
				r.Conf["cniVersion"] = "1.0.0"
				foreign(r)
				// both attachments of a share a chain
				for _, attachment := range []string{"a/eth0", "b/eth0", "a/eth1"} {
					container, ifName, _ := strings.Cut(attachment, "/")
					q := r.Request(cni.Add, container)
					q.IfName = ifName
					// a second attachment cannot have the default route
					delete(q.Conf, "isDefaultGateway")
					q.Conf["isGateway"] = true
					if who == "reference" {
						r.Foreign(reference, q)
					} else {
						r.Must(q)
					}
				}
				rules[who] = saved(r, "")
			}
			if diff := cmp.Diff(rules["reference"], rules["tenon"]); diff != "" {
				t.Errorf("(-reference +tenon):\n%s", diff)
			}
		})
	}
}

// TestMasqueradeTakeover: each implementation checks and removes the rules of the other, in every
// situation.
func TestMasqueradeTakeover(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(filepath.Join(reference, "bridge")))
	remove := map[string]func(*plugintest.Runtime){
		"DEL": func(r *plugintest.Runtime) { r.Must(r.Request(cni.Del, "c")) },
		"DEL without namespace and previous result": func(r *plugintest.Runtime) {
			q := r.Request(cni.Del, "c")
			q.Netns = ""
			r.Must(q)
		},
		"DEL after the namespace is gone": func(r *plugintest.Runtime) {
			q := r.Request(cni.Del, "c")
			r.Remove("c")
			r.Must(q)
		},
		"DEL with the other backend": func(r *plugintest.Runtime) {
			q := r.Request(cni.Del, "c")
			q.Conf["ipMasqBackend"] = "nftables"
			r.Must(q)
		},
		"DEL without masquerading": func(r *plugintest.Runtime) {
			q := r.Request(cni.Del, "c")
			delete(q.Conf, "ipMasq")
			r.Must(q)
		},
		"GC": func(r *plugintest.Runtime) {
			r.Conf["cniVersion"] = "1.1.0"
			r.Must(r.Collect("stays"))
		},
		"DEL by the upstream plugin": func(r *plugintest.Runtime) {
			r.Foreign(reference, r.Request(cni.Del, "c"))
		},
	}
	for _, who := range []string{"reference", "tenon"} {
		for name, remove := range remove {
			t.Run("of "+who+", "+name, func(t *testing.T) {
				t.Parallel()
				r := runtime(t, `,"isGateway":true`+byIPTables+ipamDual)
				r.Conf["cniVersion"] = "1.0.0"
				foreign(r)
				add := func(container string) json.RawMessage {
					if who == "reference" {
						return r.Foreign(reference, r.Request(cni.Add, container))
					}
					return r.Must(r.Request(cni.Add, container))
				}
				add("stays")
				ruleset := func() string {
					return r.Host.Command("nft", "-s", "list", "ruleset", "inet") + saved(r, "")
				}
				before := ruleset()
				q := r.Request(cni.Check, "c")
				q.Conf["prevResult"] = add("c")
				r.Must(q)
				if strings.Count(ruleset(), "CNI-") == strings.Count(before, "CNI-") {
					t.Fatal("no rules were made")
				}
				remove(r)
				if diff := cmp.Diff(before, ruleset()); diff != "" {
					t.Errorf("(-before +after):\n%s", diff)
				}
			})
		}
	}
}

// TestTwoInterfacesShareAChain: DEL of one interface keeps the masquerading of the other, and DEL
// of the last one removes the chain.
func TestTwoInterfacesShareAChain(t *testing.T) {
	t.Parallel()
	for name, del := range map[string]func(q *plugintest.Request, result json.RawMessage){
		"by the interfaces of the container": func(q *plugintest.Request, _ json.RawMessage) {
			delete(q.Conf, "prevResult")
		},
		"after the namespace is gone": func(q *plugintest.Request, result json.RawMessage) {
			q.Netns = ""
			q.Conf["prevResult"] = result
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, byIPTables+ipamDual)
			before := saved(r, "")
			results, jumps := map[string]json.RawMessage{}, map[string][]string{}
			for _, ifName := range []string{"eth0", "eth1"} {
				q := r.Request(cni.Add, "c")
				q.IfName = ifName
				results[ifName] = r.Must(q)
				result, err := cni.DecodeResult(results[ifName], 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, ip := range result.IPs {
					jumps[ifName] = append(jumps[ifName], "-s "+ip.Address.Addr().String()+"/")
				}
			}
			for i, ifName := range []string{"eth0", "eth1"} {
				q := r.Request(cni.Del, "c")
				q.IfName = ifName
				del(&q, results[ifName])
				r.Must(q)
				now := saved(r, "")
				for _, jump := range jumps[ifName] {
					if strings.Contains(now, jump) {
						t.Errorf("DEL of %s left %s", ifName, jump)
					}
				}
				if i == 0 {
					for _, jump := range jumps["eth1"] {
						if !strings.Contains(now, jump) {
							t.Errorf("DEL of eth0 removed %s", jump)
						}
					}
					check := r.Request(cni.Check, "c")
					check.IfName = "eth1"
					check.Conf["prevResult"] = results["eth1"]
					r.Must(check)
				}
			}
			if now := saved(r, ""); strings.Contains(now, "CNI-") {
				t.Errorf("found\n%s\nwant\n%s", now, before)
			}
		})
	}
}

// TestCopiedAddress: a container cannot keep its rules by adding its address to another interface.
func TestCopiedAddress(t *testing.T) {
	t.Parallel()
	r := runtime(t, byIPTables+ipamDual)
	for _, ip := range r.Add("c").IPs {
		r.Container("c").Command("ip", "address", "add", ip.Address.Addr().String(), "dev", "lo")
	}
	r.Del("c")
	if out := saved(r, ""); strings.Contains(out, "CNI-") {
		t.Errorf("left:\n%s", out)
	}
}

// masqChecks is the table of upstream's nftables backend. Debian's version lacks the backend, so
// the test makes the rules.
const masqChecks = `add table inet cni_plugins_masquerade
	add chain inet cni_plugins_masquerade masq_checks
	add chain inet cni_plugins_masquerade postrouting { type nat hook postrouting priority 100; }
	add rule inet cni_plugins_masquerade postrouting ip daddr 224.0.0.0/4 return
	add rule inet cni_plugins_masquerade postrouting goto masq_checks
`

func sha512Hex(s string) string { return fmt.Sprintf("%x", sha512.Sum512([]byte(s))) }

// referenceRules makes upstream's rules for attachments, each given as "NETWORK CONTAINER ADDRESS".
func referenceRules(r *plugintest.Runtime, attachments ...string) {
	var script strings.Builder
	script.WriteString(masqChecks)
	for _, a := range attachments {
		f := strings.Fields(a)
		family := "ip"
		if strings.Contains(f[2], ":") {
			family = "ip6"
		}
		fmt.Fprintf(&script,
			"add rule inet cni_plugins_masquerade masq_checks %s saddr %s masquerade comment \"%s-%s, net: %s, if: eth0, id: %s\"\n",
			family, f[2], sha512Hex(f[0])[:16], sha512Hex("eth0:" + f[1])[:16], f[0], f[1])
	}
	r.Host.Command("nft", script.String())
}

// referenceLeft lists the containers in the remaining rules.
func referenceLeft(r *plugintest.Runtime) []string {
	list := []string{}
	for line := range strings.Lines(r.Host.Command("nft", "list", "chain", "inet",
		"cni_plugins_masquerade", "masq_checks")) {
		if _, after, ok := strings.Cut(line, "net: "); ok {
			after = strings.TrimSuffix(strings.TrimSpace(after), `"`)
			list = append(list, strings.Replace(after, ", if: eth0, id:", "", 1))
		}
	}
	return list
}

// TestReferenceNFT: removal of upstream's nftables rules. TestAddressInTheHandsOfAnother and the
// contract of GC test the removal of Tenon's rules.
func TestReferenceNFT(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		rules  []string
		remove func(*plugintest.Runtime)
		want   []string
	}{
		{"DEL removes the attachment's rules in both families", []string{
			"net c 10.1.2.2", "net c fd00:1::2", "net other 10.1.2.3",
		},
			func(r *plugintest.Runtime) { r.Must(r.Request(cni.Del, "c")) }, []string{"net other"}},
		{"DEL leaves the rule of another container for the same address", []string{
			"net c 10.1.2.2", "net new 10.1.2.2",
		},
			func(r *plugintest.Runtime) { r.Must(r.Request(cni.Del, "c")) }, []string{"net new"}},
		{"GC with attachments that never existed", []string{"net c 10.1.2.2"},
			func(r *plugintest.Runtime) { r.Must(r.Collect("c", "never")) }, []string{"net c"}},
		{"GC of one network keeps another", []string{
			"net c 10.1.2.2", "lan c 10.9.2.2", "net d 10.1.2.3",
		},
			func(r *plugintest.Runtime) { r.Must(r.Collect("d")) }, []string{"lan c", "net d"}},
		{"GC with an empty list removes all rules of the network", []string{
			"net c 10.1.2.2", "net d fd00:1::3", "lan c 10.9.2.2",
		},
			func(r *plugintest.Runtime) { r.Must(r.Collect()) }, []string{"lan c"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, `,"ipMasq":true`+ipamDual)
			referenceRules(r, row.rules...)
			row.remove(r)
			got := referenceLeft(r)
			slices.Sort(got)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("rules left (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCheckAcceptsReferenceNFT: CHECK accepts an attachment that the upstream plugin masquerades.
func TestCheckAcceptsReferenceNFT(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"ipMasq":true`+ipamDual)
	result := r.Add("c")
	for _, set := range []string{"masq4", "nomasq4", "masq6", "nomasq6"} {
		r.Host.Command("nft", "flush", "set", "inet", "tenon", set)
	}
	if _, err := r.Do(t.Context(), r.Request(cni.Check, "c")); err == nil {
		t.Error("CHECK succeeds without masquerading")
	}
	referenceRules(r, "net c "+result.IPs[0].Address.Addr().String(),
		"net c "+result.IPs[1].Address.Addr().String())
	r.Check("c")
}

// TestLegacyIPTables: DEL and GC remove rules in legacy tables if the network masquerades.
func TestLegacyIPTables(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-legacy"))
	chain := "CNI-" + sha512Hex("netc")[:24]
	for name, remove := range map[string]func(*plugintest.Runtime){
		"DEL": func(r *plugintest.Runtime) { r.Must(r.Request(cni.Del, "c")) },
		"GC":  func(r *plugintest.Runtime) { r.Must(r.Collect("other")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, `,"ipMasq":true`+ipam4)
			r.Host.Command("iptables-legacy", "-t", "nat", "-A", "POSTROUTING", "-o", "eth9", "-j",
				"MASQUERADE")
			before := saved(r, "-legacy")
			r.Host.Command("iptables-legacy", "-t", "nat", "-N", chain)
			r.Host.Command("iptables-legacy", "-t", "nat", "-A", chain, "-j", "MASQUERADE")
			r.Host.Command("iptables-legacy", "-t", "nat", "-A", "POSTROUTING", "-s", "10.1.2.2/32",
				"-m", "comment", "--comment", `name: "net" id: "c"`, "-j", chain)
			remove(r)
			if got := saved(r, "-legacy"); got != before {
				t.Errorf("found\n%s\nwant\n%s", got, before)
			}
		})
	}
}

// TestRulesRemovedByOthers: a firewall that restarts removes rules, chains or whole tables. CHECK
// reports it; DEL and GC succeed.
func TestRulesRemovedByOthers(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]string{
		"everything":         "nft flush ruleset",
		"table of nftables":  "nft delete table inet tenon",
		"sets of nftables":   "nft flush set inet tenon masq4",
		"rules of iptables":  "iptables -t nat -F",
		"jumps of iptables":  "iptables -t nat -F POSTROUTING",
		"chains of iptables": "iptables -t nat -F; iptables -t nat -X",
		"rules of nftables":  "nft flush table inet tenon",
		"table of guards":    "nft delete table bridge tenon",
		"rules of guards":    "nft flush table bridge tenon",
	} {
		for backend, members := range map[string]string{
			"nftables": `,"ipMasq":true`, "iptables": byIPTables,
		} {
			if tool, _, _ := strings.Cut(remove, " "); tool == "iptables" && backend != tool ||
				strings.Contains(remove, "inet tenon") && backend != "nftables" {
				continue
			}
			t.Run(name+" with "+backend, func(t *testing.T) {
				t.Parallel()
				r := runtime(t, gateway+guarded+members+ipam4)
				r.Add("c")
				r.Add("other")
				r.Host.Command("sh", "-c", remove)
				if _, err := r.Do(t.Context(), r.Request(cni.Check, "c")); err == nil {
					t.Error("CHECK succeeds")
				}
				r.Del("c")
				r.Del("c")
				r.Must(r.Collect())
				r.Add("c") // ADD makes the rules again
				r.Check("c")
			})
		}
	}
}

// TestNoIPTables: ADD fails before any change if the tool is missing, and DEL does not need it. The
// test changes PATH.
func TestNoIPTables(t *testing.T) {
	r := runtime(t, gateway+byIPTables+ipam4)
	r.Container("c")
	before := r.State()
	status := plugintest.Request{
		Env: cni.Env{Command: cni.Status, Path: r.Request(cni.Add, "c").Path}, Conf: r.Conf,
	}
	r.Must(status)
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	for _, err := range []error{r.Refused(status, cni.CodeNotAvailable),
		r.Refused(r.Request(cni.Add, "c"), cni.CodeUnsupportedField)} {
		plugintest.Says(t, err, "ipMasqBackend: iptables")
		plugintest.Says(t, err, "iptables-restore")
		plugintest.Says(t, err, "install package iptables")
	}
	r.Must(r.Request(cni.Del, "c"))
	t.Setenv("PATH", path)
	r.Unchanged(before)
}
