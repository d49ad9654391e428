package doctor

import "context"

// hostChecks returns the checks of the host itself: kernel, settings, firewall, routes and links.
func hostChecks() []Check {
	return []Check{
		{
			"kernel.features",
			"kernel features that networks need and the kernel lacks",
			privileged(features),
		},
		{"limits.inotify", "users who run out of inotify instances or watches", inotify},
		{"limits.neighbours", "neighbour tables that are nearly full", neighbours},
		{"limits.conntrack", "connection tables that are nearly full or slow", conntrack},
		{"limits.conntrack-drops", "packets that connection tracking has dropped", conntrackDrops},
		{"limits.files", "a nearly used up number of open files", openFiles},
		{"sysctl.forwarding", "forwarding that is switched off", privileged(forwarding)},
		{
			"sysctl.bridge-nf",
			"services that fail on their own bridge without br_netfilter",
			privileged(bridgeNF),
		},
		{"sysctl.rp-filter", "strict rp_filter with asymmetric routes", privileged(reversePaths)},
		{"sysctl.accept-ra", "router advertisements that the kernel ignores", privileged(acceptRA)},
		{
			"sysctl.disable-ipv6",
			"IPv6 that is switched off below IPv6 addresses",
			privileged(disabledIPv6),
		},
		{"firewall.drops", "rules and policies that drop packets of containers", privileged(drops)},
		{
			"firewall.nat",
			"missing, foreign and stale translations of addresses",
			privileged(translations),
		},
		{"firewall.mixed", "rules in both variants of iptables", privileged(mixed)},
		{"firewall.firewalld", "networks in no zone of firewalld", privileged(zones)},
		{"firewall.programs", "XDP programs and tc filters on uplinks", privileged(programs)},
		{"routes.overlap", "subnets of networks that other routes use", privileged(overlaps)},
		{"routes.default", "missing or ambiguous default routes", privileged(defaultRoutes)},
		{
			"addresses.gateway",
			"gateways of containers that this host has lost",
			privileged(gatewayAddresses),
		},
		{
			"addresses.entries",
			"entries that send packets of containers elsewhere, and failed addresses",
			privileged(wrongEntries),
		},
		{
			"traffic.outside",
			"other reasons why containers cannot reach other hosts",
			privileged(flows),
		},
		{"mtu.path", "MTUs that lose large packets", privileged(mtus)},
		{"dns.resolver", "DNS servers that containers cannot reach", privileged(resolver)},
		{"clock.time", "a clock that is wrong", clock},
		{"clock.boot", "attachments of an earlier boot with a later time", privileged(boots)},
	}
}

// privileged skips a check if the caller may not read attachments and the namespaces of containers.
func privileged(
	run func(context.Context, *State) ([]Finding, error),
) func(context.Context, *State) ([]Finding, error) {
	return func(ctx context.Context, s *State) ([]Finding, error) {
		if err := s.needs(partPrivilege); err != nil {
			return nil, err
		}
		return run(ctx, s)
	}
}
