package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netns"
)

// socket sends the packet of a probe.
type socket struct {
	file     *os.File
	conn     syscall.RawConn
	protocol uint8
	id       uint16 // port of the source, or identifier of a ping
	is4      bool
}

// newSocket opens a socket in a namespace and chooses the identifier of its packets. It sets the
// source of the flow, if the kernel is to choose it and can.
func newSocket(ns *netns.NS, f *Flow) (s *socket, err error) {
	s = &socket{protocol: f.Protocol, is4: f.To.Is4()}
	kind, protocol := unix.SOCK_STREAM, 0
	switch f.Protocol {
	case unix.IPPROTO_TCP:
	case unix.IPPROTO_UDP:
		kind = unix.SOCK_DGRAM
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		kind, protocol = unix.SOCK_RAW, int(f.Protocol)
	default:
		return nil, fmt.Errorf("protocol %d: %w", f.Protocol, unix.EPROTONOSUPPORT)
	}
	if s.file, err = s.open(ns, kind, protocol); err != nil {
		return nil, err
	}
	if s.conn, err = s.file.SyscallConn(); err == nil {
		err = s.prepare(f.From)
	}
	if err == nil && !f.From.IsValid() {
		f.From, err = s.chosen(ns, f.To)
	}
	if err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

func (s *socket) open(ns *netns.NS, kind, protocol int) (*os.File, error) {
	domain := unix.AF_INET6
	if s.is4 {
		domain = unix.AF_INET
	}
	fd, err := ns.Socket(domain, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "probe"), nil
}

// control calls do with the descriptor of a socket.
func control(conn syscall.RawConn, do func(fd int) error) (err error) {
	if failed := conn.Control(func(fd uintptr) { err = do(int(fd)) }); failed != nil {
		return failed
	}
	return err
}

// prepare binds the socket to an address, and to a port that the kernel chooses, and makes it report
// all errors that routers send.
func (s *socket) prepare(from netip.Addr) error {
	return control(s.conn, func(fd int) error {
		level, option := unix.SOL_IPV6, unix.IPV6_RECVERR
		if s.is4 {
			level, option = unix.SOL_IP, unix.IP_RECVERR
		}
		if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		if err := s.bind(fd, from); err != nil {
			return fmt.Errorf("bind to %s: %w", from, err)
		}
		switch {
		case s.isPing():
			s.id = uint16(rand.Uint32())
			return nil
		case s.protocol == unix.IPPROTO_TCP: // the end of the connection is a reset
			linger := &unix.Linger{Onoff: 1}
			if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, linger); err != nil {
				return os.NewSyscallError("setsockopt", err)
			}
		}
		own, err := name(fd)
		s.id = own.Port()
		return err
	})
}

func (s *socket) bind(fd int, from netip.Addr) error {
	if !from.IsValid() {
		from = netip.IPv6Unspecified()
		if s.is4 {
			from = netip.IPv4Unspecified()
		}
	}
	return unix.Bind(fd, address(from, 0))
}

// chosen returns the source address that the kernel chooses for a destination, which is invalid
// without a route. A connected datagram socket shows it, and sends nothing.
func (s *socket) chosen(ns *netns.NS, to netip.Addr) (from netip.Addr, err error) {
	file, err := s.open(ns, unix.SOCK_DGRAM, 0)
	if err != nil {
		return from, err
	}
	defer file.Close()
	conn, err := file.SyscallConn()
	if err != nil {
		return from, err
	}
	return from, control(conn, func(fd int) error {
		const discard = 9 // any port
		if unix.Connect(fd, address(to, discard)) != nil {
			return nil
		}
		own, err := name(fd)
		from = own.Addr()
		return err
	})
}

// name returns the address of a socket.
func name(fd int) (netip.AddrPort, error) {
	own, err := unix.Getsockname(fd)
	switch own := own.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(own.Addr), uint16(own.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(own.Addr), uint16(own.Port)), nil
	}
	return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
}

func (s *socket) isPing() bool {
	return s.protocol == unix.IPPROTO_ICMP || s.protocol == unix.IPPROTO_ICMPV6
}

func address(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Port: int(port), Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Port: int(port), Addr: a.As16()}
}

// send sends the packet: the first of a connection, an empty datagram, or a ping.
func (s *socket) send(f Flow) error {
	return control(s.conn, func(fd int) error {
		err := unix.Connect(fd, address(f.To, f.Port))
		switch {
		case errors.Is(err, unix.EINPROGRESS):
			return nil
		case err != nil:
			return err
		case s.isPing():
			_, err = unix.Write(fd, s.ping())
		case s.protocol == unix.IPPROTO_UDP:
			_, err = unix.Write(fd, nil)
		}
		return err
	})
}

// Types of ICMP and ICMPv6.
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

// ping returns an echo request. The kernel adds the checksum of ICMPv6 only (RFC 3542, section 3.1).
func (s *socket) ping() []byte {
	b := []byte{echoRequest6, 0, 0, 0, byte(s.id >> 8), byte(s.id), 0, 1}
	if !s.is4 {
		return b
	}
	b[0] = echoRequest4
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum))
	return b
}

// wait waits for the answer. The error is the one that the kernel reports about the packet, or
// wraps [os.ErrClosed] when the socket is closed.
func (s *socket) wait() (err error) {
	await := s.conn.Read
	if s.protocol == unix.IPPROTO_TCP {
		await = s.conn.Write // a connection is ready to write
	}
	failed := await(func(fd uintptr) (done bool) {
		done, err = s.answer(int(fd))
		return done || err != nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// answer reads an answer, and reports whether there was one.
func (s *socket) answer(fd int) (done bool, err error) {
	if code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil {
		return false, err
	} else if code != 0 {
		return false, unix.Errno(code)
	}
	if s.protocol == unix.IPPROTO_TCP {
		_, err := unix.Getpeername(fd)
		return err == nil, nil
	}
	b := make([]byte, 256)
	for {
		n, err := unix.Read(fd, b)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false, nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false, err
		case !s.isPing() || s.echo(b[:n]):
			return true, nil
		}
	}
}

// echo reports whether a packet is the reply to the ping. A raw socket for IPv4 gets the header of
// the network layer, too.
func (s *socket) echo(b []byte) bool {
	const size = 8
	reply := byte(echoReply6)
	if s.is4 {
		reply = echoReply4
		if len(b) == 0 || len(b) < int(b[0]&15)*4 {
			return false
		}
		b = b[int(b[0]&15)*4:]
	}
	return len(b) >= size && b[0] == reply && binary.BigEndian.Uint16(b[4:]) == s.id
}
