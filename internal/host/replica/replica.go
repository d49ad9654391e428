// Package replica creates network namespaces with a copy of the state of others: links, addresses,
// routes, rules, settings and rule sets. Programs try operations there. Devices with hardware or
// with a driver of their own become veth devices of the same name. Their peers lead nowhere, so no
// packet leaves a copy. The package knows nothing of CNI.
package replica

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/iptables/legacy"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// World holds copies of namespaces. They exist until Close, or until the process ends.
type World struct {
	Spaces []*netns.NS // in the order of their sources
	Rest   *netns.NS   // holds the peers of veth devices that lead to namespaces without a copy
	Notes  []string    // objects that the copies lack
	// Generation counts the transactions of nftables in the first source.
	Generation uint32
}

// Source is a namespace to copy.
type Source struct {
	NS *netns.NS
	// Light leaves out settings, policy rules, neighbours and rule sets.
	Light bool
}

// Make copies namespaces. The handles on the sources must stay open until Make returns. Make
// changes nothing in them. An object that cannot be copied is a note, not an error.
func Make(sources ...Source) (*World, error) {
	m := &maker{World: &World{}, created: map[key]bool{}}
	defer m.close()
	if err := m.copy(sources); err != nil {
		m.World.Close()
		return nil, err
	}
	return m.World, nil
}

// Close closes the handles on the copies.
func (w *World) Close() {
	for _, ns := range append(w.Spaces, w.Rest) {
		if ns != nil {
			_ = ns.Close() // nothing was written
		}
	}
}

func (w *World) note(format string, args ...any) {
	w.Notes = append(w.Notes, fmt.Sprintf(format, args...))
}

// maker is a copy in progress.
type maker struct {
	*World
	spaces  []*space
	rest    *netlink.Conn
	created map[key]bool
}

// space is a namespace and its copy.
type space struct {
	source, copy *netns.NS
	light        bool
	from, to     *netlink.Conn
	links        []*link
	indexes      map[int]int // of links in the copy, by those in the source; only if they differ
}

func (m *maker) copy(sources []Source) (err error) {
	if m.Rest, err = netns.New(); err != nil {
		return err
	}
	if m.rest, err = netlink.Open(m.Rest); err != nil {
		return err
	}
	for _, source := range sources {
		if err := m.add(source); err != nil {
			return fmt.Errorf("copy network namespace %s: %w", source.NS, err)
		}
	}
	return m.run()
}

func (m *maker) add(source Source) error {
	s := &space{source: source.NS, light: source.Light, indexes: map[int]int{}}
	m.spaces = append(m.spaces, s)
	var err error
	if s.copy, err = netns.New(); err != nil {
		return err
	}
	m.Spaces = append(m.Spaces, s.copy)
	if s.from, err = netlink.Open(source.NS); err != nil {
		return err
	}
	s.to, err = netlink.Open(s.copy)
	return err
}

func (m *maker) close() {
	for _, s := range m.spaces {
		for _, c := range []*netlink.Conn{s.from, s.to} {
			if c != nil {
				_ = c.Close() // all changes are confirmed
			}
		}
	}
	if m.rest != nil {
		_ = m.rest.Close()
	}
}

// run copies the objects. Settings of a namespace precede its links, which inherit some, and links
// precede all that names them.
func (m *maker) run() error {
	for i, s := range m.spaces {
		if err := s.readLinks(i); err != nil {
			return fmt.Errorf("links: %w", err)
		}
		if err := m.identify(s); err != nil {
			return err
		}
		if s.light {
			continue
		}
		if err := s.settings(); err != nil {
			return fmt.Errorf("settings: %w", err)
		}
	}
	if err := m.makeLinks(); err != nil {
		return fmt.Errorf("links: %w", err)
	}
	if err := m.states(); err != nil {
		return err
	}
	for _, s := range m.spaces {
		for _, step := range []struct {
			what   string
			always bool
			copy   func(*space) error
		}{
			{"addresses", true, m.addresses},
			{"routes", true, m.routes},
			{"rules", false, m.rules},
			{"neighbours", false, m.neighbours},
			{"nftables", false, m.nftables},
			{"iptables", false, func(s *space) error { return legacy.Copy(s.source, s.copy) }},
		} {
			if s.light && !step.always {
				continue
			}
			if err := step.copy(s); err != nil {
				return fmt.Errorf("%s: %w", step.what, err)
			}
		}
	}
	return nil
}

// states copies the states of links. Carrier, and what the kernel does then, depends on the peers.
func (m *maker) states() error {
	for _, s := range m.spaces {
		if !s.light {
			if err := s.linkSettings(s == m.spaces[0]); err != nil {
				return fmt.Errorf("settings of links: %w", err)
			}
		}
		if err := m.raise(s); err != nil {
			return fmt.Errorf("states of links: %w", err)
		}
	}
	for _, s := range m.spaces {
		if err := m.settle(s); err != nil {
			return fmt.Errorf("states of links: %w", err)
		}
	}
	return nil
}

// identify finds the copies of the namespaces to which links lead. It asks about one source after the
// other, the host's own first, until all are known.
func (m *maker) identify(s *space) error {
	wanted := map[int][]*link{}
	for _, l := range s.links {
		if id := netlink.Find(l.values, unix.IFLA_LINK_NETNSID); id != nil && l.at < 0 && l.lower != 0 {
			n := int(int32(netlink.Number(id)))
			wanted[n] = append(wanted[n], l)
		}
	}
	for i, other := range m.spaces {
		if len(wanted) == 0 {
			return nil
		}
		id, ok, err := s.from.Identifier(other.source)
		if err != nil {
			return err
		}
		if ok {
			for _, l := range wanted[id] {
				l.at = i
			}
			delete(wanted, id)
		}
	}
	return nil
}

// nftables copies the rule set.
func (m *maker) nftables(s *space) error {
	from, err := nftmsg.Open(s.source)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil // a kernel without netfilter sockets
	}
	if err != nil {
		return err
	}
	defer from.Close()
	if s == m.spaces[0] {
		m.Generation, _ = from.Generation() // 0 without nftables
	}
	to, err := nftmsg.Open(s.copy)
	if err != nil {
		return err
	}
	defer to.Close()
	lost, err := nftmsg.Copy(from, to)
	for _, object := range lost {
		m.note("nftables: %s", object)
	}
	return err
}

// index returns the index of a link in the copy.
func (s *space) index(source int) int {
	if i, ok := s.indexes[source]; ok {
		return i
	}
	return source
}

// dump returns the messages of a list.
func dump(c *netlink.Conn, kind uint16, about any, attributes ...netlink.Attribute) ([][]byte, error) {
	return netlink.Dump(c, kind, about, attributes, func(list [][]byte, m []byte) ([][]byte, error) {
		return append(list, bytes.Clone(m)), nil
	})
}

// perRequest limits the changes of a request, because the socket holds the answers.
const perRequest = 32

// send makes changes and calls failed with the index and the error of each that fails.
func send(c *netlink.Conn, changes []netlink.Change, failed func(i int, err error)) error {
	for start := 0; start < len(changes); start += perRequest {
		part := changes[start:min(start+perRequest, len(changes))]
		errs, err := c.Try(part)
		if err != nil {
			return err
		}
		for i, err := range errs {
			if err != nil {
				failed(start+i, err)
			}
		}
	}
	return nil
}
