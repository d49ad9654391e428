package ipam

import (
	"net/netip"
	"testing"
	"time"
)

// TestErrors: errors about leases name the holder, the age and a remedy. They contain upstream's
// texts, because people search for those.
func TestErrors(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	lease := func(addr string, o Owner, age time.Duration, b Boot) Lease {
		return Lease{netip.MustParseAddr(addr), o, since, age, b}
	}
	web, old := Owner{Container: "web-1", IfName: "eth0"}, Owner{Container: "old"}
	pool := set(t, `{"subnet":"10.0.0.0/29"}`, `{"subnet":"10.1.0.0/29","gateway":"10.9.0.1"}`)
	tests := []struct {
		name string
		err  interface {
			error
			Details() string
		}
		want, details string
	}{
		{"a conflict names the holder and its age",
			&InUseError{pool, lease("10.0.0.3", web, 3*time.Hour, BootCurrent)},
			"requested IP address 10.0.0.3 is not available in range set " +
				"10.0.0.1-10.0.0.6,10.1.0.1-10.1.0.6",
			"10.0.0.3 held by container web-1 interface eth0 for 3h, since 2026-03-01T12:00:00Z; " +
				"detach the holder, or run GC if it no longer exists"},
		{"a holder in the old format has no interface",
			&InUseError{pool, lease("10.0.0.3", old, 50*time.Hour, BootForeign)},
			"requested IP address 10.0.0.3 is not available in range set " +
				"10.0.0.1-10.0.0.6,10.1.0.1-10.1.0.6",
			"10.0.0.3 held by container old for 2d, since 2026-03-01T12:00:00Z; detach the " +
				"holder, or run GC if it no longer exists"},
		{"a reservation that could not be reclaimed",
			&InUseError{pool, lease("10.0.0.3", web, 50*time.Hour, BootEarlier)},
			"requested IP address 10.0.0.3 is not available in range set " +
				"10.0.0.1-10.0.0.6,10.1.0.1-10.1.0.6",
			"10.0.0.3 held by container web-1 interface eth0 for 2d (reserved before the last " +
				"boot), since 2026-03-01T12:00:00Z; detach the holder, or run GC if it no " +
				"longer exists"},
		{"an unreadable holder",
			&InUseError{pool[:1], Lease{Addr: netip.MustParseAddr("10.0.0.3")}},
			"requested IP address 10.0.0.3 is not available in range set 10.0.0.1-10.0.0.6",
			"10.0.0.3 held by an unknown owner; detach the holder, or run GC if it no longer exists"},
		{"a repeated ADD has a hint",
			&DuplicateError{web, lease("10.0.0.3", web, 90*time.Second, BootCurrent)},
			"10.0.0.3 has been allocated to web-1, duplicate allocation is not allowed",
			"10.0.0.3 held by container web-1 interface eth0 for 90s, since " +
				"2026-03-01T12:00:00Z; run DEL for container web-1 interface eth0 before " +
				"another ADD"},
		{"a repeated ADD within a second",
			&DuplicateError{web, lease("10.0.0.3", web, time.Second-1, BootCurrent)},
			"10.0.0.3 has been allocated to web-1, duplicate allocation is not allowed",
			"10.0.0.3 held by container web-1 interface eth0 since " +
				"2026-03-01T12:00:00Z; run DEL for container web-1 interface eth0 before " +
				"another ADD"},
		{"exhaustion has totals and the oldest leases",
			&ExhaustedError{pool, 11, []Lease{lease("10.0.0.2", web, 72*time.Hour, BootCurrent),
				lease("10.1.0.6", old, 3*time.Hour, BootForeign)}},
			"no IP addresses available in range set: 10.0.0.1-10.0.0.6,10.1.0.1-10.1.0.6",
			"11 of 12 addresses are in use, 1 reserved (gateway 10.0.0.1, gateway 10.9.0.1 is " +
				"outside); " +
				"oldest: 10.0.0.2 held by container web-1 interface eth0 for 3d, since " +
				"2026-03-01T12:00:00Z; 10.1.0.6 held by container old for 3h, since " +
				"2026-03-01T12:00:00Z"},
		{"only the gateway",
			&ExhaustedError{set(t, `{"subnet":"10.0.0.0/29","rangeEnd":"10.0.0.1"}`), 0, nil},
			"no IP addresses available in range set: 10.0.0.1-10.0.0.1",
			"0 of 1 addresses are in use, 1 reserved (gateway 10.0.0.1)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := test.err.Error(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if got := test.err.Details(); got != test.details {
				t.Errorf("details: got  %s\nwant %s", got, test.details)
			}
		})
	}
}
