package ovslab

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// underlayBridge is the bridge of the underlay on hosts with the userspace datapath, which sends
// tunnel packets only through its own interfaces. On other hosts it is the interface itself.
const underlayBridge = "br-phy"

// Underlay returns the addresses of host number i of [Connect], from 0.
func Underlay(i int) (v4, v6 netip.Addr) {
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}),
		netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i+1))
}

// Connect connects the hosts of switches by an Ethernet with an MTU of 1500 and gives each the
// addresses of [Underlay]. It returns the Ethernet's namespace, in which the interface of host
// number i is named host<i>.
func Connect(t testing.TB, switches ...*Switch) *testnet.Namespace {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureVeth, kernel.FeatureBridge))
	ethernet := testnet.New(t).Host
	ethernet.Batch("link add underlay type bridge", "link set underlay up")
	for i, s := range switches {
		port := fmt.Sprintf("host%d", i)
		s.Host.Batch("link add underlay type veth peer name " + port)
		s.Host.Command("ip", "link", "set", port, "netns", ethernet.Path())
		ethernet.Batch("link set "+port+" master underlay", "link set "+port+" up")
		s.number = i
		s.join()
	}
	return ethernet
}

// join connects the host to the underlay.
func (s *Switch) join() {
	s.t.Helper()
	s.Host.Batch("link set underlay up")
	if s.Datapath == Userspace {
		s.VSCtl("add-br", underlayBridge, "--", "set", "Bridge", underlayBridge,
			"datapath_type=netdev", "--", "add-port", underlayBridge, "underlay")
	}
	s.Address()
}

// Address gives the host its addresses of the underlay. It is necessary again after the start of
// another ovs-vswitchd with the userspace datapath, which creates its interfaces anew.
func (s *Switch) Address() {
	s.t.Helper()
	name := "underlay"
	if s.Datapath == Userspace {
		name = underlayBridge
	}
	v4, v6 := Underlay(s.number)
	testnet.Eventually(s.t, func() error { return s.Host.Try("ip", "link", "show", "dev", name) })
	s.Host.Command("sysctl", "-qw", "net.ipv6.conf."+name+".accept_dad=0")
	s.Host.Batch("link set "+name+" up", fmt.Sprintf("address replace %s/24 dev %s", v4, name),
		fmt.Sprintf("address replace %s/64 dev %s nodad", v6, name))
}

// PlainChecksums makes a container compute the checksums of its packets. Veth pairs leave them to
// the receiver's kernel, but the userspace datapath does not mark the packets for it, so that TCP
// and UDP do not work between containers otherwise.
func PlainChecksums(container *testnet.Namespace, ifName string) error {
	return container.Try("ethtool", "-K", ifName, "tx", "off")
}
