package local_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// notes returns "POOL ADDRESS NETWORK/CONTAINER/IFNAME" for each note.
func (n *node) notes() (all []string) {
	n.Helper()
	notes, err := n.store().Notes()
	n.must(err)
	for _, note := range notes {
		all = append(all, fmt.Sprintf("%s %s %s/%s/%s", note.Pool, note.Addr, note.Network,
			note.Container, note.IfName))
	}
	return all
}

func (n *node) wantNotes(want ...string) {
	n.Helper()
	if diff := cmp.Diff(want, n.notes()); diff != "" {
		n.Errorf("notes (-want +got):\n%s", diff)
	}
}

// put records a shared address.
func (n *node) put(pool, a, container string) {
	n.Helper()
	n.with(pool, func(p *local.Pool) {
		_, err := p.Put(ctx, addr(a), local.Request{Owner: owner(container)})
		n.must(err)
	})
}

// TestReboot: allocations end with the boot and blocks do not. ADD waits until the agent has
// confirmed the blocks. Shared addresses become notes.
func TestReboot(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.state(pods, owned("10.64.3.64/26"))
	n.want("pods", "c1", "10.64.3.66/26 via 10.64.3.65")
	n.put("pods", "10.79.0.9", "c2")
	n.boot, n.up = "4567-next boot", time.Second
	n.wantErr("pods", local.Request{Owner: owner("c3")}, local.ErrUnconfirmed)
	n.wantLeases("pods")
	n.change("pods", func(s *local.State) {
		if len(s.Blocks) != 1 || s.Blocks[0].Generation != 7 {
			t.Errorf("blocks %+v", s.Blocks)
		}
		s.Boot = n.boot
	})
	// the search continues after the last address
	n.want("pods", "c3", "10.64.3.67/26 via 10.64.3.65")
	n.wantLeases("pods", "10.64.3.67 c3")
	n.wantNotes("pods 10.79.0.9 net/c2/eth0")
}

func TestPhases(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		blocks []local.Block
		want   string // of the first ADD, or of the error
		err    error
	}{
		{"no block", nil, "", local.ErrFull},
		{"returning", []local.Block{in(local.Returning, "10.64.0.0/26")}, "", local.ErrFull},
		{"returning beside owned", []local.Block{in(local.Returning, "10.64.0.0/26"),
			owned("10.64.1.0/26")}, "10.64.1.2/26 via 10.64.1.1", nil},
		{"lost", []local.Block{in(local.Lost, "10.64.0.0/26")}, "", local.ErrLost},
		{"lost beside owned", []local.Block{in(local.Lost, "10.64.0.0/26"), owned("10.64.1.0/26")},
			"10.64.1.2/26 via 10.64.1.1", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.state(pods, row.blocks...)
			got, err := n.allocate("pods", local.Request{Owner: owner("c1")})
			if !errors.Is(err, row.err) || err == nil && got != row.want {
				t.Errorf("got %s, %v; want %s, %v", got, err, row.want, row.err)
			}
		})
	}
}

// TestBlockLost: a fenced node allocates nothing, releases what it has, and allocates again after
// it has rejoined with other blocks.
func TestBlockLost(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.state(pods, owned("10.64.0.0/26"))
	n.want("pods", "c1", "10.64.0.2/26 via 10.64.0.1")
	n.change("pods", func(s *local.State) { s.Blocks[0].Phase = local.Lost })
	n.wantErr("pods", local.Request{Owner: owner("c2")}, local.ErrLost)
	n.wantErr("pods", local.Request{Owner: owner("c2"), Addr: addr("10.64.0.9")}, local.ErrLost)
	n.with("pods", func(p *local.Pool) {
		blocks, shared, err := p.Usage(ctx)
		if err != nil || blocks[0].Used != 1 || shared != nil {
			t.Errorf("%+v %v %v", blocks, shared, err)
		}
	})
	if n.release("pods", owner("c1")) {
		t.Error("a note for an address of a lost block: another node may own it")
	}
	n.change("pods", func(s *local.State) {
		s.Epoch, s.Blocks = 2, []local.Block{owned("10.64.7.0/26")}
	})
	n.want("pods", "c2", "10.64.7.2/26 via 10.64.7.1")
}

func TestDraining(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.state(pods, owned("10.64.0.0/26"))
	n.want("pods", "c1", "10.64.0.2/26 via 10.64.0.1")
	n.change("pods", func(s *local.State) { s.Draining = true })
	n.wantErr("pods", local.Request{Owner: owner("c2")}, local.ErrDraining)
	n.release("pods", owner("c1"))
	n.wantLeases("pods")
}

// TestDamagedState: with a state that cannot be read, nothing is allocated, everything is released,
// with notes, and only the state of a newer schema is kept.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	sample := newNode(t)
	sample.state(pods, owned("10.64.0.0/26"))
	intact, err := os.ReadFile(filepath.Join(sample.dir, "pools", "pods.json"))
	sample.must(err)
	for _, row := range []struct {
		name, text string
		err        error
	}{
		{"empty", "", local.ErrDamaged},
		{"cut off", string(intact[:len(intact)/2]), local.ErrDamaged},
		{"not JSON", "\x00\x00\x00", local.ErrDamaged},
		{"null", "null", local.ErrDamaged},
		{"no schema", strings.Replace(string(intact), `{"schema":1`, `{"schema":0`, 1),
			local.ErrDamaged},
		{"of another pool", strings.Replace(string(intact), `"name":"pods"`, `"name":"other"`, 1),
			local.ErrDamaged},
		{"a block outside the pool", strings.Replace(string(intact), `10.64.0.0/26`, `10.0.0.0/26`,
			1), local.ErrDamaged},
		{"a block of another size", strings.Replace(string(intact), `10.64.0.0/26`, `10.64.0.0/24`,
			1), local.ErrDamaged},
		{"newer", strings.Replace(string(intact), `{"schema":1`, `{"schema":2`, 1),
			local.ErrSchema},
		{"newer, with other types", `{"schema":2,"pool":[1],"blocks":"none"}`, local.ErrSchema},
		{"absent", "absent", local.ErrNoPool},
		{"a directory", "directory", fs.ErrInvalid},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := newNode(t)
			n.state(pods, owned("10.64.0.0/26"))
			n.want("pods", "c1", "10.64.0.2/26 via 10.64.0.1")
			path := filepath.Join(n.dir, "pools", "pods.json")
			n.must(os.Remove(path))
			switch row.text {
			case "absent":
			case "directory":
				n.must(os.Mkdir(path, 0o755))
			default:
				n.must(os.WriteFile(path, []byte(row.text), 0o600))
			}
			_, err := n.allocate("pods", local.Request{Owner: owner("c2")})
			if err == nil || row.err != fs.ErrInvalid && !errors.Is(err, row.err) ||
				!strings.Contains(err.Error(), "pods") {
				t.Errorf("got %v, want %v", err, row.err)
			}
			if !n.release("pods", owner("c1")) {
				t.Error("no note: the address may be a shared one")
			}
			n.wantLeases("pods")
			if names, err := n.store().Pools(); err != nil || len(names) != 1 {
				t.Errorf("%v %v", names, err)
			}
			n.with("pods", func(p *local.Pool) {
				p.State = local.State{Pool: pods, Blocks: []local.Block{owned("10.64.5.0/26")},
					Boot: n.boot}
				n.must(p.State.Pool.Canonicalize())
				err := p.Save()
				if saved := err == nil; saved != (row.err != local.ErrSchema && row.err != fs.ErrInvalid) {
					t.Errorf("save: %v", err)
				}
			})
		})
	}
}

func TestSaveRefusesWrongState(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.with("pods", func(p *local.Pool) {
		if err := p.Save(); err == nil {
			t.Error("saved a state without a pool")
		}
		p.State.Pool = pods
		n.must(p.State.Pool.Canonicalize())
		p.State.Blocks = []local.Block{owned("10.0.0.0/26")}
		if err := p.Save(); err == nil || !strings.Contains(err.Error(), "10.0.0.0/26") {
			t.Errorf("saved a block outside the pool: %v", err)
		}
		p.State.Blocks = nil
		n.must(p.Save())
		n.must(p.Remove())
		n.must(p.Remove())
		if !errors.Is(p.Err(), local.ErrNoPool) {
			t.Error(p.Err())
		}
	})
	n.wantErr("pods", local.Request{Owner: owner("c1")}, local.ErrNoPool)
}

// TestNetworks: two networks in one pool do not disturb each other: not with equal container IDs,
// not by DEL and not by GC.
func TestNetworks(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.state(pods, owned("10.64.0.0/26"))
	of := func(network, container string) ipam.Owner {
		return ipam.Owner{Container: container, IfName: "eth0", Network: network}
	}
	for _, o := range []ipam.Owner{of("a", "c1"), of("b", "c1"), of("a", "c2"), of("b", "c2")} {
		_, err := n.allocate("pods", local.Request{Owner: o, Namespace: "shop"})
		n.must(err)
	}
	n.put("pods", "10.79.0.9", "c9") // of network net
	n.release("pods", of("a", "c1"))
	n.wantLeases("pods", "10.64.0.3 c1", "10.64.0.4 c2", "10.64.0.5 c2", "10.79.0.9 c9")
	collect := func(network string, keep ...ipam.Owner) (freed []string, noted bool) {
		n.with("pods", func(p *local.Pool) {
			leases, wrote, err := p.Collect(ctx, network, keep)
			n.must(err)
			noted = wrote
			for _, l := range leases {
				freed = append(freed, l.Addr.String())
			}
		})
		return freed, noted
	}
	freed, noted := collect("b", ipam.Owner{Container: "c1", IfName: "eth0"})
	if diff := cmp.Diff([]string{"10.64.0.5"}, freed); diff != "" || noted {
		t.Errorf("noted %t: %s", noted, diff)
	}
	n.wantLeases("pods", "10.64.0.3 c1", "10.64.0.4 c2", "10.79.0.9 c9")
	freed, noted = collect("net")
	if diff := cmp.Diff([]string{"10.79.0.9"}, freed); diff != "" || !noted {
		t.Errorf("noted %t: %s", noted, diff)
	}
	n.wantNotes("pods 10.79.0.9 net/c9/eth0")
	n.wantLeases("pods", "10.64.0.3 c1", "10.64.0.4 c2")
	if freed, _ := collect("unknown"); freed != nil {
		t.Errorf("freed %v", freed)
	}
}

// TestNotes: a note exists before its address is free, each release has one, and Done removes only
// the note that the agent has read.
func TestNotes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.state(pods, owned("10.64.0.0/26"))
	n.put("pods", "10.79.0.9", "c1")
	n.put("pods", "10.79.0.9", "c1") // again, as after a lost reply
	n.with("pods", func(p *local.Pool) {
		var taken *ipam.InUseError
		_, err := p.Put(ctx, addr("10.79.0.9"), local.Request{Owner: owner("c2")})
		if !errors.As(err, &taken) {
			t.Errorf("put for another owner: %v", err)
		}
		_, err = p.Put(ctx, addr("10.79.0.0"), local.Request{Owner: owner("c2")})
		if !errors.Is(err, local.ErrNotAllocatable) {
			t.Errorf("put the address of a network: %v", err)
		}
	})

	// the process dies after the note and before the release
	died := errors.New("died")
	store := local.New(local.Options{Dir: n.dir, BootID: n.boot,
		Change: func(op string, apply, _ func() error) error {
			if strings.HasPrefix(op, "release ") {
				n.wantNotes("pods 10.79.0.9 net/c1/eth0")
				return died
			}
			return apply()
		}})
	p, err := store.Open(ctx, "pods", false)
	n.must(err)
	if _, err := p.Release(ctx, owner("c1")); !errors.Is(err, died) {
		t.Error(err)
	}
	n.must(p.Close())
	n.wantLeases("pods", "10.79.0.9 c1")

	first, err := n.store().Notes()
	n.must(err)
	if !n.release("pods", owner("c1")) {
		t.Error("no note")
	}
	n.wantLeases("pods")
	n.wantNotes("pods 10.79.0.9 net/c1/eth0", "pods 10.79.0.9 net/c1/eth0")
	n.must(n.store().Done(first[0]))
	n.must(n.store().Done(first[0]))
	n.wantNotes("pods 10.79.0.9 net/c1/eth0")
	if n.release("pods", owner("c1")) {
		t.Error("a note without a reservation")
	}
	if err := n.store().Done(local.Note{Pool: "pods", Addr: addr("10.79.0.9")}); err == nil {
		t.Error("removed a note that was never read")
	}
}

// If no note can be written, the address stays reserved, and the next DEL releases it. Damaged
// notes do not hide others.
func TestNoteFails(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.state(pods, owned("10.64.0.0/26"))
	n.put("pods", "10.79.0.9", "c1")
	file := filepath.Join(n.dir, "notes")
	n.must(os.WriteFile(file, nil, 0o600))
	n.with("pods", func(p *local.Pool) {
		if noted, err := p.Release(ctx, owner("c1")); err == nil || noted ||
			!strings.Contains(err.Error(), "note for the agent") {
			t.Errorf("noted %t, %v", noted, err)
		}
	})
	n.wantLeases("pods", "10.79.0.9 c1")
	n.must(os.Remove(file))
	n.must(os.MkdirAll(filepath.Join(file, "pods"), 0o755))
	n.must(os.WriteFile(filepath.Join(file, "pods", "10.79.0.1-x.json"), []byte("{"), 0o600))
	if !n.release("pods", owner("c1")) {
		t.Error("no note")
	}
	notes, err := n.store().Notes()
	if !errors.Is(err, local.ErrDamaged) || len(notes) != 1 || notes[0].Addr != addr("10.79.0.9") {
		t.Errorf("%+v %v", notes, err)
	}
}

func TestRequested(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pool := pods
	pool.Exclude = []netip.Prefix{netip.MustParsePrefix("10.64.0.8/30")}
	pool.Reserve = []netip.Prefix{netip.MustParsePrefix("10.64.0.16/30")}
	n.state(pool, owned("10.64.0.0/26"), owned("10.64.1.0/26"), in(local.Returning, "10.64.2.0/26"))
	n.want("pods", "c1", "10.64.0.2/26 via 10.64.0.1")
	taken := errors.New("taken")
	for i, row := range []struct {
		addr, want string
		err        error
	}{
		{"10.64.0.40", "10.64.0.40/26 via 10.64.0.1", nil},
		{"10.64.0.17", "10.64.0.17/26 via 10.64.0.1", nil}, // reserved for requests
		{"10.64.0.9", "", local.ErrNotAllocatable},
		{"10.64.0.1", "", local.ErrNotAllocatable},
		{"10.64.0.63", "", local.ErrNotAllocatable},
		{"10.0.0.9", "", local.ErrNotAllocatable},
		{"fd00::9", "", local.ErrNotAllocatable},
		{"10.64.2.9", "", local.ErrForeignAddress},
		{"10.79.0.9", "", local.ErrForeignAddress},
		{"10.64.0.2", "", taken},
		{"10.64.1.5", "10.64.1.5/26 via 10.64.1.1", nil},
	} {
		q := local.Request{Owner: owner(fmt.Sprint("r", i)), Addr: addr(row.addr)}
		got, err := n.allocate("pods", q)
		if row.err == taken {
			var inUse *ipam.InUseError
			if !errors.As(err, &inUse) || !strings.Contains(inUse.Details(), "held by container") {
				t.Errorf("%s: %v", row.addr, err)
			}
		} else if !errors.Is(err, row.err) || err == nil && got != row.want {
			t.Errorf("%s: got %s, %v; want %s, %v", row.addr, got, err, row.want, row.err)
		}
	}
}

// A search returns neither excluded nor reserved addresses, and finds all others.
func TestSearch(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pool := cluster.Pool{Name: "pods", Range: netip.MustParsePrefix("10.64.0.0/24"), BlockBits: 28,
		Exclude: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/30"),
			netip.MustParsePrefix("10.64.0.14/32")},
		Reserve: []netip.Prefix{netip.MustParsePrefix("10.64.0.8/31")}}
	n.state(pool, owned("10.64.0.0/28"))
	var got []string
	for i := range 9 {
		a, err := n.allocate("pods", local.Request{Owner: owner(fmt.Sprint("c", i))})
		if err != nil && !errors.Is(err, local.ErrFull) {
			t.Fatal(err)
		}
		if err == nil {
			got = append(got, strings.TrimPrefix(strings.Split(a, "/")[0], "10.64.0."))
		}
	}
	if diff := cmp.Diff([]string{"4", "5", "6", "7", "10", "11", "12", "13"}, got); diff != "" {
		t.Error(diff)
	}
	n.with("pods", func(p *local.Pool) {
		blocks, _, err := p.Usage(ctx)
		n.must(err)
		if blocks[0].Capacity != 8 || blocks[0].Used != 8 {
			t.Errorf("%d of %d", blocks[0].Used, blocks[0].Capacity)
		}
	})
	// an address with a file that cannot be read may have a holder
	n.release("pods", owner("c0"))
	n.release("pods", owner("c1"))
	n.must(os.Mkdir(filepath.Join(n.dir, "addresses", "pods", "10.64.0.4"), 0o755))
	n.with("pods", func(p *local.Pool) {
		blocks, _, err := p.Usage(ctx)
		n.must(err)
		if blocks[0].Used != 7 {
			t.Errorf("%d addresses in use, expected 7", blocks[0].Used)
		}
	})
	n.want("pods", "c9", "10.64.0.5/28 via 10.64.0.1")
}

func TestPrefixes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pool := cluster.Pool{Name: "prefixes", Range: netip.MustParsePrefix("fd00:66::/48"),
		PrefixBits: 64, BlockBits: 62,
		Exclude: []netip.Prefix{netip.MustParsePrefix("fd00:66:0:1::/64")}}
	n.state(pool, owned("fd00:66::/62"))
	n.want("prefixes", "c1", "fd00:66::2/64 via fd00:66::1")
	n.want("prefixes", "c2", "fd00:66:0:2::2/64 via fd00:66:0:2::1")
	n.release("prefixes", owner("c1"))
	n.want("prefixes", "c3", "fd00:66:0:3::2/64 via fd00:66:0:3::1") // not the one just released
	n.want("prefixes", "c4", "fd00:66::2/64 via fd00:66::1")
	n.wantErr("prefixes", local.Request{Owner: owner("c5")}, local.ErrFull)
	n.release("prefixes", owner("c2"))
	for request, want := range map[string]error{
		"fd00:66:0:2::": nil, "fd00:66:0:2::2": nil, "fd00:66:0:2::1": local.ErrNotAllocatable,
		"fd00:66:0:1::": local.ErrNotAllocatable, "fd00:66:0:9::": local.ErrForeignAddress,
	} {
		q := local.Request{Owner: owner("r"), Addr: addr(request)}
		got, err := n.allocate("prefixes", q)
		if !errors.Is(err, want) || err == nil && got != "fd00:66:0:2::2/64 via fd00:66:0:2::1" {
			t.Errorf("%s: got %s, %v; want %v", request, got, err, want)
		}
		n.release("prefixes", owner("r"))
	}
	n.want("prefixes", "c6", "fd00:66:0:2::2/64 via fd00:66:0:2::1")
	n.wantErr("prefixes", local.Request{Owner: owner("c8")}, local.ErrFull)
}

func TestQuota(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pool := pods
	pool.Quota = map[string]uint64{"shop": 9}
	n.state(pool, owned("10.64.0.0/26"))
	shop := func(c string) local.Request {
		return local.Request{Owner: owner(c), Namespace: "shop"}
	}
	n.wantErr("pods", shop("c1"), local.ErrQuota)
	n.change("pods", func(s *local.State) { s.Tokens = map[string]uint64{"shop": 2} })
	for _, c := range []string{"c1", "c2"} {
		_, err := n.allocate("pods", shop(c))
		n.must(err)
	}
	n.wantErr("pods", shop("c3"), local.ErrQuota)
	if _, err := n.allocate("pods", local.Request{Owner: owner("free"), Namespace: "x"}); err != nil {
		t.Errorf("a namespace without quota: %v", err)
	}
	n.with("pods", func(p *local.Pool) {
		used, err := p.Used(ctx)
		n.must(err)
		if diff := cmp.Diff(map[string]uint64{"shop": 2, "x": 1}, used); diff != "" {
			t.Error(diff)
		}
	})
	n.release("pods", owner("c1"))
	if _, err := n.allocate("pods", shop("c3")); err != nil {
		t.Error(err)
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pool := pods
	pool.Namespaces = []string{"shop"}
	n.state(pool, owned("10.64.0.0/26"))
	n.wantErr("pods", local.Request{Owner: owner("c1")}, local.ErrNamespace)
	n.wantErr("pods", local.Request{Owner: owner("c1"), Namespace: "bank"}, local.ErrNamespace)
	if _, err := n.allocate("pods", local.Request{Owner: owner("c1"), Namespace: "shop"}); err != nil {
		t.Error(err)
	}
}

func TestNode(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	want := local.Node{Schema: cluster.Schema, Cluster: "c", Name: "n1", Identity: "i", Epoch: 3,
		Store: "s", MTU: 1450}
	n.must(n.store().SetNode(want))
	if got, err := n.store().Node(); err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
	path := filepath.Join(n.dir, "node.json")
	for text, want := range map[string]error{"{": local.ErrDamaged, `{"name":"n1"}`: local.ErrDamaged,
		`{"schema":9}`: local.ErrSchema} {
		n.must(os.WriteFile(path, []byte(text), 0o600))
		if _, err := n.store().Node(); !errors.Is(err, want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := n.store().Contact(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for range 2 {
		n.must(n.store().SetContact())
		if at, err := n.store().Contact(); err != nil || !at.Equal(n.wall) {
			t.Errorf("%s, %v; want %s", at, err, n.wall)
		}
		n.wall = n.wall.Add(-time.Hour)
	}
}

// Peek reads beside a process that holds the lock, and changes nothing.
func TestPeek(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.state(pods, owned("10.64.0.0/26"))
	n.want("pods", "c1", "10.64.0.2/26 via 10.64.0.1")
	locked := n.open("pods")
	p, err := n.store().Open(ctx, "pods", true)
	n.must(err)
	leases, err := p.Leases(ctx)
	if err != nil || len(leases) != 1 || len(p.State.Blocks) != 1 {
		t.Errorf("%v %v", leases, err)
	}
	if _, err := p.Allocate(ctx, local.Request{Owner: owner("c2")}); err == nil {
		t.Error("allocated without the lock")
	}
	if err := p.Save(); err == nil {
		t.Error("saved without the lock")
	}
	n.must(p.Close())
	n.must(p.Close())
	n.must(locked.Close())
	n.wantLeases("pods", "10.64.0.2 c1")
}
