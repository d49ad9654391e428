// Package link sends and receives the messages of DHCP clients on an interface of a network
// namespace, which may have no address yet, and probes for addresses by ARP (RFC 826, 5227).
package link

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

	"github.com/tenon-cni/tenon/internal/netns"
)

// Link is an interface.
type Link struct {
	NS    *netns.NS // stays open as long as the Link is used
	Name  string
	Index int
	MAC   net.HardwareAddr
}

var (
	nobody    = netip.AddrPortFrom(netip.IPv4Unspecified(), ClientPort)
	everybody = netip.AddrPortFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), ServerPort)
	broadcast = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// Conn is a socket for the messages between servers and the clients on a link.
type Conn struct {
	link *Link
	f    *os.File
}

// Open opens a packet socket on the link.
func (l *Link) Open() (*Conn, error) {
	f, err := l.socket(unix.ETH_P_IP, toClients())
	if err != nil {
		return nil, err
	}
	return &Conn{l, f}, nil
}

// Close ends [Conn.Receive].
func (c *Conn) Close() error { return c.f.Close() }

// Broadcast sends to all nodes on the link. A source that is not valid is 0.0.0.0; the interface
// does not need to have the source. A destination that is not valid is 255.255.255.255.
func (c *Conn) Broadcast(from, to netip.Addr, message []byte) error {
	sender, receiver := nobody, everybody
	if from.IsValid() {
		sender = netip.AddrPortFrom(from, ClientPort)
	}
	if to.IsValid() {
		receiver = netip.AddrPortFrom(to, ServerPort)
	}
	return c.link.sendTo(c.f, unix.ETH_P_IP, udp(sender, receiver, message))
}

// Receive waits for a datagram to the port of clients. The next call overwrites the buffer. The
// error wraps [os.ErrClosed] after Close.
func (c *Conn) Receive(buffer []byte) ([]byte, error) {
	for {
		n, partial, err := receive(c.f, buffer)
		if err != nil {
			return nil, c.link.explain("receive", err)
		}
		if message, _, err := Parse(buffer[:n], ClientPort, partial); err == nil {
			return message, nil
		}
	}
}

// Unicast sends to a server from an address of the interface, over routes as any program does.
// Answers arrive at [Conn.Receive].
func (l *Link) Unicast(from, to netip.Addr, message []byte) (*Port, error) {
	var fd int
	err := l.NS.Run(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
		if err != nil {
			return err
		}
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, l.Name),
			unix.Bind(fd, &unix.SockaddrInet4{Port: ClientPort, Addr: from.As4()}))
		if err == nil {
			// The source is said once more: in a namespace without any address everything can be
			// bound, and the source is 0.0.0.0.
			source := unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: from.As4()})
			err = unix.Sendmsg(fd, message, source, &unix.SockaddrInet4{Port: ServerPort, Addr: to.As4()}, 0)
		}
		if err != nil {
			unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, l.explain(fmt.Sprintf("send from %s to %s", from, to), err)
	}
	return &Port{fd}, nil
}

// Port keeps the port of a message open, so that the kernel does not report it as unreachable to
// the server.
type Port struct{ fd int }

// Close closes the port.
func (p *Port) Close() error { return unix.Close(p.fd) }

// Sent waits until the message has left: the kernel must find the MAC address of the server before,
// and drops the message with the link. The kernel has no event for it.
func (p *Port) Sent(ctx context.Context) error {
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

// RFC 5227 has seconds between probes, and the start of a container cannot wait for them; the nodes
// of a segment answer within milliseconds.
const (
	probes     = 3
	probeEvery = 100 * time.Millisecond
)

// Probe asks for the node that has an address, or is about to take it, and returns the first that
// answers; nil if none does within 0.3 s.
func (l *Link) Probe(ctx context.Context, address netip.Addr) (by net.HardwareAddr, err error) {
	f, err := l.socket(unix.ETH_P_ARP, nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	buffer := make([]byte, 128)
	for range probes {
		if err := l.sendTo(f, unix.ETH_P_ARP, arpProbe(l.MAC, address)); err != nil {
			return nil, err
		}
		if err := f.SetReadDeadline(time.Now().Add(probeEvery)); err != nil {
			return nil, l.explain("probe", err)
		}
		for ctx.Err() == nil {
			n, _, err := receive(f, buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return nil, l.explain("probe", err)
			}
			if by := claims(buffer[:n], l.MAC, address); by != nil {
				return by, nil
			}
		}
	}
	return nil, context.Cause(ctx)
}

// socket opens a packet socket on the link, for packets without their Ethernet header.
func (l *Link) socket(protocol uint16, filter []unix.SockFilter) (*os.File, error) {
	var fd int
	err := l.NS.Run(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0) // 0: nothing until bound
		return err
	})
	if err != nil {
		return nil, l.explain("packet socket", err)
	}
	if filter != nil {
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)})
	}
	err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(protocol), Ifindex: l.Index}))
	if err != nil {
		unix.Close(fd)
		return nil, l.explain("packet socket", err)
	}
	return os.NewFile(uintptr(fd), l.Name), nil
}

func (l *Link) sendTo(f *os.File, protocol uint16, b []byte) error {
	to := &unix.SockaddrLinklayer{Protocol: networkOrder(protocol), Ifindex: l.Index, Halen: uint8(len(broadcast))}
	copy(to.Addr[:], broadcast[:])
	raw, err := f.SyscallConn()
	if err == nil {
		var sent error
		err = raw.Write(func(fd uintptr) bool {
			sent = unix.Sendto(int(fd), b, 0, to)
			return sent != unix.EAGAIN
		})
		err = errors.Join(err, sent)
	}
	if err != nil {
		return l.explain("send", err)
	}
	return nil
}

func (l *Link) explain(what string, err error) error {
	return fmt.Errorf("%s on %s in %s: %w", what, l.Name, l.NS, err)
}

// receive reads a packet. partial means that its checksums are not complete, see [Parse].
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
	case err != nil: // nothing else ends the wait
		return 0, false, os.ErrClosed
	case got != nil:
		return 0, false, got
	}
	messages, err := unix.ParseSocketControlMessage(control[:controlLen])
	if err != nil {
		return 0, false, err
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 4 {
			partial = binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_CSUMNOTREADY != 0
		}
	}
	return n, partial, nil
}

func networkOrder(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// toClients returns a filter that accepts UDP datagrams to the port of clients, and no fragments
// (BPF of the kernel's networking/filter).
func toClients() []unix.SockFilter {
	const drop = 6 // how far it is from the first comparison
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 9}, // protocol
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.IPPROTO_UDP, Jf: drop},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 6}, // flags and offset of a fragment
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: 0x3fff, Jt: drop - 2},
		{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0}, // length of the header
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: 2},  // destination port
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: ClientPort, Jf: drop - 5},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<16 - 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
}
