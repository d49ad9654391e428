package netlink

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Send sends requests in one datagram and reads what is answered by the time the kernel has taken
// it: there is more only to questions, which do not belong here. The error is the first that the
// kernel tells, and wraps its number; refused is the index of the request that it is about. Of
// those that ask for it with NLM_F_ACK each has to be confirmed.
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
		case err == unix.ENOBUFS: // there were more than the socket can hold; those that it could are still there
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

// outcome is what becomes of requests.
type outcome struct {
	first, count uint32 // the number of the first request, and how many there are
	unconfirmed  int    // how many of those that ask for it are not confirmed
	refused      int    // the index of the first that was refused
	err          error  // why
}

// read reads the messages of a datagram.
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

// result tells it when all answers are read but those that were lost, because of an error or nil.
func (o *outcome) result(lost error) (refused int, err error) {
	switch {
	case o.err != nil:
		return o.refused, o.err
	case lost != nil:
		return 0, lost
	case o.unconfirmed > 0:
		return 0, fmt.Errorf("no answer to %d of %d requests: %w", o.unconfirmed, o.count, unix.EPROTO)
	}
	return 0, nil
}
