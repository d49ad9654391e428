package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/internal/journal"
)

// Now is the present, by which the times of the running boot are corrected.
type Now struct {
	Time   time.Time
	Boot   string
	Uptime time.Duration // since the boot
}

// Present returns the present of this host.
func Present() Now {
	var r journal.Record
	r.Stamp()
	return Now{r.Time, r.Boot, r.Uptime}
}

// boot is a run of the kernel.
type boot struct {
	id      string
	records []journal.Record // in the order of their ends
	// anchor is the time of the boot, by the last known time of the wall clock. A clock that was
	// corrected meanwhile was wrong before.
	anchor time.Time
}

// at returns the time of a record by the corrected clock.
func (b *boot) at(r *journal.Record) time.Time {
	if r.Boot == "" || r.Uptime == 0 {
		return r.Time
	}
	return b.anchor.Add(r.Uptime)
}

// boots sorts records by boots, the earliest first, and by the time since the boot. The running boot
// is the last. Records without a boot stay with the records written before them.
func boots(records []journal.Record, now Now) []*boot {
	var list []*boot
	find := func(id string) *boot {
		i := slices.IndexFunc(list, func(b *boot) bool { return b.id == id })
		if i < 0 {
			list = append(list, &boot{id: id})
			i = len(list) - 1
		}
		return list[i]
	}
	last := ""
	for _, r := range records {
		if r.Boot != "" {
			last = r.Boot
		}
		b := find(last)
		b.records = append(b.records, r)
	}
	running := find(now.Boot)
	for _, b := range list {
		b.sort()
	}
	running.anchor = now.Time.Add(-now.Uptime)
	list = slices.DeleteFunc(list, func(b *boot) bool { return b == running })
	return append(list, running)
}

// sort sorts the records by the time since the boot, and sets the anchor from the last one.
func (b *boot) sort() {
	slices.SortStableFunc(b.records, func(x, y journal.Record) int {
		if x.Uptime == 0 || y.Uptime == 0 {
			return 0 // written in this order
		}
		return cmp.Compare(x.Uptime, y.Uptime)
	})
	for _, r := range b.records {
		if r.Uptime != 0 {
			b.anchor = r.Time.Add(-r.Uptime)
		}
	}
}
