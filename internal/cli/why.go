package cli

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/ops/why"
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
			records, err := r.client().ListHost()
			if err != nil {
				r.warn("attachments that cannot be read are missing: %v", err)
			}
			places, err := why.Read(cmd.Context(), records)
			if err != nil {
				return r.needsRoot(err)
			}
			for _, s := range places.Host.Skipped {
				r.warn("cannot read %s: %s", s.What, s.Reason)
			}
			q, err := r.question(places, args[0], args[1], udp)
			if err != nil {
				return err
			}
			report, err := places.Explain(q)
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

// question finds the places that the arguments name.
func (r *settings) question(p *why.Places, source, destination string, udp bool) (q why.Question, err error) {
	from, err := p.Find(source, pathOf(source))
	if err != nil {
		return q, r.didYouMean(err, source, p.Names())
	}
	q.Source = from.ID
	q.From, _ = netip.ParseAddr(source)
	name, port := destination, ""
	if _, err := netip.ParseAddr(destination); err != nil {
		if i := strings.LastIndexByte(destination, ':'); i >= 0 {
			name, port = strings.Trim(destination[:i], "[]"), destination[i+1:]
		}
	}
	if q.To, err = netip.ParseAddr(name); err != nil {
		if q.To, err = p.Address(name, pathOf(name)); err != nil {
			return q, r.didYouMean(err, name, p.Names())
		}
	}
	if err := q.SetPort(port, udp); errors.Is(err, why.ErrPort) {
		return q, usagef("%v", err)
	}
	return q, nil
}

// pathOf returns the path of the namespace that an argument can name.
func pathOf(arg string) string {
	path, err := netnsPath(arg)
	if err != nil {
		return ""
	}
	return path
}
