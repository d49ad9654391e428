package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// ErrInterrupted reports that the listed objects changed during the dump (NLM_F_DUMP_INTR): the
// list may omit some objects and repeat others.
var ErrInterrupted = errors.New("list changed while it was read")

// maxAnswer is larger than any datagram of the kernel: 32 KiB (netlink_dump in
// net/netlink/af_netlink.c), or one longer message, for example about a bridge port in all VLANs.
const maxAnswer = 64 << 10

// Exchange exchanges messages on one socket. It must be used by one goroutine at a time. The kernel
// answers while it accepts the request, so no goroutine is parked: an exchange takes 5 µs, compared
// with 100 µs in libraries.
type Exchange struct {
	buffer []byte
	last   uint32 // number of the last request
}

// Prepare makes the kernel add a text to errors, and omit the request that caused them. Before
// Linux 4.12 there is no text.
func Prepare(fd int) {
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
		_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, option, 1)
	}
}

// Request is a message to the kernel.
type Request struct {
	Kind  uint16
	Flags int    // NLM_F_…, without NLM_F_REQUEST
	Body  []byte // the part after the header
}

// appendTo appends the message, with padding and a number that its answers repeat.
func (r Request) appendTo(b []byte, number uint32) []byte {
	size := unix.SizeofNlMsghdr + len(r.Body)
	b = slices.Grow(b, Align(size))
	b = binary.NativeEndian.AppendUint32(b, uint32(size))
	b = binary.NativeEndian.AppendUint16(b, r.Kind)
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.NLM_F_REQUEST|r.Flags))
	b = binary.NativeEndian.AppendUint32(b, number)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return append(append(b, r.Body...), make([]byte, Align(size)-size)...)
}

// Ask sends a request that the kernel answers without waiting except for locks, and calls each with
// the payload of each answer, in a buffer that the next answer overwrites. flags are NLM_F_…,
// without NLM_F_REQUEST; with NLM_F_ACK the kernel only confirms the request. An error of the
// kernel wraps its errno. If each returns an error, Ask reads the remaining answers without calling
// each, and returns that error: the kernel refuses another dump until the first one is read to its
// end.
func (x *Exchange) Ask(fd int, kind uint16, flags int, body []byte,
	each func(payload []byte) error) error {
	x.last++
	if err := send(fd, Request{kind, flags, body}.appendTo(nil, x.last)); err != nil {
		return err
	}
	a := answers{number: x.last, one: flags&(unix.NLM_F_DUMP|unix.NLM_F_ACK) == 0, each: each}
	if err := x.collect(fd, flags&unix.NLM_F_DUMP == unix.NLM_F_DUMP, &a); err != nil {
		return err
	}
	if a.err == nil && a.interrupted {
		return ErrInterrupted
	}
	return a.err
}

// collect receives the answers to one request. If a call fails, the only answer to a request that
// is not a dump may still be in the queue: without it the caller would not know whether the kernel
// has made the change.
func (x *Exchange) collect(fd int, dump bool, a *answers) error {
	var failed error
	wait := 0
	for !a.done {
		data, err := x.receive(fd, wait)
		switch {
		case err == nil:
			err = a.read(data)
		case failed != nil:
			return failed
		case !dump:
			failed, wait = err, unix.MSG_DONTWAIT
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// repeats limits the requests for a list that changes during the dump.
const repeats = 10

// List returns the objects of a list; read appends the objects of an answer to its first argument.
// List repeats the request, a limited number of times, if the list changed during the dump.
func List[T any](
	x *Exchange, fd int, kind uint16, body []byte, read func([]T, []byte) ([]T, error),
) (list []T, err error) {
	for range repeats {
		list = nil
		err = x.Ask(fd, kind, unix.NLM_F_DUMP, body, func(payload []byte) (err error) {
			list, err = read(list, payload)
			return err
		})
		if !errors.Is(err, ErrInterrupted) {
			return list, err
		}
	}
	return list, err
}

// send sends a datagram to the kernel, the default peer of an unconnected socket. If the datagram
// is larger than the send buffer, send enlarges the buffer as far as the process may.
func send(fd int, data []byte) error {
	err := unix.Send(fd, data, 0)
	if err != unix.EMSGSIZE {
		return err
	}
	// SO_SNDBUFFORCE needs CAP_NET_ADMIN in the initial user namespace.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, len(data)); err != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, len(data))
	}
	return unix.Send(fd, data, 0)
}

// receive receives a datagram in the buffer. flags are MSG_….
func (x *Exchange) receive(fd, flags int) ([]byte, error) {
	if x.buffer == nil {
		x.buffer = make([]byte, maxAnswer)
	}
	for {
		n, _, err := unix.Recvfrom(fd, x.buffer, unix.MSG_TRUNC|flags)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		case n > len(x.buffer):
			return nil, fmt.Errorf("answer of %d bytes: %w", n, unix.EMSGSIZE)
		}
		return x.buffer[:n], nil
	}
}

// reply is a message of the kernel.
type reply struct {
	kind, flags uint16
	number      uint32
	payload     []byte // the part after the header
}

// next decodes the first message of a datagram longer than a header.
func next(data []byte) (m reply, rest []byte, err error) {
	size := int(binary.NativeEndian.Uint32(data))
	if size < unix.SizeofNlMsghdr || size > len(data) {
		return reply{}, nil, fmt.Errorf("message of %d bytes in %d: %w", size, len(data),
			unix.EBADMSG)
	}
	return reply{
		kind: binary.NativeEndian.Uint16(data[4:]), flags: binary.NativeEndian.Uint16(data[6:]),
		number:  binary.NativeEndian.Uint32(data[8:]),
		payload: data[unix.SizeofNlMsghdr:size],
	}, data[min(Align(size), len(data)):], nil
}

// answers collects the answers to one request.
type answers struct {
	number      uint32
	one         bool // the first answer is the last
	each        func([]byte) error
	err         error // returned by each, which is then not called again
	done        bool
	interrupted bool
}

// read decodes the messages of a datagram.
func (a *answers) read(data []byte) error {
	for len(data) >= unix.SizeofNlMsghdr {
		m, rest, err := next(data)
		if err != nil {
			return err
		}
		data = rest
		if m.number != a.number {
			continue // the answer to an abandoned request
		}
		a.interrupted = a.interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
		switch {
		case m.kind == unix.NLMSG_ERROR || m.kind == unix.NLMSG_DONE:
			a.done = true
			return failure(m)
		case m.kind == unix.NLMSG_NOOP || a.each == nil:
			continue
		}
		if a.err == nil {
			a.err = a.each(m.payload)
		}
		a.done = a.done || a.one
	}
	return nil
}

const (
	errnoLen    = 4
	textOfError = 1 // NLMSGERR_ATTR_MSG, with NETLINK_EXT_ACK
)

// failure decodes the errno at the beginning of an answer, and the kernel's explanation.
func failure(m reply) error {
	if len(m.payload) < errnoLen {
		return nil
	}
	errno := unix.Errno(-int32(binary.NativeEndian.Uint32(m.payload)))
	if errno == 0 {
		return nil
	}
	rest := m.payload[errnoLen:]
	if m.flags&unix.NLM_F_ACK_TLVS != 0 &&
		m.flags&unix.NLM_F_CAPPED != 0 /* without the request */ &&
		len(rest) >= unix.SizeofNlMsghdr {
		for kind, value := range Attributes(rest[unix.SizeofNlMsghdr:]) {
			if kind == textOfError {
				return fmt.Errorf("%w: %s", errno, Text(value))
			}
		}
	}
	return errno
}
