package kernel

import (
	"fmt"

	"github.com/tenon-cni/tenon/internal/netlink"
)

type (
	// Flow is an entry of the connection tracking.
	Flow = netlink.Flow
	// FlowFilter selects entries of the connection tracking.
	FlowFilter = netlink.FlowFilter
)

// DeleteFlows deletes entries of the connection tracking, so that the next packet is treated as the first of a connection.
// It cannot be undone. Entries that cannot be listed or deleted are no failure of the transaction: they are told to failed.
func (s Rules) DeleteFlows(f FlowFilter, failed func(error)) error {
	return s.space.tx.Do(fmt.Sprintf("delete connection tracking entries of protocol %d port %d", f.Protocol, f.DstPort), func() error {
		if _, err := netlink.DeleteFlows(s.space.NS, f); err != nil {
			failed(err)
		}
		return nil
	}, nil)
}
