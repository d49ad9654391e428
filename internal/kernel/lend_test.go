package kernel_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// device creates ens1 in the host, one end of a veth pair with its peer in another namespace.
func (b *bench) device(t *testing.T) kernel.Link {
	t.Helper()
	b.Host.Batch("link add ens1 type veth peer name ens1 netns "+b.Container("wire").Path(), "link set ens1 alias ens1")
	l, err := b.host.Links.ByName("ens1")
	must(t, err)
	return l
}

// TestLend: a link returns unchanged, under its index, even if its names are in use meanwhile, and
// the host sees it under no other name.
func TestLend(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Linux(5, 13)) // which keeps the index
	for _, row := range []struct {
		name        string
		inContainer string // commands of ip
		inHost      string
	}{
		{name: "both names are free"},
		{
			name: "the host name is in use in the container", inContainer: "link add ens1 type veth peer name x",
			inHost: "link add ens2 type veth peer name y",
		},
		{name: "the container name is in use in the host", inHost: "link add net1 type veth peer name y"},
		{
			name: "both names are in use", inContainer: "link add ens1 type veth peer name x",
			inHost: "link add net1 type veth peer name y",
		},
		{name: "the index is in use in the container", inContainer: "link add x index 2 type veth peer name y index 3"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			l := b.device(t)
			for ns, command := range map[*testnet.Namespace]string{b.Container("container"): row.inContainer, b.Host: row.inHost} {
				if command != "" {
					ns.Batch(command)
				}
			}
			before := b.snapshot(t)
			seen := testnet.Uevents(t, b.Host)

			in, err := b.host.Links.Lend(l, b.container, "net1")
			must(t, err)
			if in.Name != "net1" || in.Alias != "ens1" || !slices.Equal(in.MAC, l.MAC) {
				t.Errorf("lent: %+v", in)
			}
			if _, err := b.host.Links.ByName("ens1"); !errors.Is(err, kernel.ErrNoLink) {
				t.Errorf("in the host: %v", err)
			}
			must(t, b.tx.Rollback())
			b.unchanged(t, before)

			in, err = b.host.Links.Lend(l, b.container, "net1")
			must(t, err)
			b.tx.Keep()
			lent := b.snapshot(t)
			_, err = b.host.Links.Fetch(in, b.container, "ens1", l.Index)
			must(t, err)
			must(t, b.tx.Rollback())
			b.unchanged(t, lent)

			back, err := b.host.Links.Fetch(in, b.container, "ens1", l.Index)
			must(t, err)
			if back.Name != "ens1" || back.Index != l.Index {
				t.Errorf("back as %+v, was %+v", back, l)
			}
			b.unchanged(t, before)
			want := []string{"remove ens1", "add ens1", "remove ens1", "add ens1", "remove ens1", "add ens1"}
			got := seen()
			if testnet.Linux(6, 12)() != nil {
				got = movesAsAdds(got)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the host saw %q, want %q", got, want)
			}
		})
	}
}

// movesAsAdds combines the two events of Linux 6.1, which adds a device to another namespace under
// its previous name and renames it at once.
func movesAsAdds(events []string) []string {
	var combined []string
	for _, e := range events {
		name, moved := strings.CutPrefix(e, "move ")
		last := len(combined) - 1
		if moved && last >= 0 && strings.HasPrefix(combined[last], "add ") {
			combined[last] = "add " + name
			continue
		}
		combined = append(combined, e)
	}
	return combined
}

// TestLendIsUndone: rollback restores everything that the link lost in the move.
func TestLendIsUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.device(t)
	b.Host.Batch("link add br0 type bridge", "link set ens1 master br0", "link set ens1 up",
		"address add 10.1.2.3/24 brd + dev ens1", "address add 10.1.2.4/24 brd + dev ens1", "address add fd00::3/64 dev ens1",
		"route add default via 10.1.2.1", "route add 10.9.0.0/16 dev ens1 table 77", "route add default via fd00::1")
	b.Container("wire").Batch("link set ens1 up")
	l, err := b.host.Links.ByName("ens1")
	must(t, err)
	before := b.snapshot(t)
	in, err := b.host.Links.Lend(l, b.container, "net1")
	must(t, err)
	if in.Up || in.Master != 0 {
		t.Errorf("lent: %+v", in)
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

// TestLendToTakenName: nothing changes if the name is in use, even if only since a moment ago.
func TestLendToTakenName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.device(t)
	before := b.snapshot(t)
	for _, late := range []bool{false, true} {
		take := func(op string) error {
			if op == "lend ens1 as net1" {
				b.Container("container").Batch("link add net1 type veth peer name x")
			}
			return nil
		}
		b.begin(t, t.Context())
		b.tx.Watch(take)
		if !late {
			b.begin(t, t.Context())
			_ = take("lend ens1 as net1")
		}
		_, err := b.host.Links.Lend(l, b.container, "net1")
		if !errors.Is(err, unix.EEXIST) || !late && !strings.Contains(err.Error(), `link "net1" exists in `) {
			t.Errorf("late %t: %v", late, err)
		}
		b.Container("container").Batch("link delete net1")
		b.unchanged(t, before)
	}
}

// TestFetchDropsAltNames: alternative names from the container that are in use in the host do not
// keep a link from returning. The others stay.
func TestFetchDropsAltNames(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Linux(5, 15)) // earlier, names stay in the namespace
	b := setup(t)
	b.Host.Batch("link add other type veth peer name y", "link property add dev other altname other-long-name-of-the-host")
	in, err := b.host.Links.Lend(b.device(t), b.container, "net1")
	must(t, err)
	for _, name := range []string{"ens1", "other", "other-long-name-of-the-host", "harmless"} {
		b.Container("container").Command("ip", "link", "property", "add", "dev", "net1", "altname", name)
	}
	in, err = b.container.Links.ByIndex(in.Index)
	must(t, err)

	fetched, err := b.host.Links.Fetch(in, b.container, "ens1", 0)
	must(t, err)
	if fetched.Name != "ens1" || !slices.Equal(fetched.AltNames, []string{"harmless"}) {
		t.Errorf("%+v", fetched)
	}
	must(t, b.tx.Rollback()) // back to the container, and from there to the host
	if back := b.Host.Try("ip", "link", "show", "harmless"); back != nil {
		t.Error(back)
	}
}

// TestFetchToTakenName: the link and its namespace stay unchanged.
func TestFetchToTakenName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in, err := b.host.Links.Lend(b.device(t), b.container, "net1")
	must(t, err)
	before := b.snapshot(t)
	for _, late := range []bool{false, true} {
		take := func(op string) error {
			if op == "fetch net1 as ens1" {
				b.Host.Batch("link add ens1 type veth peer name x")
			}
			return nil
		}
		b.begin(t, t.Context())
		b.tx.Watch(take)
		if !late {
			b.begin(t, t.Context())
			_ = take("fetch net1 as ens1")
		}
		_, err := b.host.Links.Fetch(in, b.container, "ens1", 0)
		if !errors.Is(err, unix.EEXIST) || !late && !strings.Contains(err.Error(), `link "ens1" exists in `) {
			t.Errorf("late %t: %v", late, err)
		}
		b.Host.Batch("link delete ens1")
		b.unchanged(t, before)
	}
}

// TestFetchWithoutUnusedName: the link arrives even if the container uses every name of the host.
func TestFetchWithoutUnusedName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.device(t)
	in, err := b.host.Links.Lend(l, b.container, "net1")
	must(t, err)
	b.Container("container").Batch("link add ens1 type veth peer name x")
	back, err := b.host.Links.Fetch(in, b.container, "ens1", l.Index)
	if err != nil || back.Name != "ens1" {
		t.Errorf("%+v, %v", back, err)
	}
}

// TestFetchToTakenIndex: Fetch succeeds if another link uses the index.
func TestFetchToTakenIndex(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.device(t)
	in, err := b.host.Links.Lend(l, b.container, "net1")
	must(t, err)
	b.Host.Batch("link add x index 2 type veth peer name y index 9")
	if l.Index != 2 {
		t.Fatalf("the device has index %d", l.Index)
	}
	back, err := b.host.Links.Fetch(in, b.container, "ens1", l.Index)
	if err != nil || back.Name != "ens1" || back.Index == l.Index {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestRename(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.device(t)
	before := b.snapshot(t)
	if err := b.host.Links.Rename(l, "lo"); !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), `link "lo" exists in `) {
		t.Errorf("to a name in use: %v", err)
	}
	must(t, b.host.Links.Rename(l, "ens2"))
	if _, err := b.host.Links.ByName("ens2"); err != nil {
		t.Error(err)
	}
	must(t, b.tx.Rollback())
	b.unchanged(t, before)
}

// TestKeptAddrs: Kept omits addresses that no administrator or program added.
func TestKeptAddrs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.device(t)
	b.Host.Batch("address add 10.1.2.3/24 dev ens1", "address add 10.1.2.4/24 dev ens1", "address add 10.1.3.3/24 dev ens1 valid_lft 99 preferred_lft 99",
		"address add fd00::3/64 dev ens1", "address add fe80::3/64 dev ens1", "address add fd00::4/64 dev ens1 valid_lft 99 preferred_lft 99")
	got, err := b.host.Addrs.Kept(l)
	must(t, err)
	if want := "[10.1.2.3/24 10.1.2.4/24 fd00::3/64]"; fmt.Sprint(got) != want {
		t.Errorf("got %s, want %s", fmt.Sprint(got), want)
	}
}
