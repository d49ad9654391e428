package inspect

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/host"
)

// Holders are the network namespaces of this host, as they were read.
type Holders struct {
	host *host.Host
	list []Attachment
}

// ReadHolders reads the network namespaces that attachments, mounts and processes of this host lead
// to. It returns an error if it cannot read one of them.
func ReadHolders(ctx context.Context, list []Attachment) (*Holders, error) {
	var o host.Options
	for _, a := range list {
		if a.Netns != "" {
			o.Paths = append(o.Paths, a.Netns)
		}
	}
	h, err := host.Read(ctx, o)
	if err != nil {
		return nil, err
	}
	if len(h.Skipped) > 0 {
		return nil, fmt.Errorf("%s: %s", h.Skipped[0].What, h.Skipped[0].Reason)
	}
	return &Holders{h, list}, nil
}

// Find returns the interfaces that have an address in the networks of this host, as
// "eth0 in /run/netns/web". It leaves out interfaces that attachments to networks other than the
// given one have recorded with the address, and interfaces with a peer or parent in a namespace
// other than the host's, because these belong to networks inside containers.
func (h *Holders) Find(network string, a netip.Addr) (found []string) {
	for i := range h.host.Namespaces {
		n := &h.host.Namespaces[i]
		l := n.Holder(a)
		if l == nil || h.elsewhere(n, l, network, a) {
			continue
		}
		if other, _ := h.host.Peer(n, l); l.LowerNSID != nil && other != h.host.Own() {
			continue
		}
		found = append(found, fmt.Sprintf("%s in %s", l.Name, h.title(n)))
	}
	return found
}

// elsewhere reports whether an attachment to another network has recorded an address of a link.
func (h *Holders) elsewhere(n *host.Namespace, l *host.Link, network string, a netip.Addr) bool {
	return slices.ContainsFunc(h.list, func(x Attachment) bool {
		if x.Attachment.Network == network || x.Attachment.IfName != l.Name || x.Result == nil ||
			!slices.Contains(n.Paths, x.Netns) {
			return false
		}
		for _, ip := range x.Result.IPs {
			if ip.Address.Addr() == a {
				return true
			}
		}
		return false
	})
}

func (h *Holders) title(n *host.Namespace) string {
	switch {
	case n == h.host.Own():
		return "the host's namespace"
	case len(n.Paths) > 0:
		return n.Paths[0]
	case len(n.PIDs) > 0:
		return fmt.Sprintf("the namespace of process %d", n.PIDs[0])
	}
	return n.ID
}
