package nft

import (
	"bytes"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Guarding keeps containers from sending frames with a hardware address that is not theirs.
var Guarding = &RuleSet{name: "guard", skeleton: guardSkeleton}

const macLen = 6

// Guard returns the entries that let a port of a bridge receive only frames whose source is the hardware address mac;
// others are dropped before the bridge sees them. A port is known by its name.
func Guard(port string, mac net.HardwareAddr) ([]Element, error) {
	if port == "" || len(port) >= unix.IFNAMSIZ || len(mac) != macLen {
		return nil, fmt.Errorf("port %q with hardware address %q: not an Ethernet interface", port, mac)
	}
	key := ifName(port)
	return []Element{
		GuardedPort(port),
		newElement(Guarding, guardedMACs(), nftmsg.Element{Key: slices.Concat(key, mac, []byte{0, 0})}, len(key)), // keys are made of 4 bytes
	}, nil
}

// GuardedPort returns the entry that every guard of a port has.
func GuardedPort(port string) Element {
	key := ifName(port)
	return newElement(Guarding, guardedPorts(), nftmsg.Element{Key: key}, len(key))
}

// ifName is the name of an interface as the kernel compares it.
func ifName(name string) []byte {
	key := make([]byte, unix.IFNAMSIZ)
	copy(key, name)
	return key
}

// nameOf reads the name of an interface in a key.
func nameOf(key []byte) string {
	return string(bytes.TrimRight(key[:unix.IFNAMSIZ], "\x00"))
}

// maxPorts is how many ports can be guarded in a namespace; see maxAddrs for why there is a limit.
const maxPorts = 1 << 15

func guardedPorts() *set { return interfaceSet(bridgeTable, "guarded", maxPorts) }

func guardedMACs() *set {
	return &set{
		Set: nftmsg.Set{
			Table: bridgeTable, Name: "macs", Key: []nftmsg.Type{nftmsg.TypeIfName, nftmsg.TypeEtherAddr},
			Size: maxPorts,
		},
		text: func(x nftmsg.Element) string {
			return fmt.Sprintf("%s from %s", nameOf(x.Key), net.HardwareAddr(x.Key[unix.IFNAMSIZ:][:macLen]))
		},
	}
}

// guardSkeleton has one rule: iifname @guarded iifname . ether saddr != @macs drop
func guardSkeleton() skeleton {
	return skeleton{
		version: "macspoofchk 1",
		table:   bridgeTable,
		sets:    []*set{guardedPorts(), guardedMACs()},
		chains: []chain{{nftmsg.Chain{
			Table:    bridgeTable,
			Name:     "prerouting",
			Type:     nftmsg.ChainFilter,
			Hook:     unix.NF_INET_PRE_ROUTING,
			Priority: nftmsg.PriorityRaw, // with the reference plugin: before anything else looks at the frame
		}, [][]nftmsg.Expr{{
			nftmsg.Meta{Key: unix.NFT_META_IIFNAME, Register: unix.NFT_REG_1},
			nftmsg.Lookup{Set: guardedPorts().Name, Register: unix.NFT_REG_1},
			nftmsg.Payload{Base: unix.NFT_PAYLOAD_LL_HEADER, Offset: 6, Len: macLen, Register: unix.NFT_REG_2}, // right behind the name
			nftmsg.Lookup{Set: guardedMACs().Name, Register: unix.NFT_REG_1, Not: true},
			nftmsg.Verdict{Code: nftmsg.Drop},
		}}}},
	}
}
