package bandwidth_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// upstream is the directory of the upstream plugins.
const upstream = "/usr/lib/cni"

// references matches the kernel's reference count of a qdisc, which depends on the kernel version.
var references = regexp.MustCompile(` refcnt \d+`)

// layout returns the qdiscs and filters of the host as tc prints them.
func layout(t *testing.T, r *plugintest.Runtime) string {
	t.Helper()
	lines, err := testnet.Shaping(r.Host)
	if err != nil {
		t.Fatal(err)
	}
	return references.ReplaceAllString(strings.Join(lines, "\n"), "")
}

// TestLayout compares qdiscs and filters with the expected output of tc.
func TestLayout(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,`+both)
	r.Container("cid1")
	r.Host.Command("ip", "link", "set", "veth0", "mtu", "1400")
	result := r.Add("cid1")
	const ifb = "bwpe8f6f419596f" // for ("net1", "cid1")
	if len(result.Interfaces) != 3 || result.Interfaces[2].Name != ifb ||
		result.Interfaces[2].Sandbox != "" {
		t.Fatalf("interfaces %v", result.Interfaces)
	}
	var links []struct {
		Address, IfAlias string
		MTU              int
		Flags            []string
		TxQLen           int `json:"txqlen"`
		Num              int `json:"num_tx_queues"`
	}
	if err := json.Unmarshal([]byte(r.Host.Command("ip", "-j", "-d", "link", "show", "dev", ifb)),
		&links); err != nil {
		t.Fatal(err)
	}
	if l := links[0]; l.Address != result.Interfaces[2].MAC || l.MTU != 1400 ||
		!slices.Contains(l.Flags, "UP") || l.TxQLen != 0 || l.Num != 1 {
		t.Errorf("ifb %+v", l)
	}
	if !strings.HasPrefix(links[0].IfAlias, "tenon:") {
		t.Errorf("ifb has alias %q, want the tag of its owner", links[0].IfAlias)
	}
	want := strings.ReplaceAll(`
filter dev veth0 ingress parent ffff: protocol all pref 65281 u32 chain 0 order 2048 bkt 0 *flowid 1:1 not_in_hw match 00000000/00000000 at 0 action order 1: mirred (Egress Redirect to device IFB) stolen
qdisc ingress ffff: dev veth0 parent ffff:fff1 ----------------
qdisc tbf 1: dev IFB root rate 16Kbit burst 20000b lat 25ms
qdisc tbf 1: dev veth0 root rate 8Kbit burst 10000b lat 25ms`, "IFB", ifb)
	if diff := cmp.Diff(want[1:], layout(t, r)); diff != "" {
		t.Error(diff)
	}
	r.Check("cid1")
}

// TestOneDirection: a limit in one direction leaves the other one alone.
func TestOneDirection(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"ingressRate":8000,"ingressBurst":80000`)
	if result := r.Add("c"); len(result.Interfaces) != 2 {
		t.Errorf("interfaces %v", result.Interfaces)
	}
	if out := layout(t, r); strings.Count(out, "\n") != 0 ||
		!strings.Contains(out, "tbf 1: dev veth0 root") {
		t.Errorf("only ingress: %s", out)
	}
	r.Check("c")
	r.Del("c")
	r = runtime(t, `,"egressRate":8000,"egressBurst":80000`)
	if result := r.Add("c"); len(result.Interfaces) != 3 {
		t.Errorf("interfaces %v", result.Interfaces)
	}
	if out := layout(t, r); strings.Count(out, "\n") != 2 ||
		strings.Contains(out, "tbf 1: dev veth0") {
		t.Errorf("only egress: %s", out)
	}
	r.Check("c")
}

// TestUpdate: a second ADD sets other limits, in any order, and leaves nothing of the former ones.
func TestUpdate(t *testing.T) {
	t.Parallel()
	r := runtime(t, "")
	r.Container("c")
	before := r.State()
	keys := []string{"ingressRate", "ingressBurst", "egressRate", "egressBurst", "shapedSubnets",
		"unshapedSubnets"}
	steps := []map[string]any{
		{"ingressRate": 8000000, "egressRate": 8000000},
		{"ingressRate": 16000000, "ingressBurst": 800000, "egressRate": 4000000},
		{"ingressRate": 16000000, "shapedSubnets": []any{"10.0.0.0/8", "fd00::/8"}},
		{"ingressRate": 16000000, "egressRate": 16000000,
			"unshapedSubnets": []any{"10.0.0.0/8", "fd00::/8"}},
		{"egressRate": 8000000, "shapedSubnets": []any{"10.0.0.0/8"}},
		{"egressRate": 8000000},
		{"ingressRate": 8000000},
		{},
	}
	add := func(step map[string]any) string {
		for _, key := range keys {
			delete(r.Conf, key)
		}
		maps.Copy(r.Conf, step)
		r.Add("c")
		r.Check("c")
		// clsact works as well, and remains
		return strings.NewReplacer("clsact", "ingress", " ----------------", "", " parent ffff: ",
			" ").Replace(layout(t, r))
	}
	var fresh []string
	for _, step := range steps {
		fresh = append(fresh, add(step))
		r.Del("c")
		r.Unchanged(before)
	}
	for _, from := range steps {
		for j, to := range steps {
			add(from)
			if diff := cmp.Diff(fresh[j], add(to)); diff != "" {
				t.Errorf("from %v to %v: %s", from, to, diff)
			}
		}
	}
	r.Del("c")
	r.Unchanged(before)
}

// TestOthers: ADD and DEL keep qdiscs and filters that other programs have created.
func TestOthers(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,`+both)
	r.Container("c")
	for _, qdisc := range [][]string{{"handle", "5:", "pfifo"}, {"handle", "1:", "pfifo"},
		{"handle", "5:", "tbf", "rate", "1mbit", "burst", "10k", "latency", "25ms"}} {
		r.Host.Command("tc", append(strings.Fields("qdisc add dev veth0 root"), qdisc...)...)
		before := r.State()
		if err := r.Refused(r.Request(cni.Add, "c"),
			plugin.CodeInUse); !strings.Contains(err.Error(), qdisc[2]) {
			t.Error(err)
		}
		r.Must(r.Request(cni.Del, "c"))
		r.Unchanged(before)
		r.Host.Command("tc", "qdisc", "delete", "dev", "veth0", "root")
	}
	r.Host.Command("tc", "qdisc", "add", "dev", "veth0", "clsact")
	r.Host.Command("tc", "filter", "add", "dev", "veth0", "ingress", "prio", "7", "protocol", "ip",
		"u32", "match", "ip", "dst", "10.0.0.0/8", "flowid", "2:1")
	before := r.State()
	r.Add("c")
	r.Check("c")
	if out := layout(t, r); strings.Count(out, "filter dev") != 2 {
		t.Error(out)
	}
	r.Del("c")
	r.Unchanged(before)
}

// TestTwoInterfaces: two interfaces of one container on one network have separate limits.
func TestTwoInterfaces(t *testing.T) {
	t.Parallel()
	for _, order := range [][2]string{{"eth0", "eth1"}, {"eth1", "eth0"}} {
		t.Run(order[0]+" first", func(t *testing.T) {
			t.Parallel()
			r := runtime(t, `,`+both)
			r.Container("c").Command("ip", "link", "add", "eth1", "type", "veth", "peer", "name",
				"another", "netns", r.Host.Path())
			r.Host.Command("ip", "link", "set", "another", "up")
			results := map[string]json.RawMessage{}
			ask := func(verb cni.Command, ifName string) plugintest.Request {
				q := r.Request(cni.Add, "c")
				q.Command, q.IfName = verb, ifName
				if prev := previous(t, q); results[ifName] != nil {
					q.Conf["prevResult"] = results[ifName]
				} else if ifName == "eth1" {
					prev.Interfaces = []cni.Interface{{Name: "another"},
						{Name: "eth1", Sandbox: q.Netns}}
					prev.IPs = nil
					q = withPrevious(t, q, prev)
				}
				return q
			}
			var states []string
			for _, ifName := range order {
				states = append(states, r.State())
				results[ifName] = r.Must(ask(cni.Add, ifName))
			}
			if out := layout(t, r); strings.Count(out, "tbf") != 4 ||
				strings.Count(out, "mirred") != 2 {
				t.Error(out)
			}
			for _, ifName := range order {
				r.Must(ask(cni.Check, ifName))
			}
			r.Must(ask(cni.Del, order[1]))
			r.Unchanged(states[1])
			delete(results, order[1])
			results[order[1]] = r.Must(ask(cni.Add, order[1]))

			// finds its own objects and leaves the other interface alone
			del := ask(cni.Del, order[0])
			del.Netns = ""
			delete(del.Conf, "prevResult")
			r.Must(del)
			r.Must(ask(cni.Check, order[1]))
			r.Must(ask(cni.Del, order[0]))
			r.Must(ask(cni.Check, order[1]))
			r.Must(ask(cni.Del, order[1]))
			r.Unchanged(states[0])
		})
	}
}

// TestDel: DEL deletes the ifb without namespace and previous result, and a remaining veth pair
// still carries traffic.
func TestDel(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,`+both)
	r.Container("c")
	before := r.State()
	r.Add("c")
	q := r.Request(cni.Del, "c")
	delete(q.Conf, "prevResult")
	q.Netns = ""
	for key := range q.Conf {
		if strings.HasPrefix(key, "ingress") || strings.HasPrefix(key, "egress") {
			delete(q.Conf, key)
		}
	}
	r.Must(q)
	r.Unchanged(before)
	r.Must(q)
	testnet.Reaches(t, r.Container("c"), r.Add("c").IPs[0].Gateway, true)
}

// TestLikeUpstream: qdiscs, filters and result equal upstream's, except for the priority of filters
// and for upstream's second action, which never runs.
func TestLikeUpstream(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(filepath.Join(upstream, "bandwidth")))
	second := regexp.MustCompile(` action order 2: mirred \(Egress Redirect to device \S+\) pass`)
	pref := regexp.MustCompile(`pref \d+`)
	// Debian's version has no mtu
	random := regexp.MustCompile(`"mac":"[^"]*",("name":"bw)|"mtu":\d+,`)
	for _, members := range []string{
		`,` + both,
		`,"ingressRate":1000000,"ingressBurst":80000`,
		`,"egressRate":10000000000,"egressBurst":8000000000`,
		`,"ingressRate":40000000000,"ingressBurst":8000000000`,
		`,"runtimeConfig":{"bandwidth":{"egressRate":800000000,"egressBurst":80000000}}`,
	} {
		var seen [2]string
		for i := range seen {
			r := runtime(t, members)
			q := r.Request(cni.Add, "cid1")
			var result json.RawMessage
			if i == 0 {
				result = r.Foreign(upstream, q)
			} else {
				result = r.Must(q)
			}
			var canonical map[string]any
			if err := json.Unmarshal(result, &canonical); err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal([]any{canonical["interfaces"], canonical["cniVersion"]})
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(string(b), q.Netns, "NETNS")
			seen[i] = second.ReplaceAllString(pref.ReplaceAllString(layout(t, r), "pref"), "") +
				random.ReplaceAllString(text, "$1")
		}
		if diff := cmp.Diff(seen[0], seen[1]); diff != "" {
			t.Errorf("%s: %s", members, diff)
		}
	}
}

// TestTakeover: Tenon checks, changes and removes limits that upstream has set, and the reverse.
func TestTakeover(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(filepath.Join(upstream, "bandwidth")))
	foreign := func(t *testing.T, withNetns bool) (r *plugintest.Runtime, before string,
		del plugintest.Request) {
		r = runtime(t, `,`+both)
		add := r.Request(cni.Add, "c")
		before = r.State()
		result := r.Foreign(upstream, add)
		check := r.Request(cni.Check, "c")
		check.Conf["prevResult"] = result
		r.Must(check)
		del = r.Request(cni.Del, "c")
		if del.Conf["prevResult"] = result; !withNetns {
			delete(del.Conf, "prevResult")
			del.Netns = ""
		}
		return r, before, del
	}
	for name, withNetns := range map[string]bool{"DEL": true, "DEL without namespace": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, before, del := foreign(t, withNetns)
			r.Must(del)
			r.Unchanged(before)
		})
	}
	t.Run("ADD", func(t *testing.T) {
		t.Parallel()
		r, before, _ := foreign(t, true)
		r.Conf["egressRate"] = 80000
		r.Add("c")
		r.Check("c")
		if out := layout(t, r); strings.Count(out, "tbf") != 2 ||
			strings.Count(out, "Redirect") == 0 || !strings.Contains(out, "80Kbit") {
			t.Error(out)
		}
		r.Del("c")
		r.Unchanged(before)
	})
	t.Run("GC", func(t *testing.T) {
		t.Parallel()
		r, _, _ := foreign(t, true)
		r.Conf["cniVersion"] = "1.1.0"
		limited := layout(t, r)
		r.Must(r.Collect()) // the name does not contain the network, and the ifb is in use
		if diff := cmp.Diff(limited, layout(t, r)); diff != "" {
			t.Errorf("an ifb in use was collected: %s", diff)
		}
		r.Remove("c")
		r.Must(r.Collect("c"))
		if out := layout(t, r); !strings.Contains(out, "bwp") {
			t.Errorf("an ifb of a valid attachment was collected: %s", out)
		}
		r.Must(r.Collect())
		if out := layout(t, r); out != "" {
			t.Error(out)
		}
	})
	t.Run("upstream", func(t *testing.T) {
		t.Parallel()
		r := runtime(t, `,`+both)
		r.Container("c")
		before := r.State()
		r.Add("c")
		check, del := r.Request(cni.Check, "c"), r.Request(cni.Del, "c")
		r.Foreign(upstream, check)
		r.Foreign(upstream, del)
		r.Must(del)
		r.Unchanged(before)
	})
}
