package netlink_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// wire is a connection on which the test plays the kernel. The test queues its answers before the
// requests.
type wire struct {
	*netlink.Conn
	ns     *netns.NS // any
	fd     int
	kernel int // the other end of fd
}

func newWire(t testing.TB) *wire {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	// A missing answer must not block the test for long.
	soon := unix.NsecToTimeval(int64(50 * time.Millisecond))
	err = unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &soon)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := netns.Open("/proc/self/ns/net")
	unknown := errors.Is(err, unix.ENOSYS) // user-mode qemu does not know the type of a namespace
	if unknown {
		ns = new(netns.NS)
	} else if err != nil {
		t.Fatal(err)
	}
	w := &wire{netlink.Over(pair[0], ns), ns, pair[0], pair[1]}
	t.Cleanup(func() {
		w.Close()
		unix.Close(w.kernel)
		if !unknown {
			ns.Close()
		}
	})
	return w
}

// Close closes the connection, once.
func (w *wire) Close() {
	if w.fd >= 0 {
		unix.Close(w.fd)
	}
	w.fd = -1
}

// answer queues datagrams.
func (w *wire) answer(t testing.TB, datagrams ...[]byte) {
	t.Helper()
	for _, d := range datagrams {
		if err := unix.Send(w.kernel, d, unix.MSG_DONTWAIT); err != nil {
			t.Fatal(err)
		}
	}
}

// asked returns the requests since the last call.
func (w *wire) asked() (requests []exchange) {
	b := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(w.kernel, b, unix.MSG_DONTWAIT)
		if err != nil {
			return requests
		}
		requests = append(requests, exchange{true, slices.Clone(b[:n])})
	}
}

// number returns the number of the last request.
func (w *wire) number() uint32 { return netlink.LastNumber(w.Conn) }

// forget drops queued answers.
func (w *wire) forget() {
	for b := make([]byte, 1); ; {
		if _, _, err := unix.Recvfrom(w.fd, b, unix.MSG_DONTWAIT); err != nil {
			return
		}
	}
}

// packet returns one message of the kernel.
func packet(kind, flags uint16, number uint32, payload []byte) []byte {
	b := netlink.Body(unix.NlMsghdr{Len: uint32(unix.SizeofNlMsghdr + len(payload)), Type: kind,
		Flags: flags, Seq: number})
	b = append(b, payload...)
	return append(b, make([]byte, netlink.Align(len(b))-len(b))...)
}

// done returns the end of a list.
func done(number uint32) []byte {
	return packet(unix.NLMSG_DONE, unix.NLM_F_MULTI, number, make([]byte, 4))
}

// messages splits a datagram.
func messages(t testing.TB, datagram []byte) (list [][]byte) {
	t.Helper()
	for len(datagram) > 0 {
		n := int(binary.NativeEndian.Uint32(datagram))
		if n < unix.SizeofNlMsghdr || n > len(datagram) {
			t.Fatalf("message of %d bytes in %d", n, len(datagram))
		}
		list = append(list, datagram[:n])
		datagram = datagram[min(netlink.Align(n), len(datagram)):]
	}
	return list
}

// exchange holds the messages of one direction.
type exchange struct {
	request  bool
	datagram []byte
}

// recording is the content of a file: exchanges, and the result that they lead to.
type recording struct {
	exchanges []exchange
	result    string
}

// parseRecording reads what format has written, on a processor with the byte order of the recorded
// messages.
func parseRecording(t testing.TB, file string) (r recording) {
	t.Helper()
	testnet.Require(t, func() error {
		if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
			return errors.New("the recorded messages are little-endian")
		}
		return nil
	})
	head, result, _ := strings.Cut(file, "\n=\n")
	r.result = result
	for line := range strings.Lines(head) {
		line, _, _ = strings.Cut(line, ";")
		switch {
		case strings.HasPrefix(line, ">"), strings.HasPrefix(line, "<"):
			r.exchanges = append(r.exchanges, exchange{request: line[0] == '>'})
		case strings.HasPrefix(line, "\t"):
			b, err := hex.DecodeString(strings.Join(strings.Fields(line), ""))
			if err != nil {
				t.Fatal(err)
			}
			last := &r.exchanges[len(r.exchanges)-1]
			last.datagram = append(last.datagram, b...)
		}
	}
	return r
}

// format formats a recording: a line for the header of each message, one for the part before its
// attributes, and one for each attribute, in hexadecimal digits. Comments begin with a semicolon.
func (r recording) format(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, e := range r.exchanges {
		b.WriteString(map[bool]string{true: "> request\n", false: "< answer\n"}[e.request])
		for _, m := range messages(t, e.datagram) {
			m = append(slices.Clone(m), make([]byte, netlink.Align(len(m))-len(m))...)
			kind := binary.NativeEndian.Uint16(m[4:])
			fmt.Fprintf(&b, "\t%s ; %s\n", words(m[:16]), kindNames[kind])
			body := 16 + min(bodySize(kind), len(m)-16)
			fmt.Fprintf(&b, "\t%s\n", words(m[16:body]))
			for rest := m[body:]; len(rest) > 0; {
				n := len(rest)
				if len(rest) >= 4 {
					n = min(n, max(4, netlink.Align(int(binary.NativeEndian.Uint16(rest)))))
				}
				fmt.Fprintf(&b, "\t%s%s\n", words(rest[:n]), comment(rest[:n]))
				rest = rest[n:]
			}
		}
	}
	return strings.TrimSuffix(b.String(), "\n") + "\n=\n" + r.result
}

// words formats bytes in groups of four.
func words(b []byte) string {
	var list []string
	for word := range slices.Chunk(b, 4) {
		list = append(list, hex.EncodeToString(word))
	}
	return strings.Join(list, " ")
}

// comment returns a comment for an attribute that is a text.
func comment(attribute []byte) string {
	value := bytes.TrimRight(attribute[min(4, len(attribute)):], "\x00")
	control := func(r rune) bool { return r < ' ' || r > '~' }
	if len(value) < 2 || bytes.ContainsFunc(value, control) {
		return ""
	}
	return fmt.Sprintf(" ; %q", value)
}

var kindNames = map[uint16]string{
	unix.NLMSG_ERROR: "NLMSG_ERROR", unix.NLMSG_DONE: "NLMSG_DONE",
	unix.RTM_NEWLINK: "RTM_NEWLINK", unix.RTM_DELLINK: "RTM_DELLINK",
	unix.RTM_GETLINK: "RTM_GETLINK", unix.RTM_SETLINK: "RTM_SETLINK",
	unix.RTM_NEWADDR: "RTM_NEWADDR", unix.RTM_DELADDR: "RTM_DELADDR",
	unix.RTM_GETADDR:  "RTM_GETADDR",
	unix.RTM_NEWROUTE: "RTM_NEWROUTE", unix.RTM_DELROUTE: "RTM_DELROUTE",
	unix.RTM_GETROUTE: "RTM_GETROUTE",
	unix.RTM_NEWNEIGH: "RTM_NEWNEIGH", unix.RTM_DELNEIGH: "RTM_DELNEIGH",
	unix.RTM_GETNEIGH: "RTM_GETNEIGH",
	unix.RTM_NEWRULE:  "RTM_NEWRULE", unix.RTM_DELRULE: "RTM_DELRULE",
	unix.RTM_GETRULE:  "RTM_GETRULE",
	unix.RTM_NEWQDISC: "RTM_NEWQDISC", unix.RTM_DELQDISC: "RTM_DELQDISC",
	unix.RTM_GETQDISC:   "RTM_GETQDISC",
	unix.RTM_NEWTFILTER: "RTM_NEWTFILTER", unix.RTM_DELTFILTER: "RTM_DELTFILTER",
	unix.RTM_GETTFILTER: "RTM_GETTFILTER",
	unix.RTM_NEWNSID:    "RTM_NEWNSID", unix.RTM_GETNSID: "RTM_GETNSID",
	unix.RTM_NEWLINKPROP: "RTM_NEWLINKPROP", unix.RTM_DELLINKPROP: "RTM_DELLINKPROP",
}

// bodySize returns the size of the structure before the attributes.
func bodySize(kind uint16) int {
	switch {
	case kind < unix.RTM_NEWLINK:
		return 4 // an error number
	case kind < unix.RTM_NEWADDR, kind >= unix.RTM_NEWLINKPROP:
		return unix.SizeofIfInfomsg
	case kind < unix.RTM_NEWROUTE:
		return unix.SizeofIfAddrmsg
	case kind < unix.RTM_NEWQDISC: // routes, neighbours, rules
		return unix.SizeofRtMsg
	case kind < unix.RTM_NEWACTION:
		return 20 // struct tcmsg
	}
	return 4
}

// TestChangeName checks that a trace names each message that changes an object, and no other one.
func TestChangeName(t *testing.T) {
	t.Parallel()
	for kind, want := range kindNames {
		switch {
		case kind < unix.RTM_BASE: // of no object
			continue
		case strings.HasPrefix(want, "RTM_GET"):
			want = ""
		}
		if got := netlink.ChangeName(kind); got != want {
			t.Errorf("type %d: %q, want %q", kind, got, want)
		}
	}
}
