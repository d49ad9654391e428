// Package types020 holds the result of the versions 0.1.0 and 0.2.0: at most one address per
// family.
package types020

import (
	"io"
	"os"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/internal/ordered"
	"github.com/containernetworking/cni/pkg/types/internal/results"
)

// ImplementedSpecVersion is the newest version of the results of this package.
const ImplementedSpecVersion string = "0.2.0"

// decoded are the versions that a decoded result may have.
var decoded = []string{"", "0.1.0", ImplementedSpecVersion}

func init() {
	results.RegisterDecoder(decoded, NewResult)
	named := decoded[1:]
	results.RegisterConverter(named, named, results.Typed(convert))
}

// Result is a result of 0.1.0 or 0.2.0. Its JSON form always has the key dns.
type Result struct {
	CNIVersion string    `json:"cniVersion,omitempty"`
	IP4        *IPConfig `json:"ip4,omitempty"`
	IP6        *IPConfig `json:"ip6,omitempty"`
	DNS        types.DNS `json:"dns,omitempty"`
}

// NewResult decodes a result, a [*Result]. A result without version gets 0.1.0. It is an error if
// the result has a version other than 0.1.0 and 0.2.0.
func NewResult(data []byte) (types.Result, error) {
	r := &Result{}
	if err := results.Unmarshal(data, r, decoded); err != nil {
		return nil, err
	}
	if r.CNIVersion == "" {
		r.CNIVersion = "0.1.0"
	}
	return r, nil
}

// GetResult converts any result to 0.2.0. It returns an error for a result without version and if
// the result has no address.
func GetResult(r types.Result) (*Result, error) {
	return results.ConvertTo[*Result](r, ImplementedSpecVersion)
}

// Version returns the version of r; it may be empty.
func (r *Result) Version() string { return r.CNIVersion }

// GetAsVersion returns r in another version, see [types.Result]. If r has no version, it gets 0.2.0
// first. It returns an error for an unknown version, and if the package of that version is not
// linked into the program; package create links all of them.
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

// convert returns a deep copy of r with the version to.
func convert(r *Result, to string) (types.Result, error) {
	return &Result{CNIVersion: to, IP4: r.IP4.Copy(), IP6: r.IP6.Copy(), DNS: *r.DNS.Copy()}, nil
}
