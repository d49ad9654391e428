package daemon_test

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/v4"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/dhcpserver"
)

// TestHostileServer checks that no answer of a hostile server (cut off, too long, of another
// exchange, options without end, addresses that no node can have) sets an address or stops the
// daemon.
func TestHostileServer(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	asked := 0
	stop := answer(t, n, func(question *v4.Message) [][]byte {
		asked++
		return hostile(question)
	})
	d := newNode(t, n)
	patience := d.o.ResendTimeout
	d.stop()
	d.o.ResendTimeout = 12 * time.Second
	d.start()
	if r, err := d.call(dhcp.Allocate, "a"); err == nil {
		t.Errorf("got %+v", r)
	}
	stop()
	if asked == 0 {
		t.Error("no client has asked")
	}
	if got := d.addresses("a"); got != "" {
		t.Errorf("got %s", got)
	}
	d.stop()
	d.o.ResendTimeout = patience
	d.start()
	s := dhcpserver.Start(t, n, isc, pool, 60)
	if r := d.add("a"); !strings.HasPrefix(r.IPs[0].Address.String(), "10.92.0.") {
		t.Errorf("%+v\n%s", r, s.Log())
	}
}

// hostile returns the answers to a question: invalid offers, and messages that end the exchange.
func hostile(q *v4.Message) (answers [][]byte) {
	offer := func(change func(*v4.Message)) []byte {
		m := &v4.Message{Reply: true, XID: q.XID, MAC: q.MAC}
		kind := v4.Offer
		if q.Type() == v4.Request {
			kind = v4.ACK
		}
		m.Set(v4.OptType, []byte{byte(kind)})
		m.Set(v4.OptServerID, []byte{10, 92, 0, 1})
		m.Set(v4.OptSubnetMask, []byte{255, 255, 255, 0})
		change(m)
		return m.Encode()
	}
	for _, address := range []string{"0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255",
		"10.92.0.0", "10.92.0.255"} {
		answers = append(answers,
			offer(func(m *v4.Message) { m.Your = netip.MustParseAddr(address) }))
	}
	good := func(m *v4.Message) { m.Your = netip.MustParseAddr("10.92.0.66") }
	answers = append(answers,
		offer(func(m *v4.Message) { good(m); m.XID++ }),
		offer(func(m *v4.Message) { good(m); m.MAC = net.HardwareAddr{2, 9, 9, 9, 9, 9} }),
		offer(func(m *v4.Message) { good(m); m.Set(v4.OptSubnetMask, []byte{255, 0, 255, 0}) }),
		offer(func(m *v4.Message) { good(m); m.Set(v4.OptRouter, []byte{192, 0, 2, 1}) }),
		offer(good)[:239],
		slices.Concat(offer(good)[:240], []byte(strings.Repeat("\x0c\xff", 500))),
		slices.Concat(offer(good)[:240], make([]byte, 8000)),
	)
	for range 50 {
		b := offer(good)[:240]
		for len(b) < 400 {
			b = append(b, byte(rand.N(256)))
		}
		answers = append(answers, b)
	}
	return answers
}
