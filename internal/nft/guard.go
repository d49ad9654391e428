package nft

import (
	"bytes"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Guarding drops frames that containers send with a MAC address other than their own.
var Guarding = &RuleSet{name: "guard", skeleton: guardSkeleton}

const macLen = 6

// Guard returns the elements that let a port of a bridge receive only frames from mac. The kernel
// drops other frames before the bridge sees them. port is the name of the interface.
func Guard(port string, mac net.HardwareAddr) ([]Element, error) {
	if port == "" || len(port) >= unix.IFNAMSIZ || len(mac) != macLen {
		return nil, fmt.Errorf("port %q with MAC address %q: not an Ethernet interface", port, mac)
	}
	name := ifName(port)
	key := slices.Concat(name, mac, []byte{0, 0}) // fields of a key are multiples of 4 bytes
	return []Element{
		GuardedPort(port), newElement(Guarding, guardedMACs(), nftmsg.Element{Key: key}, len(name)),
	}, nil
}

// GuardedPort returns the element that every guard of a port has.
func GuardedPort(port string) Element {
	return keyElement(Guarding, guardedPorts(), ifName(port))
}

// ifName encodes the name of an interface as the kernel compares it.
func ifName(name string) []byte {
	key := make([]byte, unix.IFNAMSIZ)
	copy(key, name)
	return key
}

// nameOf decodes the name of an interface at the beginning of a key.
func nameOf(key []byte) string {
	return string(bytes.TrimRight(key[:unix.IFNAMSIZ], "\x00"))
}

// maxPorts limits the guarded ports of a namespace; see maxAddrs for the reason.
const maxPorts = 1 << 15

func guardedPorts() *set { return interfaceSet(bridgeTable, "guarded", maxPorts) }

func guardedMACs() *set {
	s := interfaceSet(bridgeTable, "macs", maxPorts, nftmsg.TypeEtherAddr)
	s.text = func(x nftmsg.Element) string {
		return fmt.Sprintf("%s from %s", nameOf(x.Key),
			net.HardwareAddr(x.Key[unix.IFNAMSIZ:][:macLen]))
	}
	return s
}

// guardSkeleton has one rule: iifname @guarded iifname . ether saddr != @macs drop
func guardSkeleton() skeleton {
	prerouting := nftmsg.Chain{
		Table: bridgeTable, Name: "prerouting", Type: nftmsg.ChainFilter,
		Hook:     unix.NF_INET_PRE_ROUTING,
		Priority: nftmsg.PriorityRaw, // as upstream: before any other chain processes the frame
	}
	ports, macs := guardedPorts(), guardedMACs()
	rule := []nftmsg.Expr{
		meta(unix.NFT_META_IIFNAME), ports.has(unix.NFT_REG_1),
		// The source address follows the name.
		nftmsg.Payload{Base: unix.NFT_PAYLOAD_LL_HEADER, Offset: 6, Len: macLen,
			Register: unix.NFT_REG_2},
		macs.lacks(), verdict(nftmsg.Drop),
	}
	return skeleton{
		version: "macspoofchk 1", table: bridgeTable,
		sets: []*set{ports, macs}, chains: []chain{{prerouting, [][]nftmsg.Expr{rule}}},
	}
}
