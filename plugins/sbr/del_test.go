package sbr_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

// TestDelWithoutNamespace: DEL succeeds without a namespace and for a path that is no namespace,
// and creates no file.
func TestDelWithoutNamespace(t *testing.T) {
	t.Parallel()
	p := newPod(t, "")
	p.add(address4, address6)
	attached := p.State()
	absent := filepath.Join(t.TempDir(), "absent")
	for _, path := range []string{"", absent, filepath.Join(absent, "deeper")} {
		q := p.call(cni.Del, address4, address6)
		q.Netns = path
		p.Must(q)
		if _, err := os.Lstat(absent); !os.IsNotExist(err) {
			t.Errorf("DEL with namespace %q has created a file: %v", path, err)
		}
	}
	p.Unchanged(attached)
	q := p.call(cni.Add, address4)
	q.Netns = absent
	p.Refused(q, cni.CodeUnknownContainer)
	if _, err := os.Lstat(absent); !os.IsNotExist(err) {
		t.Errorf("ADD has created a file: %v", err)
	}
}

// TestDelWithoutInterface: rules outlive their interface. DEL removes Tenon's, which it recognises
// by their protocol, and keeps all other rules.
func TestDelWithoutInterface(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, members string
		addresses     []string
	}{
		{"without previous result", ``, nil},
		{"with previous result", ``, []string{address4, address6}},
		{"with a table, without previous result", `,"table":5000`, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, row.members,
				// added by hand, for an address that no interface has
				"rule add from 192.168.1.210 lookup 77",
				"rule add from 10.88.0.2 lookup 100 protocol 116",
				// in use
				"rule add from 192.168.1.211 lookup 78 protocol 116", "route add 10.66.0.0/16 "+
					"via 10.88.0.1 table 78")
			rules := append(p.rules("-4"), p.rules("-6")...)
			p.add(address4, address6)
			p.ip("link delete net1")
			if got := len(p.rules("-4")) + len(p.rules("-6")); got != len(rules)+2 {
				t.Fatalf("%d rules", got)
			}
			for range 2 {
				p.Must(p.call(cni.Del, row.addresses...))
				equal(t, "rules", append(p.rules("-4"), p.rules("-6")...), rules...)
			}
		})
	}
}

// TestDelLeavesTheOther: DEL keeps the rules of another interface, even while that interface lacks
// its addresses.
func TestDelLeavesTheOther(t *testing.T) {
	t.Parallel()
	p := newPod(t, "")
	p.add(address4, address6)
	net1 := append(p.rules("-4"), p.rules("-6")...)
	other := p.call(cni.Add, `{"address":"10.88.0.2/16","gateway":"10.88.0.1","interface":2}`)
	other.IfName = "eth0"
	p.Must(other)
	other.Command = cni.Del
	p.Must(other)
	equal(t, "rules", append(p.rules("-4"), p.rules("-6")...), net1...)

	p.ip("address add 192.168.9.9/24 dev net1", "address delete 192.168.1.209/24 dev net1")
	delete(other.Conf, "prevResult")
	p.Must(other)
	equal(t, "rules", append(p.rules("-4"), p.rules("-6")...), net1...)
	p.Must(p.call(cni.Del, address4))
	equal(t, "rules", append(p.rules("-4"), p.rules("-6")...))
}

// TestDelGoesOn: DEL succeeds although the kernel refuses to restore a route in the main table.
func TestDelGoesOn(t *testing.T) {
	t.Parallel()
	p := newPod(t, "", "route add 10.77.0.0/16 via 192.168.1.254")
	p.add(address4, address6)
	// the gateway is no longer reachable
	p.ip("route delete 192.168.1.0/24 table 100", "-4 route delete default dev eth0")
	p.Must(p.call(cni.Del))
	equal(t, "rules", append(p.rules("-4"), p.rules("-6")...))
	equal(t, "table", p.routes("-4", "100"))
}

// TestRepeat: a second ADD keeps rules and tables. New routes move to the existing table.
func TestRepeat(t *testing.T) {
	t.Parallel()
	p := newPod(t, "", "route add 10.77.0.0/16 via 192.168.1.254")
	p.add(address4, address6)
	before := p.State()
	p.add(address4, address6)
	p.Unchanged(before)
	p.ip("route add 10.77.0.0/16 via 192.168.1.253 dev net1 onlink",
		"route add 10.78.0.0/16 dev net1 scope link")
	p.add(address4, address6)
	equal(t, "table", p.routes("-4", "100"), "default via 192.168.1.1 proto 116",
		"192.168.1.0/24 proto kernel scope link src 192.168.1.209",
		"10.77.0.0/16 via 192.168.1.253 onlink", "10.78.0.0/16 scope link")
	equal(t, "main table", p.routes("-4", "main"))
	equal(t, "rules", p.rules("-4"), "32765: from 192.168.1.209 lookup 100 proto 116")
}

// TestTablesOfOthers: ADD never chooses a table with routes of other programs, even without a rule,
// and never reuses it.
func TestTablesOfOthers(t *testing.T) {
	t.Parallel()
	p := newPod(t, "", "route add 10.66.0.0/16 via 10.88.0.1 table 100",
		"rule add from 10.9.9.9 lookup 101")
	p.add4()
	equal(t, "rules", p.rules("-4"), "32765: from 10.9.9.9 lookup 101",
		"32764: from 192.168.1.209 lookup 102 proto 116")
	p.Must(p.call(cni.Del, address4))
	// of an interface that had the address earlier
	p.ip("rule add from 192.168.1.209 lookup 100 protocol 116")
	p.add4()
	equal(t, "rules", p.rules("-4"), "32765: from 10.9.9.9 lookup 101",
		"32764: from 192.168.1.209 lookup 100 proto 116",
		"32763: from 192.168.1.209 lookup 102 proto 116")
	p.ip("route add 10.66.0.0/16 via 10.88.0.1 table 102") // another program adds a route
	before := p.State()
	p.add4()
	p.Unchanged(before)
}

// TestLock: like upstream, ADD and DEL wait for the lock on the file of the namespace.
func TestLock(t *testing.T) {
	t.Parallel()
	p := newPod(t, "")
	lock := exec.CommandContext(t.Context(), "flock", p.Path(), "sh", "-c", "echo; cat")
	in, err := lock.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := lock.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // the other process holds the lock
		t.Fatal(err)
	}
	before := p.State()
	for _, verb := range []cni.Command{cni.Add, cni.Del} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if _, err := p.Runtime.Do(ctx, p.call(verb, address4)); err == nil ||
			!strings.Contains(err.Error(), "lock network namespace") {
			t.Errorf("%s with the lock held: %v", verb, err)
		}
		cancel()
		p.Unchanged(before)
	}
	in.Close()
	if err := lock.Wait(); err != nil {
		t.Fatal(err)
	}
	p.add4()
}

// TestAlwaysRouted: before each change of ADD and DEL, and after the last one, packets from the
// addresses find the routes of the interface.
func TestAlwaysRouted(t *testing.T) {
	t.Parallel()
	p := newPod(t, "", "route add 10.77.0.0/16 via 192.168.1.254",
		"-6 route add fd77::/64 via fd00:7::99")
	changes := 0
	look := func(op string) error {
		changes++
		for from, destinations := range map[string][]string{
			"192.168.1.209": {"192.168.1.77", "10.77.0.5"}, "fd00:7::9": {"fd00:7::77", "fd77::5"},
		} {
			for _, to := range destinations {
				if got := p.Command("ip", "route", "get", to, "from", from); !strings.Contains(got,
					"dev net1") {
					t.Errorf("%s: from %s: %s", op, from, got)
				}
			}
		}
		return nil
	}
	watched := p.Runtime.Watched(look)
	for _, verb := range []cni.Command{cni.Add, cni.Del} {
		if _, err := watched.Do(t.Context(), p.call(verb, address4, address6)); err != nil {
			t.Fatal(err)
		}
		_ = look("after " + string(verb))
	}
	if changes < 20 {
		t.Errorf("%d changes seen", changes)
	}
}
