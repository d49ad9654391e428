package portmap_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// ruleset returns the ruleset of the host.
func (h *host) ruleset() string {
	h.t.Helper()
	return h.Host.Command("nft", "--stateless", "list", "ruleset")
}

// TestDelNeedsNothing: DEL without ports, result, namespace or a valid configuration restores the
// ruleset from before ADD, byte for byte.
func TestDelNeedsNothing(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		for name, change := range map[string]func(conf object){
			"everything": func(object) {},
			"no ports":   func(c object) { delete(c, "runtimeConfig") },
			"no result":  func(c object) { delete(c, "prevResult") },
			"neither":    func(c object) { delete(c, "runtimeConfig"); delete(c, "prevResult") },
			"other ports": func(c object) {
				c["runtimeConfig"] = json.RawMessage(`{"portMappings":[{"hostPort":1,"containerPort":1,"protocol":"udp"}]}`)
			},
			"wrong ports": func(c object) {
				c["runtimeConfig"] = json.RawMessage(`{"portMappings":[{"hostPort":-1,"protocol":7}]}`)
			},
			"wrong backend": func(c object) { c["backend"] = "ipvs" },
			"other backend": func(c object) {
				c["backend"] = map[string]string{
					"nftables": "iptables", "iptables": "nftables",
				}[backend]
			},
			"conditions": func(c object) { c["conditionsV4"] = []string{"what"} },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				h := newHost(t, withBackend(backend))
				h.attach("c", 0)
				h.attach("first", 0)
				ports := `[{"hostPort":80,"containerPort":80,"protocol":"tcp"},{"hostPort":90,"containerPort":91,"protocol":"udp","hostIP":"192.0.2.1"},{"hostPort":1000,"containerPort":1000,"protocol":"tcp","range":9}]`
				h.add("first", ports)
				h.del("first", ports)
				before := h.ruleset()
				h.add("c", ports)
				if h.ruleset() == before {
					t.Fatal("no port is forwarded")
				}
				conf := h.request("c", ports)
				change(conf)
				for range 2 {
					_, err := h.call(cni.Del, "c", conf)
					must(t, err)
					if diff := cmp.Diff(before, h.ruleset()); diff != "" {
						t.Errorf("(-before +after):\n%s", diff)
					}
				}
			})
		}
	})
}

// TestTwoNetworks: DEL of one attachment keeps the mappings of another one of the same container,
// and the conditions of each network apply to that network only.
func TestTwoNetworks(t *testing.T) {
	t.Parallel()
	h := newHost(t, "")
	h.attach("c", 0)
	serve(t, h.Container("c"), "c", "", 80)
	h.lan.Command("ip", "address", "add", "192.0.2.3/24", "dev", "eth0")
	h.Host.Command("sysctl", "-qw", "net.ipv4.conf.uplink.rp_filter=0")
	for i, network := range []string{"one", "two", "open"} {
		h.conf["name"] = network
		h.conf["conditionsV4"] = [][]string{
			{"ip", "saddr", "192.0.2.2"}, {"ip saddr != 192.0.2.2"}, nil,
		}[i]
		h.add("c", both(8001+i, 80, ""))
		h.check("c", both(8001+i, 80, ""))
	}
	table := func(reached [3][2]bool) {
		t.Helper()
		for i, row := range reached {
			for j, from := range []string{"192.0.2.2", "192.0.2.3"} {
				h.lan.Command("ip", "route", "replace", "192.0.2.1", "dev", "eth0", "src", from)
				want := ""
				if row[j] {
					want = "c"
				}
				answers(t, h.lan, fmt.Sprintf("192.0.2.1:%d", 8001+i), want)
			}
		}
	}
	table([3][2]bool{{true, false}, {false, true}, {true, true}})
	answers(t, h.lan, "[2001:db8::1]:8001", "c") // IPv6 has no conditions
	h.conf["name"] = "two"
	h.del("c", "")
	table([3][2]bool{{true, false}, {false, false}, {true, true}})
	h.conf["name"] = "one"
	h.conf["conditionsV4"] = []string{"ip", "saddr", "192.0.2.3"}
	h.drifted("c", both(8001, 80, "")) // CHECK with other conditions
	h.add("c", both(8001, 80, ""))     // ADD replaces them
	table([3][2]bool{{false, true}, {false, false}, {true, true}})
	h.del("c", "")
	if strings.Contains(h.ruleset(), "saddr 192.0.2") {
		t.Errorf("conditions are left:\n%s", h.ruleset())
	}
}

// TestSamePortsInTwoNetworks: Podman requests all ports in each network of a container. The ports
// lead through the first network, and through the other when the first is detached. No other
// container gets them.
func TestSamePortsInTwoNetworks(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		h := newHost(t, withBackend(backend))
		h.attach("c", 0)
		h.attach("d", 0)
		ports := strings.TrimSuffix(both(8080, 80, ""), "]") +
			`,{"hostPort":9000,"containerPort":9000,"protocol":"tcp","range":100}]`
		h.Container("c").
			Batch("address add 10.1.0.99/24 dev eth0", "address add fd00:1::99/64 dev eth0 nodad")
		for _, address := range []string{"10.1.0.2", "10.1.0.99"} {
			serve(t, h.Container("c"), "c", address, 80)
		}
		one := string(h.prev["c"])
		in := func(network string) {
			h.conf["name"] = network
			h.prev["c"] = json.RawMessage(one)
			if network == "two" {
				h.prev["c"] = json.RawMessage(strings.NewReplacer(`"10.1.0.2/`, `"10.1.0.99/`,
					`"fd00:1::2/`, `"fd00:1::99/`).Replace(one))
			}
		}
		in("two")
		h.add("d", ports)
		h.del("d", ports) // leaves the shared objects
		before := h.ruleset()
		var adds sync.WaitGroup
		for _, network := range []string{"one", "two"} {
			in(network)
			conf := h.request("c", ports)
			adds.Go(func() {
				_, err := h.call(cni.Add, "c", conf)
				if err != nil {
					t.Error(err)
				}
			})
		}
		adds.Wait()
		for _, network := range []string{"one", "two", "one"} {
			in(network)
			h.check("c", ports)
			h.add("c", ports) // the other network keeps the port
			h.refused(session.CodeInUse, "d", ports)
		}
		answers(t, h.lan, "192.0.2.1:8080", "c")
		if backend == "nftables" {
			h.conf["name"] = "three"
			h.refused(session.CodeInUse, "c", both(8080, 81, ""))
		}
		in("one")
		h.del("c", ports)
		in("two")
		h.check("c", ports)
		answers(t, h.lan, "192.0.2.1:8080", "c")
		h.add("c", ports)
		h.check("c", ports)
		answers(t, h.lan, "192.0.2.1:8080", "c")
		h.refused(session.CodeInUse, "d", ports)
		h.del("c", ports)
		if diff := cmp.Diff(before, h.ruleset()); diff != "" {
			t.Errorf("left (-before +after):\n%s", diff)
		}
		h.add("d", ports)
	})
}

// TestCheck: CHECK fails before ADD, if snat was enabled after ADD, if any rule is missing, and
// after DEL.
func TestCheck(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		h := newHost(t, withBackend(backend)+`,"snat":false`)
		h.attach("c", 0)
		ports := both(8080, 80, "")
		h.drifted("c", ports)
		h.add("c", ports)
		h.check("c", ports)
		h.drifted("c", both(8081, 80, ""))
		h.drifted("c", both(8080, 81, ""))
		delete(h.conf, "snat")
		h.drifted("c", ports)
		h.add("c", ports)
		h.check("c", ports)
		h.conf["masqAll"] = true
		h.drifted("c", ports)
		h.add("c", ports)
		h.check("c", ports)
		h.Host.Command("nft", "flush", "ruleset")
		h.drifted("c", ports)
		h.add("c", ports)
		h.check("c", ports)
		h.del("c", "")
		h.drifted("c", ports)
	})
}

// TestFlushedBeforeDel: DEL succeeds after a flush of the ruleset.
func TestFlushedBeforeDel(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		h := newHost(t, withBackend(backend))
		h.attach("c", 0)
		h.add("c", both(8080, 80, ""))
		h.Host.Command("nft", "flush", "ruleset")
		h.del("c", "")
	})
}

// TestCollected: GC removes the mappings of attachments that are not valid, in this network only,
// without a process or a list of ports.
func TestCollected(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		h := newHost(t, withBackend(backend))
		for i, c := range []string{"valid", "gone", "other"} {
			h.attach(c, 0)
			h.conf["name"] = []string{"net1", "net1", "net2"}[i]
			h.add(c, both(8001+i, 80, ""))
		}
		h.conf["name"] = "net1"
		conf := h.request("none", "")
		conf["cni.dev/valid-attachments"] = []cni.ValidAttachment{{ContainerID: "valid",
			IfName: "eth0"}}
		_, err := h.call(cni.GC, "", conf)
		must(t, err)
		for port, want := range map[int]bool{8001: true, 8002: false, 8003: true} {
			if got := strings.Contains(h.ruleset(), fmt.Sprint(port)); got != want {
				t.Errorf("port %d is there: %t", port, got)
			}
		}
	})
}

// TestSecondContainer: the error names port, protocol and holder, for each combination of backends.
func TestSecondContainer(t *testing.T) {
	t.Parallel()
	for _, first := range backends {
		for _, second := range backends {
			t.Run(first+" "+second, func(t *testing.T) {
				t.Parallel()
				testnet.Require(t, testnet.Tool("iptables-restore"))
				h := newHost(t, "")
				h.attach("first", 0)
				h.attach("second", 0)
				h.conf["backend"] = first
				h.add("first", both(8080, 80, ""))
				h.conf["name"], h.conf["backend"] = "net2", second
				before := h.ruleset()
				for _, more := range []string{"", `,"hostIP":"192.0.2.1"`, `,"hostIP":"::"`} {
					err := h.refused(session.CodeInUse, "second", both(8080, 80, more))
					for _, word := range []string{"8080", "tcp", "first", "net1"} {
						if err == nil || !strings.Contains(err.Error(), word) {
							t.Errorf("%v does not name %s", err, word)
						}
					}
				}
				if first == "nftables" && second == "nftables" {
					h.refused(session.CodeInUse, "second",
						`[{"hostPort":8000,"containerPort":8000,"protocol":"udp","range":100}]`)
				}
				if diff := cmp.Diff(before, h.ruleset()); diff != "" {
					t.Errorf("refused, but changed:\n%s", diff)
				}
				h.add("second", both(8081, 80, ""))
				h.conf["name"], h.conf["backend"] = "net1", first
				h.del("first", "")
				h.conf["name"], h.conf["backend"] = "net2", second
				h.add("second", both(8080, 80, ""))
			})
		}
	}
}

// TestProcessesAtOnce: if several processes request a port at once, exactly one gets it, and the
// others fail.
func TestProcessesAtOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t, "")
	h.exec = true
	const n = 6
	for i := range n {
		h.attach(fmt.Sprint("c", i), 0)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		conf := h.request(fmt.Sprint("c", i), somePort)
		wg.Go(func() { _, errs[i] = h.call(cni.Add, fmt.Sprint("c", i), conf) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case cni.CodeOf(err) != session.CodeInUse:
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d containers have the port", won)
	}
}

// TestOneMatchEach: only forwarded connections to the container are masqueraded, and no other
// connections in its network.
func TestOneMatchEach(t *testing.T) {
	t.Parallel()
	h := newHost(t, "")
	a := h.attach("a", 0)
	h.attach("b", 0)
	serve(t, h.Container("a"), "a", "", 80)
	h.add("a", both(8080, 80, ""))
	_, client, err := ask(h.Container("b"), "tcp", net.JoinHostPort(a[0].String(), "80"), inTime)
	if err != nil || client.String() == "10.1.0.1" {
		t.Errorf("a direct connection is seen as from %s (%v)", client, err)
	}
}

// TestForeignRulesAndLock: 20 000 rules of other programs, and a process that holds the lock of
// iptables, do not slow the plugin down.
func TestForeignRulesAndLock(t *testing.T) {
	t.Parallel()
	h := newHost(t, "")
	h.attach("c", 0)
	var script strings.Builder
	script.WriteString("add table ip nat\nadd chain ip nat PREROUTING { type nat hook prerouting priority -100; }\nadd chain ip nat KUBE-SERVICES\n")
	for i := range 20000 {
		fmt.Fprintf(&script,
			"add rule ip nat KUBE-SERVICES ip daddr 10.%d.%d.1 tcp dport %d counter accept\n",
			i/250, i%250, 1+i)
	}
	path := t.TempDir() + "/rules"
	must(t, os.WriteFile(path, []byte(script.String()), 0o600))
	h.Host.Command("nft", "-f", path)
	testnet.Require(t, testnet.Tool("strace"))
	for _, verb := range []cni.Command{cni.Add, cni.Check, cni.Del} {
		trace := h.strace(verb, "c", both(8080, 80, ""))
		if n := strings.Count(trace, "execve("); n != 1 {
			t.Errorf("%s starts %d processes", verb, n-1)
		}
		if strings.Contains(trace, "xtables.lock") {
			t.Errorf("%s takes the lock of iptables", verb)
		}
		if n := received(trace); n > 200_000 {
			t.Errorf("%s reads %d bytes from the kernel", verb, n)
		}
	}
}
