package netlink

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netns"
)

// ErrOverrun reports that messages came faster than they were read, and that some are lost.
var ErrOverrun = errors.New("messages of the kernel were lost")

// StreamBuffer is the usual size of a receive buffer in bytes. The kernel uses memory only for
// waiting messages.
const StreamBuffer = 4 << 20

// StreamOptions configure a [Stream].
type StreamOptions struct {
	Protocol int   // NETLINK_…
	Groups   []int // multicast groups
	// Everywhere selects also the messages of all namespaces that have an identifier in the own one
	// (NETLINK_LISTEN_ALL_NSID), which needs CAP_NET_BROADCAST.
	Everywhere bool
	Buffer     int // size of the receive buffer in bytes; 0 is the default of the system
}

// Stream receives the messages that the kernel sends to multicast groups. Close may be called while
// another goroutine waits in Next.
type Stream struct {
	file    *os.File
	conn    syscall.RawConn
	buffer  []byte
	control []byte
	overrun bool // the receive buffer was full, and still holds messages
}

// OpenStream joins multicast groups in a namespace, which need not stay open.
func OpenStream(ns *netns.NS, o StreamOptions) (*Stream, error) {
	fd, err := ns.Socket(unix.AF_NETLINK,
		unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, o.Protocol)
	if err != nil {
		return nil, err
	}
	if err := o.join(fd); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("notifications of the kernel in %s: %w", ns, err)
	}
	s := &Stream{file: os.NewFile(uintptr(fd), "netlink"), buffer: make([]byte, maxAnswer),
		control: make([]byte, unix.CmsgSpace(4))}
	s.conn, err = s.file.SyscallConn()
	return s, err
}

func (o StreamOptions) join(fd int) error {
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	// Beyond the limit of the system it needs CAP_NET_ADMIN in the initial user namespace.
	if o.Buffer > 0 && unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, o.Buffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, o.Buffer)
	}
	if o.Everywhere {
		if err := unix.SetsockoptInt(
			fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1); err != nil {
			return err
		}
	}
	for _, group := range o.Groups {
		if err := unix.SetsockoptInt(
			fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the stream, and makes Next return an error that wraps [os.ErrClosed].
func (s *Stream) Close() error { return s.file.Close() }

// Next returns the next datagram, which the following call overwrites, and the identifier of its
// namespace, [SameNamespace] for the own one. If wait is false and there is none, data is nil.
//
// After [ErrOverrun] the stream continues. The kernel reports ENOBUFS once, and then discards all
// messages, without another report, until the receive buffer is empty (NETLINK_S_CONGESTED in
// net/netlink/af_netlink.c). So Next returns the messages in the buffer first: a caller that looks at
// the host after ErrOverrun sees what each lost message was about.
func (s *Stream) Next(wait bool) (data []byte, nsid int, err error) {
	var n, controlled int
	var failure error
	err = s.conn.Read(func(fd uintptr) bool {
		n, controlled, failure = s.receive(int(fd))
		return failure != unix.EAGAIN || s.overrun || !wait
	})
	switch {
	case err != nil: // no deadline is set, so that the stream is closed
		return nil, 0, fmt.Errorf("%w: %w", os.ErrClosed, err)
	case failure == unix.EAGAIN && s.overrun:
		s.overrun = false
		return nil, 0, ErrOverrun
	case failure == unix.EAGAIN:
		return nil, 0, nil
	case failure != nil:
		return nil, 0, failure
	}
	return s.buffer[:n], namespaceOf(s.control[:controlled]), nil
}

// receive reads a datagram, also if an earlier report about a full buffer is in front of it.
func (s *Stream) receive(fd int) (n, controlled int, err error) {
	for {
		n, controlled, _, _, err = unix.Recvmsg(fd, s.buffer, s.control, 0)
		switch err {
		case unix.ENOBUFS:
			s.overrun = true
		case unix.EINTR:
		default:
			return n, controlled, err
		}
	}
}

// namespaceOf returns the identifier in a control message of NETLINK_LISTEN_ALL_NSID.
func namespaceOf(control []byte) int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return SameNamespace
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_NETLINK && m.Header.Type == unix.NETLINK_LISTEN_ALL_NSID &&
			len(m.Data) >= 4 {
			return int(int32(number(m.Data)))
		}
	}
	return SameNamespace
}

// Message is a message of a datagram.
type Message struct {
	Kind    uint16
	Port    uint32 // of the request that caused it, 0 if the kernel does not say
	Payload []byte
}

// Messages calls each for every message of a datagram. The error is about a message that cannot be
// decoded; the messages after it are lost.
func Messages(data []byte, each func(Message)) error {
	for len(data) >= unix.SizeofNlMsghdr {
		m, rest, err := next(data)
		if err != nil {
			return err
		}
		each(Message{m.kind, uint32(number(data[12:16])), m.payload})
		data = rest
	}
	return nil
}
