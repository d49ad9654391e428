package dhcpserver

import "fmt"

// Router advertises fd00:92::/64 for autonomous configuration, and itself as the default router. It
// ignores the pool; the seconds are the lifetime of the prefix and, up to 9000 seconds, of the
// router.
var Router = Kind{Name: "router", tool: "dnsmasq", config: router,
	ready: "router advertisement on fd00:92::"}

func router(s *Server, _ string, l lease) []string {
	return []string{
		"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--log-dhcp",
		"--log-facility=-", "--user=root", "--group=",
		"--interface=br0", "--bind-interfaces", "--dhcp-leasefile=" + s.dir + "/leases",
		"--pid-file=" + s.dir + "/pid",
		"--enable-ra", fmt.Sprintf("--dhcp-range=fd00:92::,ra-only,64,%d", l.ends),
		fmt.Sprintf("--ra-param=br0,4,%d", min(l.ends, 9000)),
	}
}
