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

// Remove removes MAC anti-spoofing rules even if the configuration no longer enables them: without
// a rule, this costs one query. It removes them after the link is gone, so that no forged frame
// passes in between. It also removes the rules of the upstream plugin.
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

// Repair restores the anti-spoofing rule, unless upstream's rule exists or the port is gone.
func (c *Config) Repair(s *attach.Session) error {
	if !c.MACSpoofChk {
		return nil
	}
	if ok, err := s.Host.Rules.HasChain(referenceGuards, referenceGuard(s.Attachment())); ok ||
		err != nil {
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

// checkGuard requires an anti-spoofing rule for the port, either Tenon's or upstream's.
func checkGuard(s *attach.Session, port, inside kernel.Link) error {
	if ok, err := s.Host.Rules.Guarded(s.Tag, port, inside.MAC); ok || err != nil {
		return err
	}
	if ok, err := s.Host.Rules.HasChain(referenceGuards, referenceGuard(s.Attachment())); ok ||
		err != nil {
		return err
	}
	return session.Drift("nftables table bridge tenon: "+
		"rule that limits port %s to frames from %s is missing", port.Name, inside.MAC)
}

// The upstream plugin has a chain for each port in this table, reached from referenceHook, and a
// second one that checks the MAC address.
var referenceGuards = kernel.Table{Family: kernel.TableBridge, Name: "nat"}

const (
	referenceHook   = "PREROUTING"
	referencePrefix = "cni-br-iface-"
)

func referenceGuard(a cni.Attachment) string {
	return referencePrefix + a.Container + "-" + a.IfName
}

func removeReferenceGuard(s *attach.Session, chain string) error {
	return s.Host.Rules.Prune(kernel.Pruning{
		Table: referenceGuards, Base: referenceHook, Chains: []string{chain, chain + "-mac"},
		Match: func(r kernel.Rule) bool { return r.Jump == chain },
	})
}

// collectReferenceGuards removes upstream's chains for ports that no longer exist, of all networks,
// because the chains do not name theirs.
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
		exists := slices.ContainsFunc(links, func(l kernel.Link) bool {
			return l.Name == r.IIFName
		})
		if strings.HasPrefix(r.Jump, referencePrefix) && r.IIFName != "" && !exists {
			errs = append(errs, removeReferenceGuard(s, r.Jump))
		}
	}
	return errors.Join(errs...)
}
