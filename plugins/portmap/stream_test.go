package portmap_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// stream sends datagrams from one socket without a break that is long enough for the kernel to
// forget the flow, as a probe or a telephone does.
type stream struct {
	t    testing.TB
	conn net.Conn
}

func newStream(t testing.TB, from *testnet.Namespace, address string) *stream {
	t.Helper()
	s := &stream{t: t}
	var err error
	from.Do(func() { s.conn, err = net.Dial("udp", address) })
	must(t, err)
	t.Cleanup(func() { s.conn.Close() })
	return s
}

// next sends until a server answers, and returns its name.
func (s *stream) next() string {
	s.t.Helper()
	buf := make([]byte, 100)
	for end := time.Now().Add(testnet.Patience); time.Now().Before(end); {
		_, err := s.conn.Write([]byte("hello"))
		if err == nil {
			must(s.t, s.conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
			var n int
			if n, err = s.conn.Read(buf); err == nil {
				name, _, _ := strings.Cut(string(buf[:n]), " ")
				return name
			}
		}
		if !isTimeout(err) { // the port is closed
			time.Sleep(5 * time.Millisecond)
		}
	}
	return ""
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// drain discards answers to earlier datagrams.
func (s *stream) drain() {
	buf := make([]byte, 100)
	for {
		// the read reports the error
		_ = s.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := s.conn.Read(buf); err != nil {
			return
		}
	}
}

// TestSteadyStream: each datagram reaches the current holder of the port: a service of the host, a
// container, another one, and the host again. Flows of other destinations on the same port number
// are kept.
func TestSteadyStream(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		for _, address := range []string{"192.0.2.1:8080", "[2001:db8::1]:8080"} {
			for _, hostIP := range []string{
				"", `,"hostIP":"` + netip.MustParseAddrPort(address).Addr().String() + `"`,
			} {
				t.Run(address+hostIP, func(t *testing.T) {
					t.Parallel()
					h := newHost(t, withBackend(backend))
					for _, c := range []string{"a", "b"} {
						h.attach(c, 0)
						serve(t, h.Container(c), c, "", 80)
					}
					serve(t, h.Host, "host", netip.MustParseAddrPort(address).Addr().String(), 8080)
					h.lan.Command("ip", "address", "add", "198.51.100.1/32", "dev", "lo")
					h.lan.Command("ip", "route", "add", "10.1.0.0/24", "via", "192.0.2.1")
					h.Host.Command("ip", "route", "add", "198.51.100.1", "via", "192.0.2.2")
					serve(t, h.lan, "lan", "198.51.100.1", 8080)
					h.Host.Command("nft",
						"add table ip track; add chain ip track c { type filter hook prerouting priority 0; }; add rule ip track c ct state new")
					ports := both(8080, 80, hostIP)
					s := newStream(t, h.lan, address)
					expect := func(what, want string) {
						t.Helper()
						s.drain()
						if got := s.next(); got != want {
							t.Errorf("%s: %q answers, want %q", what, got, want)
						}
					}
					through := newStream(t, h.Container("b"), "198.51.100.1:8080")
					if got := through.next(); got != "lan" {
						t.Fatalf("%q answers a routed datagram", got)
					}
					routed := flowsTo(h, "198.51.100.1")
					if len(routed) != 1 {
						t.Fatalf("flows %v", routed)
					}
					expect("before", "host")
					h.add("a", ports)
					expect("after ADD of a", "a")
					h.del("a", ports)
					expect("after DEL of a", "host")
					h.add("b", ports)
					expect("after ADD of b", "b")
					h.add("b", ports)
					expect("after a second ADD", "b")
					if diff := cmp.Diff(routed, flowsTo(h, "198.51.100.1")); diff != "" {
						t.Errorf("other flows (-before +after):\n%s", diff)
					}
				})
			}
		}
	})
}

// flowsTo lists the flows that the host tracks to an address, without fields that change by
// themselves.
func flowsTo(h *host, address string) (list []string) {
	for line := range strings.Lines(h.Host.Command("cat", "/proc/thread-self/net/nf_conntrack")) {
		if fields := strings.Fields(line); slices.Contains(fields, "dst="+address) {
			list = append(list, strings.Join(slices.Concat(fields[:4], fields[5:]), " "))
		}
	}
	return list
}

// TestNoFlowsForTCP: mappings for TCP only need no query for flows.
func TestNoFlowsForTCP(t *testing.T) {
	t.Parallel()
	h := newHost(t, "")
	h.attach("c", 0)
	ops := h.trace(cni.Add, "c", "["+port("tcp", 8080, 80, "")+"]")
	ops = append(ops, h.trace(cni.Del, "c", "["+port("tcp", 8080, 80, "")+"]")...)
	if i := slices.IndexFunc(ops, func(op string) bool {
		return strings.Contains(op, "connection tracking")
	}); i >= 0 {
		t.Errorf("%s", ops[i])
	}
	if ops := fmt.Sprint(h.trace(cni.Add, "c", both(8080, 80, ""))); !strings.Contains(ops,
		"connection tracking") {
		t.Errorf("with UDP: %s", ops)
	}
}
