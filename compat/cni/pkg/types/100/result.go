// Package types100 holds the result of the versions 1.0.0 and 1.1.0: lists of interfaces, addresses
// and routes, in which addresses have no version.
package types100

import (
	"io"
	"os"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/internal/ordered"
	"github.com/containernetworking/cni/pkg/types/internal/results"
)

// ImplementedSpecVersion is the newest version of the results of this package.
const ImplementedSpecVersion string = "1.1.0"

// Result is a result of 1.0.0 or 1.1.0.
type Result struct {
	CNIVersion string         `json:"cniVersion,omitempty"`
	Interfaces []*Interface   `json:"interfaces,omitempty"`
	IPs        []*IPConfig    `json:"ips,omitempty"`
	Routes     []*types.Route `json:"routes,omitempty"`
	DNS        types.DNS      `json:"dns,omitempty"`
}

// NewResult decodes a result, a [*Result]. It is an error if the result has no version or one other
// than 1.0.0 and 1.1.0.
func NewResult(data []byte) (types.Result, error) {
	r := &Result{}
	if err := results.Unmarshal(data, r, supported); err != nil {
		return nil, err
	}
	return r, nil
}

// GetResult converts any result to 1.1.0. It returns the errors of [types.Result.GetAsVersion].
func GetResult(r types.Result) (*Result, error) {
	return results.Latest[*Result](r, ImplementedSpecVersion)
}

// NewResultFromResult converts any result to 1.1.0. Unlike [GetResult] it returns an error for a
// result without version.
func NewResultFromResult(result types.Result) (*Result, error) {
	return results.ConvertTo[*Result](result, ImplementedSpecVersion)
}

// MarshalJSON encodes r with sorted keys and without an empty dns object. It returns errors of
// encoding/json.
func (r *Result) MarshalJSON() ([]byte, error) {
	type plain Result
	return ordered.Marshal((*plain)(r))
}

// Version returns the version of r; it may be empty.
func (r *Result) Version() string { return r.CNIVersion }

// GetAsVersion returns r in another version, see [types.Result]. If r has no version, it gets 1.1.0
// first. It returns an error for an unknown version, and if r has no address that 0.2.0 can
// express.
func (r *Result) GetAsVersion(version string) (types.Result, error) {
	if r.CNIVersion == "" {
		r.CNIVersion = ImplementedSpecVersion
	}
	return results.Convert(r, version)
}

// Print writes r to standard output as JSON, indented by four blanks, without a final newline.
func (r *Result) Print() error { return r.PrintTo(os.Stdout) }

// PrintTo writes r to writer as JSON, indented by four blanks, without a final newline.
func (r *Result) PrintTo(writer io.Writer) error { return ordered.WriteIndented(writer, r) }
