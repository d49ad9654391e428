package cluster

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"net/url"
	"strings"
)

// Keys builds the keys of a cluster in the store. Directories end in a slash, so that the prefix of
// node n1 excludes node n10. Names are escaped as in URLs; addresses have the form of RFC 5952.
type Keys struct{ root string }

// NewKeys returns the keys of a cluster.
func NewKeys(cluster string) Keys { return Keys{"/tenon/" + url.PathEscape(cluster) + "/v1/"} }

func (k Keys) join(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return k.root + strings.Join(escaped, "/")
}

// Root returns the prefix of all keys.
func (k Keys) Root() string { return k.root }

// Meta returns the key of [Meta].
func (k Keys) Meta() string { return k.root + "meta" }

// Doubt returns the key of the [Doubt] about the store.
func (k Keys) Doubt() string { return k.root + "doubt" }

// Question returns the key of the [Question] to all nodes.
func (k Keys) Question() string { return k.root + "question" }

// Answers returns the prefix of the answers of all nodes.
func (k Keys) Answers() string { return k.root + "answer/" }

// Answer returns the key of an [Answer].
func (k Keys) Answer(node string) string { return k.join("answer", node) }

// Pools returns the prefix of all pools.
func (k Keys) Pools() string { return k.root + "pools/" }

// Pool returns the key of a [Pool].
func (k Keys) Pool(name string) string { return k.join("pools", name) }

// Nodes returns the prefix of all nodes.
func (k Keys) Nodes() string { return k.root + "nodes/" }

// Node returns the key of a [Node].
func (k Keys) Node(name string) string { return k.join("nodes", name) }

// Lives returns the prefix of the leased keys of all nodes.
func (k Keys) Lives() string { return k.root + "live/" }

// Live returns the key that exists while the store hears from a node; its value is the epoch.
func (k Keys) Live(node string) string { return k.join("live", node) }

// Proofs returns the prefix of the proofs of all nodes.
func (k Keys) Proofs() string { return k.root + "proof/" }

// Proof returns the key of a [Proof].
func (k Keys) Proof(node string) string { return k.join("proof", node) }

// Blocks returns the prefix of the blocks of a pool, or of all pools if pool is empty.
func (k Keys) Blocks(pool string) string { return k.under("blocks", pool) }

// Block returns the key of a [Block].
func (k Keys) Block(pool string, b netip.Prefix) string {
	return k.join("blocks", pool, blockName(b))
}

// Cool returns the leased key of a block that cools down; its value is the reason.
func (k Keys) Cool(pool string, b netip.Prefix) string { return k.join("cool", pool, blockName(b)) }

// Cools returns the prefix of the cooling blocks of a pool, or of all pools if pool is empty.
func (k Keys) Cools(pool string) string { return k.under("cool", pool) }

// Addrs returns the prefix of the shared addresses of a pool, or of all pools if pool is empty.
func (k Keys) Addrs(pool string) string { return k.under("addr", pool) }

// Addr returns the key of the [Holder] of a shared address.
func (k Keys) Addr(pool string, a netip.Addr) string {
	return k.join("addr", pool, a.Unmap().String())
}

// Stickies returns the prefix of the sticky names of a pool, or of all pools if pool is empty.
func (k Keys) Stickies(pool string) string { return k.under("sticky", pool) }

// Sticky returns the key of a [Sticky].
func (k Keys) Sticky(pool, namespace, name string) string {
	return k.join("sticky", pool, namespace, name)
}

// Quotas returns the prefix of the [Tokens] of a namespace, or of all if namespace is empty.
func (k Keys) Quotas(pool, namespace string) string {
	if namespace == "" {
		return k.under("quota", pool)
	}
	return k.join("quota", pool, namespace) + "/"
}

// Quota returns the key of [Tokens].
func (k Keys) Quota(pool, namespace, node string) string {
	return k.join("quota", pool, namespace, node)
}

func (k Keys) under(kind, pool string) string {
	if pool == "" {
		return k.root + kind + "/"
	}
	return k.join(kind, pool) + "/"
}

// Last returns the unescaped last element of a key.
func Last(key string) string {
	name, err := url.PathUnescape(key[strings.LastIndexByte(key, '/')+1:])
	if err != nil {
		return ""
	}
	return name
}

func blockName(b netip.Prefix) string { return fmt.Sprintf("%s_%d", b.Addr(), b.Bits()) }

// ParseBlock returns the block that the last element of a key names.
func ParseBlock(key string) (netip.Prefix, error) {
	b, err := netip.ParsePrefix(strings.Replace(Last(key), "_", "/", 1))
	if err != nil {
		return b, fmt.Errorf("key %s: %w", key, err)
	}
	return b, nil
}

// Start returns the index of the block at which a node begins to search for a free one, so that
// nodes do not collide.
func (p *Pool) Start(node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.Name + "\x00" + node))
	// FNV mixes its lowest bits badly: fold the others into them, as MurmurHash3 does.
	sum := h.Sum64()
	sum = (sum ^ sum>>33) * 0xff51afd7ed558ccd
	return (sum ^ sum>>33) % p.Blocks()
}

// maxName is the longest name of a pool or a node, in bytes; Kubernetes has the same limit.
const maxName = 253

// ValidateName checks the name of a pool, a node or a cluster: it is part of file names.
func ValidateName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > maxName:
		return fmt.Errorf("the name has %d bytes, more than %d", len(name), maxName)
	case name[0] == '.' || name[0] == '-':
		return fmt.Errorf("name %q begins with %q", name, name[:1])
	}
	for _, c := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", c) {
			return fmt.Errorf("name %q contains %q", name, c)
		}
	}
	return nil
}
