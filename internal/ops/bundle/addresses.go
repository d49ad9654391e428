package bundle

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"net/netip"
	"regexp"
	"sync"
)

// Hasher replaces addresses by others so that addresses with a common prefix keep one of the same
// length (Crypto-PAn: Xu, Fan, Ammar, Moon, 2002). Its key is random, so two bundles have nothing in
// common.
type Hasher struct {
	block cipher.Block
	pad   [aes.BlockSize]byte
}

// NewHasher returns a hasher with a random key.
func NewHasher() (*Hasher, error) {
	var key [2 * aes.BlockSize]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, err
	}
	return newHasher(key)
}

func newHasher(key [2 * aes.BlockSize]byte) (*Hasher, error) {
	block, err := aes.NewCipher(key[:aes.BlockSize])
	if err != nil {
		return nil, err
	}
	h := &Hasher{block: block}
	block.Encrypt(h.pad[:], key[aes.BlockSize:])
	return h, nil
}

// Addr replaces an address. Addresses that mean the same on all hosts stay: unspecified, loopback,
// multicast, link-local and broadcast.
func (h *Hasher) Addr(a netip.Addr) netip.Addr {
	if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return a
	}
	b := a.AsSlice()
	out := make([]byte, len(b))
	in := h.pad
	var hashed [aes.BlockSize]byte
	for bit := range len(b) * 8 {
		// The input is the prefix before the bit, followed by the pad.
		h.block.Encrypt(hashed[:], in[:])
		mask := byte(0x80) >> (bit % 8)
		flip := hashed[0] >> 7 * mask
		out[bit/8] |= b[bit/8]&mask ^ flip
		in[bit/8] = in[bit/8]&^mask | b[bit/8]&mask
	}
	hashedAddr, _ := netip.AddrFromSlice(out)
	return hashedAddr.WithZone(a.Zone())
}

// Prefix replaces a prefix. Its address has host bits only if it had some before.
func (h *Hasher) Prefix(p netip.Prefix) netip.Prefix {
	hashed := netip.PrefixFrom(h.Addr(p.Addr()), p.Bits())
	if p.Masked() == p {
		return hashed.Masked()
	}
	return hashed
}

// candidate matches text that may be an address or a prefix: parts of hexadecimal digits with dots
// or colons.
var candidate = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[0-9A-Fa-f:.]*[0-9A-Fa-f:][0-9A-Fa-f:.]*(/\d+)?`)
})

// Text replaces all addresses in a text. MAC addresses, times and versions stay.
func (h *Hasher) Text(text []byte) []byte {
	return candidate().ReplaceAllFunc(text, func(word []byte) []byte {
		for end := len(word); end > 0; end-- {
			if replaced, ok := h.word(string(word[:end])); ok {
				return append([]byte(replaced), word[end:]...)
			}
			if last := word[end-1]; last != '.' && last != ':' && !bytes.ContainsRune(word, '/') {
				break // not the end of a sentence, nor of a fraction
			}
		}
		return word
	})
}

// word replaces an address, a prefix, or ADDRESS:PORT of IPv4.
func (h *Hasher) word(text string) (replaced string, ok bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return h.Prefix(p).String(), true
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return h.Addr(a).String(), true
	}
	if p, err := netip.ParseAddrPort(text); err == nil {
		return netip.AddrPortFrom(h.Addr(p.Addr()), p.Port()).String(), true
	}
	return "", false
}
