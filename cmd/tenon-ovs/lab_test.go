package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cmd/tenon-ovs/internal/vswitch"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/ovslab"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/ovs"
)

// lab is a host with Open vSwitch and bridge ovs0.
type lab struct {
	*plugintest.Runtime
	sw *ovslab.Switch
	t  *testing.T
}

const header = `{"cniVersion":"1.1.0","name":"net","type":"ovs","bridge":"ovs0"`

// segment is a configuration with a segment and two tunnels.
const segment = header + `,"vxlanID":42,"vxlanRemotes":["192.0.2.2","192.0.2.3"]}`

// start starts Open vSwitch on a host, for a plugin with a network.
func start(t *testing.T, p plugin.Definition, conf string) *lab {
	t.Helper()
	l := &lab{Runtime: plugintest.NewRuntime(t, p, conf), t: t}
	l.sw = ovslab.Start(t, l.Host)
	l.sw.Bridge("ovs0")
	l.sw.VSCtl("set", "Interface", "ovs0", "mtu_request=1500")
	l.Conf["socket_file"] = l.sw.Socket()
	return l
}

// impatient is the plugin with a limit of one second for each method of the switch.
func impatient() plugin.Definition { return ovs.Define(vswitch.DialWithin(time.Second)) }

// state describes the host, the containers and the database.
func (l *lab) state() string { return sorted(l.State() + "\n" + l.sw.Rows()) }

// sorted orders the lines of a text, for [testnet.Diff].
func sorted(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (l *lab) unchanged(before, when string) {
	l.t.Helper()
	if diff := testnet.Diff(before, l.state()); diff != "" {
		l.t.Fatalf("%s, the state has changed:\n%s", when, diff)
	}
}

// fault is what a [proxy] does to a request.
type fault int

const (
	cutBefore  fault = iota // close the connection instead of passing the request on
	cutAfter                // pass the request on, and close the connection instead of answering
	goneBefore              // as cutBefore, and refuse connections
	goneAfter               // as cutAfter, and refuse connections
	killBefore              // kill the client instead of passing the request on
	killAfter               // pass the request on, and kill the client instead of answering
	hold                    // call meanwhile before passing the request on
)

func (f fault) String() string {
	return [...]string{"cut before", "cut after", "gone before", "gone after", "kill before",
		"kill after", "hold"}[f]
}

func (f fault) after() bool { return f == cutAfter || f == goneAfter || f == killAfter }

// proxy passes requests of clients to the database, and disturbs one of them.
type proxy struct {
	t        testing.TB
	path     string
	database string
	listener *net.UnixListener

	meanwhile func() // for hold

	mu    sync.Mutex
	fault fault
	left  int  // requests before the fault; negative: none
	hit   bool // whether the fault has happened
	gone  bool // refuse connections
}

// startProxy starts a proxy for a database that ends with the test.
func startProxy(t testing.TB, database string) *proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovs")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, path: filepath.Join(dir, "db.sock"), database: database, left: -1}
	p.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: p.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := p.listener.AcceptUnix()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		p.listener.Close()
		serving.Wait()
		os.RemoveAll(dir)
	})
	return p
}

// disturb plans a fault at request n, from 0.
func (p *proxy) disturb(f fault, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.left, p.hit, p.gone = f, n, false, false
}

// calm ends all disturbance, and reports whether the fault has happened.
func (p *proxy) calm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.gone = -1, false
	return p.hit
}

// next reports whether the next request gets the fault.
func (p *proxy) next() (fault, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left--
	if p.left != -1 {
		return 0, false
	}
	p.hit, p.gone = true, p.fault == goneBefore || p.fault == goneAfter
	return p.fault, true
}

func (p *proxy) refuses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// serve passes the requests of one connection on, and their answers back.
func (p *proxy) serve(c *net.UnixConn) {
	defer c.Close()
	if p.refuses() {
		return
	}
	db, err := net.Dial("unix", p.database)
	if err != nil {
		return
	}
	defer db.Close()
	requests, answers := json.NewDecoder(c), json.NewDecoder(db)
	for {
		request, asks, err := message(requests)
		if err != nil {
			return
		}
		f, hit := fault(0), false
		if asks {
			f, hit = p.next()
		}
		if hit && f == hold {
			p.meanwhile()
			hit = false
		}
		if hit && !f.after() {
			p.strike(c, f)
			return
		}
		if _, err := db.Write(request); err != nil {
			return
		}
		for asks {
			var answer json.RawMessage
			answer, asks, err = message(answers) // the server may ask for an echo first
			if err != nil {
				return
			}
			if hit && !asks {
				p.strike(c, f)
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}
}

// message reads a message, and reports whether it is a request.
func message(d *json.Decoder) (m json.RawMessage, request bool, err error) {
	if err := d.Decode(&m); err != nil {
		return nil, false, err
	}
	var kind struct{ Method string }
	err = json.Unmarshal(m, &kind)
	return m, kind.Method != "", err
}

// strike kills the client if the fault says so.
func (p *proxy) strike(c *net.UnixConn, f fault) {
	if f != killBefore && f != killAfter {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		p.t.Error(err)
		return
	}
	err = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil || int(peer.Pid) == os.Getpid() {
			p.t.Errorf("client of the database: %v, %v", peer, err)
			return
		}
		if err := syscall.Kill(int(peer.Pid), syscall.SIGKILL); err != nil {
			p.t.Error(err)
		}
	})
	if err != nil {
		p.t.Error(err)
	}
}

// socket returns the endpoint of the proxy.
func (p *proxy) socket() string { return fmt.Sprintf("unix:%s", p.path) }
