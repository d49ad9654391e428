package kernel

import (
	"context"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft"
)

// Space is a network namespace within a transaction: one rtnetlink socket, and from the first use of rules on one
// nfnetlink socket, both bound to it. All changes are made through [Tx.Do] and are taken back by [Tx.Rollback] unless
// the method says otherwise. It is for one goroutine.
type Space struct {
	NS *netns.NS

	tx  *Tx
	rt  *netlink.Conn
	nft *nft.Conn // nil until first used

	legacyNAT map[iptables.Family]bool // the variant of iptables that ChooseNAT found the deciding rule in

	unlock func() // nil without [Space.Lock]
}

// Open opens a namespace for the transaction. ns stays the caller's and must stay open as long as the space, and the
// space until the transaction is kept or rolled back.
func (tx *Tx) Open(ns *netns.NS) (*Space, error) {
	rt, err := netlink.Open(ns)
	if err != nil {
		return nil, err
	}
	return &Space{NS: ns, tx: tx, rt: rt}, nil
}

// OpenHost opens the current namespace, of the caller's thread, for a transaction of its own. The caller must call
// closeAll.
func OpenHost(ctx context.Context) (host *Space, closeAll func(), err error) {
	ns, err := netns.Current()
	if err != nil {
		return nil, nil, err
	}
	if host, err = Begin(ctx).Open(ns); err != nil {
		ns.Close()
		return nil, nil, err
	}
	return host, func() { host.Close(); ns.Close() }, nil
}

// Shared returns the same space for changes to links that others use too: none is undone, whatever the method says.
func (s *Space) Shared() *Space {
	shared := *s
	shared.tx = &Tx{ctx: s.tx.ctx, hooks: s.tx.hooks, batch: s.tx.batch} // never rolled back
	return &shared
}

// Lock takes the lock of the namespace, see [netns.NS.Lock], and holds it until Close: past a rollback.
func (s *Space) Lock(ctx context.Context) (err error) {
	s.unlock, err = s.NS.Lock(ctx)
	return err
}

// Exclusive takes the same lock for as long as it takes until unlock is called.
func (s *Space) Exclusive() (unlock func(), err error) { return s.NS.Lock(s.tx.ctx) }

// Close closes the sockets and gives the lock back. After rules were deleted the kernel takes about 15 ms for it, and next to nothing if a link was
// deleted in between: it waits for the same.
func (s *Space) Close() {
	s.rt.Close()
	if s.nft != nil {
		s.nft.Close()
	}
	if s.unlock != nil {
		s.unlock()
	}
}
