package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/network"
)

func (a *app) why() *cobra.Command {
	r := &settings{app: a}
	var udp, send bool
	cmd := &cobra.Command{
		Use:   "why SOURCE DESTINATION[:PORT]",
		Short: "Explain where packets between two places stop",
		Long: `Follows a packet from SOURCE to DESTINATION and the reply back: routes, neighbours,
bridges, macvlan, ipvlan and VLAN devices, firewall rules, translations, settings and
the socket of the service. Shows each step, where the packet stops, and how to repair
it. Behind the first cause, it goes on as if that were repaired, and shows up to three
causes. Reads the state of this host and its containers; sends nothing and changes
nothing, unless --probe is set.

Prints as "fix" only commands with which the packet arrives, by the same evaluation;
anything else is "advice". If something on the way cannot be evaluated, and nothing
stops the packet for certain, the answer is "not known". Not evaluated are eBPF and
XDP programs, filters of tc, qdiscs that limit the rate, chains of nftables at a link,
sets of ipset, encryption with IPsec, and Open vSwitch. Limits of rules count as not
exhausted, and the way on other hosts as free.

SOURCE and DESTINATION are containers (container ID, name in /run/netns, process ID
or path), "host", "localhost", or IP addresses; an IPv6 address with a port is in
brackets. DESTINATION can also be a name that this host resolves, and PORT the name
of a service. Without PORT, the packet is a ping. A packet that leaves this host
counts as delivered.

With --probe, also sends one packet from SOURCE, which can be only this host or a
container on it: a ping, an empty datagram, or the first packet of a TCP connection,
which is reset once it is open. Reports the answer, where the packet was seen, and
which rule of nftables or iptables-nft drops it. An answer or a refusal decides where
the evaluation does not know the whole way; if both differ, the answer is "not known".
For up to a second, each namespace on the way has one or two more tables of nftables,
named tenon_probe_*, which only trace this packet. The kernel removes them with the
process, also after SIGKILL; a kernel before Linux 5.12 cannot, and is not probed.
Neighbour and connection tables keep their entries for the packet, as for any other.

Exit status: 0 delivered, 1 stopped, not known, or failure, 2 wrong usage.`,
		Example: `  tenon why web 203.0.113.9:443
  tenon why web db:5432
  tenon why host 10.88.0.2:80
  tenon why web db --verbose
  tenon why web 203.0.113.9:443 --probe
  tenon why web [2001:db8::9]:53 --udp`,
		Args:              arguments(2, "SOURCE", "DESTINATION"),
		ValidArgsFunction: r.completePlace,
		RunE: func(cmd *cobra.Command, args []string) error {
			if send && r.from != "" {
				return usagef("--probe sends a packet from this host; it excludes --from")
			}
			places, err := r.places(cmd.Context(), why.Read)
			if err != nil {
				return r.needsRoot(err)
			}
			for _, s := range places.Host.Skipped {
				r.warn("cannot read %s: %s", s.What, s.Reason)
			}
			q, err := r.question(cmd.Context(), places, args[0], args[1], udp)
			if err != nil {
				return err
			}
			report, err := places.Explain(q)
			if err != nil {
				return err
			}
			if send {
				if err := places.Probe(cmd.Context(), q, report); err != nil {
					return r.needsRoot(err)
				}
			}
			err = r.print(report, func() error { return text.Why(r.stdout, report, r.verbose) })
			if err != nil {
				return err
			}
			if report.Verdict != why.Delivered && report.Verdict != why.Left {
				return exitStatus(1)
			}
			return nil
		},
	}
	r.recordFlags(cmd)
	r.outputFlags(cmd)
	r.fromFlag(cmd)
	cmd.Flags().BoolVar(&send, "probe", false, "also send one packet, and trace it")
	cmd.Flags().BoolVarP(&r.verbose, "verbose", "v", false,
		"also print a command for each step, and the steps behind the first cause")
	cmd.Flags().BoolVar(&udp, "udp", false, "follow a UDP datagram instead of a TCP connection")
	return cmd
}

// places returns what read reads of this host, or the state in a support bundle, with the attachments.
func (r *settings) places(
	ctx context.Context, read func(context.Context, []network.Record) (*why.Places, error),
) (*why.Places, error) {
	if r.from != "" {
		s, err := r.storedState()
		if err != nil {
			return nil, err
		}
		return s.Places, nil
	}
	records, err := r.client().ListHost()
	if err != nil {
		r.warn("attachments that cannot be read are missing: %v", err)
	}
	return read(ctx, records)
}

// completePlace completes "host", the names of containers, and of namespaces in /run/netns.
func (r *settings) completePlace(
	_ *cobra.Command, args []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	words := []cobra.Completion{"host"}
	records, _ := r.client().ListHost()
	for _, rec := range records {
		words = append(words, rec.Attachment.Container)
	}
	entries, _ := os.ReadDir("/run/netns")
	for _, e := range entries {
		words = append(words, e.Name())
	}
	slices.Sort(words)
	return slices.Compact(words), cobra.ShellCompDirectiveNoFileComp
}

// question finds the places that the arguments name.
func (r *settings) question(
	ctx context.Context, p *why.Places, source, destination string, udp bool,
) (q why.Question, err error) {
	name, port := destination, ""
	a, err := netip.ParseAddr(destination)
	if err == nil {
		r.suggestPort(p, a)
	} else {
		if i := strings.LastIndexByte(destination, ':'); i >= 0 {
			name, port = strings.Trim(destination[:i], "[]"), destination[i+1:]
		}
	}
	if err := new(why.Question).SetPort(port, udp); errors.Is(err, why.ErrPort) {
		protocol := map[bool]string{false: "tcp", true: "udp"}[udp]
		number, unknown := net.DefaultResolver.LookupPort(ctx, protocol, port)
		if unknown != nil || number == 0 {
			return q, usagef("%v", err)
		}
		port = fmt.Sprint(number)
	}
	from, err := p.Find(source, pathOf(source))
	if err != nil {
		return q, r.didYouMean(err, source, p.Names())
	}
	q.Source = from.ID
	q.From, _ = netip.ParseAddr(source)
	if name == "localhost" { // of the source
		q.To = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		return q, q.SetPort(port, udp)
	}
	if q.To, err = netip.ParseAddr(name); err != nil {
		if q.To, err = p.Address(name, pathOf(name)); err != nil {
			if q.To = r.resolve(ctx, name); !q.To.IsValid() {
				return q, r.didYouMean(err, name, p.Names())
			}
		}
	}
	return q, q.SetPort(port, udp)
}

// resolve returns the first address that this host has for a name, and prints it; it is invalid if
// there is none.
func (r *settings) resolve(ctx context.Context, name string) netip.Addr {
	const limit = 3 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil || len(found) == 0 {
		return netip.Addr{}
	}
	a := found[0].Unmap().WithZone("")
	r.printHint(fmt.Sprintf("%s is %s on this host; a container can resolve it differently", name, a))
	return a
}

// suggestPort prints a hint if an IPv6 address that no namespace has looks like another one with a
// port.
func (r *settings) suggestPort(p *why.Places, a netip.Addr) {
	text := a.String()
	i := strings.LastIndexByte(text, ':')
	if _, err := strconv.ParseUint(text[i+1:], 10, 16); !a.Is6() || err != nil {
		return
	}
	other, err := netip.ParseAddr(strings.TrimSuffix(text[:i], ":"))
	if err != nil {
		return
	}
	if _, err := p.Find(text, ""); err != nil {
		r.printHint(fmt.Sprintf("to name a port, write [%s]:%s", other, text[i+1:]))
	}
}

// pathOf returns the path of the namespace that an argument can name.
func pathOf(arg string) string {
	path, err := netnsPath(arg)
	if err != nil {
		return ""
	}
	return path
}
