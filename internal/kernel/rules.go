package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft"
)

// ErrNoNFT says that the kernel lacks nftables, or a part of it that is needed.
var ErrNoNFT = nft.ErrNoNFT

// UnlessNoNFT returns err, but nil for an [ErrNoNFT]: a kernel without nftables has nothing to remove or to list.
func UnlessNoNFT(err error) error {
	if errors.Is(err, ErrNoNFT) {
		return nil
	}
	return err
}

// The ruleset is made of concerns, whose entries have an owner each: a tag of 1 to [nft.MaxComment] bytes.
type (
	Concern = nft.RuleSet
	Entry   = nft.Element
	Held    = nft.Held // an entry that is there
	Masq    = nft.Masq

	// TakenError says that somebody has what a claim wants.
	TakenError = nft.ConflictError
)

// Claim makes entries of an owner, in one transaction; op says what for. What others have about the same is taken over, or
// is a conflict that the error names: the concern decides. What the owner had besides goes. Undone by giving back what was
// changed, but for what somebody else has taken over since. The error wraps [ErrNoNFT] if the kernel cannot do it.
func (s *Space) Claim(op, tag string, entries []Entry) error {
	claim := nft.Request{Owner: tag, Elements: entries}
	if b := s.tx.batch; b != nil {
		b.claims = append(b.claims, claim)
		return nil
	}
	return s.claim(op, claim)
}

func (s *Space) claim(op string, claims ...nft.Request) error {
	var undo func(context.Context) error
	return s.tx.Do(op,
		func() error {
			c, err := s.rules()
			if err != nil {
				return err
			}
			undo, err = c.Apply(s.tx.ctx, claims...)
			return err
		},
		func() error {
			ctx, cancel := s.tx.undoContext()
			defer cancel()
			return undo(ctx)
		})
}

// Buildable returns nil if the kernel can do what a concern needs, else an error that wraps [ErrNoNFT] or says why it cannot
// be told. Unless it has been made in the current namespace it tries in one of its own, which takes 6 ms.
func Buildable(ctx context.Context, concern *Concern) error {
	if built, err := builtHere(concern); built || err != nil {
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
	return errors.Join(c.Build(ctx, concern), c.Close())
}

func builtHere(concern *Concern) (bool, error) {
	ns, err := netns.Current()
	if err != nil {
		return false, err
	}
	defer ns.Close()
	c, err := nft.Open(ns)
	if err != nil {
		return false, err
	}
	defer c.Close()
	return c.Built(concern)
}

// Release removes the entries of a concern whose owner matches, in one transaction, and returns them. It cannot be undone.
func (s *Space) Release(concern *Concern, match func(tag string) bool) ([]Held, error) {
	return s.release(concern, match, nil)
}

// ReleaseIf is Release that looks for nothing unless one entry is there with an owner that matches: one small question
// instead of many.
func (s *Space) ReleaseIf(there Entry, concern *Concern, match func(tag string) bool) ([]Held, error) {
	return s.release(concern, match, &there)
}

func (s *Space) release(concern *Concern, match func(tag string) bool, first *Entry) (held []Held, err error) {
	err = s.tx.Do(fmt.Sprintf("release %s", concern), func() error {
		c, err := s.rules()
		if err != nil {
			return err
		}
		held, err = c.Remove(s.tx.ctx, concern, match, first)
		return err
	}, nil)
	return held, err
}

// Missing returns what is not there of the entries of an owner.
func (s *Space) Missing(tag string, entries []Entry) ([]Held, error) {
	c, err := s.rules()
	if err != nil {
		return nil, err
	}
	missing, err := c.Missing(s.tx.ctx, nft.Request{Owner: tag, Elements: entries})
	return slices.Concat(missing...), err
}

// Owned is Held that does not depend on the rules and takes no lock, so that it can be asked by who has it. A kernel without
// nftables has nothing.
func (s *Space) Owned(concern *Concern) ([]Held, error) {
	c, err := s.rules()
	if err != nil {
		return nil, UnlessNoNFT(err)
	}
	list, err := c.Owned(concern)
	return list, UnlessNoNFT(err)
}

// NFTAvailable returns nil if the kernel has nftables, else an error that wraps [ErrNoNFT].
func (s *Space) NFTAvailable() error {
	c, err := s.rules()
	if err != nil {
		return err
	}
	return c.Available()
}

// Held lists the entries of a concern, of all owners.
func (s *Space) Held(concern *Concern) ([]Held, error) {
	c, err := s.rules()
	if err != nil {
		return nil, err
	}
	return c.List(s.tx.ctx, concern)
}

// Masquerade masquerades what addresses send beyond their networks: each prefix is an address with its prefix length.
func (s *Space) Masquerade(tag string, how Masq, addrs []netip.Prefix) error {
	entries, err := how.Entries(addrs...)
	if err != nil {
		return err
	}
	return s.Claim("masquerade "+strings.Trim(fmt.Sprint(addrs), "[]"), tag, entries)
}

// Guard lets a port of a bridge receive only frames whose source is the hardware address mac.
func (s *Space) Guard(tag string, port Link, mac net.HardwareAddr) error {
	entries, err := nft.Guard(port.Name, mac)
	if err != nil {
		return err
	}
	return s.Claim(fmt.Sprintf("guard %s for %s", port.Name, mac), tag, entries)
}

// Batch collects the claims of transactions, so that [Space.Meet] can meet many claims at once. See
// [Tx.CollectInto].
type Batch struct{ claims []nft.Request }

// Meet meets the claims of batches, whose transactions were about this namespace, in one transaction. A claim that cannot
// be met is left out and named in the error.
func (s *Space) Meet(batches ...*Batch) error {
	var claims []nft.Request
	for _, b := range batches {
		claims = append(claims, b.claims...)
	}
	if len(claims) == 0 {
		return nil
	}
	return s.claim(fmt.Sprintf("meet %d claims", len(claims)), claims...)
}

// Unmet returns for each batch what is not there of its claims.
func (s *Space) Unmet(batches ...*Batch) ([][]Held, error) {
	unmet := make([][]Held, len(batches))
	var claims []nft.Request
	for _, b := range batches {
		claims = append(claims, b.claims...)
	}
	if len(claims) == 0 { // nothing is asked of a kernel that may lack nftables
		return unmet, nil
	}
	c, err := s.rules()
	if err != nil {
		return nil, err
	}
	missing, err := c.Missing(s.tx.ctx, claims...)
	if err != nil {
		return nil, err
	}
	for i, b := range batches {
		unmet[i] = slices.Concat(missing[:len(b.claims)]...)
		missing = missing[len(b.claims):]
	}
	return unmet, nil
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
