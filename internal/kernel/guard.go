package kernel

import (
	"context"
	"fmt"
	"net"
)

// Guard lets a port of a bridge receive only frames whose source is the hardware address mac. tag names the owner, 1 to
// [nft.MaxComment] bytes. A port that is guarded already is taken over. Undone by giving back what was changed, unless
// somebody else has taken the port over since. The error wraps [ErrNoNFT] if the kernel cannot do it.
func (s *Space) Guard(tag string, port Link, mac net.HardwareAddr) error {
	var undo func(context.Context) error
	return s.tx.Do(fmt.Sprintf("guard %s for %s", port.Name, mac),
		func() error {
			c, err := s.rules()
			if err != nil {
				return err
			}
			undo, err = c.Guard(s.tx.ctx, tag, port.Name, mac)
			return err
		},
		func() error {
			ctx, cancel := s.tx.undoContext()
			defer cancel()
			return undo(ctx)
		})
}

// Unguard ends the guard of the port of that name, if its owner matches. It cannot be undone.
func (s *Space) Unguard(port string, match func(tag string) bool) error {
	return s.tx.Do("unguard "+port, func() error {
		c, err := s.rules()
		if err != nil {
			return err
		}
		return c.Unguard(s.tx.ctx, port, match)
	}, nil)
}

// UnguardAll ends all guards whose owner matches, in one transaction. It cannot be undone.
func (s *Space) UnguardAll(match func(tag string) bool) error {
	return s.tx.Do("unguard ports", func() error {
		c, err := s.rules()
		if err != nil {
			return err
		}
		return c.UnguardAll(s.tx.ctx, match)
	}, nil)
}

// Guarded reports whether a port receives frames from this hardware address and no other, and whose guard that is.
func (s *Space) Guarded(port Link, mac net.HardwareAddr) (tag string, ok bool, err error) {
	c, err := s.rules()
	if err != nil {
		return "", false, err
	}
	return c.Guarded(s.tx.ctx, port.Name, mac)
}
