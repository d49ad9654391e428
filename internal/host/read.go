package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// Options select what Read reads beside the namespace of the caller.
type Options struct {
	// Paths are paths of namespaces, for example of attachments. Read ignores other paths.
	Paths []string
	// OnlyPaths leaves out namespaces that only processes and other mounts lead to.
	OnlyPaths bool
}

// Read reads the state of this host, several namespaces at a time. The error is about the namespace
// of the caller; the result lists other failures in Skipped.
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
	n = Namespace{ID: p.id, Paths: p.paths, PIDs: p.pids}
	conn, err := netlink.Open(p.ns)
	if err != nil {
		return n, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	r := &reader{conn}
	for _, step := range []struct {
		what string
		read func() error
	}{
		{"links", func() (err error) { n.Links, err = r.links(); return err }},
		{"addresses", func() (err error) { n.Addrs, err = r.addresses(); return err }},
		{"routes", func() (err error) { n.Routes, err = r.routes(); return err }},
		{"rules", func() (err error) { n.Rules, err = r.rules(); return err }},
		{"neighbours", func() (err error) { n.Neighbours, err = r.neighbours(); return err }},
		{"forwarding database", func() (err error) { n.Forwarding, err = r.forwarding(); return err }},
		{"nftables", func() (err error) { n.Ruleset, err = ruleset(p.ns); return err }},
		{"identifiers", func() (err error) { n.Peers, err = r.peers(n.Links, d.list); return err }},
	} {
		if err := step.read(); err != nil {
			return n, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	err = p.ns.Visit(func() (err error) {
		n.Settings = readSettings(namespaceSettings, n.Links)
		n.Listeners, err = listeners()
		return err
	})
	return n, err
}

// ruleset lists what nftables and legacy iptables have in a namespace.
func ruleset(ns *netns.NS) (*nftmsg.Ruleset, error) {
	conn, err := nftmsg.Open(ns)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return new(nftmsg.Ruleset), nil // a kernel without netfilter sockets
	}
	if err != nil {
		return nil, err
	}
	r, err := conn.List()
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
	list []*place // the first is the caller's
	byID map[string]*place
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
	d := &discovery{byID: map[string]*place{}}
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

// namespaceSettings are the sysctls of a namespace that decide about packets. A * stands for "all",
// "default" and each link.
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

// readSettings reads sysctls in the namespace of the thread. Those that the kernel lacks are absent.
func readSettings(names []string, links []Link) map[string]string {
	values := map[string]string{}
	set := func(name, path string) {
		if b, err := os.ReadFile("/proc/sys/" + path); err == nil {
			values[name] = strings.Join(strings.Fields(string(b)), " ")
		}
	}
	for _, name := range names {
		before, after, each := strings.Cut(name, "*")
		if !each {
			set(name, strings.ReplaceAll(name, ".", "/"))
			continue
		}
		for _, link := range append([]string{"all", "default"}, linkNames(links)...) {
			set(before+link+after, strings.ReplaceAll(before, ".", "/")+link+strings.ReplaceAll(after, ".", "/"))
		}
	}
	return values
}

func linkNames(links []Link) (list []string) {
	for _, l := range links {
		list = append(list, l.Name)
	}
	return list
}
