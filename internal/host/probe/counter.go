package probe

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Counter is a counter of the kernel that rose.
type Counter struct {
	Namespace string `json:"namespace"` // its ID
	Name      string `json:"name"`      // as nstat(8) has it, with its group: "TcpExt.ListenDrops"
	Rose      uint64 `json:"rose"`
}

// drops are the counters of packets that the kernel drops outside of rules
// (Documentation/networking/snmp_counter.rst).
var drops = []string{
	"Ip.InAddrErrors", "Ip.InDiscards", "Ip.OutDiscards", "Ip.OutNoRoutes", "IpExt.InNoRoutes",
	"TcpExt.IPReversePathFilter", "TcpExt.ListenDrops", "TcpExt.ListenOverflows", "Udp.NoPorts",
	"Udp.RcvbufErrors", "Ip6InNoRoutes", "Ip6InAddrErrors", "Ip6InDiscards", "Ip6OutDiscards",
	"Ip6OutNoRoutes", "Ip6InTooBigErrors",
}

// count reads the counters of drops of the namespace.
func (w *watched) count() (map[string]uint64, error) {
	counters := map[string]uint64{}
	err := w.ns.Visit(func() error {
		for _, file := range []string{"snmp", "netstat", "snmp6"} {
			text, err := netns.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				continue // a kernel without it
			}
			if file == "snmp6" {
				single(text, counters)
			} else {
				pairs(text, counters)
			}
		}
		return nil
	})
	return counters, err
}

// single reads lines with one name and value.
func single(text string, into map[string]uint64) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 {
			into[f[0]], _ = strconv.ParseUint(f[1], 10, 64)
		}
	}
}

// pairs reads pairs of lines with the names and the values of a group.
func pairs(text string, into map[string]uint64) {
	lines := strings.Split(text, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for j := 1; j < len(names) && j < len(values); j++ {
			name := strings.TrimSuffix(names[0], ":") + "." + names[j]
			into[name], _ = strconv.ParseUint(values[j], 10, 64)
		}
	}
}

// rose returns the counters of drops that are higher than before the probe.
func (w *watched) rose() (list []Counter) {
	now, err := w.count()
	if err != nil {
		return nil
	}
	for name, n := range now {
		if slices.Contains(drops, name) && n > w.counters[name] {
			list = append(list, Counter{w.space.ID, name, n - w.counters[name]})
		}
	}
	slices.SortFunc(list, func(a, b Counter) int { return strings.Compare(a.Name, b.Name) })
	return list
}
