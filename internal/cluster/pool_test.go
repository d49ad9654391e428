package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func prefixes(list ...string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, prefix(s))
	}
	return all
}

// pool returns a canonical pool.
func pool(t testing.TB, p cluster.Pool) *cluster.Pool {
	t.Helper()
	if p.Name == "" {
		p.Name = "p"
	}
	if err := p.Canonicalize(); err != nil {
		t.Fatal(err)
	}
	return &p
}

func TestCanonicalize(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		pool cluster.Pool
		want string // the size of a block, or a part of the error
	}{
		{"IPv4", cluster.Pool{Range: prefix("10.64.0.0/12")}, "/26"},
		{"IPv6", cluster.Pool{Range: prefix("fd00::/104")}, "/122"},
		{"prefixes", cluster.Pool{Range: prefix("fd00::/48"), PrefixBits: 64}, "/58"},
		{"prefixes of /80", cluster.Pool{Range: prefix("fd00::/64"), PrefixBits: 80}, "/74"},
		{"a range smaller than a block", cluster.Pool{Range: prefix("10.0.0.0/28")}, "/28"},
		{"smallest block", cluster.Pool{Range: prefix("10.0.0.0/24"), BlockBits: 30}, "/30"},
		{"largest block", cluster.Pool{Range: prefix("10.0.0.0/8"), BlockBits: 16}, "/16"},
		{"hold", cluster.Pool{Range: prefix("10.0.0.0/8"), Hold: cluster.MinHold}, "/26"},
		{"exclusion of the whole range", cluster.Pool{Range: prefix("10.0.0.0/24"),
			Exclude: prefixes("10.0.0.0/24")}, "/26"},
		{"no range", cluster.Pool{}, "range is missing"},
		{"host bits", cluster.Pool{Range: prefix("10.0.0.5/24")}, "did you mean 10.0.0.0/24?"},
		{"IPv4 written as IPv6", cluster.Pool{Range: prefix("::ffff:10.0.0.0/120")}, "invalid"},
		{"block larger than the range", cluster.Pool{Range: prefix("10.0.0.0/24"),
			BlockBits: 20}, "blockBits 20 does not lie between 24 and 48"},
		{"too many blocks", cluster.Pool{Range: prefix("fd00::/64")}, "blockBits 122 does not lie"},
		{"block of two addresses", cluster.Pool{Range: prefix("10.0.0.0/24"), BlockBits: 31},
			"too small"},
		{"block of 2^17 addresses", cluster.Pool{Range: prefix("10.0.0.0/8"), BlockBits: 15},
			"at most 2^16"},
		{"block longer than an address", cluster.Pool{Range: prefix("10.0.0.0/24"), BlockBits: 40},
			"too small"},
		{"IPv4 prefixes", cluster.Pool{Range: prefix("10.0.0.0/8"), PrefixBits: 64},
			"prefixBits 64"},
		{"prefixes too long", cluster.Pool{Range: prefix("fd00::/80"), PrefixBits: 96},
			"prefixBits 96"},
		{"prefixes shorter than a block", cluster.Pool{Range: prefix("fd00::/56"), BlockBits: 72,
			PrefixBits: 64}, "too small"},
		{"short hold", cluster.Pool{Range: prefix("10.0.0.0/8"), Hold: 1}, "shorter than 1h"},
		{"negative cooldown", cluster.Pool{Range: prefix("10.0.0.0/8"), Cooldown: -1}, "negative"},
		{"exclusion outside", cluster.Pool{Range: prefix("10.0.0.0/24"),
			Exclude: prefixes("10.0.1.0/28")}, "not a part"},
		{"reservation larger than the range", cluster.Pool{Range: prefix("10.0.0.0/24"),
			Reserve: prefixes("10.0.0.0/8")}, "not a part"},
		{"exclusion with host bits", cluster.Pool{Range: prefix("10.0.0.0/24"),
			Exclude: prefixes("10.0.0.1/28")}, "not a part"},
		{"exclusion of the other family", cluster.Pool{Range: prefix("10.0.0.0/24"),
			Exclude: prefixes("fd00::/120")}, "not a part"},
		{"name with a slash", cluster.Pool{Name: "a/b", Range: prefix("10.0.0.0/24")},
			`contains '/'`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.pool.Name == "" {
				row.pool.Name = "p"
			}
			err := row.pool.Canonicalize()
			got := fmt.Sprintf("/%d", row.pool.BlockBits)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, row.want) {
				t.Errorf("got %s, want %s", got, row.want)
			}
			if err != nil && cni.CodeOf(err) != cni.CodeInvalidConfig {
				t.Errorf("code %d", cni.CodeOf(err))
			}
			if err == nil && row.pool.Cooldown != cluster.Duration(5*time.Minute) {
				t.Errorf("cooldown %s", row.pool.Cooldown)
			}
		})
	}
}

// Blocks of a /12 with /26: 16,384, without gaps and in order.
func TestBlocks(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		pool              cluster.Pool
		blocks            uint64
		first, last, next string // next is the block with index 1
	}{
		{cluster.Pool{Range: prefix("10.64.0.0/12")}, 16384, "10.64.0.0/26", "10.79.255.192/26",
			"10.64.0.64/26"},
		{cluster.Pool{Range: prefix("255.255.255.0/24")}, 4, "255.255.255.0/26",
			"255.255.255.192/26", "255.255.255.64/26"},
		{cluster.Pool{Range: prefix("fd00:64::/104")}, 1 << 18, "fd00:64::/122",
			"fd00:64::ff:ffc0/122", "fd00:64::40/122"},
		{cluster.Pool{Range: prefix("fd00:66::/48"), PrefixBits: 64}, 1024, "fd00:66::/58",
			"fd00:66:0:ffc0::/58", "fd00:66:0:40::/58"},
		{cluster.Pool{Range: prefix("10.0.0.0/26")}, 1, "10.0.0.0/26", "10.0.0.0/26", ""},
	} {
		p := pool(t, row.pool)
		n := p.Blocks()
		if n != row.blocks || p.Block(0) != prefix(row.first) || p.Block(n-1) != prefix(row.last) ||
			row.next != "" && p.Block(1) != prefix(row.next) {
			t.Errorf("%s: %d blocks, %s %s … %s", p.Range, n, p.Block(0), p.Block(1), p.Block(n-1))
		}
		for range 1000 {
			i := rand.Uint64N(n)
			b := p.Block(i)
			if got, ok := p.BlockOf(b.Addr()); !ok || got != b || !p.IsBlock(b) {
				t.Fatalf("block %d of %s: %s, found %s", i, p.Range, b, got)
			}
		}
		if s := p.Start("n1"); s >= n {
			t.Errorf("start %d of %d", s, n)
		}
	}
}

func TestNoBlock(t *testing.T) {
	t.Parallel()
	p := pool(t, cluster.Pool{Range: prefix("10.64.0.0/12")})
	for _, s := range []string{"10.64.0.0/25", "10.64.0.0/27", "10.64.0.32/26", "10.80.0.0/26",
		"10.63.255.192/26", "fd00::/26"} {
		if p.IsBlock(prefix(s)) {
			t.Errorf("%s is no block", s)
		}
	}
	if p.IsBlock(netip.Prefix{}) {
		t.Error("the zero Prefix is no block")
	}
	for _, s := range []string{"10.63.255.255", "10.80.0.0", "::ffff:10.64.0.1", "fd00::1"} {
		if b, ok := p.BlockOf(netip.MustParseAddr(s)); ok {
			t.Errorf("%s is in block %s", s, b)
		}
	}
	if _, ok := p.BlockOf(netip.Addr{}); ok {
		t.Error("the zero Addr is in a block")
	}
}

// Exclusions and reservations at the borders of a block, and across them.
func TestRanges(t *testing.T) {
	t.Parallel()
	const block4, block6 = "10.0.1.64/26", "fd00::40/122"
	for _, row := range []struct {
		name, pool, block string
		exclude, reserve  []string
		want              string
		units             uint64
	}{
		{"nothing", "10.0.0.0/16", block4, nil, nil, "10.0.1.66-10.0.1.126", 61},
		{"IPv6 has no broadcast address", "fd00::/104", block6, nil, nil, "fd00::42-fd00::7f", 62},
		{"the first address", "10.0.0.0/16", block4, []string{"10.0.1.66/32"}, nil,
			"10.0.1.67-10.0.1.126", 60},
		{"the last address", "10.0.0.0/16", block4, []string{"10.0.1.126/32"}, nil,
			"10.0.1.66-10.0.1.125", 60},
		{"network, gateway and broadcast", "10.0.0.0/16", block4,
			[]string{"10.0.1.64/31", "10.0.1.127/32"}, nil, "10.0.1.66-10.0.1.126", 61},
		{"in the middle", "10.0.0.0/16", block4, []string{"10.0.1.96/30"}, nil,
			"10.0.1.66-10.0.1.95,10.0.1.100-10.0.1.126", 57},
		{"reservations count like exclusions", "10.0.0.0/16", block4, []string{"10.0.1.80/28"},
			[]string{"10.0.1.112/28"}, "10.0.1.66-10.0.1.79,10.0.1.96-10.0.1.111", 30},
		{"overlapping ones", "10.0.0.0/16", block4, []string{"10.0.1.80/28", "10.0.1.84/30"},
			[]string{"10.0.1.88/29"}, "10.0.1.66-10.0.1.79,10.0.1.96-10.0.1.126", 45},
		{"the first half", "10.0.0.0/16", block4, []string{"10.0.1.64/27"}, nil,
			"10.0.1.96-10.0.1.126", 31},
		{"the second half", "10.0.0.0/16", block4, []string{"10.0.1.96/27"}, nil,
			"10.0.1.66-10.0.1.95", 30},
		{"the whole block", "10.0.0.0/16", block4, []string{block4}, nil, "", 0},
		{"more than the block", "10.0.0.0/16", block4, []string{"10.0.0.0/20"}, nil, "", 0},
		{"the block before", "10.0.0.0/16", block4, []string{"10.0.1.0/26"}, nil,
			"10.0.1.66-10.0.1.126", 61},
		{"the block after", "10.0.0.0/16", block4, []string{"10.0.1.128/26"}, nil,
			"10.0.1.66-10.0.1.126", 61},
		{"the end of the address space", "255.255.0.0/16", "255.255.255.192/26",
			[]string{"255.255.255.254/31"}, nil, "255.255.255.194-255.255.255.253", 60},
		{"the end of IPv6",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:0/112", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffc0/122",
			[]string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"}, nil,
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffc2-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", 61},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := pool(t, cluster.Pool{Range: prefix(row.pool), Exclude: prefixes(row.exclude...),
				Reserve: prefixes(row.reserve...)})
			b := prefix(row.block)
			if got := p.Ranges(b).String(); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
			if got := p.Units(b); got != row.units {
				t.Errorf("%d units, want %d", got, row.units)
			}
			for _, r := range p.Ranges(b) {
				if r.Subnet != b || r.Gateway != p.Gateway(b) || r.Canonicalize() != nil {
					t.Errorf("range %+v", r)
				}
			}
		})
	}
}

func TestPrefixes(t *testing.T) {
	t.Parallel()
	p := pool(t, cluster.Pool{Range: prefix("fd00:66::/48"), PrefixBits: 64,
		Exclude: prefixes("fd00:66:0:1::/64", "fd00:66:0:3::7/128"),
		Reserve: prefixes("fd00:66:0:4::/62", "fd00:66:0:20::/59")})
	var got []string
	b := p.Block(0)
	for unit := range p.Prefixes(b) {
		got = append(got, unit.String())
	}
	if p.Units(b) != 64-2-4-32 || len(got) != 26 {
		t.Errorf("%d units, %d prefixes", p.Units(b), len(got))
	}
	if diff := cmp.Diff([]string{"fd00:66::/64", "fd00:66:0:2::/64", "fd00:66:0:8::/64"},
		got[:3]); diff != "" {
		t.Error(diff)
	}
	for range p.Prefixes(b) { // an early end
		break
	}
	if p.Gateway(b).IsValid() {
		t.Error("blocks of prefixes have no gateway")
	}
}

func TestAllocatable(t *testing.T) {
	t.Parallel()
	addresses := pool(t, cluster.Pool{Range: prefix("10.0.0.0/16"),
		Exclude: prefixes("10.0.0.8/30"), Reserve: prefixes("10.0.0.16/30")})
	units := pool(t, cluster.Pool{Range: prefix("fd00:66::/48"), PrefixBits: 64,
		Exclude: prefixes("fd00:66:0:3::7/128")})
	six := pool(t, cluster.Pool{Range: prefix("fd00::/104")})
	for _, row := range []struct {
		pool       *cluster.Pool
		addr, want string
	}{
		{addresses, "10.0.0.2", ""},
		{addresses, "10.0.0.62", ""},
		{addresses, "10.0.0.16", ""}, // reserved: by request
		{addresses, "10.0.0.0", "network, gateway or broadcast"},
		{addresses, "10.0.0.1", "network, gateway or broadcast"},
		{addresses, "10.0.0.63", "network, gateway or broadcast"},
		{addresses, "10.0.0.64", "network, gateway or broadcast"},
		{addresses, "10.0.0.8", "is excluded"},
		{addresses, "10.0.0.11", "is excluded"},
		{addresses, "10.0.0.12", ""},
		{addresses, "10.1.0.2", "is not in pool p (10.0.0.0/16)"},
		{addresses, "fd00::2", "is not in pool"},
		{six, "fd00::3f", ""},
		{six, "fd00::40", "network, gateway"},
		{units, "fd00:66:0:5::", ""},
		{units, "fd00:66::", ""},
		{units, "fd00:66:0:5::1", "is not the first address of a /64"},
		{units, "fd00:66:0:3::", "is excluded"},
	} {
		err := row.pool.Allocatable(netip.MustParseAddr(row.addr))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: got %q, want %q", row.addr, got, row.want)
		}
	}
}

func TestLimitOf(t *testing.T) {
	t.Parallel()
	p := cluster.Pool{Quota: map[string]uint64{"shop": 5, "open": 0, "*": 3}}
	if p.LimitOf("shop") != 5 || p.LimitOf("open") != 0 || p.LimitOf("other") != 3 ||
		p.LimitOf("") != 3 || (&cluster.Pool{}).LimitOf("shop") != 0 {
		t.Errorf("%+v", p)
	}
}

// Nodes with similar names start their search at different blocks.
func TestStartSpreads(t *testing.T) {
	t.Parallel()
	p := pool(t, cluster.Pool{Range: prefix("10.64.0.0/12")})
	seen := map[uint64]bool{}
	const nodes = 5000
	for i := range nodes {
		seen[p.Start(fmt.Sprintf("node-%04d", i))] = true
	}
	// 5,000 balls in 16,384 bins hit about 4,309 of them.
	if len(seen) < 4000 {
		t.Errorf("%d nodes start at %d blocks", nodes, len(seen))
	}
}

// FuzzPool: every pool that Canonicalize accepts has disjoint blocks in its range, and never
// allocates excluded, reserved, network, gateway or broadcast addresses.
func FuzzPool(f *testing.F) {
	f.Add("10.64.0.0/12", 26, 0, "10.64.0.8/30", "10.64.0.16/29", uint64(5))
	f.Add("fd00::/104", 0, 0, "fd00::40/123", "fd00::80/128", uint64(1))
	f.Add("fd00:66::/48", 0, 64, "fd00:66::/60", "fd00:66:0:20::7/128", uint64(0))
	f.Add("255.255.255.0/24", 30, 0, "255.255.255.255/32", "255.255.255.254/31", uint64(63))
	f.Fuzz(func(t *testing.T, r string, blockBits, prefixBits int, exclude, reserve string, i uint64) {
		p := cluster.Pool{Name: "p", BlockBits: blockBits, PrefixBits: prefixBits}
		for text, to := range map[string]*[]netip.Prefix{exclude: &p.Exclude, reserve: &p.Reserve} {
			if e, err := netip.ParsePrefix(text); err == nil {
				*to = append(*to, e)
			}
		}
		var err error
		if p.Range, err = netip.ParsePrefix(r); err != nil || p.Canonicalize() != nil {
			return
		}
		i %= p.Blocks()
		b := p.Block(i)
		if !p.IsBlock(b) || !p.Range.Overlaps(b) || i > 0 && p.Block(i-1).Overlaps(b) {
			t.Fatalf("block %d of %s: %s", i, p.Range, b)
		}
		if p.PrefixBits > 0 {
			checkPrefixes(t, &p, b)
			return
		}
		checkRanges(t, &p, b)
	})
}

// most is the number of addresses of a block that FuzzPool looks at.
const most = 100

func checkPrefixes(t *testing.T, p *cluster.Pool, b netip.Prefix) {
	n := 0
	for unit := range p.Prefixes(b) {
		if !b.Contains(unit.Addr()) || unit.Bits() != p.PrefixBits || unit != unit.Masked() ||
			p.Allocatable(unit.Addr()) != nil {
			t.Fatalf("prefix %s of block %s", unit, b)
		}
		if n++; n == most {
			return
		}
	}
}

func checkRanges(t *testing.T, p *cluster.Pool, b netip.Prefix) {
	n := 0
	for _, r := range p.Ranges(b) {
		for a := r.Start; r.Contains(a) && n < most; a, n = a.Next(), n+1 {
			if err := p.Allocatable(a); err != nil || !b.Contains(a) {
				t.Fatalf("address %s of block %s: %v", a, b, err)
			}
			for _, e := range p.Reserve {
				if e.Contains(a) {
					t.Fatalf("address %s is in %s", a, e)
				}
			}
		}
	}
}
