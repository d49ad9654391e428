package nft

import "net/netip"

// The names of before, until all callers use the new ones.

func Masquerade(addrs ...netip.Prefix) ([]Element, error) { return Masq{}.Elements(addrs...) }

func (m Masq) Entries(addrs ...netip.Prefix) ([]Element, error) { return m.Elements(addrs...) }

func (i Isolation) Entries(tag string) ([]Element, error) { return i.Elements(tag) }
