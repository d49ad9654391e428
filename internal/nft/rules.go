package nft

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// add appends rules to a chain.
func (ch *chain) add(rules ...[]nftmsg.Expr) { ch.rules = append(ch.rules, rules...) }

// natChain returns a base chain that translates addresses.
func natChain(name string, hook uint32, priority int32) nftmsg.Chain {
	return nftmsg.Chain{Table: table, Name: name, Type: nftmsg.ChainNAT, Hook: hook,
		Priority: priority}
}

// forwardChain returns a base chain for packets that the host forwards.
func forwardChain(t nftmsg.Table, name string, priority int32) chain {
	return chain{Chain: nftmsg.Chain{
		Table: t, Name: name, Type: nftmsg.ChainFilter, Hook: unix.NF_INET_FORWARD,
		Priority: priority,
	}}
}

// rule returns a rule for packets of a version of IP, beginning with, for example, meta nfproto
// ipv4.
func (p protocol) rule(exprs ...nftmsg.Expr) []nftmsg.Expr {
	match := []nftmsg.Expr{meta(unix.NFT_META_NFPROTO), equals([]byte{p.nfproto})}
	return slices.Concat(match, exprs)
}

// into returns the load of a field into the given register.
func into(register uint32, field nftmsg.Payload) nftmsg.Payload {
	field.Register = register
	return field
}

// meta loads metadata.
func meta(key uint32) nftmsg.Meta { return nftmsg.Meta{Key: key, Register: unix.NFT_REG_1} }

// equals compares the first register.
func equals(data []byte) nftmsg.Cmp {
	return nftmsg.Cmp{Op: unix.NFT_CMP_EQ, Register: unix.NFT_REG_1, Data: data}
}

// has looks up a key that begins in a register.
func (s *set) has(register uint32) nftmsg.Lookup {
	return nftmsg.Lookup{Set: s.Name, Register: register}
}

// lacks is the inverse of has, for the first register.
func (s *set) lacks() nftmsg.Lookup {
	return nftmsg.Lookup{Set: s.Name, Register: unix.NFT_REG_1, Not: true}
}

// anyBit matches values in the first register that have one of the bits.
func anyBit(bits []byte) []nftmsg.Expr {
	return []nftmsg.Expr{
		nftmsg.Mask{Register: unix.NFT_REG_1, Bits: bits},
		nftmsg.Cmp{Op: unix.NFT_CMP_NEQ, Register: unix.NFT_REG_1, Data: make([]byte, len(bits))},
	}
}

// Bits of the states of a connection (NF_CT_STATE_INVALID_BIT, NF_CT_STATE_BIT).
const stateInvalid, stateEstablished, stateRelated = 1, 2, 4

// ctState matches packets of connections in one of the states.
func ctState(states uint32) []nftmsg.Expr {
	state := nftmsg.Ct{Key: unix.NFT_CT_STATE, Register: unix.NFT_REG_1}
	return slices.Concat([]nftmsg.Expr{state},
		anyBit(binary.NativeEndian.AppendUint32(nil, states)))
}

func verdict(code int32) nftmsg.Verdict { return nftmsg.Verdict{Code: code} }

func goTo(chain string) nftmsg.Verdict { return nftmsg.Verdict{Code: unix.NFT_GOTO, Chain: chain} }
