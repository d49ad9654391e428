package hostnat

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft"
)

// The kernel returns a legacy table as one blob of consecutive rules. If iptables created the
// table, the base chains come first. Every other chain begins with a rule that has target ERROR and
// the name of the chain. A jump contains the offset of the first rule of a chain.
// (include/uapi/linux/netfilter_ipv4/ip_tables.h, netfilter_ipv6/ip6_tables.h)

const (
	baseControl = 64 // IPT_BASE_CTL and IP6T_BASE_CTL
	getInfo     = baseControl
	getEntries  = baseControl + 1

	nameSize   = 32
	blobHeader = 40 // struct ipt_get_entries up to its entries
	hooks      = 5
)

// errBlob reports that a blob is invalid or incomplete.
var errBlob = errors.New("legacy iptables table is incomplete")

// tableInfo is struct ipt_getinfo.
type tableInfo struct {
	Name             [nameSize]byte
	Hooks            uint32        // as bits
	Entry, Underflow [hooks]uint32 // offsets of each hook's first rule and policy
	Entries, Size    uint32        // number of all rules, and bytes
}

// legacy is a table of the legacy variant, read only as far as needed.
type legacy struct {
	family iptables.Family
	fd     int
	info   tableInfo
	blob   []byte
	names  map[string]uint32 // of the chains that rules lead to: offset of the first rule
}

// openLegacy opens a nat table. It returns nil if there is none.
func openLegacy(ns *netns.NS, f iptables.Family) (*legacy, error) {
	if ok, err := (iptables.Table{Family: f, Name: "nat"}).HasLegacy(ns); !ok {
		return nil, err
	}
	domain := unix.AF_INET
	if f == iptables.IPv6 {
		domain = unix.AF_INET6
	}
	fd, err := ns.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	l := &legacy{family: f, fd: fd}
	if err := l.ask(); err != nil {
		l.close()
		return nil, fmt.Errorf("legacy %s: %w", iptables.Table{Family: f, Name: "nat"}, err)
	}
	return l, nil
}

func (l *legacy) close() { unix.Close(l.fd) }

// getsockopt reads an option. The kernel gets size as the length of b; it may be larger.
func (l *legacy) getsockopt(option int, b []byte, size uint32) error {
	level := unix.IPPROTO_IP
	if l.family == iptables.IPv6 {
		level = unix.IPPROTO_IPV6
	}
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(l.fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (l *legacy) ask() error {
	b := netlink.Body(tableInfo{Name: [nameSize]byte{'n', 'a', 't'}})
	if err := l.getsockopt(getInfo, b, uint32(len(b))); err != nil {
		return err
	}
	l.blob, l.names = nil, map[string]uint32{}
	_, err := netlink.ReadBody(b, &l.info)
	return err
}

// need reads at least want bytes of the table. The error is EAGAIN if the table has changed.
func (l *legacy) need(want uint32) error {
	want = min(want, l.info.Size)
	if uint32(len(l.blob)) >= want {
		return nil
	}
	blob, err := l.read(want)
	if err == nil {
		l.blob = blob
	}
	return err
}

// read reads the beginning of the table. The kernel accepts only the length of the whole table, but
// copies rule by rule and stops with EFAULT at a page that is not mapped. Thousands of rules
// therefore take no longer than the base chains.
func (l *legacy) read(want uint32) ([]byte, error) {
	page := uint32(unix.Getpagesize())
	room := (blobHeader + want + page - 1) / page * page
	b, err := unix.Mmap(-1, 0, int(room+page), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(b)
	if err := unix.Mprotect(b[room:], unix.PROT_NONE); err != nil {
		return nil, err
	}
	copy(b, "nat")
	binary.NativeEndian.PutUint32(b[nameSize:], l.info.Size)
	size := blobHeader + l.info.Size
	err = l.getsockopt(getEntries, b[:room], size)
	if err != nil && (!errors.Is(err, unix.EFAULT) || size <= room) {
		return nil, err
	}
	return bytes.Clone(b[blobHeader:min(size, room)]), nil
}

// chain returns the rules of a chain, or nil if no rule that was read, of a base chain or of a
// chain of CNI plugins, leads to it.
func (l *legacy) chain(name string) ([]Rule, error) {
	bases := []string{prerouting, "INPUT", "FORWARD", output, postrouting}
	if i := slices.Index(bases, name); i >= 0 {
		return l.base(i)
	}
	todo := []string{prerouting, output, postrouting}
	for done := 0; l.names[name] == 0 && done < len(todo); done++ {
		rules, err := l.chain(todo[done])
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			if strings.HasPrefix(r.Chain, "CNI-") && !slices.Contains(todo, r.Chain) {
				todo = append(todo, r.Chain)
			}
		}
	}
	at, ok := l.names[name]
	if !ok {
		return nil, nil
	}
	rules, err := l.rules(at, l.info.Size)
	if len(rules) > 0 {
		rules = rules[:len(rules)-1] // the chain's end is also a rule
	}
	return rules, err
}

// base returns the rules of a base chain, without its policy.
func (l *legacy) base(hook int) ([]Rule, error) {
	from, to := l.info.Entry[hook], l.info.Underflow[hook]
	if from > to {
		return nil, errBlob
	}
	if from == to {
		return []Rule{}, nil
	}
	if err := l.need(to); err != nil {
		return nil, err
	}
	return l.rules(from, to)
}

// rules returns the rules from an offset up to another one, or up to the end of the chain. The
// list is not nil.
func (l *legacy) rules(at, end uint32) ([]Rule, error) {
	rules := []Rule{}
	for at < end {
		e, err := l.entry(at)
		if err != nil {
			return nil, err
		}
		if e.chain != "" {
			break
		}
		if e.jump != 0 && e.jump != e.next && !knownComment(e.Comment) {
			if e.Chain, err = l.nameAt(e.jump); err != nil {
				return nil, err
			}
		}
		rules = append(rules, e.Rule)
		at = e.next
	}
	return rules, nil
}

// nameAt returns the name of the chain that begins at an offset. The rule before it has target
// ERROR and holds the name.
func (l *legacy) nameAt(at uint32) (string, error) {
	if err := l.need(at); err != nil {
		return "", err
	}
	head := headerSize(l.family) + errorTarget
	if at < head || uint32(len(l.blob)) < at {
		return "", errBlob
	}
	e, err := entryAt(l.family, l.blob, at-head)
	if e.chain != "" {
		l.names[e.chain] = at
	}
	return e.chain, err
}

// entry returns the entry at an offset, and reads more of the table if needed.
func (l *legacy) entry(at uint32) (e entry, err error) {
	for {
		e, err = entryAt(l.family, l.blob, at)
		read := uint32(len(l.blob))
		if !errors.Is(err, errBlob) || read >= l.info.Size {
			return e, err
		}
		const more = 16 << 10
		if err := l.need(max(read, at) + max(read, more)); err != nil {
			return e, err
		}
	}
}

// entry is a rule of the blob.
type entry struct {
	Rule
	chain string // the chain that begins here
	jump  uint32 // offset of the chain it jumps to
	next  uint32 // offset of the next entry
}

const (
	targetHeader = 32 // struct xt_entry_target, and xt_entry_match
	errorTarget  = 64 // struct xt_error_target
	nameLength   = 29
)

// headerSize is the size of struct ipt_entry and ip6t_entry.
func headerSize(f iptables.Family) uint32 {
	switch {
	case f == iptables.IPv4:
		return 112
	case runtime.GOARCH == "386": // where 8-byte numbers are aligned to 4
		return 164
	}
	return 168
}

// entryAt reads the entry at an offset of a blob.
func entryAt(f iptables.Family, blob []byte, at uint32) (e entry, err error) {
	head := headerSize(f)
	if uint64(at)+uint64(head) > uint64(len(blob)) {
		return e, errBlob
	}
	b := blob[at:]
	offsets := uint32(88)
	if f == iptables.IPv6 {
		offsets = 140
	}
	target, next := uint32(number(b[offsets:])), uint32(number(b[offsets+2:]))
	if target < head || next < target+targetHeader || next > uint32(len(b)) {
		return e, errBlob
	}
	e.next = at + next
	e.conditions(f, b)
	if err := e.matches(b[head:target]); err != nil {
		return e, err
	}
	return e, e.target(f, b[target:next])
}

func (e *entry) matches(b []byte) error {
	for len(b) > 0 {
		if len(b) < targetHeader {
			return errBlob
		}
		size := int(number(b))
		if size < targetHeader || size > len(b) {
			return errBlob
		}
		e.match(netlink.Text(b[2:2+nameLength]), b[2+nameLength], b[targetHeader:size])
		b = b[size:]
	}
	return nil
}

// Verdicts of struct xt_standard_target; values that are not negative are offsets.
const verdictAccept, verdictDrop, verdictReturn = -2, -1, -5

func (e *entry) target(f iptables.Family, b []byte) error {
	name := netlink.Text(b[2 : 2+nameLength])
	switch {
	case name == "ERROR":
		e.chain = netlink.Text(b[targetHeader:])
		return nil
	case name != "":
		e.Target = name
		if name == "DNAT" {
			e.To = nft.XTablesDNAT([...]nft.Family{nft.IPv4, nft.IPv6}[f], b[targetHeader:])
		}
		return nil
	case len(b) < targetHeader+4:
		return errBlob
	}
	switch v := int32(binary.NativeEndian.Uint32(b[targetHeader:])); v {
	case verdictAccept:
		e.Target = "ACCEPT"
	case verdictDrop:
		e.Target = "DROP"
	case verdictReturn:
		e.Target = "RETURN"
	default:
		if v >= 0 {
			e.jump = uint32(v)
		}
	}
	return nil
}

// The flags of struct ipt_ip and ip6t_ip6.
const (
	invertIn, invertOut = 0x01, 0x02
	invertTOS           = 0x04
	invertSourceIP      = 0x08
	invertDestIP        = 0x10
	invertFragment      = 0x20
	invertProtocol      = 0x40
	flagFragment        = 0x01 // IPv4
	flagProtocol        = 0x01 // IPv6
	flagTOS             = 0x02 // IPv6
	flagGoto4           = 0x02
	flagGoto6           = 0x04
)

// conditions decodes struct ipt_ip and ip6t_ip6.
func (e *entry) conditions(f iptables.Family, b []byte) {
	n := 4
	if f == iptables.IPv6 {
		n = 16
	}
	names := 4 * n
	rest := b[names+4*unix.IFNAMSIZ:]
	protocol, flags, inverted := number(rest), rest[2], rest[3]
	other := flags&flagFragment != 0 || inverted&invertFragment != 0
	e.Goto = flags&flagGoto4 != 0
	if f == iptables.IPv6 {
		flags, inverted = rest[3], rest[4]
		other = flags&flagTOS != 0 || inverted&invertTOS != 0
		e.Goto = flags&flagGoto6 != 0
		if flags&flagProtocol == 0 {
			protocol = 0
		}
	}
	e.Source = e.network(b[:n], b[2*n:3*n], inverted&invertSourceIP != 0)
	e.Dest = e.network(b[n:2*n], b[3*n:4*n], inverted&invertDestIP != 0)
	e.In = interfaceName(b[names:], inverted&invertIn != 0)
	e.Out = interfaceName(b[names+unix.IFNAMSIZ:], inverted&invertOut != 0)
	if protocol != 0 {
		e.Protocol = Word{strconv.Itoa(int(protocol)), inverted&invertProtocol != 0}
	}
	if other {
		e.Others = append(e.Others, "fragment or tos")
	}
}

// network decodes an address with its mask.
func (e *entry) network(addr, mask []byte, not bool) Network {
	bits, ok := prefixLength(mask)
	if !ok {
		e.Others = append(e.Others, "mask with holes")
	}
	if !ok || bits == 0 && !not {
		return Network{}
	}
	a, _ := netip.AddrFromSlice(addr)
	return Network{netip.PrefixFrom(a, bits).Masked(), not}
}

// interfaceName decodes a name and its mask, which follows the other interface's name.
func interfaceName(b []byte, not bool) Word {
	name := netlink.Text(b[:unix.IFNAMSIZ])
	if name == "" {
		return Word{}
	}
	mask := b[2*unix.IFNAMSIZ : 3*unix.IFNAMSIZ]
	if len(name) < unix.IFNAMSIZ && mask[len(name)] == 0 && !strings.HasSuffix(name, "+") {
		name += "+"
	}
	return Word{name, not}
}
