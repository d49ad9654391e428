package nft

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Isolation keeps what is behind an interface of the host apart from what is behind the others that are isolated.
type Isolation struct {
	Interface string // a bridge, or the host's end of a link
	Inside    bool   // what is behind the interface is kept apart from each other as well
	Port      string // where the owner is behind a bridge that is isolated inside, its port; else ""
}

// Entries returns the entries of the isolation for an owner. There is one for all owners that share an interface, and it
// ends with the last of them. Inside is what the owner wants who has come last, also when that one leaves earlier. But a
// port stays closed to the others of its bridge as long as its owner is there.
func (i Isolation) Entries(tag string) ([]Element, error) {
	if i.Interface == "" || max(len(i.Interface), len(i.Port)) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("interface %q, port %q: no such names", i.Interface, i.Port)
	}
	owner := sha256.Sum256([]byte(tag))
	name := ifName(i.Interface)
	pair := slices.Concat(name, name)
	member := slices.Concat(pair, owner[:16])
	inside := newElement(Filtering, together(), nftmsg.Element{Key: pair}, len(pair))
	if i.Inside {
		inside.absent = true
	}
	entries := []Element{
		newElement(Filtering, members(), nftmsg.Element{Key: member}, len(member)),
		newElement(Filtering, isolated(), nftmsg.Element{Key: name}, len(name)),
		inside,
	}
	if i.Port != "" {
		key := ifName(i.Port)
		entries = append(entries, newElement(PortIsolation, isolatedPorts(), nftmsg.Element{Key: key}, len(key)))
	}
	return entries, nil
}

// Isolated returns the interface that an element of an [Isolation] says its owner to be behind.
func (h Held) Isolated() (iface string, ok bool) {
	if h.Set != members().Name {
		return "", false
	}
	return nameOf(h.Key), true
}

// PortIsolation closes ports of bridges to the other ports: no frame is forwarded from one or to one, and only the host is
// reached. This needs neither br_netfilter nor a kernel that can tell the bridge of a frame (CONFIG_NFT_BRIDGE_META).
var PortIsolation = &RuleSet{name: "port isolation", skeleton: portIsolationSkeleton}

func isolatedPorts() *set { return interfaceSet(bridgeTable, "isolated", maxPorts) }

// portIsolationSkeleton has the rules: iifname @isolated drop, oifname @isolated drop
func portIsolationSkeleton() skeleton {
	dropAt := func(side uint32) []nftmsg.Expr {
		return []nftmsg.Expr{
			nftmsg.Meta{Key: side, Register: unix.NFT_REG_1},
			nftmsg.Lookup{Set: isolatedPorts().Name, Register: unix.NFT_REG_1},
			nftmsg.Verdict{Code: nftmsg.Drop},
		}
	}
	return skeleton{
		version: "port isolation 1",
		table:   bridgeTable,
		sets:    []*set{isolatedPorts()},
		chains: []chain{{nftmsg.Chain{
			Table:    bridgeTable,
			Name:     "forward",
			Type:     nftmsg.ChainFilter,
			Hook:     unix.NF_INET_FORWARD,
			Priority: nftmsg.PriorityBridgeFilter,
		}, [][]nftmsg.Expr{dropAt(unix.NFT_META_IIFNAME), dropAt(unix.NFT_META_OIFNAME)}}},
	}
}
