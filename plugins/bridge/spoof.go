package bridge

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Remove ends the guards against forged hardware addresses, whether the configuration still asks for them or not: a
// port without one costs a question. It comes after the link is gone, so that nothing passes in between. What the
// reference plugin left goes too.
func (c *Config) Remove(
	_ context.Context, s *attach.Session, gone attach.Gone, deleteLinks func() error,
) error {
	deleted := deleteLinks()
	var ours, theirs error
	if gone.All() {
		ours = s.Host.Rules.Release(gone.Tag, kernel.Guarding)
		theirs = collectReferenceGuards(s)
	} else {
		ours = s.Host.Rules.Unguard(attach.HostName(gone.One), gone.Tag)
		theirs = removeReferenceGuard(s, referenceGuard(gone.One))
	}
	return errors.Join(deleted, ours, kernel.UnlessNoNFT(theirs))
}

// Repair guards the port again, unless the guard of the reference plugin is there. A port that is gone needs none.
func (c *Config) Repair(s *attach.Session) error {
	if !c.MACSpoofChk {
		return nil
	}
	if ok, err := s.Host.Rules.HasChain(referenceGuards, referenceGuard(s.Attachment())); ok || err != nil {
		return err
	}
	port, err := s.HostEnd()
	if err != nil {
		return kernel.UnlessNoLink(err)
	}
	mac, err := s.PrevMAC()
	if err != nil {
		return err
	}
	return s.Host.Rules.Guard(s.Tag, port, mac)
}

// checkGuard looks for the guard of the port. That of the reference plugin will do.
func checkGuard(s *attach.Session, port, inside kernel.Link) error {
	if ok, err := s.Host.Rules.Guarded(s.Tag, port, inside.MAC); ok || err != nil {
		return err
	}
	if ok, err := s.Host.Rules.HasChain(referenceGuards, referenceGuard(s.Attachment())); ok || err != nil {
		return err
	}
	return session.Drift("nftables table bridge tenon: expected port %s to accept frames from %s only, found it does not", port.Name, inside.MAC)
}

// The reference plugin has a chain for each port in this table, reached from referenceHook, and another one behind it.
var referenceGuards = kernel.Table{Family: kernel.TableBridge, Name: "nat"}

const (
	referenceHook   = "PREROUTING"
	referencePrefix = "cni-br-iface-"
)

func referenceGuard(a cni.Attachment) string { return referencePrefix + a.Container + "-" + a.IfName }

func removeReferenceGuard(s *attach.Session, chain string) error {
	return s.Host.Rules.Prune(kernel.Pruning{
		Table: referenceGuards, Base: referenceHook, Chains: []string{chain, chain + "-mac"},
		Match: func(r kernel.Rule) bool { return r.Jump == chain },
	})
}

// collectReferenceGuards removes the guards of ports that do not exist any more. Which network they were of is not said.
func collectReferenceGuards(s *attach.Session) error {
	rules, err := s.Host.Rules.Of(referenceGuards, referenceHook)
	if err != nil || len(rules) == 0 {
		return err
	}
	links, err := s.Host.Links.All()
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range rules {
		exists := slices.ContainsFunc(links, func(l kernel.Link) bool { return l.Name == r.IIFName })
		if strings.HasPrefix(r.Jump, referencePrefix) && r.IIFName != "" && !exists {
			errs = append(errs, removeReferenceGuard(s, r.Jump))
		}
	}
	return errors.Join(errs...)
}
