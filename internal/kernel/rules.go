package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft"
)

// ErrNoNFT reports that the kernel lacks nftables, or a part of it that is needed.
var ErrNoNFT = nft.ErrNoNFT

// UnlessNoNFT returns err, or nil if it wraps [ErrNoNFT]: a kernel without nftables has no elements
// to remove or to list.
func UnlessNoNFT(err error) error {
	if errors.Is(err, ErrNoNFT) {
		return nil
	}
	return err
}

// UnlessNoLink returns err, or nil if it wraps [ErrNoLink].
func UnlessNoLink(err error) error {
	if errors.Is(err, ErrNoLink) {
		return nil
	}
	return err
}

// Each element of a rule set has an owner: a tag of 1 to [nft.MaxComment] bytes.
type (
	RuleSet = nft.RuleSet
	Element = nft.Element
	Held    = nft.Held // an element that exists
	Masq    = nft.Masq

	// ConflictError reports that another owner holds an element that cannot be shared.
	ConflictError = nft.ConflictError
)

// Apply makes the elements of an owner exist, in one transaction; op names the change. It takes
// over elements of other owners with the same subjects, waits for them if [Tx.SetPeers] says that
// they are of other networks, or returns a [ConflictError], as the rule set defines. It removes other elements of the owner in rule sets that already have a requested
// subject. Rollback reverts the changes, except where another owner has changed the same element
// since. The error wraps [ErrNoNFT] if the kernel does not support the rule set.
func (s Rules) Apply(op, tag string, elements []Element) error {
	request := s.request(tag, elements)
	if b := s.space.tx.batch; b != nil {
		b.requests = append(b.requests, request)
		return nil
	}
	return s.space.apply(op, request)
}

func (s Rules) request(tag string, elements []Element) nft.Request {
	return nft.Request{Owner: tag, Peers: s.space.tx.peers, Elements: elements}
}

func (s *Space) apply(op string, requests ...nft.Request) error {
	return s.change(op, func(c *nft.Conn) (undo func(context.Context) error, err error) {
		return c.Apply(s.tx.ctx, requests...)
	})
}

// change makes a change of rule sets, which undo reverts.
func (s *Space) change(
	op string, do func(*nft.Conn) (undo func(context.Context) error, err error),
) error {
	var undo func(context.Context) error
	return s.tx.Do(op,
		func() error {
			c, err := s.rules()
			if err != nil {
				return err
			}
			undo, err = do(c)
			return err
		},
		func() error {
			ctx, cancel := s.tx.undoContext()
			defer cancel()
			return undo(ctx)
		})
}

// Buildable returns nil if the kernel supports a rule set, else an error that wraps [ErrNoNFT], or
// another one if it cannot find out. Unless the rule set exists in the current namespace, Buildable
// builds it in a new one, which takes 6 ms.
func Buildable(ctx context.Context, rs *RuleSet) error {
	built := false
	err := inRuleset(func(c *nft.Conn) (err error) {
		built, err = c.Built(rs)
		return err
	})
	if built || err != nil {
		return err
	}
	ns, err := netns.New()
	if err != nil {
		return err
	}
	defer ns.Close()
	c, err := nft.Open(ns)
	if err != nil {
		return err
	}
	return errors.Join(c.Build(ctx, rs), c.Close())
}

// Remove removes each element of a rule set with a matching owner, in one transaction, and returns
// them. Rollback does not restore them.
func (s Rules) Remove(rs *RuleSet, match func(tag string) bool) ([]Held, error) {
	return s.space.remove(rs, match, nil)
}

// RemoveIf is Remove if one element exists with a matching owner. Otherwise it does nothing, which
// takes one lookup.
func (s Rules) RemoveIf(first Element, rs *RuleSet, match func(tag string) bool) ([]Held, error) {
	return s.space.remove(rs, match, &first)
}

func (s *Space) remove(
	rs *RuleSet, match func(tag string) bool, first *Element,
) (held []Held, err error) {
	err = s.tx.Do(fmt.Sprintf("release %s", rs), func() error {
		c, err := s.rules()
		if err != nil {
			return err
		}
		held, err = c.Remove(s.tx.ctx, rs, match, first)
		return err
	}, nil)
	return held, err
}

// Missing returns the elements of an owner that do not exist, or that exist and must not.
func (s Rules) Missing(tag string, elements []Element) ([]Held, error) {
	missing, err := s.missing(s.request(tag, elements))
	return slices.Concat(missing...), err
}

// missing returns a list for each request.
func (s Rules) missing(requests ...nft.Request) ([][]Held, error) {
	return ask(s, func(c *nft.Conn) ([][]Held, error) { return c.Missing(s.space.tx.ctx, requests...) })
}

// Held returns the elements of a rule set, of all owners. It returns none if the rules were
// flushed.
func (s Rules) Held(rs *RuleSet) ([]Held, error) {
	return ask(s, func(c *nft.Conn) ([]Held, error) { return c.List(s.space.tx.ctx, rs) })
}

// Owned is Held without regard to the rules. It takes no lock, so a caller that holds the lock can
// use it. It returns no elements if the kernel lacks nftables.
func (s Rules) Owned(rs *RuleSet) ([]Held, error) {
	list, err := ask(s, func(c *nft.Conn) ([]Held, error) { return c.Owned(rs) })
	return list, UnlessNoNFT(err)
}

// Available returns nil if the kernel has nftables, else an error that wraps [ErrNoNFT].
func (s Rules) Available() error {
	c, err := s.space.rules()
	if err != nil {
		return err
	}
	return c.Available()
}

// Masquerade masquerades packets from addresses, except to their networks. Each prefix is an
// address with its prefix length.
func (s Rules) Masquerade(tag string, how Masq, addrs []netip.Prefix) error {
	elements, err := how.Elements(addrs...)
	if err != nil {
		return err
	}
	return s.Apply("masquerade "+strings.Trim(fmt.Sprint(addrs), "[]"), tag, elements)
}

// Guard lets a port of a bridge receive only frames from the MAC address mac.
func (s Rules) Guard(tag string, port Link, mac net.HardwareAddr) error {
	elements, err := nft.Guard(port.Name, mac)
	if err != nil {
		return err
	}
	return s.Apply(fmt.Sprintf("guard %s for %s", port.Name, mac), tag, elements)
}

type (
	// Flow is an entry of connection tracking.
	Flow = netlink.Flow
	// FlowFilter selects entries of connection tracking.
	FlowFilter = netlink.FlowFilter
)

// DeleteFlows deletes entries of connection tracking, so that the kernel treats the next packet as
// the first of a connection. Rollback does not restore them. If entries cannot be listed or
// deleted, DeleteFlows calls failed with the error, and the transaction continues.
func (s Rules) DeleteFlows(f FlowFilter, failed func(error)) error {
	return s.space.tx.Do(fmt.Sprintf("delete connection tracking entries of protocol %d port %d", f.Protocol, f.DstPort), func() error {
		if _, err := netlink.DeleteFlows(s.space.NS, f); err != nil {
			failed(err)
		}
		return nil
	}, nil)
}

// Batch collects requests of many transactions, to apply them in one: see [Tx.CollectInto].
type Batch struct{ requests []nft.Request }

// ApplyBatches applies batches that were collected for this namespace, in one transaction. It
// leaves out a request that conflicts with another owner, and names it in the error. missing is what
// [Rules.MissingInBatches] would have returned in the instant before.
func (s Rules) ApplyBatches(batches ...*Batch) (missing [][]Held, err error) {
	requests := requestsOf(batches)
	list := make([][]Held, len(requests))
	if len(requests) > 0 { // the kernel may lack nftables
		err = s.space.change(fmt.Sprintf("apply %d requests", len(requests)),
			func(c *nft.Conn) (undo func(context.Context) error, err error) {
				list, undo, err = c.Restore(s.space.tx.ctx, requests...)
				return undo, err
			})
	}
	return byBatch(list, batches), err
}

// MissingInBatches is Missing for each batch.
func (s Rules) MissingInBatches(batches ...*Batch) ([][]Held, error) {
	requests := requestsOf(batches)
	if len(requests) == 0 { // the kernel may lack nftables
		return make([][]Held, len(batches)), nil
	}
	missing, err := s.missing(requests...)
	return byBatch(missing, batches), err
}

// byBatch joins the elements of the requests of each batch.
func byBatch(missing [][]Held, batches []*Batch) [][]Held {
	list := make([][]Held, len(batches))
	for i, b := range batches {
		n := min(len(b.requests), len(missing)) // none after an error
		list[i] = slices.Concat(missing[:n]...)
		missing = missing[n:]
	}
	return list
}

func requestsOf(batches []*Batch) (list []nft.Request) {
	for _, b := range batches {
		list = append(list, b.requests...)
	}
	return list
}

// ask calls read with the nfnetlink socket.
func ask[T any](s Rules, read func(*nft.Conn) (T, error)) (answer T, err error) {
	c, err := s.space.rules()
	if err != nil {
		return answer, err
	}
	return read(c)
}

// rules opens the nfnetlink socket at its first use.
func (s *Space) rules() (*nft.Conn, error) {
	if s.nft == nil {
		c, err := nft.Open(s.NS)
		if err != nil {
			return nil, err
		}
		s.nft = c
	}
	return s.nft, nil
}
