package session

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// CodeInUse is [plugin.CodeInUse].
const CodeInUse = plugin.CodeInUse

// SameContainer reports whether a tag names an attachment of the container, in any network.
func (s *Session) SameContainer(tag string) bool {
	_, ok := s.Namesake(tag)
	return ok
}

// Namesake returns the attachment of the container, in any network, that a tag names. ok is false
// if the tag names another container, or is too short to contain network and interface.
func (s *Session) Namesake(tag string) (a cni.Attachment, ok bool) {
	a, ok = parse(tag)
	a.Container = s.ContainerID // the tag may contain a truncated ID
	return a, ok && a.Tag() == tag
}

// Tagged returns the attachment that a tag names; ok is false for other text and for a truncated
// tag.
func Tagged(tag string) (a cni.Attachment, ok bool) {
	a, ok = parse(tag)
	return a, ok && a.Tag() == tag
}

// parse splits a tag; see [cni.Attachment.Tag].
func parse(tag string) (a cni.Attachment, ok bool) {
	part := strings.SplitN(tag, " ", 4)
	if len(part) != 4 {
		return a, false
	}
	return cni.Attachment{Network: part[1], IfName: part[2], Container: part[3]}, true
}

// TakeOver removes the elements of a tag's owner from some rule sets if its container no longer
// exists, and reports whether it did. to is the address of that container.
func (s *Session) TakeOver(ruleSets []*kernel.RuleSet, tag string, to netip.Addr) (bool, error) {
	is := func(alias string) bool { return alias == tag }
	if gone, err := s.Vanished(is, to); !gone {
		return false, err
	}
	// The container may be attached again meanwhile. Its new link exists before that ADD waits for
	// the lock that is held while match is called.
	var errs []error
	match := func(other string) bool {
		if other != tag {
			return false
		}
		_, alive, err := s.linked(is)
		errs = append(errs, err)
		return !alive && err == nil
	}
	removed := false
	for _, ruleSet := range ruleSets {
		held, err := s.Host.Rules.Remove(ruleSet, match)
		errs, removed = append(errs, err), removed || len(held) > 0
	}
	if removed {
		s.LogTakeOver(Holder(tag), to)
	}
	return removed, errors.Join(errs...)
}

// LogTakeOver logs that this attachment takes over rules of a container that no longer exists.
func (s *Session) LogTakeOver(holder string, to netip.Addr) {
	s.Log.Warn("took over rules of a container that no longer exists", "holder", holder, "address", to)
}

// Vanished reports whether a container that had an address no longer exists. If a link of the host
// has a matching alias, the container exists unless the kernel is deleting the namespace of the
// link's peer. Links of other implementations have no alias. Without such a link, the container has
// vanished if the address belongs to this attachment now, or does not answer.
func (s *Session) Vanished(match func(alias string) bool, to netip.Addr) (bool, error) {
	if there, alive, err := s.linked(match); there || err != nil {
		return !alive && err == nil, err
	}
	if slices.ContainsFunc(s.PrevIPs(), func(ip cni.IP) bool { return ip.Address.Addr() == to }) {
		return true, nil
	}
	answers, err := s.Host.Addrs.Answers(to)
	return !answers && err == nil, err
}

// linked reports whether a link of the host has a matching alias, and whether one of these links
// leads to a namespace in use.
func (s *Session) linked(match func(alias string) bool) (there, alive bool, err error) {
	links, err := s.Host.Links.All()
	for _, l := range links {
		if err == nil && !alive && match(l.Alias) {
			there = true
			alive, err = s.Host.Links.PeerLives(l)
		}
	}
	return there, alive, err
}

// Holder describes the attachment of a tag for people. It returns other text unchanged.
func Holder(tag string) string {
	_, ours := cni.ParseTag(tag)
	if a, ok := parse(tag); ours && ok {
		return fmt.Sprintf("container %s (network %s, %s)", a.Container, a.Network, a.IfName)
	}
	return tag
}
