package cluster

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Meta identifies the store. It changes when an operator restores a snapshot or starts a new
// cluster, and nodes then confirm their blocks again.
type Meta struct {
	Schema int    `json:"schema"`
	Nonce  string `json:"nonce"` // see [NextNonce]
}

// NextNonce returns a nonce of the store that is later than other ones: their highest number and 1, a
// hyphen, and a random text. A nonce without a number is the first one of a store.
func NextNonce(random string, earlier ...string) string {
	last := uint64(0)
	for _, nonce := range earlier {
		last = max(last, nonceNumber(nonce))
	}
	return fmt.Sprintf("%d-%s", last+1, random)
}

// LaterNonce reports whether a nonce of the store is later than another one, "" if there is none. A
// restored store has an earlier nonce, or one with the same number.
func LaterNonce(nonce, other string) bool {
	return other == "" || nonceNumber(nonce) > nonceNumber(other)
}

func nonceNumber(nonce string) uint64 {
	number, _, _ := strings.Cut(nonce, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || number == nonce {
		return 0
	}
	return n
}

// Doubt says why the store cannot be trusted: it was restored or replaced. The key exists from the
// change of the nonce in [Meta] until an operator has confirmed all nodes. While it exists, no node
// gets anything that it did not have before.
type Doubt struct {
	Schema int       `json:"schema"`
	Cause  string    `json:"cause"`
	Author string    `json:"author"` // the node that noticed it, or the operator
	Since  time.Time `json:"since"`
}

// Question asks every agent which addresses its node uses that the store does not show. An operator
// asks before confirming a store that was restored.
type Question struct {
	Schema int    `json:"schema"`
	Nonce  string `json:"nonce"` // of the question
}

// Answer is the answer of a node to a [Question].
type Answer struct {
	Schema   int    `json:"schema"`
	Question string `json:"question"` // its nonce
	// Lost are the addresses in use, by block, that the store does not show as the node's. Another
	// node may get them as soon as the store is confirmed.
	Lost []Loss `json:"lost,omitempty"`
}

// Loss is a block, or a shared address as a block of one, that a node has lost with addresses in
// use.
type Loss struct {
	Pool  string       `json:"pool"`
	Block netip.Prefix `json:"block"`
	Used  uint64       `json:"used"`
	Addrs []netip.Addr `json:"addrs,omitempty"` // the first of them, at most 4
}

// Mark is a state of the store.
type Mark struct {
	Etcd     uint64 `json:"etcd"` // ID of etcd's cluster
	Revision int64  `json:"revision"`
}

// NodeState is the state of a node in the store.
type NodeState string

// The states of a node.
const (
	NodeActive   NodeState = "active"
	NodeDraining NodeState = "draining" // keeps its addresses and gets no new blocks
	NodeSuspect  NodeState = "suspect"  // the store has not heard from it; it may be alive
	NodeFenced   NodeState = "fenced"   // evidence says that it uses no address any more
)

// Node is a node of the cluster. Every transaction that gives the node something compares its key.
type Node struct {
	Schema   int    `json:"schema"`
	Name     string `json:"name"`
	Identity string `json:"identity"` // of this installation; a second host of the name has another
	Epoch    uint64 `json:"epoch"`    // counts the lives of the node; fencing ends one
	// State is the state, and Since the time of the store's last change of it by the writer's clock.
	State     NodeState         `json:"state"`
	Since     time.Time         `json:"since"`
	Addresses []netip.Addr      `json:"addresses"`     // of the underlay, at most one per family
	MAC       string            `json:"mac,omitempty"` // of the VXLAN device
	MTU       int               `json:"mtu,omitempty"` // of the underlay, in bytes
	Mode      string            `json:"mode,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Boot      string            `json:"boot,omitempty"` // ID of the boot in which the node last joined
	Blocks    []BlockRef        `json:"blocks"`         // owned blocks, sorted
	// Store is the nonce of the [Meta] with which the node's blocks were last confirmed. A node with
	// another Store gets no new blocks until an operator sets it.
	Store string `json:"store,omitempty"`
	// Holds are the holds, by pool, that the node observes at present. The pool's document may have
	// changed since the node last read it, so that fencing by hold relies on these alone.
	Holds map[string]Duration `json:"holds,omitempty"`
	// Drain makes a suspect node draining, not active, when it returns.
	Drain    bool   `json:"drain,omitempty"`
	Evidence string `json:"evidence,omitempty"`
	Author   string `json:"author,omitempty"` // of the fencing
}

// BlockRef names a block in a node's list.
type BlockRef struct {
	Pool  string       `json:"pool"`
	Block netip.Prefix `json:"block"`
	Nonce string       `json:"nonce"` // of the block
}

// BlockState is the state of a block in the store. A block without a key is free.
type BlockState string

// The states of a block.
const (
	BlockOwned   BlockState = "owned"
	BlockCooling BlockState = "cooling" // no owner; free when its cool key has expired
	BlockShared  BlockState = "shared"  // each of its addresses in use has a key
)

// Block is a block of a pool. The create revision of its key is its generation.
type Block struct {
	Schema int                  `json:"schema"`
	Pool   string               `json:"pool"`
	Block  netip.Prefix         `json:"block"`
	State  BlockState           `json:"state"`
	Owner  string               `json:"owner,omitempty"`
	Epoch  uint64               `json:"epoch,omitempty"` // of the owner
	Nonce  string               `json:"nonce"`           // of the transaction that claimed it
	Grants map[netip.Addr]Grant `json:"grants,omitempty"`
	Since  time.Time            `json:"since"`
}

// Grant is an address of a shared block that is in use, or reserved for a sticky name: then Node is
// empty.
type Grant struct {
	Node  string `json:"borrower"` // the name of the key is from the first schema
	Epoch uint64 `json:"epoch"`
	Nonce string `json:"nonce"`
}

// Holder is the attachment that holds a shared address.
type Holder struct {
	Schema    int        `json:"schema"`
	Pool      string     `json:"pool"`
	Addr      netip.Addr `json:"addr"`
	Node      string     `json:"node"`
	Epoch     uint64     `json:"epoch"`
	Network   string     `json:"network"`
	Container string     `json:"container"`
	IfName    string     `json:"ifname"`
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name,omitempty"` // of the pod, if the address is sticky
	Nonce     string     `json:"nonce"`
	Since     time.Time  `json:"since"`
}

// Sticky is the address that belongs to a name. It outlives its holder.
type Sticky struct {
	Schema    int        `json:"schema"`
	Pool      string     `json:"pool"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Addr      netip.Addr `json:"addr"`
}

// Tokens are the addresses of a namespace's quota that a node may use.
type Tokens struct {
	Schema    int    `json:"schema"`
	Namespace string `json:"namespace"`
	Node      string `json:"node"`
	Epoch     uint64 `json:"epoch"`
	Count     uint64 `json:"count"`
}

// Proof shows which process acts for a node. The agent replaces the value when it starts, and once in
// a lease time.
type Proof struct {
	Schema   int    `json:"schema"`
	Identity string `json:"identity"`
	Turn     uint64 `json:"turn"` // counts the replacements
	Value    string `json:"value"`
	// Contested is what showed that two processes use the identity, or "". Neither goes on until an
	// operator has decided.
	Contested string `json:"contested,omitempty"`
}

// Duration is a time.Duration that JSON documents write as "5m0s".
type Duration time.Duration

// String returns the duration as Go writes it.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// Decode reads a document of the store. The error names the key.
func Decode[T any](key string, value []byte) (v T, err error) {
	var head struct {
		Schema int `json:"schema"`
	}
	err = json.Unmarshal(value, &head)
	if err == nil && head.Schema > Schema {
		return v, fmt.Errorf("key %s: schema %d is newer than %d; update tenon-cluster", key,
			head.Schema, Schema)
	}
	if err == nil {
		err = json.Unmarshal(value, &v)
	}
	if err != nil {
		return *new(T), fmt.Errorf("key %s: %w", key, err)
	}
	return v, nil
}
