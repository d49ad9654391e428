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

	Links  Links
	Addrs  Addrs
	Routes Routes
	Rules  Rules
	Sysctl Sysctl
	Qdiscs Qdiscs

	tx  *Tx
	rt  *netlink.Conn
	nft *nft.Conn // nil until first used

	legacyNAT map[iptables.Family]bool // the variant of iptables that ChooseNAT found the deciding rule in

	unlock func() // nil without [Space.Lock]
}

// The methods of a [Space], in groups. A group has no state of its own.
type (
	// Links adds, changes, finds and deletes links (network interfaces), and the VLANs of bridge ports.
	Links struct{ space *Space }

	// Addrs assigns addresses to links, and reports what the kernel knows of addresses.
	Addrs struct{ space *Space }

	// Routes adds and deletes routes and policy rules, and moves links into and out of VRFs with their routes.
	Routes struct{ space *Space }

	// Rules applies, removes and compares rules of nftables and iptables, and deletes connections that they decided about.
	Rules struct{ space *Space }

	// Sysctl reads and writes the settings below /proc/sys.
	Sysctl struct{ space *Space }

	// Qdiscs shapes the traffic of links: queueing disciplines and their filters.
	Qdiscs struct{ space *Space }
)

// group gives the groups of s their space.
func (s *Space) group() {
	s.Links, s.Addrs, s.Routes = Links{s}, Addrs{s}, Routes{s}
	s.Rules, s.Sysctl, s.Qdiscs = Rules{s}, Sysctl{s}, Qdiscs{s}
}

// Open opens a namespace for the transaction. ns stays the caller's and must stay open as long as the space, and the
// space until the transaction is kept or rolled back.
func (tx *Tx) Open(ns *netns.NS) (*Space, error) {
	rt, err := netlink.Open(ns)
	if err != nil {
		return nil, err
	}
	s := &Space{NS: ns, tx: tx, rt: rt}
	s.group()
	return s, nil
}

// OpenHost opens the current namespace, of the caller's thread, for a transaction of its own. The caller must call
// closeAll.
func OpenHost(ctx context.Context) (host *Space, closeAll func(), err error) {
	return Begin(ctx).OpenHost()
}

// OpenHost opens the current namespace, of the caller's thread. The caller must call closeAll.
func (tx *Tx) OpenHost() (host *Space, closeAll func(), err error) {
	ns, err := netns.Current()
	if err != nil {
		return nil, nil, err
	}
	if host, err = tx.Open(ns); err != nil {
		ns.Close()
		return nil, nil, err
	}
	return host, func() { host.Close(); ns.Close() }, nil
}

// Shared returns the same space for changes to links that others use too: none is undone, whatever the method says.
func (s *Space) Shared() *Space {
	shared := *s
	shared.tx = &Tx{ctx: s.tx.ctx, watch: s.tx.watch, batch: s.tx.batch} // never rolled back
	shared.group()
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
