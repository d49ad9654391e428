package portmap_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/internal/testnet"
)

const reference = "/usr/lib/cni/portmap"

// reference calls the upstream plugin.
func (h *host) reference(verb cni.Command, container, ports string) {
	h.t.Helper()
	testnet.Require(h.t, testnet.Tool(reference), testnet.Tool("iptables"))
	conf := h.request(container, ports)
	conf["cniVersion"] = "1.0.0"
	var prev object
	must(h.t, json.Unmarshal(h.prev[container], &prev))
	prev["cniVersion"] = "1.0.0"
	conf["prevResult"] = prev
	stdin, err := json.Marshal(conf)
	must(h.t, err)
	h.Host.Do(func() {
		cmd := exec.Command(reference)
		cmd.Stdin = bytes.NewReader(stdin)
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+string(verb), "CNI_CONTAINERID="+container,
			"CNI_NETNS="+h.Container(container).Path(), "CNI_IFNAME=eth0", "CNI_PATH=/usr/lib/cni")
		var out []byte
		if out, err = cmd.Output(); err != nil {
			h.t.Errorf("%s", out)
		}
	})
	must(h.t, err)
}

// TestTakesOverIPTables: mappings of the upstream plugin stay until DEL or GC removes them. Until
// then CHECK accepts them, and no other container gets the port.
func TestTakesOverIPTables(t *testing.T) {
	t.Parallel()
	ports := both(8080, 80, "")
	h := newHost(t, "")
	h.attach("c", 0)
	h.attach("d", 0)
	serve(t, h.Container("c"), "c", "", 80)
	h.reference(cni.Add, "d", ports)
	h.reference(cni.Del, "d", ports)
	empty := h.ruleset()
	h.reference(cni.Add, "c", ports)
	answers(t, h.lan, "192.0.2.1:8080", "c")
	if err := h.refused(session.CodeInUse, "d", ports); err == nil ||
		!strings.Contains(err.Error(), `id: "c"`) {
		t.Errorf("%v does not name the container", err)
	}
	h.check("c", ports)
	h.drifted("c", both(8080, 81, ""))
	h.drifted("d", ports)
	held := h.ruleset()
	h.conf["name"] = "other"
	h.del("c", ports)
	if diff := cmp.Diff(held, h.ruleset()); diff != "" {
		t.Errorf("DEL of another network (-before +after):\n%s", diff)
	}
	h.conf["name"] = "net1"
	ops := h.strace(cni.Del, "c", "")
	if n := strings.Count(ops, "execve("); n != 1 {
		t.Errorf("DEL starts %d processes", n-1)
	}
	if diff := cmp.Diff(stripped(empty), stripped(h.ruleset())); diff != "" {
		t.Errorf("after DEL (-before +after):\n%s", diff)
	}
	h.reference(cni.Add, "c", ports)
	conf := h.request("none", "")
	conf["cni.dev/valid-attachments"] = []cni.ValidAttachment{}
	_, err := h.call(cni.GC, "", conf)
	must(t, err)
	if diff := cmp.Diff(stripped(empty), stripped(h.ruleset())); diff != "" {
		t.Errorf("after GC (-before +after):\n%s", diff)
	}
	h.add("d", ports)
}

// stripped returns a ruleset without Tenon's table, because its skeleton stays.
func stripped(ruleset string) string {
	before, rest, ok := strings.Cut(ruleset, "table inet tenon {\n")
	if !ok {
		return ruleset
	}
	_, after, _ := strings.Cut(rest, "\n}\n")
	return strings.TrimSpace(before + after)
}

// theirs is the ruleset that newer versions of the upstream plugin make with nftables.
const theirs = `table ip cni_hostport {
	chain hostports {
		tcp dport 8080 dnat to 10.1.0.2:80 comment "c"
		ip daddr 192.0.2.1 udp dport 8053 dnat to 10.1.0.2:53 comment "c"
		tcp dport 9090 dnat to 10.9.9.9:80 comment "c"
		tcp dport 7070 dnat to 10.1.0.9:80 comment "elsewhere"
	}
	chain hostip_hostports { }
	chain hostports_all { jump hostip_hostports; jump hostports; }
	chain prerouting { type nat hook prerouting priority dstnat; fib daddr type local jump hostports_all; }
	chain output { type nat hook output priority -100; fib daddr type local jump hostports_all; }
	chain masquerading {
		type nat hook postrouting priority srcnat;
		ip saddr 10.1.0.2 ip daddr 10.1.0.2 masquerade comment "c"
		ip saddr 127.0.0.1 ip daddr 10.1.0.2 masquerade comment "c"
		ip saddr 127.0.0.1 ip daddr 10.9.9.9 masquerade comment "c"
	}
}
table ip6 cni_hostport {
	chain hostports {
		tcp dport 8080 dnat to [fd00:1::2]:80 comment "c"
	}
}`

// TestTakesOverNFTables: DEL removes the rules for the addresses of the attachment, because the
// container can have others in another network. Without a result it removes all rules with the
// container's name.
func TestTakesOverNFTables(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		result bool
		left   int // remaining rules of the container
	}{{"with result", true, 2}, {"without", false, 0}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "")
			if addrs := h.attach("c", 0); addrs[0].String() != "10.1.0.2" ||
				addrs[1].String() != "fd00:1::2" {
				t.Fatal(addrs)
			}
			h.attach("d", 0)
			h.Host.Command("nft", theirs)
			for _, ports := range []string{
				somePort, `[{"hostPort":8053,"containerPort":1,"protocol":"udp"}]`, `[{"hostPort":9000,"containerPort":9000,"protocol":"tcp","range":100}]`,
				`[{"hostPort":8080,"containerPort":80,"protocol":"tcp","hostIP":"2001:db8::1"}]`,
			} {
				h.refused(session.CodeInUse, "d", ports)
			}
			h.add("d",
				`[{"hostPort":8053,"containerPort":1,"protocol":"udp","hostIP":"192.0.2.99"}]`)
			before := h.ruleset()
			conf := h.request("c", "")
			if !row.result {
				delete(conf, "prevResult")
			}
			_, err := h.call(cni.Del, "c", conf)
			must(t, err)
			after := h.ruleset()
			if n := strings.Count(after, `comment "c"`); n != row.left {
				t.Errorf("%d rules left, want %d:\n%s", n, row.left, cmp.Diff(before, after))
			}
			if !strings.Contains(after, `comment "elsewhere"`) ||
				!strings.Contains(after, "192.0.2.99") {
				t.Errorf("other containers lost their rules:\n%s", cmp.Diff(before, after))
			}
			h.add("d", somePort)
		})
	}
}

// TestOwnLeftovers: rules that the upstream plugin made for the same container do not conflict with
// ADD.
func TestOwnLeftovers(t *testing.T) {
	t.Parallel()
	h := newHost(t, "")
	h.attach("c", 0)
	h.Host.Command("nft", theirs)
	h.add("c", somePort)
	h.reference(cni.Add, "c", somePort)
	h.add("c", somePort)
}
