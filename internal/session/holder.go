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

// SameContainer reports whether a tag is of an attachment of the container, to whatever network.
func (s *Session) SameContainer(tag string) bool {
	_, ok := s.Namesake(tag)
	return ok
}

// Namesake returns the attachment of the container, to whatever network, that a tag names. ok is false if the tag names
// another container, or has no room for the network and the interface.
func (s *Session) Namesake(tag string) (a cni.Attachment, ok bool) {
	a, ok = parse(tag)
	a.Container = s.ContainerID // which can be cut in the tag
	return a, ok && a.Tag() == tag
}

// Tagged returns the attachment that a tag is of; ok is false if it is no tag, or one that is cut.
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

// TakeOver removes what the owner of a tag has of some rule sets if its container no longer exists, and
// reports whether it did. to is the address of that container.
func (s *Session) TakeOver(ruleSets []*kernel.RuleSet, tag string, to netip.Addr) (bool, error) {
	is := func(alias string) bool { return alias == tag }
	if gone, err := s.Vanished(is, to); !gone {
		return false, err
	}
	// The container may be attached again meanwhile. Then its link is there before it waits for the lock
	// under which match is called.
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

// LogTakeOver logs that this attachment takes over what a container that no longer exists has left.
func (s *Session) LogTakeOver(holder string, to netip.Addr) {
	s.Log.Warn("took over what a container left that no longer exists", "holder", holder, "address", to)
}

// Vanished reports whether a container that had an address no longer exists. A link of the host whose alias
// matches decides: it exists unless the kernel is tearing the namespace at the other end down. Links that
// another implementation made have no alias. Without such a link the container has vanished if the address
// is this attachment's own by now, or does not answer.
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

// linked reports whether a link of the host has an alias that matches, and whether one of these leads to a
// namespace that lives.
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

// Holder names the attachment whose tag that is, for people. What is no tag it returns as it is.
func Holder(tag string) string {
	_, ours := cni.ParseTag(tag)
	if a, ok := parse(tag); ours && ok {
		return fmt.Sprintf("container %s, interface %s, network %s", a.Container, a.IfName, a.Network)
	}
	return tag
}
