package netlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// message returns a message of the kernel.
func message(kind, flags uint16, number uint32, payload ...byte) []byte {
	b := Body(unix.NlMsghdr{Len: uint32(unix.SizeofNlMsghdr + len(payload)), Type: kind,
		Flags: flags, Seq: number})
	b = append(b, payload...)
	return append(b, make([]byte, Align(len(b))-len(b))...)
}

func errno(e unix.Errno) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(-int32(e))) }

// refusal returns an error with a text.
func refusal(e unix.Errno, text string) []byte {
	of := append(errno(e), make([]byte, unix.SizeofNlMsghdr)...)
	return message(unix.NLMSG_ERROR, unix.NLM_F_CAPPED|unix.NLM_F_ACK_TLVS, 7,
		append(of, String(textOfError, text)...)...)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	link, done := message(unix.RTM_NEWLINK, 0, 7, 1, 2, 3, 4), message(unix.NLMSG_DONE,
		unix.NLM_F_MULTI, 7, errno(0)...)
	for _, row := range []struct {
		name string
		one  bool
		data []byte
		want string
	}{
		{"one answer", true, link, "[01020304] done"},
		{"part of a list", false, slices.Concat(link, link), "[01020304 01020304]"},
		{"end of a list", false, slices.Concat(link, done), "[01020304] done"},
		{"nothing after the end counts", false, slices.Concat(done, link), "[] done"},
		{"list that has changed", false,
			slices.Concat(message(unix.RTM_NEWLINK, unix.NLM_F_DUMP_INTR, 7, 5), done),
			"[05] done interrupted"},
		{"answer to another request", true, slices.Concat(message(unix.RTM_NEWLINK, 0, 6, 9), link),
			"[01020304] done"},
		{"nothing", true, slices.Concat(message(unix.NLMSG_NOOP, 0, 7), link), "[01020304] done"},
		{"confirmation", false, message(unix.NLMSG_ERROR, 0, 7, errno(0)...), "[] done"},
		{"refusal", false, message(unix.NLMSG_ERROR, 0, 7, errno(unix.EEXIST)...),
			"[] done: file exists"},
		{"refusal with a reason", false, refusal(unix.EINVAL, "no such thing"),
			"[] done: invalid argument: no such thing"},
		{"refusal at the end of a list", false,
			message(unix.NLMSG_DONE, unix.NLM_F_MULTI, 7, errno(unix.ENOENT)...),
			"[] done: no such file or directory"},
		{"longer than the datagram", true, link[:len(link)-1],
			"[]: message of 20 bytes in 19: bad message"},
		{"shorter than its header", true, append(binary.NativeEndian.AppendUint32(nil, 15), link[4:]...),
			"[]: message of 15 bytes in 20: bad message"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var payloads []string
			a := answers{number: 7, one: row.one, each: func(b []byte) error {
				payloads = append(payloads, fmt.Sprintf("%x", b))
				return nil
			}}
			err := a.read(row.data)
			got := fmt.Sprint(payloads)
			if a.done {
				got += " done"
			}
			if a.interrupted {
				got += " interrupted"
			}
			if err != nil {
				got += ": " + err.Error()
			}
			if got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

// TestAnswersToAsker checks that an error of each is kept, and that each is not called again.
func TestAnswersToAsker(t *testing.T) {
	t.Parallel()
	calls := 0
	a := answers{number: 7, each: func([]byte) error {
		calls++
		return unix.EBADMSG
	}}
	link, done := message(unix.RTM_NEWLINK, 0, 7), message(unix.NLMSG_DONE, unix.NLM_F_MULTI, 7,
		errno(0)...)
	if err := a.read(slices.Concat(link, link, done)); err != nil || !a.done || calls != 1 ||
		a.err != unix.EBADMSG {
		t.Errorf("done %v after %d calls: %v, %v", a.done, calls, err, a.err)
	}
}

// FuzzAnswers checks that each payload that the reader passes on lies within the datagram, in its
// order.
// TestAnswerAfterError: a failed call does not lose the answer of the kernel.
func TestAnswerAfterError(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		answers [][]byte
		dump    bool
		want    error
	}{
		{"confirmed", [][]byte{message(unix.NLMSG_ERROR, 0, 1, errno(0)...)}, false, nil},
		{"refused", [][]byte{message(unix.NLMSG_ERROR, 0, 1, errno(unix.EEXIST)...)}, false,
			unix.EEXIST},
		{"after an event", [][]byte{message(unix.RTM_NEWLINK, 0, 0),
			message(unix.NLMSG_ERROR, 0, 1, errno(0)...)}, false, nil},
		{"part of a list", [][]byte{message(unix.NLMSG_DONE, 0, 1)}, true, unix.ECONNRESET},
	} {
		t.Run(row.name, func(t *testing.T) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fds[0])
			for _, b := range row.answers {
				if err := unix.Send(fds[1], b, 0); err != nil {
					t.Fatal(err)
				}
			}
			// The kernel reports ECONNRESET once if the peer closes with unread data.
			if err := errors.Join(unix.Send(fds[0], []byte{1}, 0), unix.Close(fds[1])); err != nil {
				t.Fatal(err)
			}
			var x Exchange
			if err := x.collect(fds[0], row.dump, &answers{number: 1}); !errors.Is(err, row.want) {
				t.Errorf("collect returned %v, want %v", err, row.want)
			}
		})
	}
}

// TestLostAnswer: Ask does not wait for an answer that the kernel has dropped for lack of room in
// the socket.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	r := Request{unix.RTM_GETLINK, unix.NLM_F_ACK, Body(unix.IfInfomsg{Index: 4711})}
	for i := range uint32(200) { // the answers to other requests fill the socket
		if err := send(fd, r.appendTo(nil, 1000+i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := new(Exchange).Ask(fd, r.Kind, r.Flags, r.Body, nil); err != unix.ENOBUFS {
		t.Errorf("Ask returned %v, want %v", err, unix.ENOBUFS)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(slices.Concat(message(unix.RTM_NEWLINK, 0, 7, 1, 2, 3),
		message(unix.NLMSG_DONE, 0, 7, errno(0)...)))
	f.Add(refusal(unix.EINVAL, "no such thing"))
	f.Add(message(unix.NLMSG_ERROR, 0, 7, 1))
	f.Add(message(unix.NLMSG_ERROR, unix.NLM_F_CAPPED|unix.NLM_F_ACK_TLVS, 7, errno(unix.EPERM)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		rest := b
		a := answers{number: 7, each: func(payload []byte) error {
			at := bytes.Index(rest, payload)
			if at < 0 {
				t.Fatalf("%x is not in %x", payload, rest)
			}
			rest = rest[at+len(payload):]
			for range Attributes(payload) {
			}
			return nil
		}}
		_ = a.read(b)
		o := outcome{first: 7, count: 2}
		if err := o.read(b); err == nil && o.err != nil && o.refused > 1 {
			t.Fatalf("request %d was refused", o.refused)
		}
	})
}

// TestOutcome checks that the first refusal of several requests counts, and that unconfirmed
// requests count as not done.
func TestOutcome(t *testing.T) {
	t.Parallel()
	answer := func(number uint32, e unix.Errno) []byte {
		return message(unix.NLMSG_ERROR, 0, number, errno(e)...)
	}
	for _, row := range []struct {
		name string
		data []byte
		lost error
		want string
	}{
		{"confirmed", answer(9, 0), nil, "0"},
		{"refused", slices.Concat(answer(8, unix.EEXIST), answer(9, 0)), nil, "1: file exists"},
		{"the first refusal counts",
			slices.Concat(answer(7, unix.ENOENT), answer(8, unix.EEXIST), answer(9, unix.EBUSY)),
			nil, "0: no such file or directory"},
		{"not confirmed", nil, nil, "0: no answer to 1 of 3 requests: protocol error"},
		{"answers to requests before and after",
			slices.Concat(answer(6, unix.EEXIST), answer(10, unix.EEXIST), answer(9, 0)), nil, "0"},
		{"a message that answers nothing",
			slices.Concat(message(unix.RTM_NEWLINK, 0, 9), answer(9, 0)), nil, "0"},
		{"more refusals than the buffer holds", answer(8, unix.EEXIST), unix.ENOBUFS,
			"1: file exists"},
		{"only lost answers", nil, unix.ENOBUFS, "0: no buffer space available"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o := outcome{first: 7, count: 3, unconfirmed: 1, lost: row.lost}
			if err := o.read(row.data); err != nil {
				t.Fatal(err)
			}
			refused, err := o.result()
			got := fmt.Sprint(refused)
			if err != nil {
				got += ": " + err.Error()
			}
			if got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
	if err := new(outcome).read(answer(7, 0)[:19]); !errors.Is(err, unix.EBADMSG) {
		t.Errorf("longer than the datagram: %v", err)
	}
}

// TestRequests checks the alignment of consecutive messages.
func TestRequests(t *testing.T) {
	t.Parallel()
	var b []byte
	for i, r := range []Request{{Kind: 3, Body: []byte{1, 2, 3}},
		{Kind: 4, Flags: unix.NLM_F_ACK}} {
		b = r.appendTo(b, uint32(7+i))
	}
	want := slices.Concat(message(3, unix.NLM_F_REQUEST, 7, 1, 2, 3),
		message(4, unix.NLM_F_REQUEST|unix.NLM_F_ACK, 8))
	if !bytes.Equal(b, want) {
		t.Errorf("got %x, want %x", b, want)
	}
}
