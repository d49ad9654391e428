package kernel

import (
	"github.com/tenon-cni/tenon/internal/kernel/netns"
	"github.com/tenon-cni/tenon/internal/kernel/nft"
	"github.com/tenon-cni/tenon/internal/kernel/rtnl"
)

// Space is a network namespace within a transaction: one rtnetlink socket, and from the first use of rules on one
// nfnetlink socket, both bound to it. All changes are made through [Tx.Do] and are taken back by [Tx.Rollback] unless
// the method says otherwise. It is for one goroutine.
type Space struct {
	NS *netns.NS

	tx      *Tx
	rt      *rtnl.Conn
	nft     *nft.Conn     // nil until first used
	settled chan struct{} // closed when the kernel has finished what was deleted of the rules; nil if nothing was
}

// Open opens a namespace for the transaction. ns stays the caller's and must stay open as long as the space, and the
// space until the transaction is kept or rolled back.
func (tx *Tx) Open(ns *netns.NS) (*Space, error) {
	rt, err := rtnl.Open(ns)
	if err != nil {
		return nil, err
	}
	return &Space{NS: ns, tx: tx, rt: rt}, nil
}

// Close closes the sockets. It waits for the kernel to finish the deletion of rules.
func (s *Space) Close() {
	s.rt.Close()
	if s.nft != nil {
		s.nft.Close()
	}
	if s.settled != nil {
		<-s.settled
	}
}

// settle closes the nfnetlink socket in the background. After something was deleted the kernel takes about 15 ms for
// that, and deleting a link takes it as long: they can pass at the same time.
func (s *Space) settle() {
	c, before, settled := s.nft, s.settled, make(chan struct{})
	s.nft, s.settled = nil, settled
	go func() {
		defer close(settled)
		c.Close()
		if before != nil {
			<-before
		}
	}()
}
