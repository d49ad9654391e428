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
	Allocate Verb = "allocate" // get an address, or return the one of the attachment
	// Return the address of the attachment, or the reason that it has none.
	Check   Verb = "check"
	Release Verb = "release" // release the address
	// Release the addresses of all attachments of a network that are not in Valid.
	Collect  Verb = "collect"
	List     Verb = "list"      // return all leases
	Status   Verb = "status"    // succeed
	HandOver Verb = "hand over" // end, and pass the listening socket to the caller
)

// Request is a request of the plugin.
type Request struct {
	Verb      Verb                  `json:"verb"`
	Container string                `json:"containerID,omitempty"`
	IfName    string                `json:"ifname,omitempty"`
	Netns     string                `json:"netns,omitempty"`  // path
	Args      string                `json:"args,omitempty"`   // CNI_ARGS
	Config    json.RawMessage       `json:"config,omitempty"` // network configuration
	Valid     []cni.ValidAttachment `json:"valid,omitempty"`  // Collect

	// NS is the namespace if the client could open it, because the path may not exist where the
	// daemon runs. The owner of the request closes it.
	NS *os.File `json:"-"`
}

// Reply is the answer of the daemon.
type Reply struct {
	Error  *Failure        `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"` // CNI result of version 1.1.0
	Leases []Lease         `json:"leases,omitempty"` // List

	// Listener is the socket of a daemon that is being replaced. The owner of the reply closes it.
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
	Network   string `json:"network"`
	Container string `json:"containerID"`
	IfName    string `json:"ifname"`
	Netns     string `json:"netns"`
	State     string `json:"state"` // in words
	// Why there is no lease, or why it was not renewed.
	Reason    string         `json:"reason,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	Server    string         `json:"server,omitempty"`
	Renew     time.Time      `json:"renew,omitzero"`
	Expires   time.Time      `json:"expires,omitzero"` // zero: never
	DNS       cni.DNS        `json:"dns,omitzero"`     // as last sent by the servers
}

var (
	// ErrUnreachable reports that no daemon listens on the socket.
	ErrUnreachable = errors.New("no DHCP daemon is listening")
	// ErrUpstream reports that the upstream plugin's daemon does not support a request.
	ErrUpstream = errors.New("upstream's DHCP daemon does not support this request")
)

// Each side of a connection sends the greeting first, as a line of at most MaxGreeting bytes.
const (
	Greeting    = "TENON-DHCP/1"
	MaxGreeting = 256
)
