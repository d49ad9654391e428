package bandwidth

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// TestTBF has typical values, and values for which 32 bits are not enough.
func TestTBF(t *testing.T) {
	t.Parallel()
	const mbit, gbit, gib = 1e6, 1e9, 1 << 30
	for _, row := range []struct {
		name        string
		rate, burst uint64 // bits
		mtu         int
		want        kernel.TBF
	}{
		{"a byte per second", 8, 8, 1500, kernel.TBF{Rate: 1, Buffer: time.Second, Limit: 1}},
		{"two", 16, 8, 1500, kernel.TBF{Rate: 2, Buffer: 500 * time.Millisecond, Limit: 1}},
		{"units are bits", 8000, 80, 1500,
			kernel.TBF{Rate: 1000, Buffer: 10 * time.Millisecond, Limit: 35}},
		{"typical pod", mbit, 80000, 1500, kernel.TBF{Rate: 125000, Buffer: 80 * time.Millisecond,
			Limit: 13125}},
		{"incomplete bytes", 8007, 87, 1500,
			kernel.TBF{Rate: 1000, Buffer: 10 * time.Millisecond, Limit: 35}},
		{"10 Gbit/s", 10 * gbit, 10 * mbit, 1500,
			kernel.TBF{Rate: 1250e6, Buffer: time.Millisecond, Limit: 32500000}},
		{"100 Gbit/s does not fit into 32 bits of bytes", 100 * gbit, 10 * mbit, 1500,
			kernel.TBF{Rate: 12500e6, Buffer: 100 * time.Microsecond, Limit: 313750000}},
		{"10 Gbit/s, packets shorter than a microsecond", 10 * gbit, 12112, 1500,
			kernel.TBF{Rate: 1250e6, Buffer: 1211, Limit: 31251514}},
		{"largest burst", gbit, 4*gib*8 - 16, 1500,
			kernel.TBF{Rate: 125e6, Buffer: 34359738352, Limit: math.MaxUint32}},
		{"largest rate and burst", math.MaxUint64, 4*gib*8 - 16, 1500,
			kernel.TBF{Rate: math.MaxUint64 / 8, Buffer: 1, Limit: math.MaxUint32}},
		{"largest burst at the smallest rate", 8, 4*gib*8 - 16, 1500,
			kernel.TBF{Rate: 1, Buffer: 4294967294 * time.Second, Limit: 4294967294}},
		{"smallest default burst", mbit, 0, 1500,
			kernel.TBF{Rate: 125000, Buffer: 131072 * time.Microsecond, Limit: 19509}},
		{"burst follows from the rate", gbit, 0, 1500,
			kernel.TBF{Rate: 125e6, Buffer: 4 * time.Millisecond, Limit: 3625000}},
		{"burst holds a packet", mbit, 0, 65521,
			kernel.TBF{Rate: 125000, Buffer: 524280 * time.Microsecond, Limit: 68660}},
		{"largest default burst", math.MaxUint64, 0, 1500,
			kernel.TBF{Rate: math.MaxUint64 / 8, Buffer: 1, Limit: math.MaxUint32}},
	} {
		l := limit{key: "ingress", rate: row.rate, burst: row.burst}
		if err := l.validate(); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if diff := cmp.Diff(row.want, l.tbf(row.mtu)); diff != "" {
			t.Errorf("%s: %s", row.name, diff)
		}
	}
}
