package testnet

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// settings adds the settings below /proc/sys/net. Each link has about a hundred, and reading them
// is most of the work of a snapshot.
func (s *snapshot) settings(n *Namespace) error {
	r := &settingsReader{snapshot: s, found: map[string][]string{}}
	var err error
	if r.confs, err = confsOf(n); err != nil {
		return err
	}
	if err := n.Run(func() error { return r.directory("/proc/sys/net", "") }); err != nil ||
		len(r.found) == 0 {
		return err
	}
	now, err := confsOf(n)
	for directory, lines := range r.found {
		if now[directory] == r.confs[directory] { // the lines belong to these values
			known.Store(r.key(directory), lines)
		}
	}
	return err
}

// known caches settings by the values of a link: only the first link with these values is read
// completely.
var known sync.Map

type settingsReader struct {
	*snapshot
	confs map[string]string   // see confsOf
	found map[string][]string // by directory of a link: settings that were not known
	buf   [4096]byte          // larger than any setting
}

// key returns the key of a directory's settings among the known ones.
func (r *settingsReader) key(directory string) string {
	family, _, _ := strings.Cut(directory, "/")
	return family + r.confs[directory]
}

// apart are the settings of a link that its values do not include.
var apart = []string{"ra_honor_pio_life", "ra_honor_pio_pflag", "regen_min_advance",
	"stable_secret"}

// confsOf returns the values of each directory, such as ipv4/conf/eth0, as the kernel sends them:
// the settings of a link for an address family.
func confsOf(n *Namespace) (map[string]string, error) {
	confs := map[string]string{}
	err := dump(n, unix.NETLINK_ROUTE, unix.RTM_GETLINK, netlink.Body(unix.IfInfomsg{}),
		func(payload []byte) error {
			return addConfs(confs, payload)
		})
	if err != nil {
		return nil, fmt.Errorf("in %s: links: %w", n.Name, err)
	}
	return confs, nil
}

func addConfs(confs map[string]string, payload []byte) error {
	attributes, err := netlink.ReadBody(payload, new(unix.IfInfomsg))
	name, values := "", map[string]string{}
	for kind, value := range netlink.Attributes(attributes) {
		switch kind {
		case unix.IFLA_IFNAME:
			name = netlink.Text(value)
		case unix.IFLA_AF_SPEC:
			for family, inside := range netlink.Attributes(value) {
				for kind, value := range netlink.Attributes(inside) {
					switch {
					case family == unix.AF_INET && kind == unix.IFLA_INET_CONF:
						values["ipv4"] += string(value)
					case family == unix.AF_INET6 &&
						(kind == unix.IFLA_INET6_CONF || kind == unix.IFLA_INET6_ADDR_GEN_MODE):
						values["ipv6"] += string(value)
					}
				}
			}
		}
	}
	for family, v := range values {
		confs[family+"/conf/"+name] = v
	}
	return err
}

// directory adds the settings in a directory.
func (r *settingsReader) directory(path, prefix string) error {
	conf := strings.TrimSuffix(prefix, "/")
	_, isLink := r.confs[conf]
	if isLink {
		if lines, ok := known.Load(r.key(conf)); ok {
			r.addAll(prefix, lines.([]string))
			for _, name := range apart {
				if value, err := r.read(unix.AT_FDCWD, path+"/"+name); err == nil {
					r.add("sysctl %s%s = %s", prefix, name, value)
				}
			}
			return nil
		}
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		name := e.Name()
		switch family, table, _ := strings.Cut(prefix, "/"); {
		case e.IsDir() && table == "neigh/" && r.confs[family+"/conf/"+name] != "":
		case e.IsDir():
			if err := r.directory(path+"/"+name, prefix+name+"/"); err != nil {
				return err
			}
		case strings.HasPrefix(name, "nf_conntrack_count"):
		default:
			if value, err := r.read(int(dir.Fd()), name); err == nil { // some can only be written
				lines = append(lines, name+" = "+value)
			}
		}
	}
	r.addAll(prefix, lines)
	if isLink {
		r.found[conf] = slices.DeleteFunc(lines, func(line string) bool {
			name, _, _ := strings.Cut(line, " ")
			return slices.Contains(apart, name)
		})
	}
	return nil
}

func (r *settingsReader) addAll(prefix string, lines []string) {
	for _, line := range lines {
		r.add("sysctl %s%s", prefix, line)
	}
}

// read needs a third of the system calls of os.ReadFile, and looks up the name in an open
// directory.
func (r *settingsReader) read(at int, name string) (string, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	n, err := unix.Read(fd, r.buf[:])
	unix.Close(fd)
	return string(bytes.TrimSpace(r.buf[:max(n, 0)])), err
}
