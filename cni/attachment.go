package cni

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Attachment is the key of an attachment: one network applied to one container under one interface
// name (specification 0.4.0; from 1.0.0 on the network is implied).
type Attachment struct {
	Network   string
	Container string // container ID
	IfName    string // interface name in the container
}

// String returns the key in readable form, "network/container/interface".
func (a Attachment) String() string { return a.Network + "/" + a.Container + "/" + a.IfName }

// Validate checks the three parts with [ValidateNetworkName], [ValidateContainerID] and
// [ValidateIfName].
func (a Attachment) Validate() error {
	if err := ValidateNetworkName(a.Network); err != nil {
		return err
	}
	if err := ValidateContainerID(a.Container); err != nil {
		return err
	}
	return ValidateIfName(a.IfName)
}

// Owner is a stable name of an attachment: exactly 32 lower-case hexadecimal digits. The first half
// depends only on the network, so that all objects of a network can be found without knowing its
// attachments. Every object created for an attachment, on disk and in the kernel, carries the
// owner, so the algorithm that computes it never changes.
type Owner string

// ownerHalf is the length of each half of an Owner.
const ownerHalf = 16

// Owner returns the owner of a.
func (a Attachment) Owner() Owner {
	return Owner(NetworkOwner(a.Network) + digest(a.Network+"\x00"+a.Container+"\x00"+a.IfName))
}

// NetworkOwner returns the prefix that the owners of all attachments of a network share.
func NetworkOwner(network string) string { return digest(network) }

func digest(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:ownerHalf/2])
}

// Network returns the first half of o, which is equal for all attachments of one network.
func (o Owner) Network() string { return string(o[:min(ownerHalf, len(o))]) }

// Valid reports whether o has the form of a result of [Attachment.Owner].
func (o Owner) Valid() bool {
	_, err := hex.DecodeString(string(o))
	return err == nil && len(o) == 2*ownerHalf && string(o) == strings.ToLower(string(o))
}

// tagPrefix marks objects that Tenon created; maxTag is the maximum length of a comment in
// nftables.
const (
	tagPrefix = "tenon:"
	maxTag    = 127
)

// Tag returns the mark of all kernel objects (link alias, comment) created for a: the owner for
// programs, then the key for people, truncated to 127 bytes. See [ParseTag]. Like [Owner], the
// format never changes.
func (a Attachment) Tag() string {
	tag := fmt.Sprintf("%s%s %s %s %s", tagPrefix, a.Owner(), a.Network, a.IfName, a.Container)
	return strings.ToValidUTF8(tag[:min(len(tag), maxTag)], "")
}

// ParseTag returns the owner in a link alias or a comment; ok is false if the text is not a tag of
// Tenon.
func ParseTag(tag string) (o Owner, ok bool) {
	rest, ok := strings.CutPrefix(tag, tagPrefix)
	if !ok {
		return "", false
	}
	first, _, _ := strings.Cut(rest, " ")
	if o = Owner(first); !o.Valid() {
		return "", false
	}
	return o, true
}
