package daemon

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket carries the messages between servers and the client on a link. For DHCPv4 it is a packet
// socket, because an interface without an address cannot send or receive UDP otherwise.
type socket struct {
	at      *openLink
	f       *os.File
	packets bool // packets have IPv4 and UDP headers
}

// open4 opens a socket for DHCPv4.
func (o *openLink) open4() (*socket, error) {
	f, err := o.packetSocket(unix.ETH_P_IP, toClients())
	if err != nil {
		return nil, err
	}
	return &socket{at: o, f: f, packets: true}, nil
}

// open6 opens a socket for DHCPv6. It needs a link-local address after duplicate address detection.
func (o *openLink) open6() (*socket, error) {
	fd, err := o.udpSocket(unix.AF_INET6, &unix.SockaddrInet6{Port: clientPort6},
		func(fd int) error {
			return errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1),
				unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, o.link.Index))
		})
	if err != nil {
		return nil, o.explain("socket for DHCPv6", err)
	}
	return &socket{at: o, f: os.NewFile(uintptr(fd), o.link.Name)}, nil
}

// close ends receive.
func (s *socket) close() error { return s.f.Close() }

// broadcast sends to all nodes on the link. An invalid source stands for 0.0.0.0; the interface
// does not need to have the source. An invalid destination stands for 255.255.255.255.
func (s *socket) broadcast(from, to netip.Addr, message []byte) error {
	if !from.IsValid() {
		from = netip.IPv4Unspecified()
	}
	if !to.IsValid() {
		to = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	}
	b := udp(netip.AddrPortFrom(from, clientPort), netip.AddrPortFrom(to, serverPort), message)
	return s.at.explain("send", send(s.f, s.at.everybody(unix.ETH_P_IP), b))
}

// multicast sends to all DHCPv6 servers on the link, ff02::1:2.
func (s *socket) multicast(message []byte) error {
	to := &unix.SockaddrInet6{
		Port: serverPort6, ZoneId: uint32(s.at.link.Index),
		Addr: [16]byte{0: 0xff, 1: 0x02, 13: 0x01, 15: 0x02},
	}
	return s.at.explain("send DHCPv6", send(s.f, to, message))
}

// receive waits for a message. The next call overwrites the buffer. The error wraps [os.ErrClosed]
// after close.
func (s *socket) receive(buffer []byte) ([]byte, error) {
	for {
		n, partial, err := receive(s.f, buffer)
		if !s.packets {
			return buffer[:n], s.at.explain("receive DHCPv6", err)
		}
		if err != nil {
			return nil, s.at.explain("receive", err)
		}
		if message, _, err := parseUDP(buffer[:n], clientPort, partial); err == nil {
			return message, nil
		}
	}
}

// unicast sends to a server from an address of the interface, with the routes of the namespace. A
// socket from open4 receives the answers.
func (o *openLink) unicast(from, to netip.Addr, message []byte) (*port, error) {
	local := &unix.SockaddrInet4{Port: clientPort, Addr: from.As4()}
	fd, err := o.udpSocket(unix.AF_INET, local, func(int) error { return nil })
	if err == nil {
		// The source is repeated because in a namespace without addresses a socket can be bound
		// to any address, and the source would be 0.0.0.0.
		source := unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: from.As4()})
		err = unix.Sendmsg(fd, message, source,
			&unix.SockaddrInet4{Port: serverPort, Addr: to.As4()}, 0)
		if err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return nil, o.explain(fmt.Sprintf("send from %s to %s", from, to), err)
	}
	return &port{fd}, nil
}

// port keeps the port of a message open, so that the kernel does not report it as unreachable to
// the server.
type port struct{ fd int }

func (p *port) close() error { return unix.Close(p.fd) }

// sent waits until the message has left. The kernel must first resolve the MAC address of the
// server, and drops the message if the link disappears. The kernel has no event for it.
func (p *port) sent(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if waiting, err := unix.IoctlGetInt(p.fd, unix.SIOCOUTQ); err != nil || waiting == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// RFC 5227 specifies seconds between probes, which are too long for the start of a container. The
// nodes of a segment answer within milliseconds.
const (
	probes     = 3
	probeEvery = 100 * time.Millisecond
)

// probe looks for a node that has an address or probes it, too. It returns the MAC address of the
// first that answers, or nil if none does within 0.3 s.
func (o *openLink) probe(ctx context.Context, address netip.Addr) (by net.HardwareAddr, err error) {
	f, err := o.packetSocket(unix.ETH_P_ARP, nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	buffer := make([]byte, 128)
	for range probes {
		err := send(f, o.everybody(unix.ETH_P_ARP), arpProbe(o.link.MAC, address))
		if err != nil {
			return nil, o.explain("send", err)
		}
		if err := f.SetReadDeadline(time.Now().Add(probeEvery)); err != nil {
			return nil, o.explain("probe", err)
		}
		for ctx.Err() == nil {
			n, _, err := receive(f, buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return nil, o.explain("probe", err)
			}
			if by := claims(buffer[:n], o.link.MAC, address); by != nil {
				return by, nil
			}
		}
	}
	return nil, context.Cause(ctx)
}

const socketFlags = unix.SOCK_DGRAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC

// udpSocket opens a UDP socket on the link with a local address; set sets more options.
func (o *openLink) udpSocket(
	family int, local unix.Sockaddr, set func(fd int) error,
) (fd int, err error) {
	if fd, err = o.ns.Socket(family, socketFlags, unix.IPPROTO_UDP); err != nil {
		return -1, err
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, o.link.Name),
		set(fd), unix.Bind(fd, local))
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

// packetSocket opens a packet socket on the link, for packets without their Ethernet header.
func (o *openLink) packetSocket(protocol uint16, filter []unix.SockFilter) (*os.File, error) {
	// Protocol 0: receives nothing until bound.
	fd, err := o.ns.Socket(unix.AF_PACKET, socketFlags, 0)
	if err != nil {
		return nil, o.explain("packet socket", err)
	}
	if filter != nil {
		program := &unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program)
	}
	err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(protocol),
			Ifindex: o.link.Index}))
	if err != nil {
		unix.Close(fd)
		return nil, o.explain("packet socket", err)
	}
	return os.NewFile(uintptr(fd), o.link.Name), nil
}

// everybody is the broadcast address of the link, for packets of a protocol.
func (o *openLink) everybody(protocol uint16) *unix.SockaddrLinklayer {
	return &unix.SockaddrLinklayer{
		Protocol: networkOrder(protocol), Ifindex: o.link.Index, Halen: 6,
		Addr: [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	}
}

// explain adds the interface to an error; it returns nil for nil.
func (o *openLink) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s on %s in %s: %w", what, o.link.Name, o.ns, err)
}

func send(f *os.File, to unix.Sockaddr, b []byte) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendto(int(fd), b, 0, to)
		return sent != unix.EAGAIN
	})
	return errors.Join(err, sent)
}

// receive reads a packet. partial reports that its checksums are incomplete, see [parseUDP].
func receive(f *os.File, buffer []byte) (n int, partial bool, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, false, err
	}
	control := make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.TpacketAuxdata{}))))
	var got error
	var controlLen int
	err = raw.Read(func(fd uintptr) bool {
		n, controlLen, _, _, got = unix.Recvmsg(int(fd), buffer, control, 0)
		return got != unix.EAGAIN && got != unix.EINTR
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, false, err
	case err != nil: // no other error ends the wait
		return 0, false, os.ErrClosed
	case got != nil:
		return 0, false, got
	}
	messages, err := unix.ParseSocketControlMessage(control[:controlLen])
	if err != nil {
		return 0, false, err
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA &&
			len(m.Data) >= 4 {
			partial = binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_CSUMNOTREADY != 0
		}
	}
	return n, partial, nil
}

func networkOrder(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// toClients returns a filter that accepts UDP datagrams to the port of clients, except fragments
// (kernel documentation networking/filter).
func toClients() []unix.SockFilter {
	const drop = 6 // distance from the first comparison
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 9}, // protocol
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.IPPROTO_UDP, Jf: drop},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 6}, // flags and offset of a fragment
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: 0x3fff, Jt: drop - 2},
		{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0}, // length of the header
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: 2},  // destination port
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: clientPort, Jf: drop - 5},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<16 - 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
}
