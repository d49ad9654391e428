package bandwidth

import (
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// The ifb for packets that the container sends has the name that upstream gives it, which is the
// same for all interfaces of the container on a network. For a second interface, and for the ifb
// for packets that the container receives, which upstream does not have, the name follows from the
// attachment.
const (
	upstreamPrefix = "bwp"
	egressPrefix   = "bwe"
	ingressPrefix  = "bwi"
	nameDigits     = 12
)

func upstreamName(network, container string) string {
	sum := sha512.Sum512([]byte(network + container))
	return upstreamPrefix + hex.EncodeToString(sum[:])[:nameDigits]
}

func ownName(prefix string, a cni.Attachment) string {
	o := string(a.Owner())
	return prefix + strings.TrimPrefix(o, cni.NetworkOwner(a.Network))[:nameDigits]
}

func egressNames(a cni.Attachment) []string {
	return []string{upstreamName(a.Network, a.Container), ownName(egressPrefix, a)}
}

func ingressNames(a cni.Attachment) []string { return []string{ownName(ingressPrefix, a)} }

func allNames(a cni.Attachment) []string { return append(egressNames(a), ingressNames(a)...) }

// The network never sees the MAC address of an ifb. Tenon derives it from the owner, because the
// kernel sets the address when it creates the link, but the alias only later: DEL and GC find the
// link even if the process was killed in between.

// networkBytes is the number of leading bytes that identify the network. The first byte marks the
// address as locally administered.
const networkBytes = 3

func address(a cni.Attachment) net.HardwareAddr {
	own, _ := hex.DecodeString(strings.TrimPrefix(string(a.Owner()), cni.NetworkOwner(a.Network)))
	return append(networkAddress(a.Network), own[:6-networkBytes]...)
}

func networkAddress(network string) net.HardwareAddr {
	b, _ := hex.DecodeString(cni.NetworkOwner(network))
	return append(net.HardwareAddr{2}, b[:networkBytes-1]...)
}

// owned reports whether an attachment has created a link.
func owned(l kernel.Link, a cni.Attachment) bool {
	if l.Kind != "ifb" {
		return false
	}
	if o, ok := cni.ParseTag(l.Alias); ok {
		return o == a.Owner()
	}
	return l.Alias == "" && slices.Equal(l.MAC, address(a))
}

// foreign reports whether upstream has created a link: it is up from the start and has no alias.
func foreign(l kernel.Link) bool {
	return l.Kind == "ifb" && l.Alias == "" && l.Up && strings.HasPrefix(l.Name, upstreamPrefix)
}

// devices returns the links of these names that belong to an attachment: links that Tenon created
// for it, and links that upstream created, unless they serve another link than end. If end is nil,
// the host-side veth is not known.
func devices(
	host *kernel.Space, a cni.Attachment, end *kernel.Link, names ...string,
) (list []kernel.Link, err error) {
	for _, name := range names {
		l, err := host.Links.ByName(name)
		if errors.Is(err, kernel.ErrNoLink) {
			continue
		}
		if err != nil {
			return list, err
		}
		mine := owned(l, a)
		if !mine && foreign(l) {
			if mine, err = serves(host, l, end); err != nil {
				return list, err
			}
		}
		if mine {
			list = append(list, l)
		}
	}
	return list, nil
}

// serves reports whether no other link than end redirects packets to l.
func serves(host *kernel.Space, l kernel.Link, end *kernel.Link) (bool, error) {
	if end == nil {
		return true, nil
	}
	from, err := host.Qdiscs.Redirections()
	others := slices.ContainsFunc(from[l.Index], func(f kernel.Link) bool {
		return f.Index != end.Index
	})
	return !others, err
}

// ensureDevice returns the attachment's ifb. If there is none, it creates one with the first free
// name.
func ensureDevice(s *chained.Session, end kernel.Link, names []string) (kernel.Link, error) {
	var busy error
	for range 3 { // other processes may create and delete such links meanwhile
		have, err := devices(s.Host, s.Attachment(), &end, names...)
		if err != nil {
			return kernel.Link{}, err
		}
		if len(have) > 0 {
			return adopt(s, have[0])
		}
		for _, name := range names {
			l, err := s.Host.Links.Add(kernel.NewLink{Name: name, Kind: "ifb", Alias: s.Tag,
				MAC: address(s.Attachment()), MTU: end.MTU})
			if !errors.Is(err, unix.EEXIST) {
				return l, err
			}
			busy = err
		}
	}
	return kernel.Link{}, fmt.Errorf("no free name for an ifb: %w", busy)
}

// adopt tags an ifb, which upstream may have created, with the attachment's owner.
func adopt(s *chained.Session, l kernel.Link) (kernel.Link, error) {
	if l.Alias == s.Tag {
		return l, nil
	}
	return l, s.Host.Links.SetAlias(l, s.Tag)
}
