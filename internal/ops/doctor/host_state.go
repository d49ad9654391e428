package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/firewalld"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netns"
)

// Node is what the checks of the host need in addition to the state of its networking. Each part
// has its own source; the ones that could not be read are in [State.Missing].
type Node struct {
	Lacking    []Lacking        `json:"lacking"`    // kernel features that networks need
	Inotify    []InotifyUser    `json:"inotify"`    // by UID
	Conntrack  map[string]int64 `json:"conntrack"`  // counters of /proc/net/stat/nf_conntrack
	Neighbours map[string]int64 `json:"neighbours"` // entries of "ipv4" and "ipv6", all namespaces
	Resolver   *Resolver        `json:"resolver"`
	Firewalld  *Firewalld       `json:"firewalld"` // nil if it does not run
	Boot       time.Time        `json:"boot"`
}

// Lacking is a kernel feature that plugins need and the kernel lacks.
type Lacking struct {
	Feature  kernel.Feature `json:"feature"`
	Networks []string       `json:"networks"`
}

// InotifyUser counts the inotify instances and watches of the processes of a user.
type InotifyUser struct {
	UID       int `json:"uid"`
	Instances int `json:"instances"`
	Watches   int `json:"watches"`
}

// Resolver is the content of resolv.conf(5).
type Resolver struct {
	Path        string   `json:"path"` // after symbolic links
	Nameservers []string `json:"nameservers"`
	Search      []string `json:"search,omitzero"`
	// Upstream reports that systemd-resolved offers its servers in another file.
	Upstream bool `json:"upstream,omitzero"`
}

// Firewalld is the state of firewalld.
type Firewalld struct {
	Zones   map[string]firewalld.Zone `json:"zones"` // active ones
	Default string                    `json:"default"`
}

// Names of parts in [State.Missing].
const (
	partPrivilege  = "privileges"
	partNFT        = "nftables"
	partFeatures   = "kernel features"
	partInotify    = "inotify instances"
	partConntrack  = "conntrack counters"
	partNeighbours = "neighbour tables"
	partResolver   = "resolv.conf"
	partFirewalld  = "firewalld"
	partBoot       = "boot time"
)

// readNode reads the parts of Node side by side. own is the namespace of the caller.
func (s *State) readNode(ctx context.Context, own *netns.NS) {
	n := &s.Node
	if err := privileges(); err != nil {
		s.miss(partPrivilege, err.Error())
	}
	var running sync.WaitGroup
	for _, read := range []func(){
		func() { n.Lacking = source(ctx, s, partFeatures, within(own.Run, s.lacking)) },
		func() { n.Inotify = source(ctx, s, partInotify, inotifyUsers) },
		func() { n.Conntrack = source(ctx, s, partConntrack, within(own.Visit, trackingCounters)) },
		func() {
			n.Neighbours = source(ctx, s, partNeighbours, within(own.Visit, neighbourEntries))
		},
		func() { n.Resolver = source(ctx, s, partResolver, readResolver) },
		func() { n.Firewalld = source(ctx, s, partFirewalld, readFirewalld) },
		func() { n.Boot = source(ctx, s, partBoot, bootTime) },
	} {
		running.Go(read)
	}
	running.Wait()
}

// within returns a function that reads in a namespace: enter is [netns.NS.Run] or [netns.NS.Visit].
func within[T any](
	enter func(func() error) error, read func() (T, error),
) func(context.Context) (T, error) {
	return func(context.Context) (value T, err error) {
		err = enter(func() (err error) {
			value, err = read()
			return err
		})
		return value, err
	}
}

func trackingCounters() (map[string]int64, error) { return statistics("nf_conntrack") }

// privileges returns an error if the caller lacks a capability without which the kernel hides
// objects or namespaces.
func privileges() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for _, c := range []struct {
		bit  int
		name string
	}{{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}, {unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}} {
		if data[0].Effective&(1<<c.bit) == 0 {
			return fmt.Errorf("needs %s: run as root", c.name)
		}
	}
	return nil
}

// lacking asks the kernel for the features that the plugins of networks need. It changes nothing,
// but the kernel may load a module.
func (s *State) lacking() (list []Lacking, err error) {
	needed := map[kernel.Feature][]string{}
	for _, n := range s.Networks {
		for _, f := range n.features() {
			if !slices.Contains(needed[f], n.Name) {
				needed[f] = append(needed[f], n.Name)
			}
		}
	}
	for f, names := range needed {
		missing, err := kernel.Missing(f)
		if err != nil {
			return nil, err
		}
		if len(missing) > 0 {
			list = append(list, Lacking{f, names})
		}
	}
	slices.SortFunc(
		list,
		func(a, b Lacking) int { return strings.Compare(string(a.Feature), string(b.Feature)) },
	)
	return list, nil
}

// kinds are the kernel features that a type of plugin always needs.
var kinds = map[string][]kernel.Feature{
	"bridge": {kernel.FeatureVeth, kernel.FeatureBridge}, "ptp": {kernel.FeatureVeth},
	"macvlan": {
		kernel.FeatureMacvlan,
	}, "ipvlan": {kernel.FeatureIPvlan}, "vlan": {kernel.FeatureVLAN},
	"dummy": {kernel.FeatureDummy}, "vrf": {kernel.FeatureVRF}, "tap": {kernel.FeatureTun},
	"sbr": {kernel.FeaturePolicyRules}, "bandwidth": {kernel.FeatureIFB, kernel.FeatureShaping},
}

// features returns the kernel features that the plugins of a network need.
func (n Network) features() (list []kernel.Feature) {
	for _, p := range n.Plugins {
		list = append(list, kinds[p.Type]...)
		var c struct {
			VLAN        int               `json:"vlan"`
			VLANTrunk   []json.RawMessage `json:"vlanTrunk"`
			MACSpoofChk bool              `json:"macspoofchk"`
			IPMasq      bool              `json:"ipMasq"`
			Backend     string            `json:"ipMasqBackend"`
		}
		if json.Unmarshal(p.Conf, &c) != nil {
			continue
		}
		if p.Type == "bridge" && (c.VLAN != 0 || len(c.VLANTrunk) > 0) {
			list = append(list, kernel.FeatureVLANFiltering)
		}
		if c.MACSpoofChk || c.IPMasq && c.Backend != "iptables" {
			list = append(list, kernel.FeatureNFT)
		}
	}
	if slices.ContainsFunc(n.subnets(), isIPv6) {
		list = append(list, kernel.FeatureIPv6)
	}
	return list
}

// inotifyUsers counts the inotify instances of the processes of each user. An instance that two
// processes share counts twice.
func inotifyUsers(ctx context.Context) (list []InotifyUser, err error) {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	users := map[int]*InotifyUser{}
	var denied error
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		dir := "/proc/" + p.Name()
		files, err := os.ReadDir(dir + "/fd")
		if errors.Is(err, fs.ErrPermission) {
			denied = errors.New("needs CAP_SYS_PTRACE to see the files of other users")
		}
		if err != nil {
			continue // a process that has ended
		}
		for _, f := range files {
			if to, _ := os.Readlink(dir + "/fd/" + f.Name()); to != "anon_inode:inotify" {
				continue
			}
			uid := ownerOf(dir)
			u := users[uid]
			if u == nil {
				u = &InotifyUser{UID: uid}
				users[uid] = u
			}
			u.Instances++
			info, _ := os.ReadFile(dir + "/fdinfo/" + f.Name()) // a process may have closed it
			u.Watches += strings.Count(string(info), "inotify wd:")
		}
	}
	for _, u := range users {
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b InotifyUser) int { return a.UID - b.UID })
	return list, denied
}

// ownerOf returns the real UID of a process, -1 if it has ended.
func ownerOf(dir string) int {
	b, _ := os.ReadFile(dir + "/status")
	for line := range strings.Lines(string(b)) {
		if uids, ok := strings.CutPrefix(line, "Uid:"); ok {
			if f := strings.Fields(uids); len(f) > 0 {
				if uid, err := strconv.Atoi(f[0]); err == nil {
					return uid
				}
			}
		}
	}
	return -1
}

// statistics adds up the counters of all processors in a file of /proc/net/stat. The counter
// "entries" is of the table, the same on each line. It returns nil if there is no such file.
func statistics(name string) (map[string]int64, error) {
	b, err := os.ReadFile("/proc/thread-self/net/stat/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	names := strings.Fields(lines[0])
	sums := map[string]int64{}
	for i, line := range lines[1:] {
		for k, field := range strings.Fields(line) {
			v, err := strconv.ParseInt(field, 16, 64)
			if err != nil || k >= len(names) {
				return nil, fmt.Errorf("/proc/net/stat/%s: unexpected %q", name, field)
			}
			if names[k] != "entries" || i == 0 {
				sums[names[k]] += v
			}
		}
	}
	return sums, nil
}

// neighbourFiles are the names of neighbour tables in /proc/net/stat.
var neighbourFiles = map[string]string{"ipv4": "arp_cache", "ipv6": "ndisc_cache"}

// neighbourEntries returns the entries of the neighbour tables. Only the first namespace of a host
// has these files; in others the map is empty.
func neighbourEntries() (map[string]int64, error) {
	entries := map[string]int64{}
	for family, file := range neighbourFiles {
		sums, err := statistics(file)
		if err != nil {
			return nil, err
		}
		if sums != nil {
			entries[family] = sums["entries"]
		}
	}
	return entries, nil
}

// resolvConf is the file that container runtimes copy into containers.
const resolvConf = "/etc/resolv.conf"

// resolvedConf lists the servers that systemd-resolved asks (systemd-resolved.service(8)).
const resolvedConf = "/run/systemd/resolve/resolv.conf"

func readResolver(context.Context) (*Resolver, error) {
	b, err := os.ReadFile(resolvConf)
	if errors.Is(err, fs.ErrNotExist) {
		return &Resolver{Path: resolvConf}, nil
	}
	if err != nil {
		return nil, err
	}
	r := parseResolver(string(b))
	r.Path = resolvConf
	if to, err := filepath.EvalSymlinks(resolvConf); err == nil {
		r.Path = to
	}
	r.Upstream = exists(resolvedConf)
	return r, nil
}

// parseResolver reads the lines of resolv.conf(5). The last "search" or "domain" counts.
func parseResolver(text string) *Resolver {
	r := &Resolver{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) < 2:
		case f[0] == "nameserver":
			r.Nameservers = append(r.Nameservers, f[1])
		case f[0] == "search" || f[0] == "domain":
			r.Search = f[1:]
		}
	}
	return r
}

// busSocket is the default address of the system bus.
const busSocket = "/run/dbus/system_bus_socket"

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readFirewalld asks firewalld for its zones. Without a system bus, firewalld cannot run.
func readFirewalld(ctx context.Context) (*Firewalld, error) {
	c, err := firewalld.Open(ctx)
	if errors.Is(err, fs.ErrNotExist) || err != nil && !exists(busSocket) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if running, err := c.Running(ctx); !running || err != nil {
		return nil, err
	}
	f := &Firewalld{}
	f.Zones, f.Default, err = c.Zones(ctx)
	return f, err
}

// bootTime reads the time at which the kernel started (proc_stat(5)).
func bootTime(context.Context) (t time.Time, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t, err
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "btime "); ok {
			seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return time.Unix(seconds, 0).UTC(), err
		}
	}
	return t, errors.New("/proc/stat has no btime")
}
