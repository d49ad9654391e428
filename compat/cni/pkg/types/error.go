package types

import (
	"os"

	"github.com/containernetworking/cni/pkg/types/internal/ordered"
)

// The well-known codes of the specification (section "Error") and the de facto codes 8 and 999.
const (
	ErrUnknown                     uint = 0  // an error without a code
	ErrIncompatibleCNIVersion      uint = 1  // the CNI version is not supported
	ErrUnsupportedField            uint = 2  // an unsupported key or value, which the message names
	ErrUnknownContainer            uint = 3  // the container is unknown or no longer exists
	ErrInvalidEnvironmentVariables uint = 4  // a missing or invalid variable, which the message names
	ErrIOFailure                   uint = 5  // reading or writing failed
	ErrDecodingFailure             uint = 6  // a document is not JSON or has values of a wrong type
	ErrInvalidNetworkConfig        uint = 7  // the network configuration is not valid
	ErrInvalidNetNS                uint = 8  // CNI_NETNS is the plugin's own namespace
	ErrTryAgainLater               uint = 11 // a transient condition; the call may be repeated later
	ErrPluginNotAvailable          uint = 50 // STATUS: the plugin cannot serve ADD
	ErrLimitedConnectivity         uint = 51 // STATUS: existing containers are impaired, too
	ErrInternal                    uint = 999
)

// Error is the error object that a plugin prints.
type Error struct {
	Code    uint   `json:"code"`
	Msg     string `json:"msg"`
	Details string `json:"details,omitempty"`
}

// NewError returns an error object.
func NewError(code uint, msg string, details string) *Error {
	return &Error{Code: code, Msg: msg, Details: details}
}

// Error returns the message, followed by a semicolon and the details if there are any.
func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + "; " + e.Details
}

// Print writes e to standard output as JSON, indented by four blanks, without a final newline. It
// returns errors of encoding/json and of writing.
func (e *Error) Print() error { return ordered.WriteIndented(os.Stdout, e) }
