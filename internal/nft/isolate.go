package nft

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Isolation isolates containers behind an interface of the host from those behind other isolated
// interfaces.
type Isolation struct {
	Interface string // a bridge, or a host-side veth
	Inside    bool   // also isolate containers behind the interface from each other
	Port      string // the owner's port of a bridge that is isolated inside, else ""
}

// Elements returns the elements of the isolation for an owner. All owners of an interface share its
// isolation, which ends when the last of them is removed. The last owner to apply it determines
// Inside, even after that owner is removed. A port, however, stays isolated from the other ports of
// its bridge as long as its owner exists.
func (i Isolation) Elements(tag string) ([]Element, error) {
	if i.Interface == "" || max(len(i.Interface), len(i.Port)) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("interface %q, port %q: invalid interface name", i.Interface, i.Port)
	}
	name := ifName(i.Interface)
	pair := slices.Concat(name, name)
	inside := keyElement(Filtering, together(), pair)
	inside.absent = i.Inside
	list := []Element{
		keyElement(Filtering, members(), slices.Concat(pair, ownerDigest(tag))),
		keyElement(Filtering, isolated(), name), inside,
	}
	if i.Port != "" {
		list = append(list, keyElement(PortIsolation, isolatedPorts(), ifName(i.Port)))
	}
	return list, nil
}

// Isolated returns the interface of an element of [Isolation.Elements] that names an owner.
func (h Held) Isolated() (iface string, ok bool) {
	if h.Set != membersName {
		return "", false
	}
	return nameOf(h.Key), true
}

// PortIsolation isolates ports of bridges from the other ports: the bridge forwards no frames from
// or to them, so they reach only the host. This needs neither br_netfilter nor a kernel that knows
// the bridge of a frame (CONFIG_NFT_BRIDGE_META).
var PortIsolation = &RuleSet{name: "port isolation", skeleton: portIsolationSkeleton}

func isolatedPorts() *set { return interfaceSet(bridgeTable, "isolated", maxPorts) }

// portIsolationSkeleton has the rules: iifname @isolated drop, oifname @isolated drop
func portIsolationSkeleton() skeleton {
	forward := forwardChain(bridgeTable, "forward", nftmsg.PriorityBridgeFilter)
	ports := isolatedPorts()
	for _, side := range []uint32{unix.NFT_META_IIFNAME, unix.NFT_META_OIFNAME} {
		forward.add([]nftmsg.Expr{meta(side), ports.has(unix.NFT_REG_1), verdict(nftmsg.Drop)})
	}
	return skeleton{
		version: "port isolation 1", table: bridgeTable,
		sets: []*set{ports}, chains: []chain{forward},
	}
}
