package dhcpserver

import (
	"fmt"
	"net/netip"
	"strings"
)

// networkdPath is the path in Debian's package systemd.
const networkdPath = "/lib/systemd/systemd-networkd"

// networkdStart runs networkd without the rest of systemd, in a mount namespace with a /run of its
// own and with a read-only /sys of this network namespace, from which networkd concludes that no
// udev reports when interfaces are ready. networkd sets the addresses itself: the existing ones
// have no broadcast address, which it would try to change forever.
const networkdStart = `ip -4 addr flush dev br0
mount -t tmpfs tmpfs /run
mount -t sysfs -o ro sysfs /sys
mkdir -p /run/systemd/network
cp "$1" /run/systemd/network/00-br0.network
export SYSTEMD_LOG_LEVEL=debug SYSTEMD_LOG_TARGET=console
exec ` + networkdPath

// networkd returns the configuration of networkd, which ignores renewals that contain a server or
// address option.
func networkd(s *Server, pool string, l lease) (command []string) {
	first, last, _ := strings.Cut(pool, ",")
	number := func(address string) int { return int(netip.MustParseAddr(address).As4()[3]) }
	s.write("br0.network", fmt.Sprintf(`[Match]
Name=br0
[Network]
Address=10.92.0.1/24
Address=fd00:92::1/64
DHCPServer=yes
IPv6AcceptRA=no
[DHCPServer]
PoolOffset=%d
PoolSize=%d
DefaultLeaseTimeSec=%d
MaxLeaseTimeSec=%[3]d
SendOption=58:uint32:%[4]d
SendOption=59:uint32:%[5]d
EmitDNS=no
EmitNTP=no
EmitTimezone=no
SendOption=26:uint16:1400
SendOption=121:string:\x10\xac\x1e\x0a\x5c\x00\xfe\x10\xac\x1f\x00\x00\x00\x00\x00\x0a\x5c\x00\x01
`, number(first), number(last)-number(first)+1, l.ends, l.renew, l.rebind))
	return []string{"unshare", "--mount", "sh", "-ec", networkdStart, "sh", s.dir + "/br0.network"}
}
