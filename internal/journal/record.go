package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

// Version is the version of the format of [Record].
const Version = 1

// Kind is the origin of a record.
type Kind string

// The kinds.
const (
	Operation Kind = "operation" // of a runtime with package network
	Rollback  Kind = "rollback"  // DEL after a failed ADD
	Cleanup   Kind = "cleanup"   // DEL by GC, by recovery, or before an ADD
	Plugin    Kind = "plugin"    // one plugin that another runtime started
)

// Record describes an operation that has ended.
type Record struct {
	Version int           `json:"v"`
	Time    time.Time     `json:"time"`            // end, by the wall clock
	Boot    string        `json:"boot,omitzero"`   // ID of the boot
	Uptime  time.Duration `json:"uptime,omitzero"` // end, nanoseconds since the boot
	Kind    Kind          `json:"kind"`
	Verb    cni.Command   `json:"verb"`

	Network   string `json:"network,omitzero"`
	Container string `json:"container,omitzero"`
	IfName    string `json:"ifname,omitzero"`

	Code     cni.Code      `json:"code,omitzero"` // 0 is success
	Error    string        `json:"error,omitzero"`
	Duration time.Duration `json:"duration"`         // nanoseconds
	Plugins  []Call        `json:"plugins,omitzero"` // in the order of the calls

	Addresses  []netip.Addr `json:"addresses,omitzero"`
	Interfaces []Interface  `json:"interfaces,omitzero"`
	Ports      []Port       `json:"ports,omitzero"`
	Netns      string       `json:"netns,omitzero"`

	// Keep lists the attachments in use, CONTAINER/INTERFACE, of a GC of a plugin. It is nil if they
	// are not known or too many.
	Keep []string `json:"keep,omitzero"`

	Runtime string `json:"runtime,omitzero"` // its name, or the name of the parent process
	PID     int    `json:"pid"`
}

// Call is one call of a plugin.
type Call struct {
	Type     string        `json:"type"`
	Duration time.Duration `json:"duration,omitzero"` // nanoseconds
	Code     cni.Code      `json:"code,omitzero"`
}

// Interface is an interface of an attachment.
type Interface struct {
	Name      string `json:"name"`
	MAC       string `json:"mac,omitzero"`
	Container bool   `json:"container,omitzero"` // otherwise on the host
}

// Port is a published port, as the runtime has requested it.
type Port struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitzero"`
}

// Attachment returns the key of the attachment.
func (r *Record) Attachment() cni.Attachment {
	return cni.Attachment{Network: r.Network, Container: r.Container, IfName: r.IfName}
}

// Failed reports whether the operation returned an error.
func (r *Record) Failed() bool { return r.Code != 0 }

// A record on disk is a JSON text in a sequence (RFC 7464): a record separator, which JSON does not
// contain, the text, and a line feed. A reader finds the next record after a torn one by the
// separator. The last member of the text is the 64-bit FNV-1a hash of the bytes
// before it. A CRC would need tables, which take a plugin process longer than its record.
const (
	separator = 0x1e
	sumHead   = `,"sum":"`
	sumTail   = "\"}\n"
	sumLen    = len(sumHead) + 16 + len(sumTail)
)

func checksum(b []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(b) // never fails
	return fmt.Sprintf("%016x", h.Sum64())
}

// ends are the bytes that end a record: its line feed, or the separator of the next one if it is torn.
const ends = "\n\x1e"

// errDamaged reports bytes that are not a whole record of this version.
var errDamaged = errors.New("damaged journal record")

// decode decodes one record, without its separator.
func decode(b []byte) (r Record, err error) {
	split := len(b) - sumLen
	if split < 0 || !bytes.HasPrefix(b[split:], []byte(sumHead)) ||
		!bytes.HasSuffix(b, []byte(sumTail)) {
		return r, errDamaged
	}
	if sum := b[split+len(sumHead) : len(b)-len(sumTail)]; string(sum) != checksum(b[:split]) {
		return r, errDamaged
	}
	err = json.Unmarshal(b, &r)
	if err == nil && r.Version != Version {
		err = errDamaged
	}
	return r, err
}

// decodeAll decodes the records in a segment. It returns the number of pieces that are not whole
// records, and the last piece if it is not whole: its writer may be at work.
func decodeAll(b []byte) (found []Record, damaged int, rest []byte) {
	for len(b) > 0 {
		start := bytes.IndexByte(b, separator)
		if start != 0 {
			damaged++ // bytes before the first separator
		}
		if start < 0 {
			return found, damaged, nil
		}
		piece := b[start+1:]
		end := bytes.IndexAny(piece, ends)
		if end < 0 {
			return found, damaged, b[start:]
		}
		if piece[end] == '\n' {
			end++
		}
		if r, err := decode(piece[:end]); err == nil {
			found = append(found, r)
		} else {
			damaged++
		}
		b = piece[end:]
	}
	return found, damaged, nil
}
