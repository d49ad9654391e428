package nftmsg

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Ruleset is all that nftables has in a namespace, of all programs. Expressions keep their encoding,
// so that none is lost.
type Ruleset struct {
	Generation uint32        `json:"generation"` // counts the transactions
	Tables     []TableState  `json:"tables"`
	Chains     []ListedChain `json:"chains"`
	Rules      []ListedRule  `json:"rules"` // of each chain in their order
	Sets       []ListedSet   `json:"sets"`

	// Partial reports that Rules was not read. Rest, if it is not nil, reads the rules of a chain.
	Partial bool                                              `json:"-"`
	Rest    func(t Table, chain string) ([]ListedRule, error) `json:"-"`
}

// TableState is a table that exists.
type TableState struct {
	Table
	Dormant bool `json:"dormant,omitzero"` // its chains see no packets
}

// ListedChain is a chain. Only base chains have the fields from Hook on.
type ListedChain struct {
	Table    Table    `json:"table"`
	Name     string   `json:"name"`
	Base     bool     `json:"base,omitzero"`
	Hook     uint32   `json:"hook,omitzero"`     // NF_INET_…, NF_BR_… or NF_NETDEV_…
	Type     string   `json:"type,omitzero"`     // filter, nat or route
	Priority int32    `json:"priority,omitzero"` // lower ones see a packet first
	Drops    bool     `json:"drops,omitzero"`    // the policy
	Devices  []string `json:"devices,omitzero"`  // of family netdev, and of hook ingress
	Packets  uint64   `json:"packets,omitzero"`  // to which the policy applied, if the chain counts them
}

// ListedRule is a rule and its place.
type ListedRule struct {
	Table   Table  `json:"table"`
	Chain   string `json:"chain"`
	Handle  uint64 `json:"handle"`
	Comment string `json:"comment,omitzero"`
	Exprs   []Raw  `json:"exprs"`
}

// Packets returns the packets that the counters of the rule have seen, nil without a counter.
func (r *ListedRule) Packets() (packets *uint64) {
	for _, e := range r.Exprs {
		if e.Name != "counter" {
			continue
		}
		n := longIn(e.Data, unix.NFTA_COUNTER_PACKETS)
		if packets != nil {
			n += *packets
		}
		packets = &n
	}
	return packets
}

// ListedSet is a set or map with its elements.
type ListedSet struct {
	Table     Table     `json:"table"`
	Name      string    `json:"name"`
	Comment   string    `json:"comment,omitzero"`
	Flags     uint32    `json:"flags"`             // NFT_SET_…
	KeyType   uint32    `json:"keyType,omitzero"`  // as nft(8) numbers it
	KeyLen    uint32    `json:"keyLen"`            // bytes
	Fields    []uint32  `json:"fields,omitzero"`   // the lengths of concatenated keys of a set with intervals
	DataType  uint32    `json:"dataType,omitzero"` // of a map
	DataLen   uint32    `json:"dataLen,omitzero"`
	Elements  []Element `json:"elements,omitzero"`
	CatchAll  *Element  `json:"catchAll,omitzero"` // for keys that have no element
	Intervals bool      `json:"intervals,omitzero"`
}

// List returns the whole ruleset, from one generation. It reads the ruleset again, a limited number
// of times, if a transaction changes it meanwhile, and then returns an error that wraps
// [netlink.ErrInterrupted]. A kernel without nftables has none.
func (c *Conn) List() (r *Ruleset, err error) { return c.ListPart(math.MaxInt) }

// ListPart is List, but leaves out all rules if there are more than many chains. The time that the
// kernel needs to list the rules of all chains grows with the square of their number: 100,000 take
// over a second. [Conn.ListChain] lists the rules of one.
func (c *Conn) ListPart(many int) (r *Ruleset, err error) {
	const repeats = 10
	for range repeats {
		r, err = c.listOnce(many)
		if !errors.Is(err, netlink.ErrInterrupted) {
			return r, err
		}
	}
	return r, err
}

func (c *Conn) listOnce(many int) (*Ruleset, error) {
	r := new(Ruleset)
	var err error
	if r.Generation, err = c.generation(); errors.Is(err, unix.EOPNOTSUPP) ||
		errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return r, nil
	}
	for _, step := range []func() error{
		func() (err error) { r.Tables, err = everything(c, unix.NFT_MSG_GETTABLE, listedTable); return err },
		func() (err error) { r.Chains, err = everything(c, unix.NFT_MSG_GETCHAIN, listedChain); return err },
		func() (err error) {
			if r.Partial = len(r.Chains) > many; !r.Partial {
				r.Rules, err = everything(c, unix.NFT_MSG_GETRULE, listedRule)
			}
			return err
		},
		func() (err error) { r.Sets, err = everything(c, unix.NFT_MSG_GETSET, listedSet); return err },
	} {
		if err == nil {
			err = step()
		}
	}
	for i := range r.Sets {
		if err == nil {
			err = c.fill(&r.Sets[i])
		}
	}
	if errors.Is(err, unix.ENOENT) {
		err = netlink.ErrInterrupted // an object has disappeared
	}
	if err != nil {
		return nil, err
	}
	if now, err := c.generation(); err != nil {
		return nil, err
	} else if now != r.Generation {
		return nil, netlink.ErrInterrupted
	}
	return r, nil
}

// ListChain lists the rules of a chain, none if it does not exist. The error wraps
// [netlink.ErrInterrupted] unless the ruleset has this generation.
func (c *Conn) ListChain(t Table, chain string, generation uint32) ([]ListedRule, error) {
	list, err := objects(c, unix.NFT_MSG_GETRULE, t.body(netlink.String(unix.NFTA_RULE_TABLE, t.Name),
		netlink.String(unix.NFTA_RULE_CHAIN, chain)), listedRule)
	if errors.Is(err, unix.ENOENT) {
		list, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	if now, err := c.generation(); err != nil || now != generation {
		return nil, cmp.Or(err, netlink.ErrInterrupted)
	}
	return list, nil
}

// Generation returns the number of transactions that the kernel has made in the namespace.
func (c *Conn) Generation() (uint32, error) { return c.generation() }

func (c *Conn) generation() (id uint32, err error) {
	err = c.ask(unix.NFT_MSG_GETGEN, 0, Table{}.body(), func(attributes []byte) {
		id = readNumber(netlink.Find(attributes, unix.NFTA_GEN_ID))
	})
	return id, err
}

// everything lists the objects of a kind in all tables of all families. A kernel answers a request
// without a family with the objects of all.
func everything[T any](
	c *Conn, message uint16, decode func(f Family, attributes []byte) T,
) ([]T, error) {
	return objects(c, message, Table{}.body(), decode)
}

// objects lists the objects of a kind that a request selects.
func objects[T any](
	c *Conn, message uint16, request []byte, decode func(f Family, attributes []byte) T,
) ([]T, error) {
	read := func(list []T, payload []byte) ([]T, error) {
		var about netlink.Netfilter
		attributes, err := netlink.ReadBody(payload, &about)
		return append(list, decode(Family(about.Family), attributes)), err
	}
	return netlink.List(&c.exchange, c.fd, kindOf(message), request, read)
}

func textIn(attributes []byte, kind uint16) string {
	return netlink.Text(netlink.Find(attributes, kind))
}

func numberIn(attributes []byte, kind uint16) uint32 {
	return readNumber(netlink.Find(attributes, kind))
}

func longIn(attributes []byte, kind uint16) uint64 {
	if v := netlink.Find(attributes, kind); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func listedTable(f Family, attributes []byte) TableState {
	return TableState{Table{f, textIn(attributes, unix.NFTA_TABLE_NAME)},
		numberIn(attributes, unix.NFTA_TABLE_FLAGS)&unix.NFT_TABLE_F_DORMANT != 0}
}

// Attributes that package unix lacks.
const (
	hookDevice, hookDevices = 3, 4 // NFTA_HOOK_DEV, NFTA_HOOK_DEVS
	deviceName              = 1    // NFTA_DEVICE_NAME
)

func listedChain(f Family, attributes []byte) ListedChain {
	c := ListedChain{
		Table: Table{f, textIn(attributes, unix.NFTA_CHAIN_TABLE)},
		Name:  textIn(attributes, unix.NFTA_CHAIN_NAME), Type: textIn(attributes, unix.NFTA_CHAIN_TYPE),
	}
	hook := netlink.Find(attributes, unix.NFTA_CHAIN_HOOK)
	if hook == nil {
		return c
	}
	policy := netlink.Find(attributes, unix.NFTA_CHAIN_POLICY)
	c.Base, c.Drops = true, policy != nil && readNumber(policy) == Drop
	c.Hook, c.Priority = numberIn(hook, unix.NFTA_HOOK_HOOKNUM), int32(numberIn(hook, unix.NFTA_HOOK_PRIORITY))
	c.Packets = longIn(netlink.Find(attributes, unix.NFTA_CHAIN_COUNTERS), unix.NFTA_COUNTER_PACKETS)
	for kind, name := range netlink.Attributes(netlink.Find(hook, hookDevices)) {
		if kind == deviceName {
			c.Devices = append(c.Devices, netlink.Text(name))
		}
	}
	// A kernel that lists several devices also lists a single one here.
	if name := textIn(hook, hookDevice); name != "" && c.Devices == nil {
		c.Devices = []string{name}
	}
	return c
}

func listedRule(f Family, attributes []byte) ListedRule {
	r := decodeRule(attributes)
	return ListedRule{Table: Table{f, textIn(attributes, unix.NFTA_RULE_TABLE)},
		Chain: textIn(attributes, unix.NFTA_RULE_CHAIN), Handle: r.Handle, Comment: r.Comment, Exprs: r.Exprs}
}

func listedSet(f Family, attributes []byte) ListedSet {
	s := ListedSet{
		Table: Table{f, textIn(attributes, unix.NFTA_SET_TABLE)}, Name: textIn(attributes, unix.NFTA_SET_NAME),
		Comment:  textOf(netlink.Find(attributes, unix.NFTA_SET_USERDATA), ofSetComment),
		Flags:    numberIn(attributes, unix.NFTA_SET_FLAGS),
		KeyType:  numberIn(attributes, unix.NFTA_SET_KEY_TYPE),
		KeyLen:   numberIn(attributes, unix.NFTA_SET_KEY_LEN),
		DataType: numberIn(attributes, unix.NFTA_SET_DATA_TYPE),
		DataLen:  numberIn(attributes, unix.NFTA_SET_DATA_LEN),
	}
	s.Intervals = s.Flags&unix.NFT_SET_INTERVAL != 0
	fields := netlink.Find(netlink.Find(attributes, unix.NFTA_SET_DESC), nftaSetDescConcat)
	for _, field := range netlink.Attributes(fields) {
		s.Fields = append(s.Fields, numberIn(field, nftaSetFieldLen))
	}
	return s
}

// Flags of elements (NFT_SET_ELEM_…).
const elementIntervalEnd, elementCatchAll = 1, 2

// fill adds the elements. The kernel lists an interval of a set without concatenation as two
// elements: the first key, and the key after the last one, flagged as an end.
func (c *Conn) fill(s *ListedSet) error {
	about := Set{Table: s.Table, Name: s.Name}.names(unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET)
	var ends []Element
	err := c.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, s.Table.body(about...), func(attributes []byte) {
		for _, element := range netlink.Attributes(netlink.Find(attributes, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			e := decodeElement(element)
			switch flags := numberIn(element, unix.NFTA_SET_ELEM_FLAGS); {
			case flags&elementCatchAll != 0:
				s.CatchAll = &e
			case flags&elementIntervalEnd != 0:
				ends = append(ends, e)
			default:
				s.Elements = append(s.Elements, e)
			}
		}
	})
	if err == nil && s.Intervals && len(s.Fields) == 0 {
		s.closeIntervals(ends)
	}
	return err
}

// closeIntervals sets the last key of each interval: the one before the next end, or before the
// next interval, which can be its end. An interval after which nothing follows has no limit.
func (s *ListedSet) closeIntervals(ends []Element) {
	var borders [][]byte
	for _, e := range append(ends, s.Elements...) {
		borders = append(borders, e.Key)
	}
	slices.SortFunc(borders, bytes.Compare)
	for i := range s.Elements {
		e := &s.Elements[i]
		next, found := slices.BinarySearchFunc(borders, e.Key, bytes.Compare)
		for found && next < len(borders) && bytes.Equal(borders[next], e.Key) {
			next++
		}
		if next < len(borders) {
			e.KeyEnd = predecessor(borders[next])
		} else {
			e.KeyEnd = bytes.Repeat([]byte{0xff}, len(e.Key))
		}
	}
}

// predecessor returns the number before a big-endian number.
func predecessor(key []byte) []byte {
	b := bytes.Clone(key)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]--
		if b[i] != 0xff {
			break
		}
	}
	return b
}
