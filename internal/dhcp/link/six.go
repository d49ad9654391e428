package link

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// The ports of DHCPv6 (RFC 8415 section 7.2).
const (
	clientPort6 = 546
	serverPort6 = 547
)

func servers6() [16]byte { return [16]byte{0: 0xff, 1: 0x02, 13: 0x01, 15: 0x02} } // ff02::1:2

// Conn6 is a socket for the messages between servers and the DHCPv6 client on a link.
type Conn6 struct {
	link *Link
	f    *os.File
}

// Open6 opens a socket on the link. Sending needs a link-local address after duplicate address
// detection.
func (l *Link) Open6() (*Conn6, error) {
	var fd int
	err := l.NS.Run(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
		if err != nil {
			return err
		}
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1),
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, l.Index),
			unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, l.Name),
			unix.Bind(fd, &unix.SockaddrInet6{Port: clientPort6}))
		if err != nil {
			unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, l.explain("socket for DHCPv6", err)
	}
	return &Conn6{l, os.NewFile(uintptr(fd), l.Name)}, nil
}

// Close ends [Conn6.Receive].
func (c *Conn6) Close() error { return c.f.Close() }

// Send sends to all servers on the link.
func (c *Conn6) Send(message []byte) error {
	to := &unix.SockaddrInet6{Port: serverPort6, ZoneId: uint32(c.link.Index), Addr: servers6()}
	raw, err := c.f.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendto(int(fd), message, 0, to)
		return sent != unix.EAGAIN
	})
	if err := errors.Join(err, sent); err != nil {
		return c.link.explain("send DHCPv6", err)
	}
	return nil
}

// Receive waits for a message. The next call overwrites the buffer. The error wraps [os.ErrClosed]
// after Close.
func (c *Conn6) Receive(buffer []byte) ([]byte, error) {
	raw, err := c.f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var n int
	var got error
	err = raw.Read(func(fd uintptr) bool {
		n, _, got = unix.Recvfrom(int(fd), buffer, 0)
		return got != unix.EAGAIN && got != unix.EINTR
	})
	if err != nil { // nothing else ends the wait
		return nil, os.ErrClosed
	}
	if got != nil {
		return nil, c.link.explain("receive DHCPv6", got)
	}
	return buffer[:n], nil
}
