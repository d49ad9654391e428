package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/plural"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

// Pool is what host-local has reserved for a network in a data directory, in the files that the
// upstream plugin uses too.
type Pool struct {
	Network string     `json:"network"`
	Dir     string     `json:"dir"` // without the network
	Sets    []RangeSet `json:"sets,omitzero"`
	Leases  []Lease    `json:"leases,omitzero"`

	pool hostlocal.Pool // for fixes
}

// RangeSet is a range set of a pool. A container gets an address of each set.
type RangeSet struct {
	Text string `json:"text"` // its subnets
	Size uint64 `json:"size"` // addresses for containers; 2^64-1 means that many or more
	Used uint64 `json:"used"`
}

// Lease is a reserved address.
type Lease struct {
	Addr      netip.Addr    `json:"address"`
	Container string        `json:"container"`
	IfName    string        `json:"ifname,omitzero"` // "" in files of old versions
	Age       time.Duration `json:"age"`             // nanoseconds
	Boot      ipam.Boot     `json:"boot"`

	lease ipam.Lease
}

// readPools reads the reservations of the configured and recorded networks, and of all others in
// their directories and in the default one.
func (s *State) readPools(ctx context.Context) (list []Pool, err error) {
	var lists []*cni.List
	for _, n := range s.Networks {
		if n.list != nil {
			lists = append(lists, n.list)
		}
	}
	pools, err := hostlocal.PeekPools(ctx, lists, hostlocal.DefaultDataDir)
	for _, p := range pools {
		list = append(list, newPool(p))
	}
	return list, err
}

func newPool(p hostlocal.Pool) Pool {
	out := Pool{Network: p.Network, Dir: p.Dir, pool: p}
	for _, r := range p.Ranges {
		if r.Set == len(out.Sets) {
			out.Sets = append(out.Sets, RangeSet{})
		}
		set := &out.Sets[r.Set]
		size := r.Size()
		if r.Contains(r.Gateway) {
			size--
		}
		if set.Text != "" {
			set.Text += ", "
		}
		set.Text += r.Subnet.String()
		set.Used += r.Used
		if set.Size += size; set.Size < size { // more than 2^64
			set.Size = ^uint64(0)
		}
	}
	for _, l := range p.Leases {
		out.Leases = append(
			out.Leases,
			Lease{l.Addr, l.Owner.Container, l.Owner.IfName, l.Age, l.Boot, l},
		)
	}
	return out
}

func addressChecks() []Check {
	return []Check{
		{
			ID:    "addresses.pools",
			Title: "pools that are full, or nearly",
			Run:   privileged(checkPools),
		},
		{
			ID:    "addresses.leaked",
			Title: "reserved addresses without an attachment",
			Run:   privileged(checkLeaked),
		},
		{ID: "addresses.duplicate", Title: "addresses that several containers have",
			Run: privileged(checkDuplicates)},
	}
}

// almost is the use of a pool that is a warning, in percent.
const almost = 90

func checkPools(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partPools); err != nil {
		return nil, err
	}
	for _, p := range s.CNI.Pools {
		for _, set := range p.Sets {
			if set.Size == 0 || set.Used < set.Size/100*almost+set.Size%100*almost/100 {
				continue
			}
			f := Finding{
				ID:       "addresses.pool-nearly-full",
				Severity: Warning,
				Affects:  []string{p.Network},
				Title: fmt.Sprintf(
					"pool %s of network %s is nearly full: %d of %d",
					set.Text,
					p.Network,
					set.Used,
					set.Size,
				),
				Text: "ADD fails when no address is left.",
				Evidence: []Evidence{
					{
						"tenon ipam list " + p.Network,
						fmt.Sprintf("%d of %d addresses reserved", set.Used, set.Size),
					},
				},
				Fix: []Fix{{Command: "tenon ipam list " + p.Network,
					Effect: "shows the holders; add a range to the configuration if all are in use"}},
			}
			if set.Used >= set.Size {
				f.ID, f.Severity = "addresses.pool-full", Error
				f.Title = fmt.Sprintf(
					"pool %s of network %s is full: %d of %d",
					set.Text,
					p.Network,
					set.Used,
					set.Size,
				)
				f.Text = "ADD fails with code 11 until an address is released."
			}
			if leaked, _ := s.leaked(p); len(leaked) > 0 {
				f.Text += fmt.Sprintf(" %s belong to no attachment.",
					plural.Count(len(leaked), "address"))
				f.Fix = []Fix{releaseCommand(p), f.Fix[0]}
			}
			list = append(list, f)
		}
	}
	return list, nil
}

func releaseCommand(p Pool) Fix {
	return Fix{Command: "tenon doctor addresses.leaked --fix",
		Effect: fmt.Sprintf("releases the leaked addresses of network %s", p.Network)}
}

// leaseTime is the age at which a reservation without a record counts as leaked. An ADD that is in
// progress has a reservation, and libcni writes its file only after ADD.
const leaseTime = time.Minute

// leaked returns the leases of a pool for which there are two proofs that nothing uses them: no
// runtime has recorded their holder, and no namespace has their address. young is the number of
// leases that may belong to an ADD in progress.
func (s *State) leaked(p Pool) (list []Lease, young int) {
	inUse := map[netip.Addr]bool{}
	for _, n := range s.Host.Namespaces {
		for _, a := range n.Addrs {
			inUse[a.Prefix.Addr()] = true
		}
	}
	held := s.holders()
	for _, l := range p.Leases {
		switch {
		case inUse[l.Addr], held[[3]string{p.Network, l.Container, l.IfName}],
			held[[3]string{p.Network, l.Container}] && l.IfName == "":
		case l.Age < leaseTime:
			young++
		default:
			list = append(list, l)
		}
	}
	return list, young
}

// holders are the network, container and interface of all recorded attachments, and the network and
// container.
func (s *State) holders() map[[3]string]bool {
	held := map[[3]string]bool{}
	add := func(a cni.Attachment) {
		held[[3]string{a.Network, a.Container, a.IfName}] = true
		held[[3]string{a.Network, a.Container}] = true
	}
	for _, r := range s.Records {
		add(r.Attachment)
	}
	return held
}

func checkLeaked(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.knowsHolders(partPools); err != nil {
		return nil, err
	}
	for _, p := range s.CNI.Pools {
		leaked, young := s.leaked(p)
		f := Finding{ID: "addresses.leaked", Severity: Warning, Affects: []string{p.Network},
			Evidence: []Evidence{{"tenon ipam list " + p.Network, ""}}}
		switch {
		case len(leaked) > 0:
			oldest := slices.MaxFunc(
				leaked,
				func(a, b Lease) int { return int(a.Age/1e9) - int(b.Age/1e9) },
			)
			f.Title = fmt.Sprintf("%s of network %s %s to no attachment (oldest %s)",
				plural.Count(len(leaked), "address"), p.Network, belong(len(leaked)),
				ipam.FormatAge(oldest.Age))
			f.Text = fmt.Sprintf(
				"Their holders have no attachment record, and no namespace has the "+
					"addresses: %s.",
				names(holdersOf(leaked)),
			)
			f.Evidence = append(f.Evidence, Evidence{"cat " + filepath.Join(p.Dir, p.Network,
				oldest.Addr.String()), oldest.Container})
			f.Fix = []Fix{s.release(p, leaked)}
		case young > 0:
			f.Severity = Info
			f.Title = fmt.Sprintf("%s of network %s %s to no attachment, and are younger than %v",
				plural.Count(young, "address"), p.Network, belong(young), leaseTime)
			f.Text = "An ADD in progress has such a reservation. Otherwise they are leaked."
			f.Fix = []Fix{
				{Command: "tenon doctor addresses.leaked", Effect: "once more, in a minute"},
			}
		default:
			continue
		}
		list = append(list, f)
	}
	return list, nil
}

func belong(n int) string {
	if n == 1 {
		return "belongs"
	}
	return "belong"
}

func holdersOf(list []Lease) (containers []string) {
	for _, l := range list {
		containers = append(containers, l.Container)
	}
	return containers
}

// knowsHolders returns an error unless the parts, and all attachments and namespaces of the host,
// were read: without them, an object in use could look ownerless.
func (s *State) knowsHolders(parts ...string) error {
	if err := s.needs(append(parts, partAttachments)...); err != nil {
		return err
	}
	switch {
	case s.Options.CacheDir == "":
		return Skip("attachments of libcni are ignored (--cache-dir is empty)")
	case len(s.Options.Damaged) > 0:
		return Skip("%s cannot be read, and can hold anything", plural.Count(len(s.Options.Damaged),
			"attachment record"))
	}
	for _, x := range s.Host.Skipped {
		return Skip("cannot read %s: %s", x.What, x.Reason)
	}
	return nil
}

// release returns the fix that releases leases. The store refuses to release an address that
// another holder has meanwhile.
func (s *State) release(p Pool, leaked []Lease) Fix {
	return Fix{
		Command: fmt.Sprintf("tenon ipam release %s --network %s", leaked[0].Addr, p.Network) +
			more(len(leaked)),
		Safe:   true,
		Effect: "releases the leaked addresses; keeps all others",
		Apply: func(ctx context.Context) error {
			var errs []error
			for _, l := range leaked {
				errs = append(errs, p.pool.Free(ctx, l.lease))
			}
			return errors.Join(errs...)
		},
	}
}

// more says that a command has to be repeated.
func more(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf("  # and %d more", n-1)
}

// checkDuplicates finds addresses of attachments that another link in the same segment has, too.
func checkDuplicates(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partAttachments); err != nil {
		return nil, err
	}
	holders := map[netip.Addr][]place{}
	for i := range s.Host.Namespaces {
		n := &s.Host.Namespaces[i]
		for _, a := range n.Addrs {
			if link := n.Link(a.Link); a.Scope == "global" && link != nil && link.Kind != "" {
				holders[a.Prefix.Addr()] = append(holders[a.Prefix.Addr()], place{n, link})
			}
		}
	}
	reported := map[netip.Addr]bool{}
	for i, a := range s.CNI.Attachments {
		n := s.namespaceOf(a)
		rec := s.Options.Records[i]
		if n == nil || rec.Result == nil || a.State != inspect.OK {
			continue
		}
		own := place{n, n.LinkByName(a.IfName)}
		for _, ip := range rec.Result.IPs {
			addr := ip.Address.Addr()
			for _, other := range holders[addr] {
				if own.link == nil || other == own || reported[addr] || !s.together(own, other) {
					continue
				}
				reported[addr] = true
				list = append(list, s.duplicate(a, addr, other))
			}
		}
	}
	return list, nil
}

// place is a link in a namespace.
type place struct {
	ns   *host.Namespace
	link *host.Link
}

// together reports whether two links are in the same segment: their devices on the host are ports
// of the same bridge or have the same parent, or one of the links is on the host.
func (s *State) together(a, b place) bool {
	if a.ns == b.ns {
		return false
	}
	if b.ns == s.Host.Own() {
		return true
	}
	nsA, x := s.Host.Peer(a.ns, a.link)
	nsB, y := s.Host.Peer(b.ns, b.link)
	return x != nil && y != nil && nsA == nsB && (x == y || x.Master != 0 && x.Master == y.Master)
}

func (s *State) duplicate(a Attachment, addr netip.Addr, other place) Finding {
	who := s.Name(other.ns)
	command := fmt.Sprintf("ip addr del %s dev %s", addr, other.link.Name)
	for _, x := range other.ns.Of(other.link.Index) {
		if x.Prefix.Addr() == addr {
			command = fmt.Sprintf("ip addr del %s dev %s", x.Prefix, other.link.Name)
		}
	}
	if other.ns != s.Host.Own() && len(other.ns.Paths) > 0 {
		command = fmt.Sprintf("nsenter --net=%s %s", other.ns.Paths[0], command)
	}
	return Finding{ID: "addresses.duplicate", Severity: Error,
		Affects: []string{a.Container, who}, Objects: objects(a),
		Title: fmt.Sprintf(
			"%s is on %s and on %s (%s): packets reach one or the other by turns",
			addr,
			a.Container,
			who,
			other.link.Name,
		),
		Text: fmt.Sprintf("Network %s gave the address to %s. A second IPAM, or a manual change, "+
			"gave it to %s.", a.Network, a.Container, who),
		Evidence: []Evidence{{inside(a, "ip -br addr"), a.IfName + " " + addr.String()}},
		Fix:      []Fix{{Command: command}}}
}
