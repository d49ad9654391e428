package sbr_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// upstream is the directory of the upstream plugins.
const upstream = "/usr/lib/cni"

// foreign calls the upstream plugin, which requires a version in the previous result.
func (p *pod) foreign(verb cni.Command, addresses ...string) {
	p.t.Helper()
	q := p.call(verb, addresses...)
	q.Conf["cniVersion"] = "1.0.0" // the newest version of Debian's upstream plugins
	if prev, ok := q.Conf["prevResult"].(json.RawMessage); ok {
		q.Conf["prevResult"] = json.RawMessage(strings.Replace(string(prev), "{",
			`{"cniVersion":"1.0.0",`, 1))
	}
	p.Foreign(upstream, q)
}

// TestLikeUpstream: rules and tables equal upstream's, except for the protocol, the link-local
// network, and upstream's useless copies of routes of the other family.
func TestLikeUpstream(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(filepath.Join(upstream, "sbr")))
	// upstream also moves IPv6 routes without an IPv6 address
	const no6 = "-6 address flush dev net1 scope global"
	for _, row := range []struct {
		name                string
		commands, addresses []string
	}{
		{"one address", []string{no6, "route add 10.77.0.0/16 via 192.168.1.254 metric 7"},
			[]string{address4}},
		{"dual stack", []string{"-6 route add fd77::/64 via fd00:7::99"},
			[]string{address4, address6}},
		{"a default route", []string{no6, "route append default via 192.168.1.1 dev net1"},
			[]string{address4}},
		{"two networks", []string{no6, "address add 192.168.101.209/24 dev net1",
			"route add 10.78.0.0/16 via 192.168.101.254"},
			[]string{address4, `{"address":"192.168.101.209/24","gateway":"192.168.101.1"}`}},
		{"two addresses in one network", []string{no6, "address add 192.168.1.210/24 dev net1"},
			[]string{address4, `{"address":"192.168.1.210/24","gateway":"192.168.1.1"}`}},
		{"rules of another program", []string{"rule add from 10.9.9.9 lookup 100",
			"rule add from 10.9.9.8 lookup 102"}, []string{address4, address6}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var seen [2][]string
			for i := range seen {
				p := newPod(t, "", row.commands...)
				if i == 0 {
					p.foreign(cni.Add, row.addresses...)
				} else {
					p.add(row.addresses...)
				}
				seen[i] = p.comparable()
			}
			equal(t, "state", seen[1], seen[0]...)
			if len(seen[0]) < 3 {
				t.Errorf("upstream has created only %q", seen[0])
			}
		})
	}
}

// comparable lists rules and routes without the differences that are intended.
func (p *pod) comparable() []string {
	list := append(p.rules("-4"), p.rules("-6")...)
	for _, table := range []string{"main", "100", "101", "102", "103"} {
		v4, v6 := p.routes("-4", table), p.routes("-6", table)
		if len(v4) > 0 && table != "main" {
			v6 = nil // upstream's copies in the table of an IPv4 address
		}
		for _, r := range append(v4, v6...) {
			list = append(list, "table "+table+": "+r)
		}
	}
	for i := range list {
		list[i] = strings.TrimSpace(strings.ReplaceAll(list[i], " proto 116", ""))
	}
	return slices.DeleteFunc(list, func(line string) bool {
		return strings.Contains(line, "fe80::")
	})
}

// TestTakeover: CHECK accepts the objects of upstream, and each implementation's DEL removes the
// rules of the other.
func TestTakeover(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(filepath.Join(upstream, "sbr")))
	t.Run("from upstream", func(t *testing.T) {
		t.Parallel()
		p := newPod(t, "")
		p.foreign(cni.Add, address4, address6)
		p.Must(p.call(cni.Check, address4, address6))
		p.Must(p.call(cni.Del))
		equal(t, "rules", append(p.rules("-4"), p.rules("-6")...))
	})
	t.Run("to upstream", func(t *testing.T) {
		t.Parallel()
		p := newPod(t, "")
		p.add(address4, address6)
		p.foreign(cni.Del)
		equal(t, "rules", append(p.rules("-4"), p.rules("-6")...))
	})
}
