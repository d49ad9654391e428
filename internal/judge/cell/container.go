package cell

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
)

// create creates a container.
func create(c *script.Container) (err error) {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	if err := ns.Mount(script.Netns + "/" + c.Name); err != nil {
		return err
	}
	if c.NoDetection {
		if err := ns.Visit(noDetection); err != nil {
			return err
		}
	}
	inside, err := netlink.Open(ns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, inside.Close()) }()
	if c.Up {
		if err := loopbackUp(inside); err != nil {
			return err
		}
	}
	if c.Veth != nil {
		return connect(c.Veth, ns, inside)
	}
	return nil
}

// noDetection disables the detection of duplicate IPv6 addresses in the namespace of this thread.
func noDetection() error {
	for _, links := range []string{"all", "default"} {
		setting := "/proc/sys/net/ipv6/conf/" + links + "/accept_dad"
		if err := os.WriteFile(setting, []byte("0"), 0); err != nil {
			return err
		}
	}
	return nil
}

// connect creates the pair of a container.
func connect(v *script.Veth, ns *netns.NS, inside *netlink.Conn) error {
	near, err := net.ParseMAC(v.HostMAC)
	if err != nil {
		return err
	}
	far, err := net.ParseMAC(v.MAC)
	if err != nil {
		return err
	}
	return onHost(func(host *netlink.Conn) error {
		index, err := host.Links.AddVeth(netlink.Veth{Name: v.Host, MAC: near, Peer: "eth0", PeerNS: ns})
		if err != nil {
			return fmt.Errorf("link %s: %w", v.Host, err)
		}
		eth0, err := inside.Links.ByName("eth0")
		if err != nil {
			return err
		}
		for _, do := range []func() error{
			func() error { return inside.Links.SetMAC(eth0, far) },
			func() error { return host.Links.SetUp(netlink.Link{Index: index, Name: v.Host}, true) },
			func() error { return inside.Links.SetUp(eth0, true) },
		} {
			if err := do(); err != nil {
				return err
			}
		}
		for _, a := range v.Addrs {
			if err := inside.Addrs.AddGateway(eth0, a); err != nil {
				return err
			}
		}
		return nil
	})
}
