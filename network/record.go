package network

import (
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
)

// State is how far an attachment has come.
type State string

// The states of a recorded attachment.
const (
	// Adding is written before the first plugin runs. If nobody works on the attachment any more, its
	// ADD was cut short, or failed and could not be taken back: DEL is due. So it is for an attachment that belongs to
	// a [Manager.Setup] which has not come to its end.
	Adding State = "adding"

	// Attached is written when the last plugin has succeeded.
	Attached State = "attached"

	// Deleting is noted before the first plugin gets DEL, or before the first of several attachments that
	// [Manager.Remove] takes away. If nobody works on the attachment any more, that DEL was cut short or failed, and
	// is due again.
	Deleting State = "deleting"
)

// ReferenceRuntime is what stands for [Client.Runtime] where an attachment was made with the reference library
// (libcni), which keeps no such name.
const ReferenceRuntime = "libcni"

// Record is what is remembered of an attachment, from before the first plugin runs until all have
// succeeded on DEL.
type Record struct {
	Attachment cni.Attachment
	State      State
	List       *cni.List // as it was run: drop-ins included, in the version that was selected
	Parameters           // what Add was given

	// Result is that of the last plugin. It is nil before there is one, where it cannot be read, and
	// where it cannot be expressed in the version of the list (0.1.0 and 0.2.0 know no interface without an address).
	Result *cni.Result

	Created time.Time // begin of the ADD
	Done    time.Time // its end; zero before
	BootID  string    // of the kernel that ran then (random/boot_id); no namespace outlives it

	Runtime string // [Client.Runtime] of the ADD

	// Source is the file of the reference library that all this comes from, empty for what this library has
	// recorded. Such a file tells no boot, and of times only when it was written.
	Source string
}

// publicRecord returns a record as callers see it.
func publicRecord(r *records.Record) Record {
	return Record{
		Attachment: r.Attachment, State: State(r.State), List: r.List, Parameters: Parameters(r.Parameters), Result: r.Result,
		Created: r.Created, Done: r.Done, BootID: r.BootID, Runtime: r.Runtime, Source: r.Source,
	}
}

func publicRecords(found []*records.Record) []Record {
	var public []Record
	for _, r := range found {
		public = append(public, publicRecord(r))
	}
	return public
}
