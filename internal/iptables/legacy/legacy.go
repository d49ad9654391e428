// Package legacy lists the tables of legacy iptables, which nftables does not show, as chains and
// rules of nftables, so that one evaluation serves both. It can also copy them to another namespace.
package legacy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Suffix follows the name of a table in a list, since nftables can have a table of the same name.
const Suffix = " (legacy)"

// The kernel returns a table as one blob of consecutive rules. The base chains come first. Every
// other chain begins with a rule that has target ERROR and the name of the chain. A jump holds the
// offset of the first rule of a chain (linux/netfilter_ipv4/ip_tables.h, ip6_tables.h).
const (
	getInfo, getEntries = 64, 65 // IPT_SO_GET_INFO, IPT_SO_GET_ENTRIES
	nameSize            = 32
	hooks               = 5
	targetHeader        = 32 // struct xt_entry_target and xt_entry_match
)

// info is struct ipt_getinfo.
type info struct {
	Name             [nameSize]byte
	Hooks            uint32
	Entry, Underflow [hooks]uint32
	Entries, Size    uint32
}

var errBlob = errors.New("legacy iptables table is incomplete")

// family is what differs between the versions of IP.
type family struct {
	number       nftmsg.Family
	domain       int
	level        int
	names        string // the file with the names of the tables
	address      int    // bytes
	offsets      int    // of the offsets in an entry
	source, dest uint32 // offsets in the header of a packet
}

var families = []family{
	{nftmsg.IPv4, unix.AF_INET, unix.IPPROTO_IP, "ip_tables_names", 4, 88, 12, 16},
	{nftmsg.IPv6, unix.AF_INET6, unix.IPPROTO_IPV6, "ip6_tables_names", 16, 140, 8, 24},
}

// header is the size of struct ipt_entry and ip6t_entry.
func (f family) header() int {
	switch {
	case f.number == nftmsg.IPv4:
		return 112
	case runtime.GOARCH == "386":
		return 164 // numbers of 8 bytes are aligned to 4
	}
	return 168
}

// priorities are the priorities of the tables (enum nf_ip_hook_priorities). nat has another one for
// the source.
var priorities = map[string]int32{"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}

const sourcePriority = 100

// hookNames are the names of the base chains, by their hook.
var hookNames = [hooks]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// Append adds the tables of a namespace to a ruleset. A kernel without legacy iptables has none, and
// a table exists from its first use on. A rule with a condition on fragments or the type of service
// has a match of the name "fragment or tos", which no program knows.
func Append(ns *netns.NS, r *nftmsg.Ruleset) error {
	return tables(ns, func(f family, name string) error { return f.append(ns, name, r) })
}

// Sizes returns the sizes in bytes of the tables of a namespace. It is much faster than [Append].
func Sizes(ns *netns.NS) (map[nftmsg.Table]int, error) {
	sizes := map[nftmsg.Table]int{}
	return sizes, tables(ns, func(f family, name string) error {
		fd, err := f.socket(ns)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		about, err := f.info(fd, name)
		sizes[nftmsg.Table{Family: f.number, Name: name}] = int(about.Size)
		return err
	})
}

// tables calls each for every table of a namespace.
func tables(ns *netns.NS, each func(f family, name string) error) error {
	for _, f := range families {
		var names []string
		err := ns.Visit(func() error {
			b, err := os.ReadFile("/proc/thread-self/net/" + f.names)
			names = strings.Fields(string(b))
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := each(f, name); err != nil {
				return fmt.Errorf("table %s of legacy iptables: %w", name, err)
			}
		}
	}
	return nil
}

func (f family) socket(ns *netns.NS) (fd int, err error) {
	return ns.Socket(f.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
}

// info asks for the properties of a table.
func (f family) info(fd int, name string) (about info, err error) {
	copy(about.Name[:], name)
	b := netlink.Body(about)
	if err := getsockopt(fd, f.level, getInfo, b); err != nil {
		return about, err
	}
	_, err = netlink.ReadBody(b, &about)
	return about, err
}

func (f family) append(ns *netns.NS, name string, r *nftmsg.Ruleset) error {
	t, err := f.table(ns, name)
	if err != nil {
		return err
	}
	return t.list(r)
}

// table reads a table, again if it changes meanwhile.
func (f family) table(ns *netns.NS, name string) (t *table, err error) {
	fd, err := f.socket(ns)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	const repeats = 10
	for range repeats {
		if t, err = f.read(fd, name); !errors.Is(err, unix.EAGAIN) {
			return t, err
		}
	}
	return nil, err
}

// read reads a table.
func (f family) read(fd int, name string) (*table, error) {
	about, err := f.info(fd, name)
	if err != nil {
		return nil, err
	}
	t := &table{family: f, name: name, info: about}
	const entries = 40 // struct ipt_get_entries up to its entries
	blob := make([]byte, entries+t.info.Size)
	copy(blob, name)
	binary.NativeEndian.PutUint32(blob[nameSize:], t.info.Size)
	if err := getsockopt(fd, f.level, getEntries, blob); err != nil {
		return nil, err
	}
	t.blob = blob[entries:]
	return t, nil
}

func getsockopt(fd, level, option int, b []byte) error {
	size := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// table is a table as the kernel returned it.
type table struct {
	family
	name   string
	info   info
	blob   []byte
	chains map[uint32]string // by the offset of their first rule
}

// list appends the chains and rules.
func (t *table) list(r *nftmsg.Ruleset) error {
	if err := t.findChains(); err != nil {
		return err
	}
	key := nftmsg.Table{Family: t.number, Name: t.name + Suffix}
	r.Tables = append(r.Tables, nftmsg.TableState{Table: key})
	for hook := range hooks {
		if t.info.Hooks&(1<<hook) == 0 {
			continue
		}
		if err := t.base(r, key, hook); err != nil {
			return err
		}
	}
	for at, name := range t.chains {
		r.Chains = append(r.Chains, nftmsg.ListedChain{Table: key, Name: name})
		if err := t.rules(r, key, name, at, t.info.Size); err != nil {
			return err
		}
	}
	return nil
}

// base appends a base chain. Its policy is the rule at its underflow.
func (t *table) base(r *nftmsg.Ruleset, key nftmsg.Table, hook int) error {
	policy, err := t.entry(t.info.Underflow[hook])
	if err != nil {
		return err
	}
	c := nftmsg.ListedChain{Table: key, Name: hookNames[hook], Base: true, Hook: uint32(hook),
		Type: "filter", Priority: priorities[t.name], Drops: policy.verdict == verdictDrop}
	if t.name == "nat" {
		c.Type = "nat"
		if hook == unix.NF_INET_POST_ROUTING || hook == unix.NF_INET_LOCAL_IN {
			c.Priority = sourcePriority
		}
	}
	r.Chains = append(r.Chains, c)
	return t.rules(r, key, c.Name, t.info.Entry[hook], t.info.Underflow[hook])
}

// findChains finds the chains that users made.
func (t *table) findChains() error {
	t.chains = map[uint32]string{}
	for at := uint32(0); at < t.info.Size; {
		e, err := t.entry(at)
		if err != nil {
			return err
		}
		if e.chain != "" && e.next < t.info.Size {
			t.chains[e.next] = e.chain
		}
		at = e.next
	}
	return nil
}

// rules appends the rules of a chain from an offset up to another one, or up to the next chain. The
// last rule of a chain that a user made is its return.
func (t *table) rules(r *nftmsg.Ruleset, key nftmsg.Table, chain string, at, end uint32) error {
	for at < end {
		e, err := t.entry(at)
		if err != nil {
			return err
		}
		if e.chain != "" {
			return nil
		}
		exprs, err := t.exprs(e, at)
		if err != nil {
			return err
		}
		r.Rules = append(r.Rules, nftmsg.ListedRule{Table: key, Chain: chain, Exprs: exprs})
		at = e.next
	}
	return nil
}
