package portmap_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
)

const somePort = `[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`

// TestRefused: invalid mappings are refused before any change.
func TestRefused(t *testing.T) {
	t.Parallel()
	const nothing = `,"x":0`
	for _, row := range []struct {
		name, members, ports string
		code                 cni.Code
		text                 string
	}{
		{"host port 0", nothing, `[{"hostPort":0,"containerPort":80,"protocol":"tcp"}]`, 7,
			"Invalid host port number: 0"},
		{"container port first", nothing, `[{"hostPort":0,"containerPort":-1,"protocol":"tcp"}]`, 7,
			"Invalid container port number: -1"},
		{"host port too high", nothing, `[{"hostPort":65536,"containerPort":80,"protocol":"tcp"}]`,
			7, "Invalid host port number: 65536"},
		{"container port too high", nothing,
			`[{"hostPort":1,"containerPort":70000,"protocol":"tcp"}]`, 7,
			"Invalid container port number: 70000"},
		{"no protocol", nothing, `[{"hostPort":1,"containerPort":80}]`, 7, `protocol ""`},
		{"unknown protocol", nothing, `[{"hostPort":1,"containerPort":80,"protocol":"icmp"}]`, 7,
			`protocol "icmp"`},
		{"hostIP", nothing,
			`[{"hostPort":1,"containerPort":80,"protocol":"tcp","hostIP":"localhost"}]`, 7,
			`"localhost"`},
		{"hostIP with zone", nothing,
			`[{"hostPort":1,"containerPort":80,"protocol":"tcp","hostIP":"fe80::1%eth0"}]`, 7,
			"fe80::1%eth0"},
		{"range beyond the last port", nothing,
			`[{"hostPort":65530,"containerPort":80,"protocol":"tcp","range":7}]`, 7, "65535"},
		{"negative range", nothing,
			`[{"hostPort":1,"containerPort":80,"protocol":"tcp","range":-1}]`, 7, "range"},
		{"overlap", nothing,
			`[{"hostPort":80,"containerPort":80,"protocol":"tcp","range":9},{"hostPort":85,"containerPort":1,"protocol":"tcp","hostIP":"192.0.2.1"}]`, 7, "exclude each other"},
		{"backend", `,"backend":"ipvs"`, somePort, 7, "unrecognized backend"},
		{"mark bit", `,"markMasqBit":32`, somePort, 7, "MasqMarkBit must be between 0 and 31"},
		{"mark bit and chain", `,"markMasqBit":3,"externalSetMarkChain":"KUBE-MARK-MASQ"`, somePort,
			7, "Cannot specify externalSetMarkChain and markMasqBit"},
		{"iptables chain with nftables",
			`,"backend":"nftables","externalSetMarkChain":"KUBE-MARK-MASQ"`, somePort, 7,
			"nftables backend was requested but configuration contains iptables-specific options [externalSetMarkChain]"},
		{"all iptables keys with nftables",
			`,"backend":"nftables","externalSetMarkChain":"X","conditionsV4":["-s","1.2.3.4"],"conditionsV6":["!","-s","::1"]`, somePort, 7,
			"nftables backend was requested but configuration contains iptables-specific options [externalSetMarkChain conditionsV4 conditionsV6]"},
		{"nftables conditions with iptables",
			`,"backend":"iptables","conditionsV4":["ip","saddr","1.2.3.4"]`, somePort, 7,
			"iptables backend was requested but configuration contains nftables-specific options [conditionsV4]"},
		{"nftables conditions with a chain of iptables",
			`,"externalSetMarkChain":"X","conditionsV6":["ip6","saddr","::1"]`, somePort, 7,
			"iptables backend was requested but configuration contains nftables-specific options [conditionsV6]"},
		{"unknown condition", `,"conditionsV4":["ip","saddr","1.2.3.4","ct","state","new"]`,
			somePort, 2, `conditionsV4: "ct"`},
		{"empty word", `,"backend":"iptables","conditionsV4":["-s",""]`, somePort, 7, "empty word"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, row.members)
			h.attach("c", 0)
			before := testnet.Snapshot(t, h.Spaces())
			if err := h.refused(row.code, "c", row.ports); err == nil ||
				!strings.Contains(err.Error(), row.text) {
				t.Errorf("%v, want %q", err, row.text)
			}
			if diff := testnet.Diff(before, testnet.Snapshot(t, h.Spaces())); diff != "" {
				t.Errorf("changed:\n%s", diff)
			}
			h.del("c", row.ports) // DEL succeeds with the same configuration
		})
	}
}

// TestChained: without a previous result ADD fails.
func TestChained(t *testing.T) {
	t.Parallel()
	h := newHost(t, "")
	if err := h.refused(cni.CodeInvalidConfig, "c", somePort); err == nil ||
		!strings.Contains(err.Error(), "must be called as chained plugin") {
		t.Error(err)
	}
}

// TestSelects: only keys that need iptables select it. Otherwise the default is nftables, unlike
// upstream.
func TestSelects(t *testing.T) {
	t.Parallel()
	for members, want := range map[string]string{
		``:                                              "nftables",
		`,"backend":"nftables"`:                         "nftables",
		`,"backend":"iptables"`:                         "iptables",
		`,"externalSetMarkChain":"MARKS"`:               "iptables",
		`,"markMasqBit":5`:                              "iptables",
		`,"conditionsV4":["!","-s","1.2.3.4"]`:          "iptables",
		`,"conditionsV6":["-s","fd00::/8"]`:             "iptables",
		`,"conditionsV4":["ip","saddr","!=","1.2.3.4"]`: "nftables",
		`,"conditionsV4":[],"conditionsV6":[""]`:        "nftables",
	} {
		t.Run(members, func(t *testing.T) {
			t.Parallel()
			testnet.Require(t, testnet.Tool("iptables-restore"))
			h := newHost(t, members)
			for _, tool := range []string{"iptables", "ip6tables"} {
				h.Host.Command(tool, "-t", "nat", "-N", "MARKS")
			}
			h.attach("c", 0)
			h.add("c", somePort)
			rules := h.Host.Command("nft", "list", "ruleset")
			if strings.Contains(rules, "CNI-DN-") != (want == "iptables") ||
				strings.Contains(rules, "tcp . 8080") != (want == "nftables") {
				t.Errorf("want %s, there is\n%s", want, rules)
			}
			if members == `,"markMasqBit":5` &&
				!strings.Contains(h.Host.Command("iptables-save", "-t", "nat"),
					"--set-xmark 0x20/0x20") {
				t.Error("the mark is not bit 5")
			}
			h.check("c", somePort)
			h.del("c", "")
			if rules := h.Host.Command("nft", "list", "ruleset"); strings.Contains(rules,
				"CNI-DN-") || strings.Contains(rules, "8080") {
				t.Errorf("after DEL:\n%s", rules)
			}
		})
	}
}

// TestAddressChoice: ports lead to the first address of each family of the container's interface.
func TestAddressChoice(t *testing.T) {
	t.Parallel()
	const interfaces = `"interfaces":[{"name":"veth1"},{"name":"eth0","sandbox":"/s"},{"name":"eth1","sandbox":"/s"}]`
	for _, row := range []struct {
		name, prev string
		want       []string
	}{
		{"after one of the host", interfaces + `,"ips":[{"address":"10.0.0.1/24","interface":0},{"address":"2001:db8:1::1/64","interface":0},
			{"address":"10.0.0.2/24","interface":1},{"address":"2001:db8:1::2/64","interface":1},{"address":"10.0.0.3/24","interface":1}]`,
			[]string{"10.0.0.2 . 80", "2001:db8:1::2 . 80"}},
		{"of another interface",
			interfaces +
				`,"ips":[{"address":"10.0.0.4/24","interface":2},{"address":"10.0.0.2/24","interface":1}]`, []string{"10.0.0.2 . 80"}},
		{"without index", interfaces + `,"ips":[{"address":"10.0.0.2/24"}]`,
			[]string{"10.0.0.2 . 80"}},
		{"none", interfaces, nil},
		{"index out of range (RES-10)",
			interfaces + `,"ips":[{"address":"10.0.0.2/24","interface":3}]`,
			[]string{"10.0.0.2 . 80"}},
		{"no sandbox (RES-10)",
			`"interfaces":[{"name":"veth1"},{"name":"eth0"}],"ips":[{"address":"10.0.0.2/24","interface":1}]`, []string{"10.0.0.2 . 80"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "")
			h.prev["c"] = json.RawMessage(`{"cniVersion":"1.1.0",` + row.prev + `}`)
			h.add("c", somePort)
			var got []string
			if h.Host.Try("nft", "list", "table", "inet", "tenon") == nil {
				for line := range strings.Lines(h.Host.Command("nft", "list", "table",
					"inet", "tenon")) {
					if _, to, ok := strings.Cut(line, `" : `); ok {
						got = append(got, strings.Trim(to, " }\n"))
					}
				}
			}
			if strings.Join(got, ",") != strings.Join(row.want, ",") {
				t.Errorf("leads to %q, want %q", got, row.want)
			}
		})
	}
}

// TestOldestVersions: versions 0.1.0 and 0.2.0, which the lists of flannel need, work like later
// ones, and so does a missing version (PL-VRS-04).
func TestOldestVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.1.0", "0.2.0", ""} {
		h := newHost(t, "")
		h.attach("c", 0)
		h.conf["cniVersion"] = version
		const prev = `{"ip4":{"ip":"10.1.0.2/24","gateway":"10.1.0.1","routes":[{"dst":"0.0.0.0/0"}]},"ip6":{"ip":"fd00:1::2/64"},"dns":{"domain":"d"}}`
		h.prev["c"] = json.RawMessage(prev)
		out, err := h.call(cni.Add, "c", h.request("c", somePort))
		must(t, err)
		want := `{"cniVersion":"` + cmp.Or(version, "0.1.0") + `",` + prev[1:]
		if string(out) != want {
			t.Errorf("%q: printed %s, want %s", version, out, want)
		}
		for _, to := range []string{"10.1.0.2 . 80", "fd00:1::2 . 80"} {
			if rules := h.Host.Command("nft", "list", "table", "inet",
				"tenon"); !strings.Contains(rules, to) {
				t.Errorf("%q: nothing leads to %s:\n%s", version, to, rules)
			}
		}
		delete(h.prev, "c") // DEL has no prevResult before 0.4.0
		h.del("c", somePort)
		if rules := h.Host.Command("nft", "list", "table", "inet", "tenon"); strings.Contains(rules,
			"8080") {
			t.Errorf("%q: after DEL:\n%s", version, rules)
		}
	}
}

// TestContainerd: keys and protocols in any case (CONV-10).
func TestContainerd(t *testing.T) {
	t.Parallel()
	h := newHost(t, "")
	h.attach("c", 0)
	h.add("c", `[{"HostPort":8080,"ContainerPort":80,"Protocol":"TCP","HostIP":"192.0.2.1"}]`)
	if out := h.Host.Command("nft", "list", "map", "inet", "tenon",
		"dnatat4"); !strings.Contains(out, "192.0.2.1 . tcp . 8080") {
		t.Error(out)
	}
}

// TestNoPorts: without ports the ruleset does not change, and the result is passed on.
func TestNoPorts(t *testing.T) {
	t.Parallel()
	for _, ports := range []string{"", "[]", "null"} {
		h := newHost(t, "")
		h.attach("c", 0)
		before := h.Host.Command("nft", "list", "ruleset")
		h.add("c", ports)
		h.check("c", ports)
		h.del("c", ports)
		if after := h.Host.Command("nft", "list", "ruleset"); after != before {
			t.Errorf("ports %q: %s", ports, after)
		}
	}
}

// TestStatus: STATUS names the missing requirement.
func TestStatus(t *testing.T) {
	for _, row := range []struct {
		name, members, path string
		code                cni.Code
	}{
		{"nftables needs no tool", "", "/nowhere", 0},
		{"iptables", `,"backend":"iptables"`, "", 0},
		{"iptables without tool", `,"backend":"iptables"`, "/nowhere", cni.CodeNotAvailable},
	} {
		t.Run(row.name, func(t *testing.T) {
			testnet.Require(t, testnet.Tool("iptables-restore"))
			h := newHost(t, row.members)
			h.attach("c", 0)
			if row.path != "" {
				t.Setenv("PATH", row.path)
			}
			_, err := h.call(cni.Status, "", h.conf)
			if cni.CodeOf(err) != row.code {
				t.Errorf("%v, want code %d", err, row.code)
			}
			if e := new(cni.Error); row.code != 0 &&
				(!errors.As(err, &e) || !strings.Contains(e.Details, "install")) {
				t.Errorf("%v has no hint", err)
			}
			_, err = h.call(cni.Add, "c", h.request("c", somePort))
			if (err == nil) != (row.code == 0) {
				t.Errorf("ADD: %v", err)
			}
		})
	}
}
