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
	// Adding is written before the first plugin runs. If no operation on the attachment is in
	// progress, its ADD was interrupted, or failed and could not be rolled back: DEL is due. This
	// includes the attachments of a [Manager.Setup] that was interrupted.
	Adding State = "adding"

	// Attached is written when the last plugin has succeeded.
	Attached State = "attached"

	// Deleting is written before the first plugin gets DEL, and before [Manager.Remove] detaches
	// the first of several attachments. If no operation on the attachment is in progress, that DEL
	// was interrupted or failed, and is due again.
	Deleting State = "deleting"
)

// ReferenceRuntime is the [Record.Runtime] of attachments of libcni, which stores no name of the
// runtime.
const ReferenceRuntime = "libcni"

// Record describes an attachment. It exists from before the first plugin runs until every plugin
// has succeeded on DEL.
type Record struct {
	Attachment cni.Attachment
	State      State
	List       *cni.List // as it was run: drop-ins included, in the version that was selected
	Parameters           // what Add was given

	// Result is the result of the last plugin. It is nil before ADD ends, if it cannot be read, and
	// if the version of the list cannot express it (0.1.0 and 0.2.0 have no interface without an
	// address).
	Result *cni.Result

	Created time.Time // begin of the ADD
	Done    time.Time // its end; zero before
	BootID  string    // of the kernel that ran then (random/boot_id); no namespace outlives it

	Runtime string // [Client.Runtime] of the ADD

	// Source is the path of the file of libcni, empty for a record of this library. Such a file
	// names no boot, and its only time is the time of its last change.
	Source string

	// StateDir is the state directory that has the record, empty for a file of libcni.
	StateDir string
}

// publicRecord converts a record.
func publicRecord(r *records.Record) Record {
	return Record{
		Attachment: r.Attachment, State: State(r.State), List: r.List,
		Parameters: Parameters(r.Parameters), Result: r.Result,
		Created: r.Created, Done: r.Done, BootID: r.BootID, Runtime: r.Runtime, Source: r.Source,
		StateDir: r.StateDir,
	}
}

func publicRecords(found []*records.Record) []Record {
	var public []Record
	for _, r := range found {
		public = append(public, publicRecord(r))
	}
	return public
}
