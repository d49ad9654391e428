package packet_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host/packet"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// exclusive matches the refusal of conditions that exclude each other.
var exclusive = regexp.MustCompile("multiple -. flags|only be used once|used together")

// xtCondition returns a condition of iptables at random.
func xtCondition(random *rand.Rand) string {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	not := pick("", "", "! ")
	return pick(
		not+"-s "+pick("10.1.0.2", "10.1.0.0/24", "192.0.2.0/24"),
		not+"-d "+pick("10.2.0.2", "10.2.0.0/16", "10.2.0.77"),
		not+"-i "+pick("client", "cl+", "server"),
		"-p udp "+not+"--dport "+pick("53", "50:60", "54"), not+"-p tcp", "-p udp "+not+"--sport 1024:65535",
		"-p udp -m multiport "+not+"--dports "+pick("53,80", "1:20,50:60", "80,443"),
		"-m conntrack "+not+"--ctstate "+pick("NEW", "ESTABLISHED,RELATED", "INVALID", "NEW,ESTABLISHED", "DNAT"),
		"-m conntrack "+not+"--ctorigdst "+pick("10.2.0.2", "10.2.0.77"),
		"-m conntrack --ctdir "+pick("ORIGINAL", "REPLY"),
		"-m state "+not+"--state "+pick("NEW", "ESTABLISHED"),
		"-m mark "+not+"--mark "+pick("0", "7", "1/1"),
		"-m addrtype "+not+"--dst-type "+pick("LOCAL", "UNICAST"),
		"-m addrtype "+not+"--src-type "+pick("LOCAL", "UNICAST"),
		"-m iprange "+not+"--src-range "+pick("10.1.0.1-10.1.0.9", "10.1.0.3-10.1.0.9"),
		"-m length "+not+"--length "+pick("0:100", "100:200"),
		`-m comment --comment "a comment"`,
		"-m limit --limit 10000/second", // never exhausted here
	)
}

// xtTables returns the text of tables for iptables-restore at random.
func xtTables(random *rand.Rand) string {
	var b strings.Builder
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	rules := func(chain string, most int, targets ...string) {
		for range random.IntN(most + 1) {
			text := xtCondition(random)
			if random.IntN(3) == 0 {
				text += " " + xtCondition(random)
			}
			if chain == "POSTROUTING" || chain == "INPUT" {
				text = strings.ReplaceAll(text, "-i ", "-s 10.1.0.2 -o ")
			}
			text = "-p udp " + strings.NewReplacer("! -p tcp", "", "-p tcp", "", "-p udp", "").Replace(text)
			fmt.Fprintf(&b, "-A %s %s -j %s\n", chain, text, pick(targets...))
		}
	}
	b.WriteString("*mangle\n:PREROUTING ACCEPT\n")
	rules("PREROUTING", 2, "MARK --set-mark 7", "MARK --or-mark 1", "DROP", "ACCEPT")
	b.WriteString("COMMIT\n*nat\n:PREROUTING ACCEPT\n:POSTROUTING ACCEPT\n:a -\n")
	rules("PREROUTING", 3, "DNAT --to-destination 10.2.0.2", "DNAT --to-destination 10.2.0.2:53", "ACCEPT", "a")
	rules("a", 2, "DNAT --to-destination 10.2.0.2:54", "RETURN")
	rules("POSTROUTING", 3, "MASQUERADE", "SNAT --to-source 10.2.0.1", "SNAT --to-source 10.2.0.9", "ACCEPT")
	fmt.Fprintf(&b, "COMMIT\n*filter\n:FORWARD %s\n:a -\n:b -\n", pick("ACCEPT", "ACCEPT", "DROP"))
	rules("FORWARD", 4, "ACCEPT", "DROP", "RETURN", "a", "b", "REJECT", "LOG")
	rules("a", 3, "ACCEPT", "DROP", "RETURN", "b")
	rules("b", 3, "ACCEPT", "DROP", "RETURN", "REJECT")
	return b.String() + "COMMIT\n"
}

// TestAgreesWithIPTables evaluates tables of iptables made at random, and compares the verdict and
// the translation with what happens to a datagram.
func TestAgreesWithIPTables(t *testing.T) {
	t.Parallel()
	for _, variant := range []string{"iptables-nft-restore", "iptables-legacy-restore"} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			testnet.Require(t, testnet.Tool(variant))
			agrees(t, variant)
		})
	}
}

func agrees(t *testing.T, restore string) {
	t.Helper()
	r := newRouter(t)
	other := r.listen("server", 54)
	random := newRandom(t)
	verdicts, translated := map[packet.Verdict]int{}, 0
	for i := range *rulesets {
		text := xtTables(random)
		if out, err := r.Host.Output(text, restore); err != nil {
			if exclusive.MatchString(out) {
				continue
			}
			t.Fatalf("%v\n%s", err, text)
		}
		dst := netip.MustParseAddrPort([]string{"10.2.0.2:53", "10.2.0.77:53", "10.2.0.2:80"}[random.IntN(3)])
		client := r.listen("client", 10_000+i) // a new connection
		result, p := forward(r.read(), uint16(10_000+i), dst)
		verdicts[result.Verdict]++
		if result.Doubts != nil {
			t.Fatalf("%d: doubts %v about\n%s", i, result.Doubts, text)
		}
		want := ""
		if result.Verdict == packet.Accept && p.Dst == serverAddr && (p.DstPort == 53 || p.DstPort == 54) {
			want = fmt.Sprintf("%s to port %d", p.Src, p.DstPort)
		}
		if result.NAT != nil {
			translated++
		}
		if _, err := client.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(dst)); err != nil {
			t.Fatal(err)
		}
		if got := r.seen(restore, map[int]*net.UDPConn{53: r.tested, 54: other}); got != want {
			t.Fatalf("%d: to %s: %q arrives, evaluated %q: %+v\n%s", i, dst, got, want, result, text)
		}
		client.Close()
	}
	t.Logf("%v, %d translated", verdicts, translated)
	if verdicts[packet.Accept] == 0 || verdicts[packet.Drop] == 0 || translated == 0 {
		t.Errorf("the tables are too uniform: %v, %d translated", verdicts, translated)
	}
}

// seen removes all tables, waits until a datagram passes, and describes the one that arrived before
// it.
func (r *router) seen(restore string, sockets map[int]*net.UDPConn) (text string) {
	r.t.Helper()
	const none = "*mangle\nCOMMIT\n*nat\nCOMMIT\n*filter\n:FORWARD ACCEPT\nCOMMIT\n"
	if _, err := r.Host.Output(none, restore); err != nil {
		r.t.Fatal(err)
	}
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(serverAddr, syncPort))
	if _, err := r.client.WriteTo([]byte("x"), to); err != nil {
		r.t.Fatal(err)
	}
	if err := r.sync.SetReadDeadline(time.Now().Add(testnet.Patience)); err != nil {
		r.t.Fatal(err)
	}
	r.receive(r.sync, 0)
	for port, conn := range sockets {
		if from := r.receive(conn, unix.MSG_DONTWAIT); from.IsValid() {
			text = fmt.Sprintf("%s to port %d", from, port)
		}
	}
	return text
}

// TestDoubts checks that a condition that cannot be evaluated raises a doubt only if the packet
// meets the other ones and the rule would decide.
func TestDoubts(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-nft-restore"))
	r := newRouter(t)
	for rule, want := range map[string]string{
		"-m string --string x --algo bm -j DROP":           "string",
		"-m string --string x --algo bm -p tcp -j DROP":    "",
		"-m string --string x --algo bm -d 10.9.9.9":       "",
		"-m string --string x --algo bm -j LOG":            "",
		"-m limit --limit 1/s -p tcp -j DROP":              "",
		"-m string --string x --algo bm -j MARK --set-m 1": "string",
	} {
		text := "*mangle\n:FORWARD ACCEPT\n-A FORWARD " + rule + "\nCOMMIT\n"
		if out, err := r.Host.Output(text, "iptables-nft-restore"); err != nil {
			t.Fatal(err, out)
		}
		result, p := forward(r.read(), 10_000, netip.AddrPortFrom(serverAddr, 53))
		got := fmt.Sprint(result.Doubts)
		if result.Verdict != packet.Accept || p.Mark != 0 || len(result.Limits) != 0 || strings.Contains(got, "string") != (want != "") {
			t.Errorf("%s: %+v", rule, result)
		}
	}
}
