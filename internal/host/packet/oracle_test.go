package packet_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/packet"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// rulesets is the number of rule sets of each kind; some kinds need iptables to load them.
var (
	rulesets = flag.Int("rulesets", 60, "compare the kernel with `N` rule sets made at random")
	seed     = flag.Uint64("seed", 1, "of the random numbers; 0 is another one in each run")
)

func TestMain(m *testing.M) { testnet.Main(m) }

// router is a host that forwards packets from a client to a server.
type router struct {
	*testnet.Net
	t                    *testing.T
	client, tested, sync *net.UDPConn
}

var clientAddr, serverAddr = netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.2.0.2")

const syncPort, testedPort = 9, 53

func newRouter(t *testing.T) *router {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT), testnet.Tool("nft"))
	n := testnet.New(t, "client", "server")
	for i, name := range []string{"client", "server"} {
		c := n.Container(name)
		n.Host.Batch(fmt.Sprintf("link add %s type veth peer name eth0 netns %s", name, c.Path()),
			fmt.Sprintf("addr add 10.%d.0.1/24 dev %s", i+1, name), "link set "+name+" up")
		c.Batch(fmt.Sprintf("addr add 10.%d.0.2/24 dev eth0", i+1), "link set eth0 up",
			fmt.Sprintf("route add default via 10.%d.0.1", i+1))
	}
	n.Host.Command("sysctl", "-qw", "net.ipv4.ip_forward=1")
	r := &router{Net: n, t: t}
	r.client = r.listen("client", 4000)
	r.tested, r.sync = r.listen("server", testedPort), r.listen("server", syncPort)
	return r
}

func (r *router) listen(container string, port int) (conn *net.UDPConn) {
	r.t.Helper()
	r.Container(container).Do(func() {
		var err error
		if conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port}); err != nil {
			r.t.Fatal(err)
		}
	})
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// arrives sends a datagram, and then one that passes, and reports whether the first arrived before
// the second. The kernel does not reorder them.
func (r *router) arrives() (arrived bool) {
	r.t.Helper()
	for _, port := range []uint16{testedPort, syncPort} {
		to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(serverAddr, port))
		if _, err := r.client.WriteTo([]byte("x"), to); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.sync.SetReadDeadline(time.Now().Add(testnet.Patience)); err != nil {
		r.t.Fatal(err)
	}
	r.receive(r.sync, 0)
	return r.receive(r.tested, unix.MSG_DONTWAIT).IsValid()
}

// receive returns the sender of the next datagram; with MSG_DONTWAIT an invalid address if there is
// none.
func (r *router) receive(conn *net.UDPConn, flags int) (from netip.Addr) {
	r.t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		r.t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		n, sender, _ := unix.Recvfrom(int(fd), make([]byte, 16), unix.MSG_DONTWAIT)
		if n > 0 {
			from = netip.AddrFrom4(sender.(*unix.SockaddrInet4).Addr)
		}
		return n > 0 || flags != 0
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return from
}

// newRandom returns a generator with a seed that the log names.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	start := *seed
	if start == 0 {
		start = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", start)
	return rand.New(rand.NewPCG(start, 0))
}

// read reads the host.
func (r *router) read() *host.Namespace {
	r.t.Helper()
	var h *host.Host
	err := r.Host.Run(func() (err error) {
		h, err = host.Read(r.t.Context(), host.Options{OnlyPaths: true})
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return h.Own()
}

// forward evaluates what the host does with a datagram of the client.
func forward(n *host.Namespace, from uint16, dst netip.AddrPort) (packet.Result, *packet.Packet) {
	lookup := packet.NamespaceLookup{Namespace: n}
	p := &packet.Packet{
		Src: clientAddr, Dst: dst.Addr(), SrcPort: from, DstPort: dst.Port(), Protocol: unix.IPPROTO_UDP,
		Length: 29, TTL: 64,
		SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2},
		In: packet.InterfaceOf(n, n.LinkByName("client")),
	}
	p.Conn = packet.Connection{State: packet.New, OrigSrc: p.Src, OrigDst: p.Dst, OrigSrcPort: p.SrcPort,
		OrigDstPort: p.DstPort}
	rules := packet.NewRules(n.Ruleset, lookup)
	var all packet.Result
	for _, hook := range []uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_FORWARD, unix.NF_INET_POST_ROUTING} {
		if hook == unix.NF_INET_FORWARD {
			out, _ := lookup.Out(p, false)
			p.Out, p.TTL = out, 63
		}
		r := rules.Hook(hook, p)
		r.NAT, r.Doubts = append(all.NAT, r.NAT...), append(all.Doubts, r.Doubts...)
		if all = r; r.Verdict != packet.Accept {
			break
		}
	}
	return all, p
}

// condition returns a condition of nft(8) at random.
func condition(random *rand.Rand) string {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	not := pick("", "", "!= ")
	return pick(
		"ip saddr "+not+pick("10.1.0.2", "10.1.0.0/24", "10.0.0.0/8", "192.0.2.1", "10.1.0.2-10.1.0.9"),
		"ip daddr "+not+pick("10.2.0.2", "10.2.0.0/25", "10.9.0.0/16", "{ 10.2.0.1, 10.2.0.2 }",
			"{ 10.1.0.0/16, 10.3.0.0/16 }", "@addresses", "@networks"),
		"udp dport "+not+pick("53", "54", "50-60", "{ 53, 80 }", "{ 1-20, 50-60 }", "@ports"),
		"udp sport "+pick("4000", "!= 4000", "> 4000", "<= 4000"),
		"meta l4proto "+not+pick("udp", "tcp", "{ tcp, udp }"),
		"meta mark "+pick("0", "!= 7", "& 0x3 == 3", "& 0x1 != 0"),
		"ct state "+pick("new", "established,related", "invalid", "new,established"),
		"ct direction original", "ct status "+pick("dnat", "snat"),
		"iifname "+not+pick(`"client"`, `"server"`, `"cl*"`, `{ "client", "lo" }`),
		"oifname "+not+pick(`"server"`, `"s*"`, `"lo"`), "iif "+not+pick("client", "server"),
		"ip protocol "+not+pick("udp", "icmp"), "ip ttl "+pick("> 10", "< 10"),
		"fib daddr type "+not+pick("local", "unicast"), "fib saddr . iif oif "+pick("exists", "missing"),
		"ip saddr . udp dport "+pick("{ 10.1.0.2 . 53 }", "{ 10.1.0.2 . 54 }", "@pairs"),
		"meta length "+pick("< 100", "> 100"), "ether type ip", "meta nfproto ipv4",
	)
}

// action returns the end of a rule at random.
func action(random *rand.Rand, chains int, chain int) string {
	list := []string{"accept", "drop", "return", "counter", "meta mark set 7", "continue",
		"meta mark set meta mark | 0x1", "udp dport vmap { 53 : drop, 54 : accept }",
		"udp dport vmap { 1-52 : drop, 53-60 : accept }", "reject"}
	for next := chain + 1; next <= chains; next++ { // no loops
		list = append(list, fmt.Sprintf("jump c%d", next), fmt.Sprintf("goto c%d", next))
	}
	return list[random.IntN(len(list))]
}

// ruleset returns the text of a table at random. The first rule of each base chain lets the packets
// pass that show the end of a test.
func ruleset(random *rand.Rand, name string) string {
	var b strings.Builder
	b.WriteString("table inet " + name + ` {
	set addresses { type ipv4_addr; elements = { 10.2.0.2, 10.2.0.77 } }
	set networks { type ipv4_addr; flags interval; elements = { 10.2.0.0/30, 10.7.0.0/16 } }
	set ports { type inet_service; elements = { 53, 99 } }
	set pairs { type ipv4_addr . inet_service; flags interval; elements = { 10.1.0.0/24 . 50-60 } }
`)
	const chains = 3
	for i := chains; i >= 1; i-- {
		fmt.Fprintf(&b, "\tchain c%d {\n", i)
		for range random.IntN(4) {
			fmt.Fprintf(&b, "\t\t%s %s\n", condition(random), action(random, chains, i))
		}
		b.WriteString("\t}\n")
	}
	for i := range 1 + random.IntN(2) {
		hook := []string{"prerouting", "forward", "forward", "postrouting"}[random.IntN(4)]
		policy := []string{"accept", "accept", "drop"}[random.IntN(3)]
		fmt.Fprintf(&b, "\tchain base%d {\n\t\ttype filter hook %s priority %d; policy %s;\n\t\tudp dport 9 accept\n",
			i, hook, random.IntN(20)-10, policy)
		for range 1 + random.IntN(4) {
			rule := condition(random)
			if random.IntN(3) == 0 {
				rule += " " + condition(random)
			}
			if hook == "prerouting" {
				rule = strings.ReplaceAll(rule, "oifname", "iifname") // not known yet
			}
			end := action(random, chains, 0)
			if end == "reject" && hook != "forward" {
				end = "drop"
			}
			fmt.Fprintf(&b, "\t\t%s %s\n", rule, end)
		}
		b.WriteString("\t}\n")
	}
	return b.String() + "}\n"
}

// TestAgreesWithKernel evaluates rule sets made at random and compares the verdict with what
// happens to a datagram.
func TestAgreesWithKernel(t *testing.T) {
	t.Parallel()
	r := newRouter(t)
	random := newRandom(t)
	verdicts := map[packet.Verdict]int{}
	for i := range *rulesets {
		text := "flush ruleset\n" + ruleset(random, "a") + ruleset(random, "b")
		if _, err := r.Host.Output(text, "nft", "-f", "-"); err != nil {
			if strings.Contains(err.Error(), "Operation not supported") || strings.Contains(err.Error(), "conflicting") {
				continue
			}
			t.Fatalf("%v\n%s", err, text)
		}
		result, _ := forward(r.read(), 4000, netip.AddrPortFrom(serverAddr, testedPort))
		verdicts[result.Verdict]++
		if result.Doubts != nil {
			t.Fatalf("%d: doubts %v about\n%s", i, result.Doubts, text)
		}
		if got := r.arrives(); got != (result.Verdict == packet.Accept) {
			t.Fatalf("%d: a datagram arrives: %t, evaluated: %+v\n%s", i, got, result, text)
		}
	}
	t.Logf("%v", verdicts)
	if verdicts[packet.Accept] == 0 || verdicts[packet.Drop] == 0 {
		t.Errorf("the rule sets are too uniform: %v", verdicts)
	}
}
