package netlink

import (
	"encoding/binary"
	"iter"
	"slices"

	"golang.org/x/sys/unix"
)

// The sysctls of a link by their numbers in messages (IPV4_DEVCONF_… in linux/ip.h, DEVCONF_… in
// linux/ipv6.h). Those with a unit that messages convert, and those that follow other properties,
// are missing.
var (
	conf4 = [...]string{
		1: "forwarding", 2: "mc_forwarding", 3: "proxy_arp", 4: "accept_redirects",
		5: "secure_redirects", 6: "send_redirects", 7: "shared_media", 8: "rp_filter",
		9: "accept_source_route", 10: "bootp_relay", 11: "log_martians", 12: "tag", 13: "arp_filter",
		14: "medium_id", 15: "disable_xfrm", 16: "disable_policy", 17: "force_igmp_version",
		18: "arp_announce", 19: "arp_ignore", 20: "promote_secondaries", 21: "arp_accept",
		22: "arp_notify", 23: "accept_local", 24: "src_valid_mark", 25: "proxy_arp_pvlan",
		26: "route_localnet", 29: "ignore_routes_with_linkdown",
		30: "drop_unicast_in_l2_multicast", 31: "drop_gratuitous_arp", 32: "bc_forwarding",
		33: "arp_evict_nocarrier",
	}
	conf6 = [...]string{
		0: "forwarding", 1: "hop_limit", 3: "accept_ra", 4: "accept_redirects", 5: "autoconf",
		6: "dad_transmits", 7: "router_solicitations", 10: "use_tempaddr", 13: "regen_max_retry",
		15: "max_addresses", 16: "force_mld_version", 17: "accept_ra_defrtr", 18: "accept_ra_pinfo",
		22: "proxy_ndp", 24: "accept_source_route", 26: "disable_ipv6", 27: "accept_dad",
		28: "force_tllao", 29: "ndisc_notify", 32: "suppress_frag_ndisc",
		33: "accept_ra_from_local", 35: "accept_ra_mtu", 37: "use_oif_addrs_only",
		38: "accept_ra_min_hop_limit", 39: "ignore_routes_with_linkdown",
		40: "drop_unicast_in_l2_multicast", 41: "drop_unsolicited_na", 42: "keep_addr_on_down",
		46: "enhanced_dad", 48: "disable_policy",
	}
)

const inetConf, inet6Conf = 1, 2 // IFLA_INET_CONF, IFLA_INET6_CONF

// LinkSettings iterates over the sysctls of a link in IFLA_AF_SPEC, which a list of links contains,
// by their names below /proc/sys/net with * for the link: "ipv4/conf/*/rp_filter".
func LinkSettings(spec []byte) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		// The values are in the order of the numbers, which begin with 1 and 0.
		if !each(Find(Find(spec, unix.AF_INET), inetConf), "ipv4/conf/*/", conf4[1:], yield) {
			return
		}
		each(Find(Find(spec, unix.AF_INET6), inet6Conf), "ipv6/conf/*/", conf6[:], yield)
	}
}

func each(values []byte, prefix string, names []string, yield func(string, int) bool) (more bool) {
	i := 0
	for v := range slices.Chunk(values, 4) {
		if i < len(names) && names[i] != "" && len(v) == 4 &&
			!yield(prefix+names[i], int(int32(binary.NativeEndian.Uint32(v)))) {
			return false
		}
		i++
	}
	return true
}
