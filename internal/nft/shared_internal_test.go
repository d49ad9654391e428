package nft

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// in returns a request of an owner "network/container" that masquerades addresses.
func in(owner string, how Masq, addrs ...string) Request {
	var list []netip.Prefix
	for _, a := range addrs {
		list = append(list, netip.MustParsePrefix(a))
	}
	elements, err := how.Elements(list...)
	if err != nil {
		panic(err)
	}
	network, _, _ := strings.Cut(owner, "/")
	return Request{Owner: owner, Peers: network + "/", Elements: elements}
}

// TestSharedAddress shows each change while owners of several networks want one address.
func TestSharedAddress(t *testing.T) {
	t.Parallel()
	h := stateWith(t)
	steps := []struct {
		about   string
		apply   []Request
		remove  string
		changes []string
	}{
		{about: "the first owner holds the address", apply: []Request{in("a/1", Masq{}, "10.1.2.3/24")},
			changes: []string{"build masquerade 3, keep 0 in 0 sets", "+masq4: 10.1.2.3 a/1",
				"+nomasq4: 10.1.2.3 not to 10.1.2.0/24 a/1"}},
		{about: "the owner of another network waits", apply: []Request{in("b/1", Masq{}, "10.1.2.3/16")},
			changes: []string{"build waiting 1, keep 0 in 0 sets", "+masq4_waiting: 10.1.2.3 b/1",
				"+nomasq4_waiting: 10.1.2.3 not to 10.1.0.0/16 b/1"}},
		{about: "nothing changes", apply: []Request{in("b/1", Masq{}, "10.1.2.3/16"),
			in("a/1", Masq{}, "10.1.2.3/24")}},
		{about: "an owner changes what it waits for",
			apply:   []Request{in("b/1", Masq{SameSubnet: true}, "10.1.2.3/16")},
			changes: []string{"-nomasq4_waiting: 10.1.2.3 not to 10.1.0.0/16 b/1"}},
		{about: "a new owner replaces one of its network that waits",
			apply: []Request{in("b/2", Masq{}, "10.1.2.3/16")},
			changes: []string{"-masq4_waiting: 10.1.2.3 b/1", "+masq4_waiting: 10.1.2.3 b/2",
				"+nomasq4_waiting: 10.1.2.3 not to 10.1.0.0/16 b/2"}},
		{about: "a new owner replaces the one of its network that holds the address",
			apply: []Request{in("a/2", Masq{}, "10.1.2.3/24")},
			changes: []string{"-masq4: 10.1.2.3 a/1", "+masq4: 10.1.2.3 a/2",
				"-nomasq4: 10.1.2.3 not to 10.1.2.0/24 a/1", "+nomasq4: 10.1.2.3 not to 10.1.2.0/24 a/2"}},
		{about: "the address passes to the owner that waits", remove: "a/2",
			changes: []string{"-masq4: 10.1.2.3 a/2", "+masq4: 10.1.2.3 b/2",
				"-nomasq4: 10.1.2.3 not to 10.1.2.0/24 a/2", "+nomasq4: 10.1.2.3 not to 10.1.0.0/16 b/2",
				"-masq4_waiting: 10.1.2.3 b/2", "-nomasq4_waiting: 10.1.2.3 not to 10.1.0.0/16 b/2"}},
		{about: "the last owner removes it", remove: "b/2",
			changes: []string{"-masq4: 10.1.2.3 b/2", "-nomasq4: 10.1.2.3 not to 10.1.0.0/16 b/2"}},
		{about: "two requests at once", apply: []Request{in("b/3", Masq{}, "10.1.2.3/24"),
			in("a/3", Masq{}, "10.1.2.3/24")},
			changes: []string{"+masq4: 10.1.2.3 b/3", "+nomasq4: 10.1.2.3 not to 10.1.2.0/24 b/3",
				"+masq4_waiting: 10.1.2.3 a/3", "+nomasq4_waiting: 10.1.2.3 not to 10.1.2.0/24 a/3"}},
	}
	for _, step := range steps {
		c, _ := apply(h, step.apply...)
		if step.remove != "" {
			c, _ = removal(Masquerading, func(o string) bool { return o == step.remove }, nil, h)
			c.sets = slices.DeleteFunc(c.sets, change.empty)
		}
		t.Log(step.about)
		expectChanges(t, c, step.changes...)
		commit(h, c)
		for i, missing := range lacking(Masquerading, step.apply, h) {
			if len(missing) > 0 {
				t.Errorf("%s: %s lacks %v", step.about, step.apply[i].Owner, missing)
			}
		}
	}
}

// TestWaitingWithoutHolder checks that an owner lacks an element for which it waits if no other
// owner holds it, and gets it with the next request.
func TestWaitingWithoutHolder(t *testing.T) {
	t.Parallel()
	b := in("b/1", Masq{}, "10.1.2.3/24")
	h := stateWith(t, in("a/1", Masq{}, "10.1.2.3/24"), b)
	for _, set := range Masquerading.skeleton().sets { // as "nft flush set" does
		h.sets[set.id()] = contents{exists: true}
	}
	if missing := lacking(Masquerading, []Request{b}, h)[0]; len(missing) != 2 {
		t.Errorf("missing: %v", missing)
	}
	c, _ := apply(h, b)
	commit(h, c)
	if missing := lacking(Masquerading, []Request{b}, h)[0]; len(missing) != 0 {
		t.Errorf("missing: %v", missing)
	}
}

// TestSharedHistories applies, undoes and removes random requests. After each step, one of the
// owners that want an address holds it, with all its elements, and the others wait.
func TestSharedHistories(t *testing.T) {
	t.Parallel()
	seeds := uint64(300)
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		w := &sharedWorld{t: t, state: stateWith(t), rand: rand.New(rand.NewPCG(seed, 0)),
			owners: map[string]Request{}}
		for range 40 {
			w.step()
			w.check()
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(w.log, "\n"))
		}
	}
}

type sharedWorld struct {
	t      *testing.T
	state  *state
	rand   *rand.Rand
	owners map[string]Request // the last request of each owner
	log    []string
}

var sharedRuleSets = []*RuleSet{Masquerading, Dropping}

func (w *sharedWorld) step() {
	r := w.random()
	switch w.rand.IntN(4) {
	case 0:
		w.remove(r.Owner)
	case 1:
		if _, known := w.owners[r.Owner]; known || len(w.replacedBy(r)) > 0 {
			return
		}
		done := w.apply(r)
		for range w.rand.IntN(3) {
			switch other := w.random(); {
			case other.Owner == r.Owner:
			case w.rand.IntN(2) == 0:
				w.remove(other.Owner)
			case !slices.Contains(w.replacedBy(other), r.Owner):
				w.apply(other)
			}
		}
		w.log = append(w.log, "undo "+r.Owner)
		commit(w.state, inverse(done.sets, w.state))
		delete(w.owners, r.Owner)
	default:
		w.apply(r)
	}
}

// random returns a request. The addresses of an owner and whether it drops packets are always the
// same, because a request does not remove what its owner has elsewhere.
func (w *sharedWorld) random() Request {
	container := w.rand.IntN(3)
	owner := fmt.Sprintf("%c/%d", 'a'+w.rand.IntN(3), container)
	addrs := [][]string{{"10.1.2.3", "fd00::3"}, {"10.1.2.4"}, {"10.1.2.3", "10.1.2.4"}}[container]
	for i, a := range addrs {
		addrs[i] = fmt.Sprintf("%s/%d", a, 8+w.rand.IntN(20))
	}
	how := Masq{SameSubnet: w.rand.IntN(3) == 0, DropInvalid: container != 1}
	if w.rand.IntN(2) == 0 {
		how.ToSource = append(how.ToSource, netip.AddrFrom4([4]byte{192, 0, 2, byte(w.rand.IntN(3))}))
	}
	if w.rand.IntN(2) == 0 {
		how.Exclude = prefixesOf("192.168.0.0/16", "10.1.0.0/22", "fd00:1::/32")
	}
	return in(owner, how, addrs...)
}

func prefixesOf(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func (w *sharedWorld) apply(r Request) changes {
	w.log = append(w.log, fmt.Sprintf("apply %s", r.Owner))
	for _, owner := range w.replacedBy(r) {
		old := w.owners[owner]
		old.Elements = slices.DeleteFunc(slices.Clone(old.Elements), func(e Element) bool {
			return wants(r, e)
		})
		w.owners[owner] = old
	}
	w.owners[r.Owner] = r
	c, _ := apply(w.state, r)
	commit(w.state, c)
	for _, rs := range sharedRuleSets {
		if missing := lacking(rs, []Request{r}, w.state)[0]; len(missing) > 0 {
			w.t.Errorf("%s lacks %v after its request", r.Owner, missing)
		}
	}
	return c
}

// replacedBy returns the owners of the same network with an address of the request.
func (w *sharedWorld) replacedBy(r Request) (list []string) {
	for owner, other := range w.owners {
		if owner != r.Owner && r.replaces(owner) && slices.ContainsFunc(other.Elements,
			func(e Element) bool { return wants(r, e) }) {
			list = append(list, owner)
		}
	}
	return list
}

// wants reports whether a request has an element of the same rule set with the subject of e.
func wants(r Request, e Element) bool {
	return slices.ContainsFunc(r.Elements, func(o Element) bool {
		return o.ruleSet == e.ruleSet && o.scope == e.scope &&
			string(o.raw.Key[:o.scope]) == string(e.raw.Key[:e.scope])
	})
}

func (w *sharedWorld) remove(owner string) {
	w.log = append(w.log, "remove "+owner)
	for _, rs := range sharedRuleSets {
		c, _ := removal(rs, func(o string) bool { return o == owner }, nil, w.state)
		commit(w.state, c)
	}
	delete(w.owners, owner)
}

func (w *sharedWorld) check() {
	w.t.Helper()
	for _, rs := range sharedRuleSets {
		s := rs.skeleton()
		holders := map[string]string{} // by subject
		var got, want []string
		for _, set := range s.sets {
			for _, x := range w.state.elements(set) {
				got = append(got, describeOne(set, x))
				if !set.shared {
					continue
				}
				subject := set.subjectOf(x)
				if h := holders[subject]; h != "" && h != x.Comment {
					w.t.Errorf("%s and %s hold %x", h, x.Comment, subject)
				}
				holders[subject] = x.Comment
			}
		}
		for _, set := range s.waiting().sets {
			for _, x := range w.state.elements(set) {
				got = append(got, describeOne(set, x))
			}
		}
		for owner, r := range w.owners {
			for _, e := range r.Elements {
				if e.ruleSet != rs {
					continue
				}
				set := s.set(e.set)
				x := set.owned(e, owner)
				if holders[set.subjectOf(x)] != owner {
					set, x = set.waiting(), set.ticket(x)
				}
				want = append(want, describeOne(set, x))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if d := cmp.Diff(want, got); d != "" {
			w.t.Errorf("%s (-want +got):\n%s", rs, d)
		}
	}
	// The requests of all owners at once change nothing.
	var all []Request
	for _, owner := range slices.Sorted(maps.Keys(w.owners)) {
		all = append(all, w.owners[owner])
	}
	c, _ := apply(w.state, all...)
	expectChanges(w.t, c)
}

func describeOne(s *set, x nftmsg.Element) string {
	return fmt.Sprintf("%s %s %s", s.Name, s.text(x), x.Comment)
}
