package dhcp

import (
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ledger"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// FileName returns the name of the file of an attachment.
func FileName(a cni.Attachment) string { return string(a.Owner()) }

// Dir returns the directory of a socket's files. The files are valid until the next boot, because
// no network namespace survives one.
func Dir(socket string) string { return socket + ".d" }

// LeaseFiles returns the lease files of the daemon at a socket.
func LeaseFiles(socket string) (ledger.Ledger, error) { return files(socket, "leases") }

// NoteFiles returns the notes about attachments that were deleted while no daemon ran at a socket.
func NoteFiles(socket string) (ledger.Ledger, error) { return files(socket, "deleted") }

func files(socket, name string) (ledger.Ledger, error) {
	id, err := statefile.BootID()
	return ledger.Ledger{Dir: Dir(socket) + "/" + name, Boot: id}, err
}
