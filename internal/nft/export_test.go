package nft

import (
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Rooms is a rule set for these tests: a room is shared by its guests; a seat has one owner, which
// no other owner can replace.
var Rooms = &RuleSet{name: "rooms", skeleton: roomSkeleton, resolve: resolveSeats}

func resolveSeats(have *state, requests []Request, i int) ([]Element, error) {
	for _, e := range requests[i].Elements {
		if e.set != "seats" {
			continue
		}
		if x := have.lookup(roomSkeleton().set("seats"), e.raw.Key); x != nil &&
			x.Comment != requests[i].Owner {
			return nil, &ConflictError{What: "seat " + nameOf(e.raw.Key), Holder: x.Comment}
		}
	}
	return requests[i].Elements, nil
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
			{Set: nftmsg.Set{Table: t, Name: "rooms", Key: []nftmsg.Type{name}, Size: 64},
				references: "guests", text: text},
			{Set: nftmsg.Set{Table: t, Name: "guests", Key: []nftmsg.Type{name, name}, Size: 256},
				text: text},
			{Set: nftmsg.Set{Table: t, Name: "seats", Key: []nftmsg.Type{name}, Size: 64},
				text: text},
		},
		chains: []chain{{nftmsg.Chain{Table: t, Name: "doors"},
			[][]nftmsg.Expr{{nftmsg.Raw{Name: "counter"}}}}},
	}
}

// InRoom returns the elements of a guest.
func InRoom(room, guest string) []Element {
	return []Element{
		newElement(Rooms, roomSkeleton().set("rooms"), nftmsg.Element{Key: ifName(room)}, 16),
		newElement(Rooms, roomSkeleton().set("guests"),
			nftmsg.Element{Key: slices.Concat(ifName(room), ifName(guest))}, 32),
	}
}

// Seat returns the element of a seat.
func Seat(name string) Element {
	return newElement(Rooms, roomSkeleton().set("seats"), nftmsg.Element{Key: ifName(name)}, 16)
}
