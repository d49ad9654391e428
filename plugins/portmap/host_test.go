package portmap_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/portmap"
)

// host is a node with two bridged networks, containers on them, and a neighbour on its LAN.
type host struct {
	*testnet.Net
	t    testing.TB
	bin  string
	conf object // members of portmap's configuration
	exec bool   // run plugins as separate processes
	args string // CNI_ARGS

	lan  *testnet.Namespace
	prev map[string]json.RawMessage // by container

	short map[string]string // namespace paths of containers that end before the test
}

type object = map[string]any

// newHost creates a host; members are JSON members of portmap's configuration.
func newHost(t testing.TB, members string) *host {
	t.Helper()
	h := &host{Net: testnet.New(t), t: t, bin: t.TempDir(), prev: map[string]json.RawMessage{},
		short: map[string]string{}}
	must(t,
		json.Unmarshal([]byte(`{"cniVersion":"1.1.0","type":"portmap","name":"net1"`+members+`}`),
			&h.conf))
	self, err := os.Executable()
	must(t, err)
	for _, name := range []string{"portmap", "bridge", "host-local"} { // see plugintest.Main
		must(t, os.Symlink(self, filepath.Join(h.bin, name)))
	}
	h.lan = h.Uplink()
	return h
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call calls a plugin from the host.
func (h *host) call(verb cni.Command, container string, conf object) (json.RawMessage, error) {
	h.t.Helper()
	return h.callWatched(nil, verb, container, conf)
}

// callWatched is call with [plugin.Call.Watch].
func (h *host) callWatched(
	watch func(op string) error, verb cni.Command, container string, conf object,
) (json.RawMessage, error) {
	h.t.Helper()
	stdin, err := json.Marshal(conf)
	must(h.t, err)
	env := cni.Env{Command: verb, Path: h.bin}
	if verb != cni.GC && verb != cni.Status {
		env.ContainerID, env.Netns, env.IfName, env.Args = container, h.short[container], "eth0", h.args
		if env.Netns == "" {
			env.Netns = h.Container(container).Path()
		}
	}
	var out json.RawMessage
	path := filepath.Join(h.bin, conf["type"].(string))
	err = h.Host.Run(func() error {
		caller := plugin.Caller([]plugin.Definition{portmap.Plugin.Watched(watch)}, h.exec)
		reply, err := caller.Call(h.t.Context(), invoke.Call{Path: path, Env: env, Stdin: stdin})
		out = reply.Stdout
		return err
	})
	return out, err
}

// attach connects a container to a bridge: br0 has 10.1.0.0/24 and fd00:1::/64, br1 10.1.1.0/24 and
// fd00:1:0:1::/64.
func (h *host) attach(container string, bridge int) []netip.Addr {
	h.t.Helper()
	out, err := h.call(cni.Add, container, object{
		"cniVersion": "1.1.0", "name": fmt.Sprintf("bridge%d",
			bridge), "type": "bridge", "bridge": fmt.Sprintf("br%d", bridge),
		"isDefaultGateway": true, "ipMasq": true,
		"hairpinMode": true, // needed for a container to reach itself with br_netfilter
		"ipam": object{
			"type": "host-local", "dataDir": h.bin + ".leases",
			"ranges": [][]object{{{"subnet": fmt.Sprintf("10.1.%d.0/24", bridge)}},
				{{"subnet": fmt.Sprintf("fd00:1:0:%d::/64", bridge)}}},
		},
	})
	must(h.t, err)
	h.t.Cleanup(func() { os.RemoveAll(h.bin + ".leases") })
	h.prev[container] = out
	result, err := cni.DecodeResultStrict(out, 0)
	must(h.t, err)
	var addrs []netip.Addr
	for _, ip := range result.IPs {
		addrs = append(addrs, ip.Address.Addr())
		// the host sends no neighbour solicitation until a new bridge has a link-local address
		testnet.Reaches(h.t, h.Host, ip.Address.Addr(), true)
	}
	return addrs
}

// ports returns the names of the links that are ports of a bridge.
func (h *host) ports(bridge int) (names []string) {
	var links []struct{ IfName string }
	must(h.t,
		json.Unmarshal([]byte(h.Host.Command("ip", "-j", "link", "show", "master",
			fmt.Sprintf("br%d", bridge))), &links))
	for _, l := range links {
		names = append(names, l.IfName)
	}
	return names
}

// request returns the configuration of a call for a container.
func (h *host) request(container, ports string) object {
	h.t.Helper()
	conf := object{}
	for k, v := range h.conf {
		conf[k] = v
	}
	if h.prev[container] != nil {
		conf["prevResult"] = h.prev[container]
	}
	if ports != "" {
		conf["runtimeConfig"] = object{"portMappings": json.RawMessage(ports)}
	}
	return conf
}

func (h *host) add(container, ports string) {
	h.t.Helper()
	out, err := h.call(cni.Add, container, h.request(container, ports))
	must(h.t, err)
	if string(out) == "" {
		h.t.Error("no result")
	}
}

func (h *host) del(container, ports string) {
	h.t.Helper()
	_, err := h.call(cni.Del, container, h.request(container, ports))
	must(h.t, err)
}

func (h *host) check(container, ports string) {
	h.t.Helper()
	_, err := h.call(cni.Check, container, h.request(container, ports))
	must(h.t, err)
}

// drifted fails unless CHECK fails.
func (h *host) drifted(container, ports string) {
	h.t.Helper()
	if _, err := h.call(cni.Check, container, h.request(container, ports)); err == nil {
		h.t.Error("CHECK succeeds")
	}
}

// refused fails unless ADD fails with the code, and returns the error.
func (h *host) refused(code cni.Code, container, ports string) error {
	h.t.Helper()
	_, err := h.call(cni.Add, container, h.request(container, ports))
	if cni.CodeOf(err) != code {
		h.t.Errorf("ADD of %s for %s: %v, want code %d", ports, container, err, code)
	}
	return err
}

// trace returns the changes that a call makes.
func (h *host) trace(verb cni.Command, container, ports string) (ops []string) {
	h.t.Helper()
	_, err := h.callWatched(func(op string) error {
		ops = append(ops, op)
		return nil
	}, verb, container, h.request(container, ports))
	must(h.t, err)
	return ops
}

// port returns a mapping as JSON, without brackets around it.
func port(protocol string, hostPort, containerPort int, more string) string {
	return fmt.Sprintf(`{"hostPort":%d,"containerPort":%d,"protocol":%q%s}`, hostPort,
		containerPort, protocol, more)
}

// serve answers on a port of a namespace, over TCP and UDP, with the name and the client's address
// as it sees it. An empty address stands for all addresses of both families.
func serve(t testing.TB, ns *testnet.Namespace, name, address string, number int) {
	t.Helper()
	if address == "" { // package net decides by the first namespace in which it was used
		serve(t, ns, name, "0.0.0.0", number)
		address = "::"
	}
	family := "4"
	if netip.MustParseAddr(address).Is6() {
		family = "6"
	}
	var l net.Listener
	var c net.PacketConn
	var err error
	at := net.JoinHostPort(address, fmt.Sprint(number))
	ns.Do(func() {
		if l, err = net.Listen("tcp"+family, at); err == nil {
			c, err = net.ListenPacket("udp"+family, at)
		}
	})
	must(t, err)
	t.Cleanup(func() { l.Close(); c.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "%s %s", name, conn.RemoteAddr())
			conn.Close()
		}
	}()
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(name+" "+from.String()), from) // the client notices
		}
	}()
}

const (
	inTime  = testnet.Patience
	noReply = 200 * time.Millisecond
)

// ask returns the name of the server at an address, and the client's address as the server sees it.
func ask(
	from *testnet.Namespace, network, address string, timeout time.Duration,
) (name string, client netip.Addr, err error) {
	err = from.Run(func() error {
		c, err := net.DialTimeout(network, address, timeout)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := errors.Join(c.SetDeadline(time.Now().Add(timeout))); err != nil {
			return err
		}
		if network == "udp" {
			if _, err := c.Write([]byte("hello")); err != nil {
				return err
			}
		}
		buf := make([]byte, 100)
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		var at string
		if _, err := fmt.Sscan(string(buf[:n]), &name, &at); err != nil {
			return err
		}
		seen, err := netip.ParseAddrPort(at)
		client = seen.Addr().Unmap()
		return err
	})
	return name, client, err
}

// patience returns the timeout for an expected answer; "" expects none.
func patience(want string) time.Duration {
	if want == "" {
		return noReply
	}
	return inTime
}

// answers fails the test unless the server name answers over TCP and UDP; "" expects no answer.
func answers(t testing.TB, from *testnet.Namespace, address, want string) {
	t.Helper()
	for _, network := range []string{"tcp", "udp"} {
		if got, _, err := ask(from, network, address, patience(want)); got != want {
			t.Errorf("%s from %s to %s: %q answers (%v), want %q", network, from.Name, address,
				got, err, want)
		}
	}
}

// both returns mappings of a port for TCP and UDP.
func both(hostPort, containerPort int, more string) string {
	return "[" + port("tcp", hostPort, containerPort, more) + "," +
		port("udp", hostPort, containerPort, more) + "]"
}

// strace runs a verb in a separate process and returns its system calls about processes, files and
// sockets.
func (h *host) strace(verb cni.Command, container, ports string) string {
	h.t.Helper()
	stdin, err := json.Marshal(h.request(container, ports))
	must(h.t, err)
	out := filepath.Join(h.t.TempDir(), "trace")
	h.Host.Do(func() {
		cmd := exec.Command("strace", "-f", "-qq", "-e", "trace=execve,openat,recvmsg,recvfrom",
			"-e", "status=successful", "-o", out, filepath.Join(h.bin, "portmap"))
		cmd.Stdin = bytes.NewReader(stdin)
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+string(verb), "CNI_CONTAINERID="+container,
			"CNI_NETNS="+h.Container(container).Path(), "CNI_IFNAME=eth0", "CNI_PATH="+h.bin)
		if text, wrong := cmd.Output(); wrong != nil {
			err = fmt.Errorf("%s: %w: %s", verb, wrong, text)
		}
	})
	must(h.t, err)
	trace, err := os.ReadFile(out)
	must(h.t, err)
	return string(trace)
}

// received returns the number of bytes that a traced process received from sockets.
func received(trace string) (n int) {
	for line := range strings.Lines(trace) {
		if i := strings.LastIndex(line, " = "); strings.Contains(line, "recv") && i >= 0 {
			var bytes int
			if _, err := fmt.Sscan(line[i+3:], &bytes); err == nil {
				n += bytes
			}
		}
	}
	return n
}
