package cluster_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/cluster"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	k := cluster.NewKeys("c1")
	a, b := netip.MustParseAddr("fd00:0::00A"), prefix("fd00::/122")
	got := []string{k.Root(), k.Meta(), k.Pool("pods"), k.Node("n1"), k.Live("n1"),
		k.Block("pods", prefix("10.64.3.64/26")), k.Block("pods", b), k.Cool("pods", b),
		k.Addr("pods", a), k.Addr("pods", netip.MustParseAddr("::ffff:10.0.0.1")),
		k.Sticky("pods", "shop", "web-0"), k.Quota("pods", "shop", "n1")}
	const root = "/tenon/c1/v1/"
	want := []string{"", "meta", "pools/pods", "nodes/n1", "live/n1", "blocks/pods/10.64.3.64_26",
		"blocks/pods/fd00::_122", "cool/pods/fd00::_122", "addr/pods/fd00::a", "addr/pods/10.0.0.1",
		"sticky/pods/shop/web-0", "quota/pods/shop/n1"}
	for i := range got {
		got[i] = strings.ReplaceAll(strings.TrimPrefix(got[i], root), "%3A", ":")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The prefix of an object includes no key of an object with a longer name.
func TestPrefixesOfKeys(t *testing.T) {
	t.Parallel()
	k := cluster.NewKeys("c")
	b := prefix("10.0.0.0/26")
	a := b.Addr()
	for _, row := range []struct {
		prefix       string
		mine, others []string
	}{
		{k.Nodes(), []string{k.Node("n1"), k.Node("n10")}, []string{k.Live("n1"), k.Meta()}},
		{k.Lives(), []string{k.Live("n1")}, []string{k.Node("n1")}},
		{k.Pools(), []string{k.Pool("p")}, []string{k.Block("p", b)}},
		{k.Blocks("p1"), []string{k.Block("p1", b)}, []string{k.Block("p10", b), k.Cool("p1", b)}},
		{k.Blocks(""), []string{k.Block("p1", b), k.Block("p10", b)}, []string{k.Cool("p1", b)}},
		{k.Cools("p1"), []string{k.Cool("p1", b)}, []string{k.Cool("p10", b)}},
		{k.Addrs("p1"), []string{k.Addr("p1", a)}, []string{k.Addr("p10", a)}},
		{k.Stickies("p1"), []string{k.Sticky("p1", "ns", "n")}, []string{k.Sticky("p10", "ns", "n")}},
		{k.Quotas("p", "ns1"), []string{k.Quota("p", "ns1", "n1")},
			[]string{k.Quota("p", "ns10", "n1"), k.Quota("p1", "ns1", "n1")}},
		{k.Quotas("p", ""), []string{k.Quota("p", "ns1", "n1"), k.Quota("p", "ns10", "n1")},
			[]string{k.Quota("p1", "ns1", "n1")}},
		{k.Root(), []string{k.Meta()}, []string{cluster.NewKeys("c1").Meta()}},
	} {
		for _, key := range row.mine {
			if !strings.HasPrefix(key, row.prefix) {
				t.Errorf("%s does not include %s", row.prefix, key)
			}
		}
		for _, key := range row.others {
			if strings.HasPrefix(key, row.prefix) {
				t.Errorf("%s includes %s", row.prefix, key)
			}
		}
	}
}

// FuzzKeys: names never leave their place in a key, and different names have different keys.
func FuzzKeys(f *testing.F) {
	f.Add("shop", "web-0", "shop/web", "0")
	f.Add("a/b", "c", "a", "b/c")
	f.Add("..", ".", "%2F", "/")
	f.Add("é", "\x00", "a_b", "a%")
	f.Fuzz(func(t *testing.T, ns1, name1, ns2, name2 string) {
		k := cluster.NewKeys("c")
		one, two := k.Sticky("p", ns1, name1), k.Sticky("p", ns2, name2)
		if (one == two) != (ns1 == ns2 && name1 == name2) {
			t.Errorf("%q %q and %q %q: %s and %s", ns1, name1, ns2, name2, one, two)
		}
		if got := cluster.Last(one); got != name1 {
			t.Errorf("%s: got %q, want %q", one, got, name1)
		}
		if strings.Count(one, "/") != strings.Count(k.Sticky("p", "x", "y"), "/") {
			t.Errorf("%q %q has another number of parts: %s", ns1, name1, one)
		}
	})
}

func TestParseBlock(t *testing.T) {
	t.Parallel()
	k := cluster.NewKeys("c")
	for _, s := range []string{"10.64.3.64/26", "fd00::/122", "fd00:66:0:40::/58"} {
		for _, key := range []string{k.Block("p", prefix(s)), k.Cool("p_1", prefix(s))} {
			if got, err := cluster.ParseBlock(key); err != nil || got != prefix(s) {
				t.Errorf("%s: %s, %v", key, got, err)
			}
		}
	}
	for _, key := range []string{"", "blocks/p/", "blocks/p/10.0.0.0", "blocks/p/10.0.0.0_33",
		"blocks/p/%zz", "blocks/p/x_26"} {
		if got, err := cluster.ParseBlock(key); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %s, %v", key, got, err)
		}
	}
}

func TestValidateName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"pods": "", "n1.example.org": "", "A_b-9": "", strings.Repeat("x", 253): "",
		"": "empty", ".": "begins with", "..": "begins with", ".hidden": "begins with",
		"-x": "begins with", "a/b": "contains", "a b": "contains", "é": "contains",
		"a\x00": "contains", "a%2f": "contains", strings.Repeat("x", 254): "254 bytes",
	} {
		err := cluster.ValidateName(name)
		if want == "" && err != nil || want != "" && (err == nil ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	p := *pool(t, cluster.Pool{Range: prefix("10.64.0.0/12"), Hold: cluster.MinHold,
		Quota: map[string]uint64{"*": 5}, Exclude: prefixes("10.64.0.0/30")})
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := cluster.Decode[cluster.Pool]("k", b)
	same := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(p, got, same); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if !strings.Contains(string(b), `"cooldown":"5m0s"`) {
		t.Errorf("%s", b)
	}
	for text, want := range map[string]string{
		`{"schema":1,"range":"10.0.0.0/8","cooldown":"1h"}`: "",
		`{"schema":2,"range":["10.0.0.0/8"]}`:               "schema 2 is newer than 1",
		`{"schema":1,"range":["10.0.0.0/8"]}`:               "key k: json",
		`{"schema":1,"cooldown":"long"}`:                    "key k: time",
		`{`:                                                 "key k: unexpected end",
		``:                                                  "key k: unexpected end",
		`[]`:                                                "key k: json",
	} {
		v, err := cluster.Decode[cluster.Pool]("k", []byte(text))
		if want == "" && err != nil || want != "" && (err == nil ||
			!strings.Contains(err.Error(), want) || !reflect.DeepEqual(v, cluster.Pool{})) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// FuzzDecode: no document makes a decoder panic, and every accepted one survives another round.
func FuzzDecode(f *testing.F) {
	now := time.Unix(1, 0).UTC()
	b := prefix("10.64.0.0/26")
	for _, v := range []any{
		cluster.Meta{Schema: 1, Nonce: "x"},
		cluster.Pool{Schema: 1, Name: "p", Range: prefix("10.64.0.0/12"), BlockBits: 26},
		cluster.Node{Schema: 1, Name: "n1", Identity: "i", Epoch: 3, State: cluster.NodeActive,
			Since: now, Addresses: []netip.Addr{b.Addr()},
			Blocks: []cluster.BlockRef{{Pool: "p", Block: b, Nonce: "x"}}},
		cluster.Block{Schema: 1, Pool: "p", Block: b, State: cluster.BlockOwned, Owner: "n1",
			Grants: map[netip.Addr]cluster.Grant{b.Addr(): {Node: "n2", Epoch: 1}}},
		cluster.Holder{Schema: 1, Pool: "p", Addr: b.Addr(), Node: "n1", Container: "c"},
		cluster.Sticky{Schema: 1, Pool: "p", Namespace: "shop", Name: "web-0", Addr: b.Addr()},
		cluster.Tokens{Schema: 1, Namespace: "shop", Node: "n1", Epoch: 1, Count: 8},
	} {
		text, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"schema":99}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		again[cluster.Meta](t, text)
		again[cluster.Pool](t, text)
		again[cluster.Node](t, text)
		again[cluster.Block](t, text)
		again[cluster.Holder](t, text)
		again[cluster.Sticky](t, text)
		again[cluster.Tokens](t, text)
	})
}

// again decodes a document as T, encodes it and decodes it again.
func again[T any](t *testing.T, text []byte) {
	v, err := cluster.Decode[T]("k", text)
	if err != nil {
		return
	}
	b, err := json.Marshal(v)
	if err != nil { // years outside RFC 3339
		return
	}
	w, err := cluster.Decode[T]("k", b)
	if c, errAgain := json.Marshal(w); err != nil || errAgain != nil || string(b) != string(c) {
		t.Errorf("%s: %v, %s", b, err, c)
	}
}
