package replica

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
)

const sysctls = "/proc/sys/net"

// settings copies the sysctls of the namespace that are not about one link.
func (s *space) settings() error {
	var names []string
	err := s.copy.Visit(func() error {
		names = list(sysctls)
		return nil
	})
	if err != nil {
		return err
	}
	return s.equalize(names)
}

// linkSettings copies the sysctls of links, of which rtnetlink lists most. It reads the files of the
// others only outside the first namespace, which can have thousands of links.
func (s *space) linkSettings(first bool) error {
	present, err := listed(s.to)
	if err != nil {
		return err
	}
	err = s.copy.Visit(func() error {
		for _, l := range s.links {
			for setting, value := range netlink.LinkSettings(netlink.Find(l.values, unix.IFLA_AF_SPEC)) {
				path := strings.Replace(setting, "*", l.name, 1)
				if present[path] != value {
					// Settings that only the initial namespace may change differ.
					_ = netns.WriteFile(filepath.Join(sysctls, path), strconv.Itoa(value))
				}
			}
		}
		return nil
	})
	if err != nil || first {
		return err
	}
	return s.otherLinkSettings()
}

// listed returns the sysctls of all links that rtnetlink lists.
func listed(c *netlink.Conn) (map[string]int, error) {
	messages, err := dump(c, unix.RTM_GETLINK, unix.IfInfomsg{}, netlink.Uint32(unix.IFLA_EXT_MASK, skipStats))
	all := map[string]int{}
	for _, m := range messages {
		values, err := netlink.ReadBody(m, &unix.IfInfomsg{})
		if err != nil {
			return nil, err
		}
		name := netlink.Text(netlink.Find(values, unix.IFLA_IFNAME))
		for setting, value := range netlink.LinkSettings(netlink.Find(values, unix.IFLA_AF_SPEC)) {
			all[strings.Replace(setting, "*", name, 1)] = value
		}
	}
	return all, err
}

// otherLinkSettings copies the sysctls of links by their files.
func (s *space) otherLinkSettings() error {
	var names []string
	err := s.copy.Visit(func() error {
		for _, family := range []string{"ipv4", "ipv6"} {
			for _, of := range []string{"conf", "neigh"} {
				for _, l := range s.links {
					names = append(names, list(filepath.Join(sysctls, family, of, l.name))...)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.equalize(names)
}

// equalize writes the values of the source into the files that differ.
func (s *space) equalize(names []string) error {
	wanted, err := values(s.source, names)
	if err != nil {
		return err
	}
	present, err := values(s.copy, names)
	if err != nil {
		return err
	}
	return s.copy.Visit(func() error {
		for i, name := range names {
			if wanted[i] != "" && wanted[i] != present[i] {
				_ = netns.WriteFile(name, wanted[i])
			}
		}
		return nil
	})
}

// list returns the files below a directory that are neither commands nor about one link.
func list(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	parent := filepath.Base(dir)
	for _, e := range entries {
		name := e.Name()
		perLink := (parent == "conf" || parent == "neigh") && name != "all" && name != "default"
		switch {
		case perLink || name == "flush" || name == "stable_secret" || strings.HasSuffix(name, "_count"):
		case e.IsDir():
			names = append(names, list(filepath.Join(dir, name))...)
		default:
			names = append(names, filepath.Join(dir, name))
		}
	}
	return names
}

// values reads files in a namespace; a file that cannot be read is empty.
func values(ns *netns.NS, names []string) (all []string, err error) {
	all = make([]string, len(names))
	err = ns.Visit(func() error {
		for i, name := range names {
			all[i], _ = netns.ReadFile(name)
		}
		return nil
	})
	return all, err
}
