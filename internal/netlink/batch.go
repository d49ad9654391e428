package netlink

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Send sends requests in one datagram and reads the answers that the kernel has queued by the time
// it accepts the datagram. Only dumps are answered later; do not send them here. Send returns the
// first error that the kernel reports, wrapping its errno, and refused is the index of the request
// at fault. The kernel must confirm each request that has NLM_F_ACK.
func (x *Exchange) Send(fd int, requests ...Request) (refused int, err error) {
	o := outcome{first: x.last + 1, count: uint32(len(requests))}
	var data []byte
	for _, r := range requests {
		x.last++
		data = r.appendTo(data, x.last)
		if r.Flags&unix.NLM_F_ACK != 0 {
			o.unconfirmed++
		}
	}
	if err := send(fd, data); err != nil {
		return 0, err
	}
	var lost error
	for {
		switch data, err := x.receive(fd, unix.MSG_DONTWAIT); {
		case err == unix.EAGAIN:
			return o.result(lost)
		case err == unix.ENOBUFS: // the socket overflowed, but holds the answers that fitted
			lost = err
		case err != nil:
			return 0, err
		default:
			if err := o.read(data); err != nil {
				return 0, err
			}
		}
	}
}

// outcome collects the answers to requests.
type outcome struct {
	first, count uint32 // the number of the first request, and of all requests
	unconfirmed  int    // number of requests with NLM_F_ACK and no answer yet
	refused      int    // the index of the first refused request
	err          error  // the reason
}

// read decodes the messages of a datagram.
func (o *outcome) read(data []byte) error {
	for len(data) >= unix.SizeofNlMsghdr {
		m, rest, err := next(data)
		if err != nil {
			return err
		}
		data = rest
		i := m.number - o.first
		if i >= o.count || m.kind != unix.NLMSG_ERROR {
			continue
		}
		switch err := failure(m); {
		case err == nil:
			o.unconfirmed--
		case o.err == nil:
			o.refused, o.err = int(i), err
		}
	}
	return nil
}

// result returns the outcome after all answers are read. lost is the error that lost some answers,
// or nil.
func (o *outcome) result(lost error) (refused int, err error) {
	switch {
	case o.err != nil:
		return o.refused, o.err
	case lost != nil:
		return 0, lost
	case o.unconfirmed > 0:
		return 0, fmt.Errorf("no answer to %d of %d requests: %w", o.unconfirmed, o.count,
			unix.EPROTO)
	}
	return 0, nil
}
