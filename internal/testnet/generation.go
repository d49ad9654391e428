package testnet

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Generation returns the generation of the ruleset, which grows by one with each transaction of
// nftables in the namespace.
func Generation(n *Namespace) (id uint32, err error) {
	err = ask(n, unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0,
		netlink.Body(netlink.Netfilter{}), func(payload []byte) error {
			attributes, err := netlink.ReadBody(payload, new(netlink.Netfilter))
			for kind, value := range netlink.Attributes(attributes) {
				if kind == unix.NFTA_GEN_ID && len(value) == 4 {
					id = binary.BigEndian.Uint32(value)
				}
			}
			return err
		})
	return id, err
}
