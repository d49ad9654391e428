package script

import "net/netip"

// Container is the network namespace of a container, at [Netns]/Name.
type Container struct {
	Name string `json:"name"`
	// NoDetection disables the detection of duplicate IPv6 addresses.
	NoDetection bool `json:"noDetection,omitzero"`
	Up          bool `json:"up,omitzero"` // of the loopback interface
	// Veth is what a plugin before the subject made; nil for nothing.
	Veth *Veth `json:"veth,omitzero"`
}

// Veth is a pair of links that are up: Host on the host, and eth0 in the container.
type Veth struct {
	Host    string         `json:"host"`
	HostMAC string         `json:"hostMAC"`
	MAC     string         `json:"mac"`   // of eth0
	Addrs   []netip.Prefix `json:"addrs"` // of eth0, usable at once
}

// noDetection is the command for [Scenario.NoDetection] and [Container.NoDetection].
const noDetection = "for i in all default; do echo 0 >/proc/sys/net/ipv6/conf/$i/accept_dad; done"

// commands returns a text for sh(1) that creates the container.
func (c *Container) commands() string {
	var t text
	t.line("ip netns add %s", c.Name)
	if c.NoDetection {
		t.line("ip netns exec %s sh -c '%s'", c.Name, noDetection)
	}
	if c.Up {
		t.line("ip -n %s link set lo up", c.Name)
	}
	v := c.Veth
	if v == nil {
		return t.String()
	}
	t.line("ip link add %s address %s type veth peer name eth0 address %s netns %s", v.Host, v.HostMAC, v.MAC, c.Name)
	t.line("ip link set %s up", v.Host)
	t.line("ip -n %s link set eth0 up", c.Name)
	for _, a := range v.Addrs {
		option := "nodad"
		if a.Addr().Is4() {
			option = "broadcast +"
		}
		t.line("ip -n %s address add %s %s dev eth0", c.Name, a, option)
	}
	return t.String()
}
