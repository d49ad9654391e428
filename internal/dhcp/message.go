package dhcp

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

// Verb is the name of a request.
type Verb string

// The verbs.
const (
	Allocate Verb = "allocate"  // get an address, or return the one of the attachment
	Check    Verb = "check"     // return the address of the attachment, or why it has none
	Release  Verb = "release"   // release the address
	Collect  Verb = "collect"   // release addresses of attachments of a network not in Valid
	List     Verb = "list"      // all leases
	Status   Verb = "status"    // whether the daemon answers
	HandOver Verb = "hand over" // end, and leave the listening socket to the caller
)

// Request is a request of the plugin.
type Request struct {
	Verb      Verb                  `json:"verb"`
	Container string                `json:"containerID,omitempty"`
	IfName    string                `json:"ifname,omitempty"`
	Netns     string                `json:"netns,omitempty"`  // path
	Args      string                `json:"args,omitempty"`   // CNI_ARGS
	Config    json.RawMessage       `json:"config,omitempty"` // of the network
	Valid     []cni.ValidAttachment `json:"valid,omitempty"`  // Collect

	// NS is the namespace, if the client could open it: the daemon may not see the path. The owner
	// of the request closes it.
	NS *os.File `json:"-"`
}

// Reply is the answer of the daemon.
type Reply struct {
	Error  *Failure        `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"` // of version 1.1.0
	Leases []Lease         `json:"leases,omitempty"` // List

	// Listener is the socket of a daemon that has handed over. The owner of the reply closes it.
	Listener *os.File `json:"-"`
}

// Failure is an error object of CNI.
type Failure struct {
	Code    cni.Code `json:"code"`
	Msg     string   `json:"msg"`
	Details string   `json:"details,omitempty"`
}

// Fail returns the reply for an error.
func Fail(err error) *Reply {
	e := cni.AsError(err)
	return &Reply{Error: &Failure{e.Code, e.Msg, e.Details}}
}

// Err returns the error of the reply, or nil.
func (r *Reply) Err() error {
	if r.Error == nil {
		return nil
	}
	return cni.Errorf(r.Error.Code, "%s", r.Error.Msg).WithDetails(r.Error.Details)
}

// Lease is the state of an attachment in the daemon.
type Lease struct {
	Network   string         `json:"network"`
	Container string         `json:"containerID"`
	IfName    string         `json:"ifname"`
	Netns     string         `json:"netns"`
	State     string         `json:"state"`            // in words
	Reason    string         `json:"reason,omitempty"` // why there is no lease, or it could not be prolonged
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	Server    string         `json:"server,omitempty"`
	Renew     time.Time      `json:"renew,omitzero"`
	Expires   time.Time      `json:"expires,omitzero"` // zero: never
	DNS       cni.DNS        `json:"dns,omitzero"`     // as the servers say now
}

var (
	// ErrUnreachable reports that no daemon answers on the socket.
	ErrUnreachable = errors.New("nobody answers")
	// ErrUpstream reports that the upstream plugin's daemon has no such request.
	ErrUpstream = errors.New("the daemon is that of the reference plugin, which cannot do this")
)

// Each side of a connection sends the greeting first, as a line of at most MaxGreeting bytes.
const (
	Greeting    = "TENON-DHCP/1"
	MaxGreeting = 256
)
