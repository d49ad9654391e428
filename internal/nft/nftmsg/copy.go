package nftmsg

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// object is an object of a rule set as the kernel listed it.
type object struct {
	message uint16 // NFT_MSG_NEW…
	family  Family
	values  []netlink.Attribute
	title   string
}

// Constants of nf_tables.h that package unix lacks.
const (
	nftTableHandle = 4
	nftObjHandle   = 6
	nftSetHandle   = 16
	nftSetType     = 19
	nftSetCount    = 20

	msgNewObj, msgGetObj = 18, 19
	objTable, objName    = 1, 2

	tableOwner, tablePersist = 2, 4 // NFT_TABLE_F_OWNER, NFT_TABLE_F_PERSIST
)

// Copy copies the rule set of a namespace into an empty one, of all programs. It returns the
// objects that the kernel refuses there, for example rules with a set of ipset(8).
func Copy(from, to *Conn) (lost []string, err error) {
	all, err := from.copies()
	if err != nil {
		return nil, err
	}
	for len(all) > 0 {
		t := new(Transaction)
		for i, o := range all {
			values := o.values
			if o.message == unix.NFT_MSG_NEWSET {
				values = append(values[:len(values):len(values)], number(unix.NFTA_SET_ID, uint32(i+1)))
			}
			t.add(o.message, unix.NLM_F_CREATE|unix.NLM_F_APPEND, o.title,
				Table{Family: o.family}.body(values...))
		}
		refused, err := to.commit(t)
		if err == nil {
			return lost, nil
		}
		if refused < 0 || refused >= len(all) {
			return lost, err
		}
		lost = append(lost, fmt.Sprintf("%s: %v", all[refused].title, err))
		all = append(all[:refused], all[refused+1:]...)
	}
	return lost, nil
}

// copies lists all objects in the order in which they can be created.
func (c *Conn) copies() (all []object, err error) {
	for _, kind := range []struct {
		get, made uint16
		dropped   []uint16 // attributes
		names     []uint16
	}{
		{unix.NFT_MSG_GETTABLE, unix.NFT_MSG_NEWTABLE, []uint16{unix.NFTA_TABLE_USE, nftTableHandle},
			[]uint16{unix.NFTA_TABLE_NAME}},
		{unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_NEWCHAIN, []uint16{unix.NFTA_CHAIN_HANDLE, unix.NFTA_CHAIN_USE},
			[]uint16{unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME}},
		{msgGetObj, msgNewObj, []uint16{nftObjHandle}, []uint16{objTable, objName}},
		{unix.NFT_MSG_GETSET, unix.NFT_MSG_NEWSET, []uint16{nftSetHandle, unix.NFTA_SET_ID, nftSetType, nftSetCount},
			[]uint16{unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME}},
		{unix.NFT_MSG_GETRULE, unix.NFT_MSG_NEWRULE, []uint16{unix.NFTA_RULE_HANDLE, unix.NFTA_RULE_POSITION},
			[]uint16{unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN}},
	} {
		list, err := everything(c, kind.get, func(f Family, values []byte) object {
			return copyObject(kind.made, f, values, kind.dropped, kind.names)
		})
		if err != nil && kind.get != msgGetObj { // an old kernel has no objects
			return nil, err
		}
		all = append(all, list...)
		if kind.get == unix.NFT_MSG_GETSET {
			for _, s := range list {
				elements, err := c.copyElements(s)
				if err != nil {
					return nil, err
				}
				all = append(all, elements...)
			}
		}
	}
	return all, nil
}

func copyObject(message uint16, f Family, values []byte, dropped, names []uint16) object {
	o := object{message: message, family: f, title: f.String()}
	for kind, v := range netlink.Attributes(values) {
		if slices.Contains(dropped, kind) {
			continue
		}
		if message == unix.NFT_MSG_NEWTABLE && kind == unix.NFTA_TABLE_FLAGS {
			o.values = append(o.values, number(kind, readNumber(v)&^(tableOwner|tablePersist)))
			continue
		}
		o.values = append(o.values, netlink.Bytes(kind, v))
	}
	if message == unix.NFT_MSG_NEWRULE {
		o.values = append(o.values, compatibility(netlink.Find(values, unix.NFTA_RULE_EXPRESSIONS))...)
	}
	for _, n := range names {
		o.title += " " + textIn(values, n)
	}
	return o
}

// copyElements lists the elements of a set in as many messages as the kernel uses.
func (c *Conn) copyElements(set object) (list []object, err error) {
	values := slices.Concat(set.values...)
	about := Set{Table: Table{set.family, textIn(values, unix.NFTA_SET_TABLE)},
		Name: textIn(values, unix.NFTA_SET_NAME)}
	err = c.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP,
		about.Table.body(about.names(unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET)...),
		func(attributes []byte) {
			if len(netlink.Find(attributes, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) == 0 {
				return
			}
			o := copyObject(unix.NFT_MSG_NEWSETELEM, set.family, attributes,
				[]uint16{unix.NFTA_SET_ELEM_LIST_SET_ID}, nil)
			o.title = "elements of " + set.title
			list = append(list, o)
		})
	return list, err
}

// compatibility returns NFTA_RULE_COMPAT for a rule with a match or target of iptables, which the
// kernel requires but does not list: the protocol that an earlier comparison of the rule names.
func compatibility(expressions []byte) []netlink.Attribute {
	const compat, compatProto, compatFlags = 5, 1, 2 // NFTA_RULE_COMPAT, NFTA_RULE_COMPAT_…
	protocol, loaded, found := uint32(0), false, false
	for _, e := range netlink.Attributes(expressions) {
		data := netlink.Find(e, unix.NFTA_EXPR_DATA)
		switch textIn(e, unix.NFTA_EXPR_NAME) {
		case "meta":
			loaded = numberIn(data, unix.NFTA_META_KEY) == unix.NFT_META_L4PROTO
		case "payload":
			loaded = numberIn(data, unix.NFTA_PAYLOAD_LEN) == 1 &&
				numberIn(data, unix.NFTA_PAYLOAD_BASE) == unix.NFT_PAYLOAD_NETWORK_HEADER
		case "cmp":
			if v := readValue(netlink.Find(data, unix.NFTA_CMP_DATA)); loaded && len(v) == 1 {
				protocol = uint32(v[0])
			}
		case "match", "target":
			found = true
		}
	}
	if !found || protocol == 0 {
		return nil
	}
	return []netlink.Attribute{nest(compat, number(compatProto, protocol), number(compatFlags, 0))}
}
