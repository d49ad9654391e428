package testnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

const (
	// Packets can be lost during neighbour and duplicate address detection.
	askAgain = 1500 * time.Millisecond
	noAnswer = 300 * time.Millisecond // no reply comes after this time
)

// ping sends one echo request and waits for the reply.
func ping(from *Namespace, to netip.Addr, timeout time.Duration) error {
	return from.Run(func() error {
		network, protocol, kind := "ip4:icmp", 1, icmp.Type(ipv4.ICMPTypeEcho)
		reply := icmp.Type(ipv4.ICMPTypeEchoReply)
		if to.Is6() {
			network, protocol, kind, reply = "ip6:ipv6-icmp", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
		}
		c, err := icmp.ListenPacket(network, "")
		if err != nil {
			return err
		}
		defer c.Close()
		message, err := (&icmp.Message{Type: kind,
			Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: 1}}).Marshal(nil)
		if err != nil {
			return err
		}
		if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		if _, err := c.WriteTo(message, &net.IPAddr{IP: to.AsSlice()}); err != nil {
			return err
		}
		buf := make([]byte, 1500)
		for {
			n, peer, err := c.ReadFrom(buf)
			if err != nil {
				return err
			}
			m, err := icmp.ParseMessage(protocol, buf[:n])
			if err == nil && m.Type == reply && peer.String() == to.String() {
				return nil
			}
		}
	})
}

// Reaches checks whether pings get replies, as want requires.
func Reaches(t testing.TB, from *Namespace, to netip.Addr, want bool) {
	t.Helper()
	var err error
	if want {
		err = Try(func() error { return ping(from, to, askAgain) })
	} else {
		err = ping(from, to, noAnswer)
	}
	if !want && err == nil || want && err != nil {
		t.Errorf("%s to %s: %v, want an answer: %t", from.Name, to, err, want)
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s to %s: %v", from.Name, to, err)
	}
}

// CheckSources checks the source addresses of packets from a container's eth0. A node beyond the
// uplink sees the address of the host if the host masquerades; a sibling container sees the address
// of the container.
func CheckSources(t testing.TB, n *Net, container, sibling string, masqueraded bool) {
	t.Helper()
	outside, from, to := n.Uplink(), n.Container(container), n.Container(sibling)
	all, siblings := addresses(from), addresses(to)
	if len(all) == 0 || len(all) != len(siblings) {
		t.Fatalf("%s has %v, %s %v", container, all, sibling, siblings)
	}
	for i, own := range all {
		router, server := "192.0.2.1", "192.0.2.2"
		if own.Is6() {
			router, server = "2001:db8::1", "2001:db8::2"
		}
		want := own
		if masqueraded {
			want = netip.MustParseAddr(router)
		}
		if got := SourceSeen(t, from, outside, netip.MustParseAddr(server)); got != want {
			t.Errorf("outside sees %s as %s, want %s", own, got, want)
		}
		if got := SourceSeen(t, from, to, siblings[i]); got != own {
			t.Errorf("sibling sees %s as %s", own, got)
		}
	}
}

// addresses returns the addresses of a container, IPv4 first.
func addresses(ns *Namespace) []netip.Addr {
	var all []netip.Addr
	for line := range strings.Lines(ns.Command("ip", "-o", "address", "show", "dev", "eth0",
		"scope", "global")) {
		all = append(all, netip.MustParsePrefix(strings.Fields(line)[3]).Addr())
	}
	return all
}

// SourceSeen sends a datagram and returns the source address that the receiver sees.
func SourceSeen(t testing.TB, from, to *Namespace, address netip.Addr) netip.Addr {
	t.Helper()
	var server *net.UDPConn
	var err error
	to.Do(func() {
		server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, 0)))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	from.Do(func() {
		var c net.Conn
		if c, err = net.Dial("udp", server.LocalAddr().String()); err == nil {
			_, err = c.Write([]byte("hello"))
			c.Close()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		t.Fatal(err)
	}
	_, source, err := server.ReadFromUDPAddrPort(make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	return source.Addr().Unmap()
}

// LearnsMAC checks that a namespace learns the MAC address mac for an address.
func LearnsMAC(t testing.TB, n *Namespace, address netip.Addr, mac string) {
	t.Helper()
	Eventually(t, func() error {
		out := n.Command("ip", "neigh", "show", "to", address.String())
		if !strings.Contains(out, mac) {
			return fmt.Errorf("%s has %q, the MAC is %s", n.Name, out, mac)
		}
		return nil
	})
}

// Advertise sends a router advertisement with prefix 2001:db8:bad::/64 (RFC 4861 sections 4.2 and
// 4.6.2) to all nodes, through eth0.
func Advertise(t testing.TB, from *Namespace) {
	t.Helper()
	body := []byte{64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(body[2:], 1800) // the default router for half an hour
	prefix := []byte{3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0}
	prefix = append(prefix, netip.MustParseAddr("2001:db8:bad::").AsSlice()...)
	err := from.Run(func() error {
		c, err := icmp.ListenPacket("ip6:ipv6-icmp", "")
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.IPv6PacketConn().SetMulticastHopLimit(255); err != nil {
			return err
		}
		message, err := (&icmp.Message{
			Type: ipv6.ICMPTypeRouterAdvertisement,
			Body: &icmp.RawBody{Data: append(body, prefix...)},
		}).Marshal(nil)
		if err != nil {
			return err
		}
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		// Pass the index of the link, because package net caches names and would use
		// names of another namespace.
		_, err = c.WriteTo(message,
			&net.IPAddr{IP: net.IPv6linklocalallnodes, Zone: strconv.Itoa(link.Index)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
