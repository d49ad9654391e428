package portmap_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/repair"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/portmap"
)

// backendOf returns the backend that has rules for a container.
func (h *host) backendOf(container string) string {
	h.t.Helper()
	var in []string
	for _, kind := range []string{"-nft", "-legacy"} {
		if strings.Contains(testnet.IPTables(h.Host, kind, "nat"), `id: \"`+container+`\"`) {
			in = append(in, "iptables")
		}
	}
	if strings.Contains(h.Host.Command("nft", "list", "ruleset"), "net1 eth0 "+container+`" : `) {
		in = append(in, "nftables")
	}
	return strings.Join(in, " and ")
}

func (h *host) forwardsBy(container, want string) {
	h.t.Helper()
	if got := h.backendOf(container); got != want {
		h.t.Errorf("%s forwards to %s, want %s", got, container, want)
	}
}

// iptables changes the nat table as an operator does.
func (h *host) iptables(rule string) {
	h.t.Helper()
	h.Host.Command("iptables", append([]string{"-t", "nat"}, strings.Fields(rule)...)...)
}

// TestAccessRule: an operator's rule that keeps a client off the forwarded port still does, and
// other clients reach the container.
func TestAccessRule(t *testing.T) {
	run := func(t *testing.T) {
		h := newHost(t, "")
		h.attach("c", 0)
		h.attach("sibling", 0)
		serve(t, h.Container("c"), "c", "", 80)
		for _, protocol := range []string{"tcp", "udp"} {
			h.iptables("-I PREROUTING -s 192.0.2.2 -p " + protocol + " --dport 8080 -j ACCEPT")
		}
		h.add("c", both(8080, 80, ""))
		h.forwardsBy("c", "iptables")
		answers(t, h.lan, "192.0.2.1:8080", "")
		answers(t, h.Container("sibling"), "192.0.2.1:8080", "c")
		answers(t, h.Host, "127.0.0.1:8080", "c")
		h.check("c", both(8080, 80, ""))
		h.del("c", both(8080, 80, ""))
		h.forwardsBy("c", "")
	}
	forVariants(t, run)
}

// forVariants runs a test with the legacy and the nftables variant of iptables.
func forVariants(t *testing.T, run func(*testing.T)) {
	t.Helper()
	t.Run("legacy", func(t *testing.T) { // first, because it changes PATH
		testnet.LegacyIPTables(t)
		run(t)
	})
	t.Run("nft", func(t *testing.T) {
		t.Parallel()
		testnet.Require(t, testnet.Tool("iptables-restore"))
		run(t)
	})
}

// TestMixedVariants: if iptables is of the nftables variant and the access rule is in a legacy
// table, the port rules are in the legacy table, too, or a warning names the rule.
func TestMixedVariants(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-legacy-restore"),
		testnet.Tool("iptables-nft-restore"))
	// IPv4 with the legacy variant, IPv6 with the default one
	const both4And6 = "iptables and iptables"
	newer := map[string]string{} // PATH without and with the legacy tools
	for name, kinds := range map[string][]string{"without": {""}, "with": {"", "-legacy"}} {
		dir := t.TempDir()
		for _, kind := range kinds {
			for _, tool := range []string{
				"iptables%s-restore", "iptables%s-save", "ip6tables%s-restore", "ip6tables%s-save",
			} {
				path, err := exec.LookPath(fmt.Sprintf(tool, cmp.Or(kind, "-nft")))
				must(t, err)
				// the program evaluates its own name
				script := "#!/bin/sh\nexec " + path + " \"$@\"\n"
				must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf(tool, kind)), []byte(script),
					0o700))
			}
		}
		newer[name] = "PATH=" + dir
	}
	for _, name := range []string{"with", "without"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "")
			h.attach("c", 0)
			h.attach("sibling", 0)
			serve(t, h.Container("c"), "c", "", 80)
			for _, protocol := range []string{"tcp", "udp"} {
				h.Host.Command("iptables-legacy",
					strings.Fields("-t nat -I PREROUTING -s 192.0.2.2 -p "+protocol+" --dport 8080 -j ACCEPT")...)
			}
			call := func(verb cni.Command) (log string, err error) {
				stdin, err := json.Marshal(h.request("c", both(8080, 80, "")))
				must(t, err)
				cmd := exec.Command(filepath.Join(h.bin, "portmap"))
				cmd.Stdin = bytes.NewReader(stdin)
				cmd.Env = append(os.Environ(), "CNI_COMMAND="+string(verb), "CNI_CONTAINERID=c",
					"CNI_NETNS="+h.Container("c").Path(), "CNI_IFNAME=eth0", "CNI_PATH="+h.bin,
					newer[name])
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				err = h.Host.Run(cmd.Run)
				return stderr.String(), err
			}
			log, err := call(cni.Add)
			must(t, err)
			if name == "without" {
				h.forwardsBy("c", "nftables")
				const rule = "rule 1 of chain PREROUTING in table ip nat (legacy): -s 192.0.2.2/32"
				if !strings.Contains(log, "has no effect") || !strings.Contains(log, rule) {
					t.Errorf("no warning about the rule: %s", log)
				}
				return
			}
			if !strings.Contains(testnet.IPTables(h.Host, "-legacy", "nat"), `id: \"c\"`) {
				t.Error("the legacy table has no rules for the ports")
			}
			h.forwardsBy("c", both4And6)
			answers(t, h.lan, "192.0.2.1:8080", "")
			answers(t, h.Container("sibling"), "192.0.2.1:8080", "c")
			_, err = call(cni.Check)
			must(t, err)
			h.Host.Command("iptables-legacy", "-t", "nat", "-F", "CNI-HOSTPORT-DNAT")
			if _, err := call(cni.Check); err == nil {
				t.Error("CHECK succeeds")
			}
			h.repair("c", both(8080, 80, "")) // with the tools of the host
			h.forwardsBy("c", both4And6)
			_, err = call(cni.Check)
			must(t, err)
			_, err = call(cni.Del)
			must(t, err)
			h.forwardsBy("c", "")
		})
	}
}

// TestOtherRules: an operator's rules about other ports, and rules of other software, do not affect
// the choice.
func TestOtherRules(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-restore"))
	h := newHost(t, "")
	h.attach("c", 0)
	h.iptables("-A PREROUTING -p tcp --dport 8081 -j ACCEPT")
	h.iptables("-A POSTROUTING -s 10.1.0.0/24 -d 192.0.2.0/24 -j ACCEPT")
	h.iptables("-N DOCKER")
	h.iptables("-A DOCKER -p tcp --dport 8080 -j DNAT --to-destination 172.17.0.2")
	h.iptables("-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER")
	h.add("c", somePort)
	h.forwardsBy("c", "nftables")
}

// TestMoved: an attachment stays valid with the backend of its ADD, even if a later choice differs.
// Another ADD moves it in both directions, and DEL and GC find it with either backend.
func TestMoved(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-restore"))
	for _, snat := range []string{"", `,"snat":false`} {
		h := newHost(t, snat)
		h.attach("c", 0)
		serve(t, h.Container("c"), "c", "", 80)
		ports := both(8080, 80, "")
		h.add("c", ports)
		h.forwardsBy("c", "nftables")
		exemption := "PREROUTING -s 192.0.2.77 -j ACCEPT"
		h.iptables("-I " + exemption)
		h.check("c", ports)
		h.add("c", ports)
		h.forwardsBy("c", "iptables")
		answers(t, h.lan, "192.0.2.1:8080", "c")
		h.iptables("-D " + exemption)
		h.check("c", ports)
		h.add("c", ports)
		h.forwardsBy("c", "nftables")
		answers(t, h.lan, "192.0.2.1:8080", "c")
		h.check("c", ports)

		h.iptables("-I " + exemption)
		h.add("c", ports)
		h.iptables("-D " + exemption)
		conf := h.request("none", "")
		conf["cni.dev/valid-attachments"] = []cni.ValidAttachment{}
		_, err := h.call(cni.GC, "", conf)
		must(t, err)
		h.forwardsBy("c", "")
	}
}

// repair repairs an attachment, and returns the changes.
func (h *host) repair(container, ports string) (ops []string) {
	h.t.Helper()
	stdin, err := json.Marshal(h.request(container, ports))
	must(h.t, err)
	env := cni.Env{
		ContainerID: container, Netns: h.Container(container).
				Path(), IfName: "eth0", Path: h.bin, Args: h.args,
	}
	watched := portmap.Plugin.Watched(func(op string) error {
		ops = append(ops, op)
		return nil
	})
	calls := []invoke.Call{{Path: "/nowhere/portmap", Env: env, Stdin: stdin}}
	must(h.t, h.Host.Run(func() error {
		outcomes, err := repair.Run(h.t.Context(), []plugin.Definition{watched}, calls)
		return errors.Join(err, outcomes[0].Err)
	}))
	return ops
}

// converse connects to an address, where serveEcho answers, and returns a function that fails the
// test unless the connection still works.
func converse(t testing.TB, from *testnet.Namespace, address string) func() {
	t.Helper()
	var conn net.Conn
	must(t, from.Run(func() (err error) {
		conn, err = net.DialTimeout("tcp", address, inTime)
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	return func() {
		t.Helper()
		buf := make([]byte, 5)
		_, err := conn.Write([]byte("hello"))
		must(t, errors.Join(err, conn.SetReadDeadline(time.Now().Add(inTime))))
		if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "hello" {
			t.Errorf("established connection: got %q (%v)", buf, err)
		}
	}
}

// serveEcho echoes on a TCP port of a namespace.
func serveEcho(t testing.TB, ns *testnet.Namespace, number int) {
	t.Helper()
	var l net.Listener
	must(t, ns.Run(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf(":%d", number))
		return err
	}))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn) // the client notices
			}()
		}
	}()
}

// TestRepairMoves: a rule that an operator adds after ADD takes effect with the next repair. The
// attachment is never without rules, and established connections continue.
func TestRepairMoves(t *testing.T) {
	run := func(t *testing.T) {
		for _, snat := range []string{"", `,"snat":false`} {
			h := newHost(t, snat)
			h.attach("c", 0)
			h.attach("sibling", 0)
			serve(t, h.Container("c"), "c", "", 80)
			serveEcho(t, h.Container("c"), 81)
			ports := "[" + port("tcp", 8080, 80, "") + "," + port("udp", 8080, 80, "") + "," +
				port("tcp", 8081, 81, "") + "]"
			h.add("c", ports)
			h.forwardsBy("c", "nftables")
			answers(t, h.lan, "192.0.2.1:8080", "c")
			still := converse(t, h.lan, "192.0.2.1:8081")
			for _, protocol := range []string{"tcp", "udp"} {
				h.iptables("-I PREROUTING -s 192.0.2.2 -p " + protocol + " --dport 8080 -j ACCEPT")
			}
			ops := h.repair("c", ports)
			h.forwardsBy("c", "iptables")
			made := slices.IndexFunc(ops, func(op string) bool {
				return strings.HasPrefix(op, "edit iptables nat")
			})
			released := slices.IndexFunc(ops, func(op string) bool {
				return strings.HasPrefix(op, "guard the loopback") ||
					strings.HasPrefix(op, "release")
			})
			if made < 0 || released < made {
				t.Errorf("rules are removed before the new ones are made: %q", ops)
			}
			answers(t, h.lan, "192.0.2.1:8080", "")
			if snat == "" {
				answers(t, h.Container("sibling"), "192.0.2.1:8080", "c")
				answers(t, h.Host, "127.0.0.1:8080", "c")
			}
			still()
			h.check("c", ports)
			h.repair("c", ports)
			h.forwardsBy("c", "iptables")
			h.del("c", ports)
			h.forwardsBy("c", "")
		}
	}
	forVariants(t, run)
	t.Run("demanded", func(t *testing.T) {
		t.Parallel()
		testnet.Require(t, testnet.Tool("iptables-restore"))
		h := newHost(t, `,"backend":"nftables"`)
		h.attach("c", 0)
		h.add("c", somePort)
		h.iptables("-I PREROUTING -j ACCEPT")
		h.repair("c", somePort)
		h.forwardsBy("c", "nftables")
	})
}

// TestConflictOfBackends: each backend refuses a port that the other one has forwarded, even as
// part of a range.
func TestConflictOfBackends(t *testing.T) {
	run := func(t *testing.T) {
		for _, first := range backends {
			for _, ports := range []string{
				somePort, `[{"hostPort":8000,"containerPort":8000,"protocol":"tcp","range":100}]`,
			} {
				h := newHost(t, "")
				h.attach("c", 0)
				h.attach("d", 0)
				h.conf["backend"] = first
				h.add("c", ports)
				delete(h.conf, "backend")
				if first == "nftables" {
					h.iptables("-I PREROUTING -s 192.0.2.77 -j ACCEPT")
				}
				err := h.refused(session.CodeInUse, "d", somePort)
				if err == nil || !strings.Contains(err.Error(), "c") {
					t.Errorf("%s: %v", first, err)
				}
				h.forwardsBy("d", "")
			}
		}
	}
	forVariants(t, run)
}

// TestNerdctl: nerdctl finds the ports of its networks in the chains of iptables.
func TestNerdctl(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-restore"))
	for _, row := range []struct{ name, member, args string }{
		{"mark of the list", `,"nerdctlID":"17f29b073143"`, ""},
		{"call by nerdctl", "", "IgnoreUnknown=1;NERDCTL_CNI_DHCP_HOSTNAME=web"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, row.member)
			h.args = row.args
			h.attach("c", 0)
			h.add("c", somePort)
			h.forwardsBy("c", "iptables")
			if rules := h.Host.Command("iptables", "-t", "nat", "-S",
				"CNI-HOSTPORT-DNAT"); !strings.Contains(rules, "--dports 8080") {
				t.Errorf("nerdctl sees no port:\n%s", rules)
			}
			h.args = ""
			h.del("c", "")
			h.forwardsBy("c", "")
		})
	}
	t.Run("backend demanded", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, `,"nerdctlID":"1","backend":"nftables"`)
		h.attach("c", 0)
		h.add("c", somePort)
		h.forwardsBy("c", "nftables")
	})
}

// TestWithoutNFTables: without nftables in the kernel, iptables forwards and every call succeeds.
// Without either backend ADD and STATUS fail with a hint.
func TestWithoutNFTables(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-legacy-restore"))
	for name, errno := range map[string]unix.Errno{
		"missing": unix.EPROTONOSUPPORT, "forbidden": unix.EPERM,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "")
			h.attach("c", 0)
			serve(t, h.Container("c"), "c", "", 80)
			call := func(verb cni.Command, env ...string) (string, error) {
				stdin, err := json.Marshal(h.request("c", both(8080, 80, "")))
				must(t, err)
				cmd := exec.Command(filepath.Join(h.bin, "portmap"))
				cmd.Stdin = bytes.NewReader(stdin)
				cmd.Env = append(os.Environ(), "CNI_COMMAND="+string(verb), "CNI_CONTAINERID=c",
					"CNI_NETNS="+h.Container("c").Path(), "CNI_IFNAME=eth0", "CNI_PATH="+h.bin)
				cmd.Env = append(cmd.Env, env...)
				var out bytes.Buffer
				cmd.Stdout = &out
				err = testnet.WithoutNFT(h.Host, cmd, errno)
				return out.String(), err
			}
			for verb, code := range map[cni.Command]cni.Code{
				cni.Add: cni.CodeUnsupportedField, cni.Status: cni.CodeNotAvailable,
			} {
				out, err := call(verb, "PATH="+t.TempDir())
				var e cni.Error
				if json.Unmarshal([]byte(out), &e) != nil || err == nil || e.Code != code ||
					!strings.Contains(e.Details, "nf_tables") {
					t.Errorf("%s without iptables: %v: %s", verb, err, out)
				}
			}
			for _, verb := range []cni.Command{cni.Status, cni.Add, cni.Check} {
				if out, err := call(verb); err != nil {
					t.Fatalf("%s: %v: %s", verb, err, out)
				}
			}
			h.forwardsBy("c", "iptables")
			answers(t, h.lan, "192.0.2.1:8080", "c")
			if out, err := call(cni.Del); err != nil {
				t.Errorf("DEL: %v: %s", err, out)
			}
			h.forwardsBy("c", "")
		})
	}
}

// TestChoiceIsLogged: the log contains the chosen backend, and the rule that is the reason.
func TestChoiceIsLogged(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-restore"))
	h := newHost(t, "")
	h.attach("c", 0)
	h.iptables("-I PREROUTING -s 192.0.2.2/32 -j ACCEPT")
	log := h.log(t, "c", somePort)
	for _, text := range []string{"backend=iptables",
		"rule 1 of chain PREROUTING in table ip nat (nft): -s 192.0.2.2/32 -j ACCEPT"} {
		if !strings.Contains(log, text) {
			t.Errorf("log lacks %q: %s", text, log)
		}
	}
}

// TestUnservedFamily: a mapping for a family in which the container has no address is a warning, as
// the upstream plugin also accepts it; other mappings are none.
func TestUnservedFamily(t *testing.T) {
	t.Parallel()
	h := newHost(t, "")
	h.attach("c", 0)
	h.prev["c"] = json.RawMessage(`{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.2/24"}]}`)
	log := h.log(t, "c", `[{"hostPort":8080,"containerPort":80,"protocol":"tcp","hostIP":"2001:db8::1"},
		{"hostPort":8081,"containerPort":80,"protocol":"tcp","hostIP":"192.0.2.1"},
		{"hostPort":8082,"containerPort":80,"protocol":"tcp"}]`)
	if strings.Count(log, "forwards nothing") != 1 ||
		!strings.Contains(log, "port=8080 protocol=tcp hostIP=2001:db8::1") {
		t.Errorf("want one warning, of port 8080:\n%s", log)
	}
}

// log calls ADD as a process and returns what it logs.
func (h *host) log(t *testing.T, container, ports string) string {
	t.Helper()
	stdin, err := json.Marshal(h.request(container, ports))
	must(t, err)
	cmd := exec.Command(filepath.Join(h.bin, "portmap"))
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+container,
		"CNI_NETNS="+h.Container(container).Path(), "CNI_IFNAME=eth0", "CNI_PATH="+h.bin)
	var log bytes.Buffer
	cmd.Stderr = &log
	must(t, h.Host.Run(cmd.Run))
	return log.String()
}
