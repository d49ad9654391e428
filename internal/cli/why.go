package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/network"
)

func (a *app) why() *cobra.Command {
	r := &settings{app: a}
	udp := false
	cmd := &cobra.Command{
		Use:   "why SOURCE DESTINATION[:PORT]",
		Short: "Explain where packets between two places stop",
		Long: `Follows a packet from SOURCE to DESTINATION and the reply back: routes, neighbours,
bridges, firewall rules, translations, settings and the socket of the service. Shows
each step, where the packet stops, and how to repair it. Reads the state of this host
and its containers; sends nothing and changes nothing.

SOURCE and DESTINATION are containers (container ID, name in /run/netns, process ID
or path), "host", or IP addresses; an IPv6 address with a port is in brackets. Without
PORT, the packet is a ping. A packet that leaves this host counts as delivered.

Exit status: 0 delivered, 1 stopped or not known.`,
		Example: `  tenon why web 203.0.113.9:443
  tenon why web db:5432
  tenon why host 10.88.0.2:80
  tenon why web [2001:db8::9]:53 --udp`,
		Args: arguments(2, "SOURCE", "DESTINATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			records, err := r.client().List()
			if err != nil {
				r.warn("attachments that cannot be read are missing: %v", err)
			}
			o := host.Options{}
			for _, rec := range records {
				if rec.Netns != "" {
					o.Paths = append(o.Paths, rec.Netns)
				}
			}
			h, err := host.Read(cmd.Context(), o)
			if err != nil {
				return r.needsRoot(err)
			}
			for _, s := range h.Skipped {
				r.warn("cannot read %s: %s", s.What, s.Reason)
			}
			f := &finder{host: h, records: records}
			q, err := f.question(args[0], args[1], udp)
			if err != nil {
				return err
			}
			report, err := why.Explain(h, f.known(), q)
			if err != nil {
				return err
			}
			if err := r.print(report, func() error { return text.Why(r.stdout, report) }); err != nil {
				return err
			}
			if report.Verdict != why.Delivered && report.Verdict != why.Left {
				return exitStatus(1)
			}
			return nil
		},
	}
	r.recordFlags(cmd)
	r.jsonFlag(cmd)
	cmd.Flags().BoolVar(&udp, "udp", false, "follow a UDP datagram instead of a TCP connection")
	return cmd
}

// finder finds namespaces by the names that users give.
type finder struct {
	host    *host.Host
	records []network.Record
}

// name returns the container in a namespace, or the name of the namespace.
func (f *finder) name(n *host.Namespace) string {
	if n == f.host.Own() {
		return "host"
	}
	for _, rec := range f.records {
		if slices.Contains(n.Paths, rec.Netns) {
			return rec.Attachment.Container
		}
	}
	if len(n.Paths) > 0 {
		return filepath.Base(n.Paths[0])
	}
	if len(n.PIDs) > 0 {
		return fmt.Sprintf("process %d", n.PIDs[0])
	}
	return n.ID
}

// known returns what the records add to the state of the host.
func (f *finder) known() why.Known {
	k := why.Known{Name: f.name, Gone: map[netip.Addr]string{}}
	for _, rec := range f.records {
		if rec.Result == nil {
			continue
		}
		exists := slices.ContainsFunc(f.host.Namespaces, func(n host.Namespace) bool {
			return slices.Contains(n.Paths, rec.Netns)
		})
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
	return rec.List != nil && slices.ContainsFunc(rec.List.Plugins, func(p *cni.PluginConfig) bool {
		var conf struct {
			IPMasq bool `json:"ipMasq"`
		}
		text, err := p.MarshalJSON()
		return err == nil && json.Unmarshal(text, &conf) == nil && conf.IPMasq
	})
}

// namespace finds a namespace, nil if there is none.
func (f *finder) namespace(arg string) *host.Namespace {
	if arg == "host" {
		return f.host.Own()
	}
	a, isAddress := netip.ParseAddr(arg)
	path, _ := netnsPath(arg)
	for i := range f.host.Namespaces {
		n := &f.host.Namespaces[i]
		if isAddress == nil && n.Holder(a) != nil || slices.Contains(n.Paths, path) ||
			i > 0 && f.name(n) == arg {
			return n
		}
		if pid, err := strconv.Atoi(arg); err == nil && slices.Contains(n.PIDs, pid) {
			return n
		}
	}
	return nil
}

func (f *finder) question(source, destination string, udp bool) (q why.Question, err error) {
	from := f.namespace(source)
	if from == nil {
		return q, cni.Errorf(cni.CodeUnknownContainer, "source %q is no container, namespace or known address", source)
	}
	q.Source = from.ID
	if a, err := netip.ParseAddr(source); err == nil {
		q.From = a
	}
	q.Protocol = unix.IPPROTO_TCP
	if udp {
		q.Protocol = unix.IPPROTO_UDP
	}
	if a, err := netip.ParseAddr(destination); err == nil {
		q.To = a
	} else {
		name, port := destination, ""
		if i := strings.LastIndexByte(destination, ':'); i >= 0 {
			name, port = destination[:i], destination[i+1:]
		}
		if port != "" {
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil || n == 0 {
				return q, usagef("port %q is not a number from 1 to 65535", port)
			}
			q.Port = uint16(n)
		}
		if q.To, err = f.address(strings.Trim(name, "[]")); err != nil {
			return q, err
		}
	}
	if q.Port == 0 {
		q.Protocol = unix.IPPROTO_ICMP
		if q.To.Is6() {
			q.Protocol = unix.IPPROTO_ICMPV6
		}
	}
	return q, nil
}

// address returns the address of a destination: itself, or the first of a container.
func (f *finder) address(name string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return a, nil
	}
	n := f.namespace(name)
	if n == nil {
		return netip.Addr{}, cni.Errorf(cni.CodeUnknownContainer, "destination %q is no container, namespace or address", name)
	}
	var found []netip.Addr
	for _, a := range n.Addrs {
		if a.Scope == "global" {
			found = append(found, a.Prefix.Addr())
		}
	}
	if found == nil {
		return netip.Addr{}, cni.Errorf(cni.CodeUnknownContainer, "%s has no address", cmp.Or(f.name(n), name))
	}
	return found[0], nil
}

