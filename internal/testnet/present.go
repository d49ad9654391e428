package testnet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
)

// present lists the kinds of objects that a namespace may lack. Querying them takes a hundredth of
// the time of the tools that list them.
type present struct{ tables, shaping, rules6 bool }

// presentIn queries which kinds of objects a namespace has.
func presentIn(n *Namespace) (p present, err error) {
	err = dump(n, unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE,
		netlink.Body(netlink.Netfilter{}), func([]byte) error {
			p.tables = true
			return nil
		})
	if err != nil { // nft reports a kernel without nftables, too
		p.tables = true
	}
	if err := dump(n, unix.NETLINK_ROUTE, unix.RTM_GETQDISC, netlink.Body(qdisc{}),
		func(payload []byte) error {
			var q qdisc
			_, err := netlink.ReadBody(payload, &q)
			p.shaping = p.shaping || q.Handle != 0 // the kernel's own qdiscs have no handle
			return err
		}); err != nil {
		return p, fmt.Errorf("in %s: qdiscs: %w", n.Name, err)
	}
	usual := 0
	err = dump(n, unix.NETLINK_ROUTE, unix.RTM_GETRULE, netlink.Body(rule{Family: unix.AF_INET6}),
		func(payload []byte) error {
			var r rule
			attributes, err := netlink.ReadBody(payload, &r)
			plain := r == rule{Family: unix.AF_INET6, Table: r.Table, Action: unix.FR_ACT_TO_TBL}
			for kind := range netlink.Attributes(attributes) {
				plain = plain &&
					(kind == unix.FRA_TABLE || kind == unix.FRA_PRIORITY ||
						kind == unix.FRA_SUPPRESS_PREFIXLEN || kind == unix.FRA_PROTOCOL)
			}
			if plain && (r.Table == unix.RT_TABLE_LOCAL || r.Table == unix.RT_TABLE_MAIN) {
				usual++
			} else {
				p.rules6 = true
			}
			return err
		})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP): // no IPv6
	case err != nil:
		return p, fmt.Errorf("in %s: rules: %w", n.Name, err)
	default:
		p.rules6 = p.rules6 || usual != 2
	}
	return p, nil
}

// qdisc is struct tcmsg.
type qdisc struct {
	Family               uint8
	_                    [3]byte
	Link                 int32
	Handle, Parent, Info uint32
}

// rule is struct fib_rule_hdr.
type rule struct {
	Family, DstLen, SrcLen, TOS uint8
	Table, _, _, Action         uint8
	Flags                       uint32
}

// dump calls each for every object of a list.
func dump(n *Namespace, protocol int, kind uint16, body []byte,
	each func(payload []byte) error) error {
	return ask(n, protocol, kind, unix.NLM_F_DUMP, body, each)
}

func ask(n *Namespace, protocol int, kind uint16, flags int, body []byte,
	each func(payload []byte) error) error {
	ns, err := netns.Open(n.Path())
	if err != nil {
		return err
	}
	defer ns.Close()
	fd, err := ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return new(netlink.Exchange).Ask(fd, kind, flags, body, each)
}
