package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/tenon-cni/tenon/internal/kernel/netns"
)

const (
	pingFor   = 20 * time.Second       // all tries together
	pingEvery = 100 * time.Millisecond // how long each waits for its reply
)

// family is what differs between ICMP and ICMPv6.
type family struct {
	network, any   string
	protocol       int // number of the protocol (IANA)
	request, reply icmp.Type
}

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return family{"ip4:icmp", "0.0.0.0", 1, ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply}
	}
	return family{"ip6:ipv6-icmp", "::", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply}
}

// ping sends echo requests from a namespace until one is answered, and returns how long that answer took.
func ping(ctx context.Context, from *netns.NS, to netip.Addr) (time.Duration, error) {
	f := familyOf(to)
	var conn *icmp.PacketConn
	err := from.Run(func() (err error) {
		conn, err = icmp.ListenPacket(f.network, f.any)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("ping %s: %w", to, err)
	}
	defer conn.Close()
	end := time.Now().Add(pingFor)
	for seq := 1; time.Now().Before(end); seq++ {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		start := time.Now()
		err := f.echo(conn, to, seq)
		if err == nil {
			return time.Since(start), nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, fmt.Errorf("ping %s: %w", to, err)
		}
	}
	return 0, fmt.Errorf("ping %s: no answer within %v", to, pingFor)
}

// echo sends one request and waits for the reply to it.
func (f family) echo(conn *icmp.PacketConn, to netip.Addr, seq int) error {
	id := os.Getpid() & 0xffff
	request := icmp.Message{Type: f.request, Body: &icmp.Echo{ID: id, Seq: seq, Data: []byte("tenon")}}
	packet, err := request.Marshal(nil)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(pingEvery)); err != nil {
		return err
	}
	if _, err := conn.WriteTo(packet, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return err
	}
	buf := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		m, err := icmp.ParseMessage(f.protocol, buf[:n])
		if err != nil || m.Type != f.reply {
			continue
		}
		if e, ok := m.Body.(*icmp.Echo); ok && e.ID == id && e.Seq == seq {
			return nil
		}
	}
}
