package host

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
)

// Filter is a filter of tc or an eBPF program of tcx, which can drop, change and redirect the packets
// of a link.
type Filter struct {
	Hook string `json:"hook"` // ingress, egress
	Text string `json:"text"`
	// Redirect is the index of the link that gets the packets, 0 if there is none. Opaque reports a
	// filter with an unknown effect.
	Redirect int  `json:"redirect,omitzero"`
	Opaque   bool `json:"opaque,omitzero"`
}

// filters adds the filters of links.
func (r *reader) filters(ns *netns.NS, links []Link) error {
	kinds, err := r.conn.Qdiscs.Hooks()
	if err != nil {
		return err
	}
	for i := range links {
		if kind, ok := kinds[links[i].Index]; ok {
			if err := r.filtersOf(&links[i], kind); err != nil {
				return err
			}
		}
	}
	return ns.Visit(func() error {
		for i := range links {
			if !links[i].attached() {
				break
			}
		}
		return nil
	})
}

func (r *reader) filtersOf(l *Link, kind string) error {
	hooks := map[string]netlink.Hook{"ingress": netlink.Ingress}
	if kind == netlink.KindClsact {
		hooks["egress"] = netlink.Egress
	}
	for _, name := range []string{"ingress", "egress"} {
		hook, ok := hooks[name]
		if !ok {
			continue
		}
		list, others, err := r.conn.Qdiscs.Filters(netlink.Link{Index: l.Index, Name: l.Name}, hook)
		if err != nil {
			return err
		}
		for _, f := range list {
			l.Filters = append(l.Filters, Filter{Hook: name, Text: f.String(), Redirect: f.Target})
		}
		if len(others) > 0 {
			l.Filters = append(l.Filters, Filter{Hook: name, Text: "filters of tc", Opaque: true})
		}
	}
	return nil
}

// Constants of linux/bpf.h that package unix lacks.
const tcxIngress, tcxEgress = 46, 47 // BPF_TCX_INGRESS, BPF_TCX_EGRESS

// attached adds the programs of tcx in the namespace of the thread. It returns false if the kernel
// has no tcx (before Linux 6.6), or denies the question.
func (l *Link) attached() bool {
	for i, hook := range []string{"ingress", "egress"} {
		// The beginning of union bpf_attr for BPF_PROG_QUERY.
		attr := struct {
			Link, Hook, Query, Attached uint32
			IDs                         uint64
			Count, _                    uint32
			_, _, Revision              uint64
		}{Link: uint32(l.Index), Hook: tcxIngress + uint32(i)*(tcxEgress-tcxIngress)}
		_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_QUERY,
			uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		if errno != 0 && errno != unix.ENOENT {
			return false
		}
		if attr.Count > 0 {
			l.Filters = append(l.Filters, Filter{Hook: hook, Text: "an eBPF program of tcx", Opaque: true})
		}
	}
	return true
}
