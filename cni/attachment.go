package cni

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Attachment is the key of an attachment: one network applied to one container under one interface name
// (specification 0.4.0; from 1.0.0 on the network is implied).
type Attachment struct {
	Network   string
	Container string // container ID
	IfName    string // interface name in the container
}

// String returns the key for people, "network/container/interface".
func (a Attachment) String() string { return a.Network + "/" + a.Container + "/" + a.IfName }

// Validate checks the three parts with [ValidateNetworkName], [ValidateContainerID] and [ValidateIfName].
func (a Attachment) Validate() error {
	if err := ValidateNetworkName(a.Network); err != nil {
		return err
	}
	if err := ValidateContainerID(a.Container); err != nil {
		return err
	}
	return ValidateIfName(a.IfName)
}

// Owner is a stable name of an attachment with a fixed length of 32 lower-case hexadecimal digits. The first half
// depends on the network alone, so that everything of a network can be found without knowing its attachments.
// Whatever is created for an attachment carries it, on disk and in the kernel, so the way it is computed never
// changes.
type Owner string

// ownerHalf is the length of each half of an Owner.
const ownerHalf = 16

// Owner returns the owner of a.
func (a Attachment) Owner() Owner {
	return Owner(NetworkOwner(a.Network) + digest(a.Network+"\x00"+a.Container+"\x00"+a.IfName))
}

// NetworkOwner returns what the owners of all attachments of a network begin with.
func NetworkOwner(network string) string { return digest(network) }

func digest(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:ownerHalf/2])
}

// Network returns the first half of o, equal for all attachments of one network.
func (o Owner) Network() string { return string(o[:min(ownerHalf, len(o))]) }

// Valid reports whether o has the form that [Attachment.Owner] gives it.
func (o Owner) Valid() bool {
	_, err := hex.DecodeString(string(o))
	return err == nil && len(o) == 2*ownerHalf && string(o) == strings.ToLower(string(o))
}

// tagPrefix marks what Tenon made; maxTag is what nftables lets a comment have.
const (
	tagPrefix = "tenon:"
	maxTag    = 127
)

// Tag returns the mark that everything made for a in the kernel carries (link alias, comment): the owner for programs,
// then the key for people, cut at 127 bytes. See [ParseTag]. Like [Owner] it never changes.
func (a Attachment) Tag() string {
	tag := fmt.Sprintf("%s%s %s %s %s", tagPrefix, a.Owner(), a.Network, a.IfName, a.Container)
	return strings.ToValidUTF8(tag[:min(len(tag), maxTag)], "")
}

// ParseTag returns the owner that a link alias or a comment names; ok is false if it is none of ours.
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
