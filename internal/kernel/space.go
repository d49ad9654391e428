package kernel

import (
	"context"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/trace"
)

// Space is a network namespace within a transaction. It has one rtnetlink socket and, after the
// first use of rules, one nfnetlink socket. All changes are made through [Tx.Do], and [Tx.Rollback]
// reverts them unless the method says otherwise. A Space is for one goroutine.
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

	legacyNAT map[iptables.Family]bool // whether the rule that ChooseNAT found is legacy

	unlock func() // nil unless [Space.Lock] was called
}

// The methods of a [Space], in groups. A group has no state.
type (
	// Links adds, changes, finds and deletes links (network interfaces), and the VLANs of bridge
	// ports.
	Links struct{ space *Space }

	// Addrs assigns addresses to links, and answers questions about addresses.
	Addrs struct{ space *Space }

	// Routes adds and deletes routes and policy rules, and moves links with their routes into and
	// out of VRFs.
	Routes struct{ space *Space }

	// Rules applies, removes and compares rules of nftables and iptables, and deletes connections
	// that they decided about.
	Rules struct{ space *Space }

	// Sysctl reads and writes the settings below /proc/sys.
	Sysctl struct{ space *Space }

	// Qdiscs shapes the traffic of links: queueing disciplines and their filters.
	Qdiscs struct{ space *Space }
)

// group initializes the groups of s.
func (s *Space) group() {
	s.Links, s.Addrs, s.Routes = Links{s}, Addrs{s}, Routes{s}
	s.Rules, s.Sysctl, s.Qdiscs = Rules{s}, Sysctl{s}, Qdiscs{s}
}

// Open opens a namespace for the transaction. The caller keeps ns and must not close it before the
// space. The space must stay open until the transaction is kept or rolled back.
func (tx *Tx) Open(ns *netns.NS) (*Space, error) {
	rt, err := netlink.Open(ns)
	if err != nil {
		return nil, err
	}
	s := &Space{NS: ns, tx: tx, rt: rt}
	if tx.span != nil {
		rt.Watch(func(message string) { tx.span.Note(trace.NetlinkType, message) })
	}
	s.group()
	return s, nil
}

// OpenHost opens the current namespace, of the caller's thread, in a new transaction. The caller
// must call closeAll.
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

// Shared returns the same space for changes to shared links: Rollback reverts none of them,
// whatever the method says.
func (s *Space) Shared() *Space {
	shared := *s
	shared.tx = &Tx{ctx: s.tx.ctx, watch: s.tx.watch, batch: s.tx.batch,
		span: s.tx.span} // never rolled back
	shared.group()
	return &shared
}

// Lock takes the lock of the namespace, see [netns.NS.Lock], and holds it until Close, also during
// a rollback.
func (s *Space) Lock(ctx context.Context) (err error) {
	s.unlock, err = s.NS.Lock(ctx)
	return err
}

// Exclusive takes the same lock until the caller calls unlock.
func (s *Space) Exclusive() (unlock func(), err error) { return s.NS.Lock(s.tx.ctx) }

// Close closes the sockets and releases the lock. After the deletion of rules, this takes the
// kernel about 15 ms, and almost no time if a link was deleted in between, because both wait for
// the same event.
func (s *Space) Close() {
	s.rt.Close()
	if s.nft != nil {
		s.nft.Close()
	}
	if s.unlock != nil {
		s.unlock()
	}
}
