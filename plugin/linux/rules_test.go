package linux_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/linux"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

const quarantineConf = `{"cniVersion": "1.1.0", "name": "net", "type": "quarantine"}`

// quarantine is a chained plugin with a rule set: containers exchange packets with the host only.
var quarantine = linux.DefineChained(plugin.Info{Name: "quarantine"},
	func() linux.Decorator { return new(quarantineConfig) }, quarantineRules)

var quarantineRules = linux.RuleSet{
	Name: "quarantine", Hook: linux.Forward, Match: linux.Source, Action: linux.Drop,
}

type quarantineConfig struct {
	plugin.Common
	Except string `json:"except"` // an address of a container that is free
	Also   string `json:"also"`   // a further address
	Within string `json:"within"` // the rule set; default: quarantine
}

func (c *quarantineConfig) Rules(s *linux.Session) (list []linux.Rule, err error) {
	name := "quarantine"
	if c.Within != "" {
		name = c.Within
	}
	for _, ip := range s.PrevIPs() {
		if a := ip.Address.Addr(); a.String() != c.Except {
			list = append(list, linux.Rule{RuleSet: name, Address: a})
		}
	}
	if c.Also != "" {
		list = append(list, linux.Rule{RuleSet: name, Address: netip.MustParseAddr(c.Also)})
	}
	return list, nil
}

func (*quarantineConfig) Apply(context.Context, *linux.Session, *cni.Result) error { return nil }
func (*quarantineConfig) Verify(context.Context, *linux.Session) error             { return nil }
func (*quarantineConfig) Remove(context.Context, *linux.Session, linux.Gone) error { return nil }

func quarantineRuntime(t *testing.T) *plugintest.Runtime {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT), testnet.Tool("nft"))
	return plugintest.NewRuntime(t, quarantine, quarantineConf)
}

func TestRuleSetSuite(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT), testnet.Tool("nft"))
	plugintest.Run(t, plugintest.Suite{
		Plugin:   quarantine,
		Examples: []plugin.Example{{Name: "all", Config: quarantineConf}},
		Drifts: []plugintest.Drift{
			{Name: "address gone", Break: func(_ testing.TB, a plugintest.Attached) string {
				address := a.Result.IPs[0].Address.Addr().String()
				a.Host.Command("nft", "delete element inet tenon x-quarantine-4 { "+address+" }")
				return address
			}},
			{Name: "rules flushed", Break: func(_ testing.TB, a plugintest.Attached) string {
				a.Host.Command("nft", "flush chain inet tenon x-quarantine")
				return "x-quarantine-4"
			}},
			{Name: "table gone", Break: func(_ testing.TB, a plugintest.Attached) string {
				a.Host.Command("nft", "delete table inet tenon")
				return a.Result.IPs[0].Address.Addr().String()
			}},
		},
	})
}

// TestRuleSetDrops sends packets between containers: each family of a container in the rule set is
// cut off, until DEL.
func TestRuleSetDrops(t *testing.T) {
	t.Parallel()
	r := quarantineRuntime(t)
	r.Container("a")
	b := r.Container("b")
	r.Conf["except"] = "10.88.0.2"
	result := r.Add("a")
	free, cut := result.IPs[0].Address.Addr(), result.IPs[1].Address.Addr()
	if free.String() != "10.88.0.2" {
		t.Fatalf("addresses %s and %s", free, cut)
	}
	testnet.Reaches(t, b, free, true)
	testnet.Reaches(t, b, cut, false)
	testnet.Reaches(t, r.Host, cut, true)
	r.Del("a")
	testnet.Reaches(t, b, cut, true)
}

// TestRuleSetConflict adds an address that another attachment has. An interface on the host shows
// that its container exists.
func TestRuleSetConflict(t *testing.T) {
	t.Parallel()
	r := quarantineRuntime(t)
	r.Container("a")
	r.Container("b")
	r.Conf["also"] = "10.88.9.9"
	r.Add("a")
	set := r.Host.Command("nft", "list", "set", "inet", "tenon", "x-quarantine-4")
	_, comment, _ := strings.Cut(set, `10.88.9.9 comment "`)
	tag, _, _ := strings.Cut(comment, `"`)
	r.Host.Command("ip", "link", "set", "veth0", "alias", tag)
	before := r.State()
	_, err := r.Do(t.Context(), r.Request(cni.Add, "b"))
	if err == nil {
		t.Fatal("ADD with an address of another container succeeds")
	}
	plugintest.Says(t, err, "address 10.88.9.9 in rule set quarantine is already in use by container a")
	r.Unchanged(before)
	r.Host.Command("ip", "link", "set", "veth0", "alias", "")
	r.Add("b") // nothing answers
	r.Check("b")
	r.Del("a")
	r.Check("b")
}

// TestRuleSetUndeclared adds an address to a rule set that the plugin has not declared.
func TestRuleSetUndeclared(t *testing.T) {
	t.Parallel()
	r := quarantineRuntime(t)
	r.Container("a")
	r.Conf["within"] = "other"
	before := r.State()
	plugintest.Says(t, r.Refused(r.Request(cni.Add, "a"), cni.CodeInternal),
		`"other" is not declared`)
	r.Unchanged(before)
}

func TestRuleSetRefused(t *testing.T) {
	t.Parallel()
	unnamed := quarantineRules
	unnamed.Name = ""
	for name, sets := range map[string][]linux.RuleSet{
		"no name":       {unnamed},
		"no definition": {{Name: "a"}},
		"the same name": {quarantineRules, quarantineRules},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			linux.DefineChained(plugin.Info{Name: "a"}, func() linux.Decorator { return nil },
				sets...)
		}()
	}
}
