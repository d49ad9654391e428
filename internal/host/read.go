package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/iptables/legacy"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Options select the namespaces that Read reads in addition to the namespace of the caller.
type Options struct {
	// Paths are paths of namespaces, for example of attachments. Read ignores other paths.
	Paths []string
	// OnlyPaths leaves out namespaces that only processes and other mounts lead to.
	OnlyPaths bool
	// Partial notes parts of a namespace that the caller may not read in [Namespace.Missing], instead
	// of failing.
	Partial bool
	// Brief reads only links, addresses and routes of other namespaces than the caller's, and in that
	// one neither neighbours nor the sysctls of links. These take most of the time on a host with many
	// namespaces: each sysctl is a file.
	Brief bool
	// AllSettings reads all sysctls of the network in each namespace, not only the ones that decide
	// about packets. In the first namespace, rtnetlink lists the sysctls of links, but not all.
	AllSettings bool
	// Chains, if it is not 0, is the number of chains of nftables above which Read leaves out rules,
	// because listing all of them takes seconds. The ruleset then reads the rules of a chain when
	// they are asked for.
	Chains int
	// Files makes repeated calls with AllSettings faster; nil opens the files each time.
	Files *SettingFiles
}

// Read reads the state of this host, several namespaces at a time, without listeners. The error is
// about the namespace of the caller; the result lists other failures in Skipped.
func Read(ctx context.Context, o Options) (*Host, error) {
	h := &Host{Version: Version, Time: time.Now().UTC(), Settings: readSettings(hostSettings, nil)}
	h.Name, _ = os.Hostname() // only a title
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if id, err := statefile.BootID(); err == nil {
		h.BootID = id
	} else {
		h.skip("boot ID", err)
	}
	found, err := discover(o)
	if err != nil {
		return nil, err
	}
	defer found.close()
	if h.Namespaces, err = h.readAll(ctx, found); err != nil {
		return nil, err
	}
	return h, nil
}

// ReadNamespace reads the state of the namespace at a path only, without listeners. Its peers are
// those in the namespace of the caller.
func ReadNamespace(path string, o Options) (*Namespace, error) {
	o.Paths, o.OnlyPaths = []string{path}, true
	found, err := discover(o)
	if err != nil {
		return nil, err
	}
	defer found.close()
	p := found.open(path)
	if p == nil {
		return nil, fmt.Errorf("network namespace %s: %w", path, fs.ErrNotExist)
	}
	n, err := found.read(p)
	return &n, err
}

func (h *Host) skip(what string, err error) {
	h.Skipped = append(h.Skipped, Skipped{what, err.Error()})
}

// readAll reads namespaces, the first one first, because its error ends the run.
func (h *Host) readAll(ctx context.Context, found *discovery) ([]Namespace, error) {
	list := make([]Namespace, len(found.list))
	errs := make([]error, len(found.list))
	list[0], errs[0] = found.read(found.list[0])
	if errs[0] != nil {
		return nil, errs[0]
	}
	limit := make(chan struct{}, runtime.GOMAXPROCS(0))
	var running sync.WaitGroup
	for i := 1; i < len(list); i++ {
		limit <- struct{}{}
		running.Go(func() {
			defer func() { <-limit }()
			if errs[i] = ctx.Err(); errs[i] == nil {
				list[i], errs[i] = found.read(found.list[i])
			}
		})
	}
	running.Wait()
	kept := list[:0]
	for i, n := range list {
		if errs[i] != nil {
			h.skip("namespace "+found.list[i].title(), errs[i])
			continue
		}
		kept = append(kept, n)
	}
	return kept, nil
}

// reader reads one namespace.
type reader struct{ conn *netlink.Conn }

func (d *discovery) read(p *place) (n Namespace, err error) {
	n = Namespace{ID: p.id, Paths: p.paths, PIDs: p.pids, Ruleset: new(nftmsg.Ruleset)}
	conn, err := netlink.Open(p.ns)
	if err != nil {
		return n, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	r := &reader{conn}
	for _, part := range []struct {
		what  string
		brief extent
		read  func() error
	}{
		{"links", everywhere, func() (err error) { n.Links, err = r.links(); return err }},
		{"filters of tc", nowhere, func() error { return r.filters(p.ns, n.Links) }},
		{"policies of IPsec", nowhere, func() (err error) { n.Policies, err = policies(p.ns); return err }},
		{"addresses", everywhere, func() (err error) { n.Addrs, err = r.addresses(); return err }},
		{"routes", everywhere, func() (err error) { n.Routes, err = r.routes(); return err }},
		{"rules", hostOnly, func() (err error) { n.Rules, err = r.rules(); return err }},
		{"neighbours", nowhere, func() (err error) { n.Neighbours, err = r.neighbours(); return err }},
		{"forwarding database", nowhere, func() (err error) { n.Forwarding, err = r.forwarding(); return err }},
		{"nftables", hostOnly, func() error { return n.readRules(p.ns, cmp.Or(d.options.Chains, math.MaxInt)) }},
		{"identifiers", everywhere, func() (err error) { n.Peers, err = r.peers(n.Links, d.list); return err }},
		{"settings", hostOnly, func() error {
			if d.options.AllSettings {
				return r.allSettings(&n, p.ns, p == d.list[0], d.options.Files)
			}
			return d.options.inside(&n, p.ns)
		}},
	} {
		if d.options.Brief && (part.brief == nowhere || part.brief == hostOnly && p != d.list[0]) {
			continue
		}
		err := part.read()
		if d.options.Partial && errors.Is(err, fs.ErrPermission) {
			n.Missing = append(n.Missing, Skipped{part.what, err.Error()})
		} else if err != nil {
			return n, fmt.Errorf("%s: %w", part.what, err)
		}
	}
	return n, nil
}

// extent says for which namespaces [Options.Brief] reads a part.
type extent int

const (
	nowhere  extent = iota
	hostOnly        // the namespace of the caller
	everywhere
)

// inside reads files that depend on the namespace of the thread.
func (o Options) inside(n *Namespace, ns *netns.NS) error {
	return ns.Visit(func() error {
		var links []string
		if !o.Brief {
			links = linkNames(n.Links)
		}
		n.Settings = readSettings(namespaceSettings, links)
		return nil
	})
}

func (n *Namespace) readRules(ns *netns.NS, chains int) error {
	r, err := ruleset(ns, chains)
	if err != nil {
		return err
	}
	if n.Ruleset = r; r.Partial {
		at := Namespace{ID: n.ID, Paths: n.Paths, PIDs: n.PIDs}
		r.Rest = func(t nftmsg.Table, chain string) ([]nftmsg.ListedRule, error) {
			return at.chain(t, chain, r.Generation)
		}
	}
	return nil
}

// chain reads the rules of a chain of nftables in a generation of the ruleset.
func (n *Namespace) chain(
	t nftmsg.Table, name string, generation uint32,
) (list []nftmsg.ListedRule, err error) {
	ns, err := n.Open()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	conn, err := nftmsg.Open(ns)
	if err != nil {
		return nil, err
	}
	list, err = conn.ListChain(t, name, generation)
	return list, errors.Join(err, conn.Close())
}

// ruleset lists what nftables and legacy iptables have in a namespace.
func ruleset(ns *netns.NS, chains int) (*nftmsg.Ruleset, error) {
	conn, err := nftmsg.Open(ns)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return new(nftmsg.Ruleset), nil // a kernel without netfilter sockets
	}
	if err != nil {
		return nil, err
	}
	r, err := conn.ListPart(chains)
	if err = errors.Join(err, conn.Close()); err != nil {
		return nil, err
	}
	return r, legacy.Append(ns, r)
}

// peers returns the identifiers of other namespaces to which links lead. It asks about one place
// after the other, the host's own first, until all identifiers are known.
func (r *reader) peers(links []Link, places []*place) (known []Peer, err error) {
	wanted := map[int]bool{}
	for _, l := range links {
		if l.LowerNSID != nil && *l.LowerNSID >= 0 {
			wanted[*l.LowerNSID] = true
		}
	}
	for _, p := range places {
		if len(wanted) == 0 {
			break
		}
		id, ok, err := r.conn.Identifier(p.ns)
		if err != nil {
			return known, err
		}
		if ok && wanted[id] {
			known = append(known, Peer{NSID: id, ID: p.id})
			delete(wanted, id)
		}
	}
	return known, nil
}

// discovery holds the namespaces of a host, opened.
type discovery struct {
	list    []*place // the first is the caller's
	byID    map[string]*place
	options Options
}

// place is a namespace and the ways that lead to it.
type place struct {
	ns    *netns.NS
	id    string
	paths []string
	pids  []int
}

func (p *place) title() string {
	switch {
	case len(p.paths) > 0:
		return p.paths[0]
	case len(p.pids) > 0:
		return fmt.Sprintf("of process %d", p.pids[0])
	}
	return p.id
}

func (d *discovery) close() {
	for _, p := range d.list {
		_ = p.ns.Close() // only read
	}
}

// mountDirs hold bind mounts of namespaces: of ip-netns(8), Docker, containerd and CRI-O.
var mountDirs = []string{"/run/netns", "/run/docker/netns"}

// maxPIDs limits the processes that are listed for a namespace.
const maxPIDs = 8

func discover(o Options) (*discovery, error) {
	own, err := netns.Current()
	if err != nil {
		return nil, err
	}
	d := &discovery{byID: map[string]*place{}, options: o}
	d.add(own)
	paths := slices.Clone(o.Paths)
	if !o.OnlyPaths {
		for _, dir := range mountDirs {
			entries, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			for _, e := range entries {
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	for _, path := range paths {
		if p := d.open(path); p != nil && !slices.Contains(p.paths, path) {
			p.paths = append(p.paths, path)
		}
	}
	if !o.OnlyPaths {
		d.processes()
	}
	return d, nil
}

// processes adds the namespaces of processes. One that ends meanwhile is ignored.
func (d *discovery) processes() {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p := d.open(fmt.Sprintf("/proc/%d/ns/net", pid)); p != nil && len(p.pids) < maxPIDs {
			p.pids = append(p.pids, pid)
		}
	}
}

// open returns the namespace at a path, nil if there is none.
func (d *discovery) open(path string) *place {
	var st unix.Stat_t
	if unix.Stat(path, &st) == nil {
		if p := d.byID[idOf(netns.ID{Dev: st.Dev, Inode: st.Ino})]; p != nil {
			return p
		}
	}
	ns, err := netns.Open(path)
	if err != nil {
		return nil
	}
	return d.add(ns)
}

func (d *discovery) add(ns *netns.NS) *place {
	id := idOf(ns.ID())
	if p := d.byID[id]; p != nil {
		_ = ns.Close() // a second handle
		return p
	}
	p := &place{ns: ns, id: id}
	d.byID[id], d.list = p, append(d.list, p)
	return p
}

func idOf(id netns.ID) string { return fmt.Sprintf("%d:%d", id.Dev, id.Inode) }

// hostSettings are the sysctls that all namespaces share, and the state of tables that they share.
var hostSettings = []string{
	"fs.inotify.max_user_instances", "fs.inotify.max_user_watches", "fs.file-max", "fs.file-nr",
	"kernel.pid_max", "net.netfilter.nf_conntrack_buckets",
	"net.ipv4.neigh.default.gc_thresh1", "net.ipv4.neigh.default.gc_thresh2",
	"net.ipv4.neigh.default.gc_thresh3", "net.ipv6.neigh.default.gc_thresh1",
	"net.ipv6.neigh.default.gc_thresh2", "net.ipv6.neigh.default.gc_thresh3",
}

// namespaceSettings are the sysctls of a namespace that decide about packets. A * stands for "all"
// and each link except lo.
var namespaceSettings = []string{
	"net.ipv4.ip_forward", "net.ipv6.conf.*.forwarding", "net.ipv6.conf.*.disable_ipv6",
	"net.ipv6.conf.*.accept_ra", "net.ipv6.conf.*.accept_dad", "net.ipv4.conf.*.forwarding",
	"net.ipv4.conf.*.rp_filter", "net.ipv4.conf.*.route_localnet", "net.ipv4.conf.*.proxy_arp",
	"net.ipv4.conf.*.arp_ignore", "net.ipv4.conf.*.arp_filter",
	"net.ipv4.ip_local_port_range", "net.ipv4.ip_no_pmtu_disc", "net.ipv4.ip_forward_use_pmtu",
	"net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables",
	"net.bridge.bridge-nf-call-arptables",
	"net.netfilter.nf_conntrack_max", "net.netfilter.nf_conntrack_count",
	"net.netfilter.nf_conntrack_tcp_be_liberal",
}

// readSettings reads sysctls in the namespace of the thread. Those that the kernel lacks are
// absent.
func readSettings(names, links []string) map[string]string {
	values := map[string]string{}
	d := directories{}
	defer d.close()
	set := func(name, path string) {
		if text, ok := d.read(path); ok {
			values[name] = strings.Join(strings.Fields(text), " ")
		}
	}
	for _, name := range names {
		before, after, each := strings.Cut(name, "*")
		if !each {
			set(name, strings.ReplaceAll(name, ".", "/"))
			continue
		}
		for _, link := range append([]string{"all"}, links...) {
			path := strings.ReplaceAll(before, ".", "/") + link + strings.ReplaceAll(after, ".", "/")
			set(before+link+after, path)
		}
	}
	return values
}

// directories are open directories below /proc/sys by path, -1 if one does not exist. To find a name
// in /proc/sys/net, the kernel compares it with the ones of all namespaces, which takes most of the
// time; below net/ipv4 and its siblings, each namespace has its own directories.
type directories map[string]int

// read returns the first 4 KiB of a file below /proc/sys.
func (d directories) read(path string) (text string, ok bool) {
	dir, name, _ := strings.Cut(path, "/")
	if part, rest, deeper := strings.Cut(name, "/"); deeper {
		dir, name = dir+"/"+part, rest
	}
	at, known := d[dir]
	if !known {
		var err error
		const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
		if at, err = unix.Open("/proc/sys/"+dir, flags, 0); err != nil {
			at = -1
		}
		d[dir] = at
	}
	if at < 0 {
		return "", false
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	return string(b[:max(n, 0)]), err == nil
}

func (d directories) close() {
	for _, fd := range d {
		if fd >= 0 {
			_ = unix.Close(fd) // only read
		}
	}
}

// linkNames returns the names of links except lo. Each file costs time in proportion to the number
// of namespaces, because the kernel compares the names of all of them.
func linkNames(links []Link) (list []string) {
	for _, l := range links {
		if l.Name != "lo" {
			list = append(list, l.Name)
		}
	}
	return list
}
