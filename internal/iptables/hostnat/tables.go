package hostnat

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Tables are the nat tables of a family in a namespace, in both variants. They are opened at the
// first query. Tables must be used by one goroutine at a time.
type Tables struct {
	family iptables.Family
	ns     *netns.NS
	nft    *nft.Conn

	legacy *legacy
	opened bool      // legacy is known
	list   []variant // the variants that exist
	listed bool      // list is known
}

// Open returns the tables of a family. nft is nil if the kernel has no nftables. ns must stay open
// until the tables are closed.
func Open(ns *netns.NS, f iptables.Family, nft *nft.Conn) *Tables {
	return &Tables{family: f, ns: ns, nft: nft}
}

// Close closes the tables.
func (t *Tables) Close() {
	if t.legacy != nil {
		t.legacy.close()
	}
}

// variant is one variant of the table.
type variant struct {
	name   string
	legacy bool
	chain  func(string) ([]Rule, error)
}

func (t *Tables) variants() (list []variant, err error) {
	if t.listed {
		return t.list, nil
	}
	table := nftmsg.Table{Family: [...]nftmsg.Family{nftmsg.IPv4, nftmsg.IPv6}[t.family],
		Name: "nat"}
	if t.nft != nil {
		there, err := t.nft.HasTable(table)
		if err != nil {
			return nil, err
		}
		if there {
			list = append(list,
				variant{fmt.Sprintf("table %s nat (nft)", table.Family), false,
					func(name string) ([]Rule, error) {
						return nftChain(t.nft, table, name)
					}})
		}
	}
	if err := t.openLegacy(); err != nil {
		return nil, err
	}
	if t.legacy != nil {
		name := fmt.Sprintf("table %s nat (legacy)", table.Family)
		list = append(list, variant{name, true, t.legacy.chain})
	}
	t.list, t.listed = list, true
	return list, nil
}

// attempts limits how often a table is read that changes during the read.
const attempts = 5

// steady repeats read until no legacy table changes during it.
func (t *Tables) steady(read func() error) (err error) {
	for range attempts {
		if err = read(); !errors.Is(err, unix.EAGAIN) || t.legacy == nil {
			return err
		}
		if err := t.legacy.ask(); err != nil {
			return err
		}
	}
	return err
}

func (t *Tables) openLegacy() (err error) {
	if !t.opened {
		t.legacy, err = openLegacy(t.ns, t.family)
		t.opened = err == nil
	}
	return err
}

// LegacyRules returns the rules of a chain of the legacy variant. there is false if the chain does
// not exist.
func (t *Tables) LegacyRules(chain string) (rules []Rule, there bool, err error) {
	if err := t.openLegacy(); t.legacy == nil {
		return nil, false, err
	}
	err = t.steady(func() (err error) {
		rules, err = t.legacy.chain(chain)
		return err
	})
	return rules, rules != nil, err
}

// each calls read for each variant until it is done, and again if a legacy table changes during the
// read.
func (t *Tables) each(read func(v variant) (done bool, err error)) error {
	return t.steady(func() error {
		list, err := t.variants()
		if err != nil {
			return err
		}
		for _, v := range list {
			done, err := read(v)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			if done {
				break
			}
		}
		return nil
	})
}

// Find returns the first rule that decides about the traffic of a query, or nil.
func (t *Tables) Find(q Query) (found *Found, err error) {
	err = t.each(func(v variant) (done bool, err error) {
		found, err = q.Find(v.chain)
		if found != nil {
			found.Table, found.Legacy, found.Family = v.name, v.legacy, t.family
		}
		return found != nil, err
	})
	return found, err
}

// Rules returns the rules of a chain in both variants, none if the chain does not exist.
func (t *Tables) Rules(chain string) ([]Rule, error) {
	legacy := map[bool][]Rule{}
	err := t.each(func(v variant) (done bool, err error) {
		legacy[v.legacy], err = v.chain(chain)
		return false, err
	})
	return slices.Concat(legacy[false], legacy[true]), err
}
