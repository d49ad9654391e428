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
	o, err := x.exchange(fd, requests)
	if err != nil {
		return 0, err
	}
	return o.result()
}

// SendAll is like [Exchange.Send] for independent requests that all have NLM_F_ACK: it returns the
// error of each request, nil for a request that the kernel has carried out.
func (x *Exchange) SendAll(fd int, requests ...Request) (errs []error, err error) {
	o, err := x.exchange(fd, requests)
	if err != nil {
		return nil, err
	}
	errs = make([]error, len(requests))
	for i := range errs {
		errs[i] = o.errs[i]
	}
	if o.lost != nil {
		return errs, o.lost
	}
	if missing := o.unconfirmed - len(o.errs); missing > 0 {
		return errs, fmt.Errorf("no answer to %d of %d requests: %w", missing, o.count, unix.EPROTO)
	}
	return errs, nil
}

// exchange sends requests and collects the answers.
func (x *Exchange) exchange(fd int, requests []Request) (*outcome, error) {
	o := &outcome{first: x.last + 1, count: uint32(len(requests))}
	var data []byte
	for _, r := range requests {
		x.last++
		data = r.appendTo(data, x.last)
		if r.Flags&unix.NLM_F_ACK != 0 {
			o.unconfirmed++
		}
	}
	if err := send(fd, data); err != nil {
		return nil, err
	}
	var failed error
	for {
		switch data, err := x.receive(fd, unix.MSG_DONTWAIT); {
		case err == unix.EAGAIN:
			if failed != nil && o.unconfirmed > 0 {
				o.lost = failed
			}
			return o, nil
		case err == unix.ENOBUFS: // the socket overflowed, but holds the answers that fitted
			o.lost = err
		case err != nil && failed == nil: // a failed call leaves the answers in the queue
			failed = err
		case err != nil:
			return nil, err
		default:
			if err := o.read(data); err != nil {
				return nil, err
			}
		}
	}
}

// outcome collects the answers to requests.
type outcome struct {
	first, count uint32        // the number of the first request, and of all requests
	unconfirmed  int           // number of requests with NLM_F_ACK and no answer yet
	refused      int           // the index of the first refused request
	err          error         // the reason
	errs         map[int]error // the reasons of all refusals, by index
	lost         error         // the error that lost some answers, or nil
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
		err = failure(m)
		if err == nil {
			o.unconfirmed--
			continue
		}
		if o.errs == nil {
			o.errs = map[int]error{}
		}
		o.errs[int(i)] = err
		if o.err == nil {
			o.refused, o.err = int(i), err
		}
	}
	return nil
}

// result returns the outcome after all answers are read.
func (o *outcome) result() (refused int, err error) {
	switch {
	case o.err != nil:
		return o.refused, o.err
	case o.lost != nil:
		return 0, o.lost
	case o.unconfirmed > 0:
		return 0, fmt.Errorf("no answer to %d of %d requests: %w", o.unconfirmed, o.count,
			unix.EPROTO)
	}
	return 0, nil
}
