// Package nlmsg builds and reads messages of netlink(7), whatever they are about, and exchanges them with the kernel. The
// kernel answers while it takes the request, so nothing is waited for on a goroutine that is parked meanwhile, as libraries
// do: an exchange takes 5 µs, not 100.
package nlmsg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"
)

// ErrInterrupted says that what was listed has changed meanwhile (NLM_F_DUMP_INTR): some of it may be missing, or there twice.
var ErrInterrupted = errors.New("list changed while it was read")

// maxAnswer is more than the kernel puts into one datagram: 32 KiB (netlink_dump in net/netlink/af_netlink.c), or one message
// that is longer, as that of a bridge port in all VLANs is.
const maxAnswer = 64 << 10

// Exchange is the exchanges on one socket. It is for one goroutine.
type Exchange struct {
	buffer []byte
	last   uint32 // number of the last request
}

// Ask sends a request, which may have waited for nothing but locks of the kernel, and calls each with what follows the
// header of each answer, in a buffer that the next one overwrites. flags are NLM_F_…, without NLM_F_REQUEST; with NLM_F_ACK
// there is no answer but whether it was done. The error of the kernel wraps its number.
func (x *Exchange) Ask(fd int, kind uint16, flags int, body []byte, each func(payload []byte) error) error {
	if x.buffer == nil {
		x.buffer = make([]byte, maxAnswer)
	}
	x.last++
	request := binary.NativeEndian.AppendUint32(make([]byte, 0, unix.SizeofNlMsghdr+len(body)), uint32(unix.SizeofNlMsghdr+len(body)))
	request = binary.NativeEndian.AppendUint16(request, kind)
	request = binary.NativeEndian.AppendUint16(request, uint16(unix.NLM_F_REQUEST|flags))
	request = binary.NativeEndian.AppendUint32(request, x.last)
	request = binary.NativeEndian.AppendUint32(request, 0)
	if err := unix.Sendto(fd, append(request, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	a := answers{number: x.last, one: flags&(unix.NLM_F_DUMP|unix.NLM_F_ACK) == 0, each: each}
	for !a.done {
		n, _, err := unix.Recvfrom(fd, x.buffer, unix.MSG_TRUNC)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if err == nil || err == unix.EINTR {
				continue
			}
			return err
		case err != nil:
			return err
		case n > len(x.buffer):
			return fmt.Errorf("answer of %d bytes: %w", n, unix.EMSGSIZE)
		}
		if err := a.read(x.buffer[:n]); err != nil {
			return err
		}
	}
	if a.interrupted {
		return ErrInterrupted
	}
	return nil
}

// answers are those to one request.
type answers struct {
	number      uint32
	one         bool // the first is the last
	each        func([]byte) error
	done        bool
	interrupted bool
}

// read reads the messages of a datagram.
func (a *answers) read(data []byte) error {
	for len(data) >= unix.SizeofNlMsghdr {
		size, kind := int(binary.NativeEndian.Uint32(data)), binary.NativeEndian.Uint16(data[4:])
		flags, number := binary.NativeEndian.Uint16(data[6:]), binary.NativeEndian.Uint32(data[8:])
		if size < unix.SizeofNlMsghdr || size > len(data) {
			return fmt.Errorf("message of %d bytes in %d: %w", size, len(data), unix.EBADMSG)
		}
		payload := data[unix.SizeofNlMsghdr:size]
		data = data[min(Align(size), len(data)):]
		if number != a.number {
			continue // the answer to a request that was given up
		}
		a.interrupted = a.interrupted || flags&unix.NLM_F_DUMP_INTR != 0
		switch {
		case kind == unix.NLMSG_ERROR || kind == unix.NLMSG_DONE:
			a.done = true
			return failure(payload, flags)
		case kind == unix.NLMSG_NOOP || a.each == nil:
			continue
		}
		if err := a.each(payload); err != nil {
			return err
		}
		a.done = a.done || a.one
	}
	return nil
}

const (
	errnoLen    = 4
	textOfError = 1 // NLMSGERR_ATTR_MSG, with NETLINK_EXT_ACK
)

// failure reads the number that an answer begins with, and what the kernel says of it.
func failure(payload []byte, flags uint16) error {
	if len(payload) < errnoLen {
		return nil
	}
	errno := unix.Errno(-int32(binary.NativeEndian.Uint32(payload)))
	if errno == 0 {
		return nil
	}
	rest := payload[errnoLen:]
	if flags&unix.NLM_F_ACK_TLVS != 0 && flags&unix.NLM_F_CAPPED != 0 /* without the request */ && len(rest) >= unix.SizeofNlMsghdr {
		for kind, value := range Attributes(rest[unix.SizeofNlMsghdr:]) {
			if kind == textOfError {
				return fmt.Errorf("%w: %s", errno, Text(value))
			}
		}
	}
	return errno
}

// Attributes are those in b, by type without its flags.
func Attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.SizeofRtAttr || size > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:size]) {
				return
			}
			b = b[min(Align(size), len(b)):]
		}
	}
}

// Text reads a string that ends with a zero, or does not.
func Text(value []byte) string {
	for i, c := range value {
		if c == 0 {
			return string(value[:i])
		}
	}
	return string(value)
}

// Align is where something may begin at the earliest after n bytes.
func Align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
