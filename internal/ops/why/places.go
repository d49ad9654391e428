package why

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/network"
)

// Places are the namespaces of a host and the containers in them.
type Places struct {
	Host    *host.Host
	Records []network.Record
	// ReadListeners reads the listeners of a namespace in which a packet arrives. If it is nil, answers
	// rely on the listeners in Host.
	ReadListeners func(n *host.Namespace) error `json:"-"`
}

// Read reads the state of this host with its attachments.
func Read(ctx context.Context, records []network.Record) (*Places, error) {
	const many = 1000 // chains
	o := host.Options{Chains: many}
	for _, rec := range records {
		if rec.Netns != "" {
			o.Paths = append(o.Paths, rec.Netns)
		}
	}
	h, err := host.Read(ctx, o)
	return &Places{h, records, (*host.Namespace).ReadListeners}, err
}

// Explain answers a question.
func (p *Places) Explain(q Question) (*Report, error) { return p.Explainer()(q) }

// Explainer returns a function that answers questions as [Places.Explain] does, but prepares the rule
// sets only once. Goroutines cannot share it.
func (p *Places) Explainer() func(Question) (*Report, error) {
	known := p.known()
	known.prepared = newPrepared()
	return func(q Question) (*Report, error) { return Explain(p.Host, known, q) }
}

// Name returns the container in a namespace, or the name of the namespace.
func (p *Places) Name(n *host.Namespace) string {
	if n == p.Host.Own() {
		return "host"
	}
	for _, rec := range p.Records {
		if slices.Contains(n.Paths, rec.Netns) {
			return rec.Attachment.Container
		}
	}
	switch {
	case len(n.Paths) > 0:
		return filepath.Base(n.Paths[0])
	case len(n.PIDs) > 0:
		return fmt.Sprintf("process %d", n.PIDs[0])
	}
	return n.ID
}

// Names returns the names of all namespaces.
func (p *Places) Names() (list []string) {
	for i := range p.Host.Namespaces {
		list = append(list, p.Name(&p.Host.Namespaces[i]))
	}
	return list
}

// Find finds the namespace that a name, one of its addresses, a process ID, or a path leads to. The
// error has code [cni.CodeUnknownContainer].
func (p *Places) Find(name, path string) (*host.Namespace, error) {
	a, notAddress := netip.ParseAddr(name)
	pid, notPID := strconv.Atoi(name)
	for i := range p.Host.Namespaces {
		n := &p.Host.Namespaces[i]
		if p.Name(n) == name || path != "" && slices.Contains(n.Paths, path) ||
			notAddress == nil && n.Holder(a) != nil || notPID == nil && slices.Contains(n.PIDs, pid) {
			return n, nil
		}
	}
	return nil, cni.Errorf(cni.CodeUnknownContainer,
		"no container, namespace or address %q on this host", name)
}

// Address returns the first address of the namespace that [Places.Find] finds.
func (p *Places) Address(name, path string) (netip.Addr, error) {
	n, err := p.Find(name, path)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range n.Addrs {
		if a.Scope == "global" {
			return a.Prefix.Addr(), nil
		}
	}
	return netip.Addr{}, cni.Errorf(cni.CodeUnknownContainer, "%s has no address", p.Name(n)).
		WithDetails("a container gets one when it is attached: tenon add NETWORK CONTAINER")
}

// ErrPort reports that a port is not a number from 1 to 65535.
var ErrPort = errors.New("not a number from 1 to 65535")

// SetPort sets the port and the protocol of a question. Without a port, the packet is a ping.
func (q *Question) SetPort(port string, udp bool) error {
	switch {
	case port == "" && q.To.Is4():
		q.Protocol = unix.IPPROTO_ICMP
		return nil
	case port == "":
		q.Protocol = unix.IPPROTO_ICMPV6
		return nil
	case udp:
		q.Protocol = unix.IPPROTO_UDP
	default:
		q.Protocol = unix.IPPROTO_TCP
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("port %q: %w", port, ErrPort)
	}
	q.Port = uint16(n)
	return nil
}

// known returns what the records add to the state of the host.
func (p *Places) known() Known {
	k := Known{Name: p.Name, ReadListeners: p.ReadListeners, Gone: map[netip.Addr]string{}}
	for _, rec := range p.Records {
		if rec.Result == nil {
			continue
		}
		exists := p.Host.At(rec.Netns) != nil
		for _, ip := range rec.Result.IPs {
			a := ip.Address.Addr()
			if !exists {
				k.Gone[a] = rec.Attachment.Container
			}
			if masquerades(rec) {
				k.Masqueraded = append(k.Masqueraded, a)
			}
		}
	}
	return k
}

// masquerades reports whether a plugin of the attachment has ipMasq.
func masquerades(rec network.Record) bool {
	return rec.List != nil && slices.ContainsFunc(rec.List.Plugins, func(c *cni.PluginConfig) bool {
		var conf struct {
			IPMasq bool `json:"ipMasq"`
		}
		text, err := c.MarshalJSON()
		return err == nil && json.Unmarshal(text, &conf) == nil && conf.IPMasq
	})
}
