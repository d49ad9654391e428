package kernel_test

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netns"
)

// TestAddVeth: each end is in its namespace and the peer of the other, and only the inner end has
// the given MAC address. The queues have the kernel's default length.
func TestAddVeth(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mac, _ := net.ParseMAC("02:11:22:33:44:55")
	inside, host, err := b.container.Links.AddVeth(kernel.Veth{
		Name: "eth0", MAC: mac, MTU: 1400, Host: b.host, HostName: "veth12345678", Alias: "tenon owner",
	})
	must(t, err)
	if inside.Peer != host.Index || host.Peer != inside.Index {
		t.Errorf("peers: inside %+v, host %+v", inside, host)
	}
	if inside.Up || host.Up {
		t.Error("an end is up")
	}
	if !slices.Equal(inside.MAC, mac) || slices.Equal(host.MAC, mac) {
		t.Errorf("MAC %s only inside; have %s inside, %s outside", mac, inside.MAC, host.MAC)
	}

	// A pair with the kernel's defaults.
	b.Host.Command("ip", "link", "add", "ref0", "type", "veth", "peer", "ref1")
	want := show(t, b.Host, "link", "show", "ref0")["txqlen"]
	for _, end := range []map[string]any{
		show(t, b.Container("container"), "link", "show", "eth0"),
		show(t, b.Host, "link", "show", "veth12345678"),
	} {
		if end["mtu"] != 1400.0 || end["txqlen"] != want {
			t.Errorf("mtu %v, txqlen %v; want 1400, %v", end["mtu"], end["txqlen"], want)
		}
	}
	if alias := show(t, b.Host, "link", "show", "veth12345678")["ifalias"]; alias != "tenon owner" || host.Alias != "tenon owner" {
		t.Errorf("alias %v, %q; want %q", alias, host.Alias, "tenon owner")
	}
	for _, l := range []struct {
		space *kernel.Space
		link  kernel.Link
	}{{b.container, inside}, {b.host, host}} {
		if again, err := l.space.Links.ByName(l.link.Name); err != nil || again.Index != l.link.Index {
			t.Errorf("link %s: %+v, %v; want index %d", l.link.Name, again, err, l.link.Index)
		}
	}
}

// TestAddVethNameTaken is R-72: the error says which name is in use, and where.
func TestAddVethNameTaken(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name            string
		inside, outside string
		wantIn, wantOut bool
	}{
		{name: "inside", inside: "eth0", outside: "veth9", wantIn: true},
		{name: "outside", inside: "eth9", outside: "veth0", wantOut: true},
		{name: "both", inside: "eth0", outside: "veth0", wantIn: true, wantOut: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.veth(t)
			before := b.snapshot(t)
			_, _, err := b.container.Links.AddVeth(kernel.Veth{Name: row.inside, Host: b.host, HostName: row.outside})
			if !errors.Is(err, unix.EEXIST) {
				t.Fatalf("got %v, want EEXIST", err)
			}
			for text, want := range map[string]bool{
				`link "eth0" exists in ` + b.Container("container").Path(): row.wantIn,
				`link "veth0" exists in ` + b.Host.Path():                  row.wantOut,
			} {
				if strings.Contains(err.Error(), text) != want {
					t.Errorf("error contains %q: %t, want %t: %v", text, !want, want, err)
				}
			}
			b.unchanged(t, before)
		})
	}
}

// TestAddVethTwice: two namespaces can have a second veth pair.
func TestAddVethTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.veth(t)
	if _, _, err := b.container.Links.AddVeth(kernel.Veth{Name: "eth1", Host: b.host, HostName: "veth1"}); err != nil {
		t.Error(err)
	}
}

func TestAddVethWithinOneNamespace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, host, err := b.host.Links.AddVeth(kernel.Veth{Name: "br0.100", Host: b.host, HostName: "veth0"})
	must(t, err)
	if inside.Name != "br0.100" || host.Name != "veth0" || inside.Peer != host.Index || inside.PeerNSID != -1 {
		t.Errorf("inside %+v, host %+v", inside, host)
	}
	must(t, b.tx.Rollback())
	if links, err := b.host.Links.All(); err != nil || len(links) != 1 {
		t.Errorf("after rollback: %+v, %v", links, err)
	}
}

func TestAddVethRollback(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.snapshot(t)
	b.vethUp(t)
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

func TestAddVethNameTooLong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.container.Links.AddVeth(kernel.Veth{Name: "name-of-16-bytes", Host: b.host, HostName: "veth0"})
	if !errors.Is(err, unix.ERANGE) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("name of 16 bytes: %v", err)
	}
}

// TestDelete: deleting one end deletes the other, and deleting a missing link succeeds.
func TestDelete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, host := b.veth(t)
	must(t, b.host.Links.Delete(host))
	if _, err := b.container.Links.ByName("eth0"); !errors.Is(err, kernel.ErrNoLink) {
		t.Errorf("other end: %v, want %v", err, kernel.ErrNoLink)
	}
	must(t, b.container.Links.Delete(inside))
	must(t, deleteNamed(b.container, "eth0"))
	must(t, b.tx.Rollback()) // of the deleted pair

	b.veth(t)
	must(t, deleteNamed(b.container, "eth0"))
	if _, err := b.host.Links.ByName("veth0"); !errors.Is(err, kernel.ErrNoLink) {
		t.Errorf("other end: %v, want %v", err, kernel.ErrNoLink)
	}
}

// TestAddVethAgain: AddVeth replaces a pair of the same owner in another namespace, whether the
// kernel is still deleting that namespace or a process holds it. It does not replace a pair of
// another owner, or in the same namespace.
func TestAddVethAgain(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name          string
		alias, inside string // of the second pair
		elsewhere     bool   // the first pair is in another namespace
		want          error
	}{
		{name: "in another namespace", alias: "owner", inside: "eth0", elsewhere: true},
		{name: "in the same namespace", alias: "owner", inside: "eth1", want: unix.EEXIST},
		{name: "of another owner", alias: "another", inside: "eth0", elsewhere: true, want: unix.EEXIST},
		{name: "of no owner", inside: "eth0", elsewhere: true, want: unix.EEXIST},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			first := b.container
			if row.elsewhere {
				first = open(t, b.tx, b.Container("old"))
			}
			_, _, err := first.Links.AddVeth(kernel.Veth{Name: "eth0", Host: b.host, HostName: "veth0", Alias: "owner"})
			must(t, err)
			inside, host, err := b.container.Links.AddVeth(kernel.Veth{Name: row.inside, Host: b.host, HostName: "veth0", Alias: row.alias})
			if !errors.Is(err, row.want) {
				t.Fatalf("got %v, want %v", err, row.want)
			}
			if err == nil && (inside.Peer != host.Index || host.Alias != "owner") {
				t.Errorf("inside %+v, host %+v", inside, host)
			}
		})
	}
}

// TestAddVethAfterTheNamespace: a namespace vanishes, and its successor repeatedly gets a pair with
// the same name at once.
func TestAddVethAfterTheNamespace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 200 {
		ns, err := netns.New()
		must(t, err)
		tx := kernel.Begin(t.Context())
		space, err := tx.Open(ns)
		must(t, err)
		_, _, err = space.Links.AddVeth(kernel.Veth{Name: "eth0", Host: b.host, HostName: "veth0", Alias: "owner"})
		space.Close()
		ns.Close()
		if err != nil {
			t.Fatalf("namespace %d: %v", i, err)
		}
	}
}

// TestPeerLives: the namespace of a peer lives as long as it has a user, not until the kernel has
// deleted it.
func TestPeerLives(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ns, err := netns.New()
	must(t, err)
	tx := kernel.Begin(t.Context())
	space, err := tx.Open(ns)
	must(t, err)
	_, host, err := space.Links.AddVeth(kernel.Veth{Name: "eth0", Host: b.host, HostName: "veth0"})
	must(t, err)
	_, same, err := b.host.Links.AddVeth(kernel.Veth{Name: "veth1", Host: b.host, HostName: "veth2"})
	must(t, err)
	for _, l := range []kernel.Link{host, same} {
		if lives, err := b.host.Links.PeerLives(l); !lives || err != nil {
			t.Errorf("%s: lives %t, %v", l.Name, lives, err)
		}
	}
	space.Close()
	must(t, ns.Close())
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		now, err := b.host.Links.ByName("veth0")
		if errors.Is(err, kernel.ErrNoLink) {
			return
		}
		must(t, err)
		if lives, err := b.host.Links.PeerLives(now); !lives {
			must(t, err)
			return
		}
		if time.Now().After(end) {
			t.Fatal("the namespace still lives")
		}
	}
}
