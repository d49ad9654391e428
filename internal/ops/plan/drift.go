package plan

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/network"
)

// Drift is a difference between an attachment record and the host that the operation does not
// change.
type Drift struct {
	Attachment string `json:"attachment"`
	Object     string `json:"object"`
	Text       string `json:"text"`
}

// ReadDrift reads the state of this host and returns the differences that an operation leaves.
func ReadDrift(ctx context.Context, records []network.Record, out *Outcome) ([]Drift, error) {
	o := host.Options{OnlyPaths: true, Brief: true}
	for _, rec := range records {
		if rec.Netns != "" {
			o.Paths = append(o.Paths, rec.Netns)
		}
	}
	h, err := host.Read(ctx, o)
	if err != nil {
		return nil, err
	}
	now, left := FindDrift(h, records), FindDrift(out.left(h), records)
	return slices.DeleteFunc(now, func(d Drift) bool { return !slices.Contains(left, d) }), nil
}

// left returns the state h of this host with the namespaces that the operation concerns in the
// state in which it leaves them.
func (o *Outcome) left(h *host.Host) *host.Host {
	now := *h
	now.Namespaces = slices.Clone(h.Namespaces)
	for i, path := range o.paths {
		at := 0 // the host's own
		if path != "" {
			at = slices.IndexFunc(h.Namespaces, func(n host.Namespace) bool {
				return slices.Contains(n.Paths, path)
			})
		}
		if at >= 0 {
			now.Namespaces[at] = o.After.Namespaces[i]
			now.Namespaces[at].Paths = h.Namespaces[at].Paths
		}
	}
	return &now
}

// FindDrift compares the results in attachment records with the state of a host: interfaces, their
// MAC addresses, and addresses.
func FindDrift(h *host.Host, records []network.Record) (list []Drift) {
	list = []Drift{}
	for _, rec := range records {
		if rec.Result == nil {
			continue
		}
		add := func(object, format string, args ...any) {
			list = append(list, Drift{rec.Attachment.String(), object, fmt.Sprintf(format, args...)})
		}
		inside := h.At(rec.Netns)
		if inside == nil {
			add("namespace "+rec.Netns, "does not exist")
			continue
		}
		for _, x := range rec.Result.Interfaces {
			where, n := "host", h.Own()
			if x.Sandbox != "" {
				where, n = "container", inside
			}
			l := n.LinkByName(x.Name)
			switch {
			case l == nil:
				add("link "+x.Name, "is missing in the %s", where)
			case x.MAC != "" && l.MAC != "" && l.MAC != x.MAC:
				add("link "+x.Name, "has MAC address %s instead of %s", l.MAC, x.MAC)
			case !l.Up():
				add("link "+x.Name, "is down in the %s", where)
			}
		}
		for _, ip := range rec.Result.IPs {
			if inside.Holder(ip.Address.Addr()) == nil {
				add("address "+ip.Address.String(), "is missing in the container")
			}
		}
	}
	return list
}
