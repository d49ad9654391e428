package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/tenon-cni/tenon/internal/kernel/nft"
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

// Element is a masqueraded address.
type Element = nft.Element

// Masquerade masquerades what addresses send beyond their networks, in one transaction: each prefix is an address
// with its prefix length. tag names the owner, 1 to [nft.MaxComment] bytes. An address that carries another tag is
// taken over. Undone by giving back what was changed, but for addresses that somebody else has taken over since. The
// error wraps [ErrNoNFT] if the kernel cannot do it.
func (s *Space) Masquerade(tag string, addrs []netip.Prefix) error {
	names := make([]string, len(addrs))
	for i, a := range addrs {
		names[i] = a.String()
	}
	var undo func(context.Context) error
	return s.tx.Do("masquerade "+strings.Join(names, " "),
		func() error {
			c, err := s.rules()
			if err != nil {
				return err
			}
			undo, err = c.Masquerade(s.tx.ctx, tag, addrs)
			return err
		},
		func() error {
			ctx, cancel := s.tx.undoContext()
			defer cancel()
			return undo(ctx)
		})
}

// Unmasquerade removes all masquerading whose owner matches, in one transaction, and returns how many elements there
// were. It cannot be undone.
func (s *Space) Unmasquerade(match func(tag string) bool) (n int, err error) {
	err = s.tx.Do("unmasquerade", func() error {
		c, err := s.rules()
		if err != nil {
			return err
		}
		n, err = c.Unmasquerade(s.tx.ctx, match)
		return err
	}, nil)
	return n, err
}

// Masqueraded lists the masqueraded addresses of all owners.
func (s *Space) Masqueraded() ([]Element, error) {
	c, err := s.rules()
	if err != nil {
		return nil, err
	}
	list, err := c.Masqueraded(s.tx.ctx)
	if err != nil {
		return nil, fmt.Errorf("list masqueraded addresses: %w", err)
	}
	return list, nil
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
