package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// stateWith returns a state without a kernel, in which elements of requests exist.
func stateWith(t *testing.T, requests ...Request) *state {
	t.Helper()
	h := (*Conn)(nil).state()
	for _, r := range requests {
		c, conflicts := apply(h, r)
		if conflicts != nil {
			t.Fatal(conflicts)
		}
		commit(h, c)
	}
	return h
}

// apply does the same as [Conn.Apply] without the commit.
func apply(h *state, requests ...Request) (c changes, conflicts []error) {
	granted, conflicts := resolve(requests, h)
	for _, rs := range ruleSetsOf(granted...) {
		next := diff(rs, granted, h)
		c.builds, c.sets = append(c.builds, next.builds...), append(c.sets, next.sets...)
	}
	return c, conflicts
}

// commit changes a state as the kernel would.
func commit(h *state, c changes) {
	for _, b := range c.builds {
		h.statuses[b.sets[0].id()] = current
		for _, s := range b.sets {
			h.sets[s.id()] = contents{true, b.kept[s.Name]}
		}
	}
	for _, ch := range c.sets {
		list := slices.DeleteFunc(slices.Clone(h.elements(ch.set)), func(x nftmsg.Element) bool {
			return contains(ch.del, x)
		})
		h.sets[ch.set.id()] = contents{true, append(list, ch.add...)}
		for _, target := range ch.fill {
			h.chains[target.id()] = target.rules
		}
		for _, target := range ch.drop {
			delete(h.chains, target.id())
		}
	}
}

// describe lists changes: "build …", "+set: text owner" and "-set: text owner".
func describe(c changes) (list []string) {
	for _, b := range c.builds {
		n := 0
		for _, kept := range b.kept {
			n += len(kept)
		}
		list = append(list, fmt.Sprintf("build %s, keep %d in %d sets", b.version, n, len(b.kept)))
	}
	line := func(sign string, s *set, x nftmsg.Element) string {
		return strings.TrimSpace(sign + s.Name + ": " + s.text(x) + " " + x.Comment)
	}
	for _, ch := range c.sets {
		for _, x := range ch.del {
			list = append(list, line("-", ch.set, x))
		}
		for _, x := range ch.add {
			list = append(list, line("+", ch.set, x))
		}
		for _, target := range ch.fill {
			list = append(list, fmt.Sprintf("+chain with %d rules", len(target.rules)))
		}
		for _, target := range ch.drop {
			list = append(list, fmt.Sprintf("-chain with %d rules", len(target.rules)))
		}
	}
	return list
}

func expectChanges(t *testing.T, c changes, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, describe(c), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func guest(owner, room string) Request { return Request{Owner: owner, Elements: InRoom(room, owner)} }

func masq(t *testing.T, owner string, addrs ...string) Request {
	t.Helper()
	var list []netip.Prefix
	for _, a := range addrs {
		list = append(list, netip.MustParsePrefix(a))
	}
	elements, err := Masq{}.Elements(list...)
	if err != nil {
		t.Fatal(err)
	}
	return Request{Owner: owner, Elements: elements}
}

// onPort publishes port 8080 for an owner "container/network", only to clients if there are any.
func onPort(t *testing.T, owner, address string, clients ...string) Request {
	t.Helper()
	container, _, _ := strings.Cut(owner, "/")
	p := Publication{
		Mappings: []Mapping{{Protocol: unix.IPPROTO_TCP, First: 8080, Last: 8080,
			To: netip.MustParseAddrPort(address)}},
		Shares: func(other string) bool { return strings.HasPrefix(other, container+"/") },
	}
	for _, client := range clients {
		p.When4 = from(client)
	}
	elements, err := Publish(owner, p)
	if err != nil {
		t.Fatal(err)
	}
	return Request{Owner: owner, Elements: elements}
}

// from is the condition that a packet comes from a client.
func from(client string) Condition {
	when, err := ParseCondition(IPv4, []string{"ip", "saddr", client})
	if err != nil {
		panic(err)
	}
	return when
}

// gate describes the element that leads to the conditions of an owner.
func gate(sign, owner, client string) string {
	return fmt.Sprintf("%sgates4: conditions in chain %s %s", sign,
		gateOf(owner, from(client)).Name, owner)
}

// publisher describes the element that each owner of a port has.
func publisher(sign, owner string) string {
	x := Publisher(owner)
	return sign + "publishers: " + publishers().text(x.raw) + " " + owner
}

func TestDiff(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		have     []Request
		status   status // of rule set rooms, unless absent
		want     []Request
		changes  []string
		conflict string
	}{
		{
			name: "the first request builds the skeleton",
			want: []Request{guest("anne", "red")},
			changes: []string{"build rooms 1, keep 0 in 0 sets", "+rooms: red",
				"+guests: red anne anne"},
		},
		{
			name: "the same request changes nothing",
			have: []Request{guest("anne", "red")},
			want: []Request{guest("anne", "red")},
		},
		{
			name:    "a second owner shares the element",
			have:    []Request{guest("anne", "red")},
			want:    []Request{guest("bert", "red")},
			changes: []string{"+guests: red bert bert"},
		},
		{
			name: "a request replaces its owner's other elements, and drops the last reference",
			have: []Request{{Owner: "anne", Elements: slices.Concat(InRoom("red", "anne"),
				InRoom("blue", "anne"))}},
			want:    []Request{guest("anne", "blue")},
			changes: []string{"-rooms: red", "-guests: red anne anne"},
		},
		{
			name:     "an element that cannot be shared is a conflict",
			have:     []Request{{Owner: "anne", Elements: []Element{Seat("1")}}},
			want:     []Request{{Owner: "bert", Elements: []Element{Seat("2"), Seat("1")}}},
			conflict: "seat 1 is already in use by anne",
		},
		{
			name: "a conflict does not stop the other requests",
			have: []Request{{Owner: "anne", Elements: []Element{Seat("1")}}},
			want: []Request{{Owner: "bert", Elements: []Element{Seat("1")}},
				{Owner: "carl", Elements: []Element{Seat("2")}}},
			changes:  []string{"+seats: 2 carl"},
			conflict: "seat 1 is already in use by anne",
		},
		{
			name: "a new owner takes over the address of an owner that has vanished",
			have: []Request{masq(t, "old", "10.1.2.3/24", "10.1.2.4/24")},
			want: []Request{masq(t, "new", "10.1.2.3/16")},
			changes: []string{
				"-masq4: 10.1.2.3 old", "+masq4: 10.1.2.3 new",
				"-nomasq4: 10.1.2.3 not to 10.1.2.0/24 old",
				"+nomasq4: 10.1.2.3 not to 10.1.0.0/16 new",
			},
		},
		{
			name: "an owner that keeps one address loses the rest",
			have: []Request{masq(t, "a", "10.1.2.3/24", "10.1.2.4/24")},
			want: []Request{masq(t, "a", "10.1.2.3/24")},
			changes: []string{
				"-masq4: 10.1.2.4 a", "-nomasq4: 10.1.2.4 not to 10.1.2.0/24 a",
			},
		},
		{
			name: "the second network of a container gets its port in the second map",
			have: []Request{onPort(t, "c/net1", "10.1.0.2:80")},
			want: []Request{onPort(t, "c/net2", "10.2.0.2:80")},
			changes: []string{publisher("+", "c/net2"),
				"+seconddnat4: tcp *:8080 to 10.2.0.2:80 c/net2"},
		},
		{
			name: "the second network keeps its place when it is applied again",
			have: []Request{onPort(t, "c/net1", "10.1.0.2:80"), onPort(t, "c/net2", "10.2.0.2:80")},
			want: []Request{onPort(t, "c/net2", "10.2.0.2:80")},
		},
		{
			name: "the third network of a container gets no element for its port",
			have: []Request{onPort(t, "c/net1", "10.1.0.2:80"),
				onPort(t, "c/net2", "10.2.0.2:80")},
			want:    []Request{onPort(t, "c/net3", "10.3.0.2:80")},
			changes: []string{publisher("+", "c/net3")},
		},
		{
			name:     "a port of another container is a conflict",
			have:     []Request{onPort(t, "c/net1", "10.1.0.2:80")},
			want:     []Request{onPort(t, "d/net1", "10.1.0.3:80")},
			conflict: "host port tcp *:8080 to 10.1.0.3:80 is already in use by c/net1",
		},
		{
			name: "the first of two requests for a port in one transaction is applied",
			want: []Request{onPort(t, "c/net1", "10.1.0.3:80"), onPort(t, "d/net1", "10.1.0.4:80")},
			changes: []string{
				"build host ports 3, keep 0 in 0 sets", publisher("+", "c/net1"),
				"+dnat4: tcp *:8080 to 10.1.0.3:80 c/net1",
			},
			conflict: "host port tcp *:8080 to 10.1.0.4:80 is already in use by c/net1",
		},
		{
			name: "requests of two attachments share a transaction",
			have: []Request{guest("carl", "blue")},
			want: []Request{guest("anne", "red"), guest("bert", "red")},
			changes: []string{
				"+rooms: red", "+guests: red anne anne", "+guests: red bert bert",
			},
		},
		{
			name:    "an older skeleton is replaced and its elements stay",
			have:    []Request{guest("anne", "red")},
			status:  outdated,
			want:    []Request{guest("bert", "red")},
			changes: []string{"build rooms 1, keep 2 in 3 sets", "+guests: red bert bert"},
		},
		{
			name:    "flushed rules are created again and the elements stay",
			have:    []Request{guest("anne", "red")},
			status:  damaged,
			want:    []Request{guest("anne", "red")},
			changes: []string{"build rooms 1, keep 2 in 3 sets"},
		},
		{
			name: "conditions are a chain that the elements lead to",
			have: []Request{onPort(t, "z/net1", "10.9.0.1:80", "10.0.0.1")},
			want: []Request{onPort(t, "z/net1", "10.9.0.1:80", "10.0.0.2")},
			changes: []string{
				gate("-", "z/net1", "10.0.0.1"),
				gate("+", "z/net1", "10.0.0.2"),
				"+chain with 1 rules", "-chain with 1 rules",
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := stateWith(t, row.have...)
			if row.status != absent {
				h.statuses[roomSkeleton().sets[0].id()] = row.status
			}
			c, conflicts := apply(h, row.want...)
			expectChanges(t, c, row.changes...)
			if got := fmt.Sprint(conflicts); row.conflict != "" && got != "["+row.conflict+"]" ||
				row.conflict == "" && conflicts != nil {
				t.Errorf("conflicts %v, want %q", got, row.conflict)
			}
			commit(h, c)
			if again, _ := apply(h, row.want...); row.conflict == "" {
				expectChanges(t, again)
			}
		})
	}
}

func TestRemoval(t *testing.T) {
	t.Parallel()
	two := []Request{guest("anne", "red"), guest("bert", "red")}
	for _, row := range []struct {
		name    string
		rs      *RuleSet
		have    []Request
		owner   string
		first   *Element
		changes []string
	}{
		{"a shared element stays while it has an owner", Rooms, two, "anne", nil,
			[]string{"-guests: red anne anne"}},
		{"the last owner removes it", Rooms, two[:1], "anne", nil,
			[]string{"-rooms: red", "-guests: red anne anne"}},
		{"an owner without elements removes nothing", Rooms, two, "carl", nil, nil},
		{
			"removal of the first network leaves the port of the second", Publishing,
			[]Request{onPort(t, "c/net1", "10.1.0.2:80"), onPort(t, "c/net2", "10.2.0.2:80")},
			"c/net1", new(Publisher("c/net1")),
			[]string{publisher("-", "c/net1"), "-dnat4: tcp *:8080 to 10.1.0.2:80 c/net1"},
		},
		{
			"a missing first element ends the removal", Publishing,
			[]Request{onPort(t, "c/net1", "10.1.0.2:80")}, "c/net1", new(Publisher("c/net2")), nil,
		},
		{
			"conditions are removed with the last element that leads to them", Publishing,
			[]Request{onPort(t, "c/net1", "10.1.0.2:80", "10.0.0.1")}, "c/net1", nil,
			[]string{
				publisher("-", "c/net1"), "-dnat4: tcp *:8080 to 10.1.0.2:80 c/net1",
				gate("-", "c/net1", "10.0.0.1"), "-chain with 1 rules",
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c, _ := removal(row.rs, func(owner string) bool { return owner == row.owner },
				row.first, stateWith(t, row.have...))
			expectChanges(t, c, row.changes...)
		})
	}
}

// TestInverse applies two requests after have, optionally with changes by other owners in between,
// and reverts the first.
func TestInverse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		have    []Request
		undone  Request
		since   []Request
		deleted bool // whether all tables were deleted since
		changes []string
	}{
		{
			name:    "added elements are removed",
			undone:  guest("anne", "red"),
			changes: []string{"-rooms: red", "-guests: red anne anne"},
		},
		{
			name:    "a shared element stays if another owner has applied it since",
			undone:  guest("anne", "red"),
			since:   []Request{guest("bert", "red")},
			changes: []string{"-guests: red anne anne"},
		},
		{
			name:   "the elements of the former owner are restored",
			have:   []Request{masq(t, "old", "10.1.2.3/24")},
			undone: masq(t, "new", "10.1.2.3/24"),
			changes: []string{
				"-masq4: 10.1.2.3 new", "+masq4: 10.1.2.3 old",
				"-nomasq4: 10.1.2.3 not to 10.1.2.0/24 new",
				"+nomasq4: 10.1.2.3 not to 10.1.2.0/24 old",
			},
		},
		{
			name:   "elements that another owner has applied since stay",
			have:   []Request{masq(t, "old", "10.1.2.3/24")},
			undone: masq(t, "new", "10.1.2.3/24"),
			since:  []Request{masq(t, "newest", "10.1.2.3/24")},
		},
		{
			name:    "deleted tables stay deleted",
			have:    []Request{masq(t, "old", "10.1.2.3/24")},
			undone:  masq(t, "new", "10.1.2.3/24"),
			deleted: true,
		},
		{
			name:   "dropped conditions are restored",
			have:   []Request{onPort(t, "c/net1", "10.1.0.2:80", "10.0.0.1")},
			undone: onPort(t, "c/net1", "10.1.0.2:80"),
			changes: []string{
				gate("+", "c/net1", "10.0.0.1"), "+chain with 1 rules",
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := stateWith(t, row.have...)
			done, _ := apply(h, row.undone)
			commit(h, done)
			for _, r := range row.since {
				c, _ := apply(h, r)
				commit(h, c)
			}
			if row.deleted {
				h = stateWith(t)
			}
			c := inverse(done.sets, h)
			c.sets = slices.DeleteFunc(c.sets, change.empty)
			expectChanges(t, c, row.changes...)
		})
	}
}

// TestLacking checks that elements of a rule set that is not in force are missing, even if its sets
// hold them.
func TestLacking(t *testing.T) {
	t.Parallel()
	h := stateWith(t, guest("anne", "red"))
	requests := []Request{guest("anne", "red"), guest("bert", "red")}
	for status, want := range map[status]string{
		current: "[0 1]", outdated: "[0 1]", damaged: "[2 2]", absent: "[2 2]",
	} {
		h.statuses[roomSkeleton().sets[0].id()] = status
		var got []int
		for _, list := range lacking(Rooms, requests, h) {
			got = append(got, len(list))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("status %d: %d missing, want %s", status, got, want)
		}
	}
}
