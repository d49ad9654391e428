package operator

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ops/why"
)

// TestListeners reads the sockets of the namespaces in which a packet arrives, and of no other one:
// for each, the kernel searches the sockets of all namespaces.
func TestListeners(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, row := range []struct {
		name, flow string
		read       []string
		verdict    why.Verdict
	}{
		{"no socket answers a ping", "web 10.77.0.3", nil, why.Delivered},
		{"the destination", "web 10.77.0.3:80", []string{"db"}, why.Delivered},
		{"the destination behind a translation", "outside 192.0.2.1:8080", []string{"web"}, why.Delivered},
		{"the host", "web 10.77.0.1:9100", []string{"host"}, why.Delivered},
		{"no service", "web 10.77.0.3:81", []string{"db"}, why.Stopped},
	} {
		t.Run(row.name, func(t *testing.T) {
			places, q := n.question(row.flow)
			var read []string
			places.ReadListeners = func(x *host.Namespace) error {
				read = append(read, places.Name(x))
				return n.readListeners(x)
			}
			explain := places.Explainer()
			for range 2 {
				r, err := explain(q)
				if err != nil || r.Verdict != row.verdict {
					t.Fatalf("%+v, %v", r, err)
				}
			}
			if !slices.Equal(read, row.read) {
				t.Errorf("two questions read the sockets of %v, want %v", read, row.read)
			}
		})
	}
}

// TestListenersUnknown: without the sockets of the destination, the answer is open, not that no
// service runs there.
func TestListenersUnknown(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	places, q := n.question("web 10.77.0.3:80")
	for _, row := range []struct {
		name  string
		read  func(*host.Namespace) error
		doubt string
	}{
		{"as in a bundle without them", nil, "the sockets in db are not known"},
		{"the namespace has ended", func(*host.Namespace) error { return errors.New("it has ended") },
			"the sockets in db cannot be read: it has ended"},
	} {
		places.ReadListeners = row.read
		r, err := places.Explain(q)
		if err != nil || r.Verdict != why.Unknown || len(r.Culprits) > 0 ||
			strings.Join(r.Doubts, ";") != row.doubt {
			t.Errorf("%s: %+v, %v", row.name, r, err)
		}
	}
}

// TestBacklog fills the queue of a socket that no program accepts from: only the full queue makes
// the answer uncertain.
func TestBacklog(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const backlog, port = 2, 70
	n.Container("db").Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: port}), unix.Listen(fd, backlog)); err != nil {
			t.Fatal(err)
		}
	})
	const flow = "web 10.77.0.3:70"
	for waiting, want := range []why.Verdict{why.Delivered, why.Delivered, why.Unknown} {
		if waiting > 0 {
			var c net.Conn
			var err error
			n.Container("web").Do(func() { c, err = net.Dial("tcp", "10.77.0.3:70") })
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		if r := n.explain(flow); r.Verdict != want {
			t.Errorf("%d of %d wait: %s", waiting, backlog, describe(r))
		}
	}
}
