package attach

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Masquerade hides what leaves the networks of the result's addresses behind the host. DEL and GC take it away by its
// owner.
func (s *Session[C]) Masquerade(r *cni.Result) error {
	var nets []netip.Prefix
	for _, ip := range r.IPs {
		nets = append(nets, ip.Address)
	}
	return s.Host.Masquerade(s.Tag, nets)
}

// unmasquerade takes away what Masquerade set up for owners that match. A kernel without nftables has nothing of that
// kind.
func (s *Session[C]) unmasquerade(match func(cni.Owner) bool) error {
	_, err := s.Host.Unmasquerade(func(comment string) bool {
		o, ok := cni.ParseTag(comment)
		return ok && match(o)
	})
	if errors.Is(err, kernel.ErrNoNFT) {
		return nil
	}
	return err
}

// CheckMasquerade looks for what Masquerade set up for the addresses of the previous result.
func (s *Session[C]) CheckMasquerade() error {
	have, err := s.Host.Masqueraded()
	if err != nil {
		return err
	}
	for _, ip := range s.Prev.IPs {
		if !slices.ContainsFunc(have, func(e kernel.Element) bool {
			o, ok := cni.ParseTag(e.Comment)
			return ok && o == s.Attachment().Owner() && e.Addr == ip.Address.Addr()
		}) {
			return fmt.Errorf("nftables table inet tenon: expected address %s to be masqueraded for %s, found it is not", ip.Address.Addr(), s.Attachment())
		}
	}
	return nil
}
