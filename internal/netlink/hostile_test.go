package netlink_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// load reads a recording.
func load(t testing.TB, name string) recording {
	t.Helper()
	b, err := os.ReadFile(recordingFile(name))
	if err != nil {
		t.Fatal(err)
	}
	return parseRecording(t, string(b))
}

type (
	conn = *netlink.Conn
	link = netlink.Link
)

// questions are the methods that decode descriptions of objects.
var questions = []struct {
	name string
	kind uint16 // of the answer
	list bool   // the answer is a list
	ask  func(c conn, l link) (any, error)
}{
	{"Link", unix.RTM_NEWLINK, false, func(c conn, _ link) (any, error) {
		l, err := c.Links.ByName("w0")
		return show(l), err
	}},
	{"Links", unix.RTM_NEWLINK, true, func(c conn, _ link) (any, error) {
		var texts []string
		links, err := c.Links.All()
		for _, l := range links {
			texts = append(texts, show(l))
		}
		return texts, err
	}},
	{"VLANs", unix.RTM_NEWLINK, true,
		func(c conn, l link) (any, error) { return c.Links.VLANs(l) }},
	{"Addrs", unix.RTM_NEWADDR, true, func(c conn, l link) (any, error) { return c.Addrs.Of(l) }},
	{"KeptAddrs", unix.RTM_NEWADDR, true, func(c conn, l link) (any, error) {
		return c.Addrs.Kept(l)
	}},
	{"StoredAddrs", unix.RTM_NEWADDR, true, func(c conn, l link) (any, error) {
		return c.Addrs.Stored(l)
	}},
	{"Duplicates", unix.RTM_NEWADDR, true, func(c conn, l link) (any, error) {
		return c.Addrs.Duplicates(l)
	}},
	{"Autoconf", unix.RTM_NEWADDR, true, func(c conn, l link) (any, error) {
		return c.Addrs.Autoconf(l)
	}},
	{"Routes", unix.RTM_NEWROUTE, true, func(c conn, _ link) (any, error) {
		return c.Routes.All(netlink.AllTables)
	}},
	{"StoredRoutes", unix.RTM_NEWROUTE, true, func(c conn, l link) (any, error) {
		return c.Routes.Stored(l)
	}},
	{"Lookup", unix.RTM_NEWROUTE, false, func(c conn, _ link) (any, error) {
		hop, _, err := c.Routes.Lookup(netip.IPv6Unspecified())
		return hop, err
	}},
	{"PolicyRules", unix.RTM_NEWRULE, true, func(c conn, _ link) (any, error) {
		return c.Routes.Rules()
	}},
	{"Qdiscs", unix.RTM_NEWQDISC, true,
		func(c conn, _ link) (any, error) { return c.Qdiscs.All() }},
	{"Filters", unix.RTM_NEWTFILTER, true, func(c conn, l link) (any, error) {
		list, others, err := c.Qdiscs.Filters(l, netlink.Ingress)
		return fmt.Sprint(list, len(others)), err
	}},
}

// anyKind matches every kind of answer.
const anyKind = 0

// ask calls the methods of a kind, each answered with one message, and returns the results.
func ask(t testing.TB, w *wire, l netlink.Link, kind uint16, payload []byte) (results []string) {
	t.Helper()
	for _, q := range questions {
		if kind != anyKind && kind != q.kind {
			continue
		}
		number := w.number()
		for range 3 { // for addresses, and for routes of both families
			number++
			answer := packet(q.kind, unix.NLM_F_MULTI, number, payload)
			if q.list {
				answer = append(answer, done(number)...)
			}
			w.answer(t, answer)
		}
		result, err := q.ask(w.Conn, l)
		w.asked()
		w.forget()
		results = append(results, fmt.Sprintf("%s: %v, %v", q.name, result, err))
		if errors.Is(err, unix.EAGAIN) {
			t.Fatalf("%s waits for more than %x", q.name, payload)
		}
	}
	return results
}

// TestTruncated truncates the recorded messages at many places. No part may cause a panic or change
// how the next message is decoded.
func TestTruncated(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	seen := map[string]bool{}
	for _, row := range recordings {
		for _, e := range load(t, row.name).exchanges {
			if e.request {
				continue
			}
			for _, m := range messages(t, e.datagram) {
				kind, payload := binary.NativeEndian.Uint16(m[4:]), m[unix.SizeofNlMsghdr:]
				if seen[string(payload)] {
					continue
				}
				seen[string(payload)] = true
				l := netlink.Link{Index: 3}
				whole := ask(t, w, l, kind, payload)
				for n := 0; n < len(payload); n += 1 + n/16 {
					ask(t, w, l, kind, payload[:n])
				}
				if again := ask(t, w, l, kind, payload); !slices.Equal(whole, again) {
					t.Fatalf("after truncated messages %q is read as %q", whole, again)
				}
			}
		}
	}
}

// TestInterrupted checks that a list that changes during the dump is requested again, and that no
// object of the first attempt remains. After ten attempts the error is ErrInterrupted.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	made := func(index int32, flags uint16, number uint32) []byte {
		return packet(unix.RTM_NEWLINK, unix.NLM_F_MULTI|flags, number,
			netlink.Body(unix.IfInfomsg{Index: index}))
	}
	t.Run("once", func(t *testing.T) {
		t.Parallel()
		w := newWire(t)
		w.answer(t, made(1, 0, 1), made(2, unix.NLM_F_DUMP_INTR, 1), done(1),
			slices.Concat(made(3, 0, 2), done(2)))
		links, err := w.Links.All()
		if err != nil || len(links) != 1 || links[0].Index != 3 {
			t.Errorf("got %v, %v", links, err)
		}
		if n := len(w.asked()); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
	t.Run("always", func(t *testing.T) {
		t.Parallel()
		w := newWire(t)
		for number := range uint32(10) {
			w.answer(t, slices.Concat(made(1, unix.NLM_F_DUMP_INTR, number+1), done(number+1)))
		}
		if links, err := w.Links.All(); !errors.Is(err, netlink.ErrInterrupted) || links != nil {
			t.Errorf("got %v, %v", links, err)
		}
		if n := len(w.asked()); n != 10 {
			t.Errorf("asked %d times", n)
		}
	})
	t.Run("at the end only", func(t *testing.T) {
		t.Parallel()
		w := newWire(t)
		end := packet(unix.NLMSG_DONE, unix.NLM_F_MULTI|unix.NLM_F_DUMP_INTR, 1, make([]byte, 4))
		w.answer(t, slices.Concat(made(1, 0, 1), end), done(2))
		if links, err := w.Links.All(); err != nil || len(links) != 0 {
			t.Errorf("got %v, %v", links, err)
		}
	})
}

// TestHostile checks that answers that the kernel never sends are errors.
func TestHostile(t *testing.T) {
	t.Parallel()
	link := packet(unix.RTM_NEWLINK, 0, 1, netlink.Body(unix.IfInfomsg{Index: 1}))
	short, long := slices.Clone(link), slices.Clone(link)
	binary.NativeEndian.PutUint32(short, 15)
	binary.NativeEndian.PutUint32(long, 200)
	for _, row := range []struct {
		name     string
		datagram []byte
		want     error
	}{
		{"shorter than its header says", long, unix.EBADMSG},
		{"shorter than a header", short, unix.EBADMSG},
		{"less than a link", packet(unix.RTM_NEWLINK, 0, 1, make([]byte, 15)), unix.EBADMSG},
		{"larger than any answer", make([]byte, 65<<10), unix.EMSGSIZE},
		{"the answer to another request", packet(unix.RTM_NEWLINK, 0, 9, link[16:]), unix.EAGAIN},
		{"an error without a number", packet(unix.NLMSG_ERROR, 0, 1, nil), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			w.answer(t, row.datagram)
			if l, err := w.Links.ByName("w0"); !errors.Is(err, row.want) {
				t.Errorf("got %v, %v, want %v", l, err, row.want)
			}
		})
	}
}

// FuzzQuestions checks that no description of an object causes a panic or makes a method wait for
// more.
func FuzzQuestions(f *testing.F) {
	for _, row := range recordings {
		for _, e := range load(f, row.name).exchanges {
			for _, m := range messages(f, e.datagram) {
				f.Add(m[unix.SizeofNlMsghdr:], 3)
			}
		}
	}
	w := newWire(f)
	f.Fuzz(func(t *testing.T, payload []byte, link int) {
		if len(payload) > 32<<10 {
			return
		}
		ask(t, w, netlink.Link{Index: link}, anyKind, payload)
	})
}
