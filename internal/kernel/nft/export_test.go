package nft

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
)

// Rooms is a concern for these tests: a room is open as long as somebody is in it, and a seat has one owner for good.
var Rooms = &Concern{name: "rooms", skeleton: roomSkeleton, conflict: seatTaken}

func seatTaken(l *look, claims []Claim, i int) error {
	for _, e := range claims[i].Entries {
		if e.set != "seats" {
			continue
		}
		x, err := l.c.element(roomSkeleton().set("seats").Set, e.element.Key)
		if err != nil || x != nil && x.Comment != claims[i].Tag {
			return errors.Join(err, fmt.Errorf("seat %s is taken", nameOf(e.element.Key)))
		}
	}
	return nil
}

func roomSkeleton() skeleton {
	t := &nftables.Table{Family: nftables.TableFamilyINet, Name: "rooms"}
	text := func(x nftables.SetElement) string {
		var names []string
		for key := range slices.Chunk(x.Key, 16) {
			names = append(names, nameOf(key))
		}
		return strings.Join(names, " ")
	}
	name := nftables.TypeIFName
	return skeleton{
		version: "rooms 1", table: t,
		sets: []*set{
			{Set: &nftables.Set{Table: t, Name: "rooms", KeyType: name, KeyByteOrder: binaryutil.NativeEndian, Size: 64}, users: "guests", text: text},
			{Set: &nftables.Set{Table: t, Name: "guests", KeyType: nftables.MustConcatSetType(name, name), Concatenation: true, Size: 256}, text: text},
			{Set: &nftables.Set{Table: t, Name: "seats", KeyType: name, KeyByteOrder: binaryutil.NativeEndian, Size: 64}, text: text},
		},
		chains: []chain{{&nftables.Chain{Table: t, Name: "doors"}, [][]expr.Any{{&expr.Counter{}}}}},
	}
}

// InRoom returns the entries of a guest.
func InRoom(room, guest string) []Entry {
	return []Entry{
		newEntry(Rooms, roomSkeleton().set("rooms"), nftables.SetElement{Key: ifName(room)}, 16),
		newEntry(Rooms, roomSkeleton().set("guests"), nftables.SetElement{Key: slices.Concat(ifName(room), ifName(guest))}, 32),
	}
}

// Seat returns the entry of a seat.
func Seat(name string) Entry {
	return newEntry(Rooms, roomSkeleton().set("seats"), nftables.SetElement{Key: ifName(name)}, 16)
}
