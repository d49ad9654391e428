package nft

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Rooms is a concern for these tests: a room is open as long as somebody is in it, and a seat has one owner for good.
var Rooms = &Concern{name: "rooms", skeleton: roomSkeleton, conflict: seatTaken}

func seatTaken(l *look, claims []Claim, i int) ([]Entry, error) {
	for _, e := range claims[i].Entries {
		if e.set != "seats" {
			continue
		}
		x, err := l.c.element(roomSkeleton().set("seats").Set, e.element.Key)
		if err != nil || x != nil && x.Comment != claims[i].Tag {
			return nil, errors.Join(err, fmt.Errorf("seat %s is taken", nameOf(e.element.Key)))
		}
	}
	return claims[i].Entries, nil
}

func roomSkeleton() skeleton {
	t := nftmsg.Table{Family: nftmsg.INet, Name: "rooms"}
	text := func(x nftmsg.Element) string {
		var names []string
		for key := range slices.Chunk(x.Key, 16) {
			names = append(names, nameOf(key))
		}
		return strings.Join(names, " ")
	}
	name := nftmsg.TypeIfName
	return skeleton{
		version: "rooms 1", table: t,
		sets: []*set{
			{Set: nftmsg.Set{Table: t, Name: "rooms", Key: []nftmsg.Type{name}, Size: 64}, users: "guests", text: text},
			{Set: nftmsg.Set{Table: t, Name: "guests", Key: []nftmsg.Type{name, name}, Size: 256}, text: text},
			{Set: nftmsg.Set{Table: t, Name: "seats", Key: []nftmsg.Type{name}, Size: 64}, text: text},
		},
		chains: []chain{{nftmsg.Chain{Table: t, Name: "doors"}, [][]nftmsg.Expr{{nftmsg.Raw{Name: "counter"}}}}},
	}
}

// InRoom returns the entries of a guest.
func InRoom(room, guest string) []Entry {
	return []Entry{
		newEntry(Rooms, roomSkeleton().set("rooms"), nftmsg.Element{Key: ifName(room)}, 16),
		newEntry(Rooms, roomSkeleton().set("guests"), nftmsg.Element{Key: slices.Concat(ifName(room), ifName(guest))}, 32),
	}
}

// Seat returns the entry of a seat.
func Seat(name string) Entry {
	return newEntry(Rooms, roomSkeleton().set("seats"), nftmsg.Element{Key: ifName(name)}, 16)
}
