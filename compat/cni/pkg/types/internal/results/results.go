// Package results knows the decoders and converters of all result types that are linked into the
// program. The packages of result types register themselves when they are initialized, because
// neither can import all the others. It holds no result type.
package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
)

// Decoder decodes a result.
type Decoder func(data []byte) (types.Result, error)

// Converter converts a result to the version to. It does not change or return its argument.
type Converter func(from types.Result, to string) (types.Result, error)

type versions struct{ from, to string }

var (
	decoders   = map[string]Decoder{}
	converters = map[versions]Converter{}
)

// errConvert reports that the Go type of a result does not belong to its version.
var errConvert = errors.New("failed to convert result")

// RegisterDecoder registers the decoder of some versions. It panics if one of them has a decoder.
func RegisterDecoder(supported []string, decode Decoder) {
	for _, v := range supported {
		if decoders[v] != nil {
			panic(fmt.Sprintf("CNI result version %q has two decoders", v))
		}
		decoders[v] = decode
	}
}

// RegisterConverter registers a converter between all versions of from and all versions of to. It
// panics if a pair of versions has a converter.
func RegisterConverter(from, to []string, convert Converter) {
	for _, f := range from {
		for _, t := range to {
			if converters[versions{f, t}] != nil {
				panic(fmt.Sprintf("CNI result version %q has two converters to %q", f, t))
			}
			converters[versions{f, t}] = convert
		}
	}
}

// Decode decodes a result by the decoder of a version.
func Decode(version string, data []byte) (types.Result, error) {
	decode := decoders[version]
	if decode == nil {
		return nil, fmt.Errorf("unsupported CNI result version %q", version)
	}
	return decode(data)
}

// Convert converts a result. The empty version means 0.1.0. It returns from itself if that has the
// version to.
func Convert(from types.Result, to string) (types.Result, error) {
	if to == "" {
		to = "0.1.0"
	}
	version := from.Version()
	if version == to {
		return from, nil
	}
	convert := converters[versions{version, to}]
	if convert == nil {
		return nil, fmt.Errorf("no converter for CNI result version %s to %s", version, to)
	}
	return convert(from, to)
}

// As returns r as type R. It returns an error if r has another type or is nil.
func As[R types.Result](r types.Result) (R, error) {
	as, ok := r.(R)
	if !ok {
		return as, errConvert
	}
	return as, nil
}

// Typed returns a converter that accepts only results of type R.
func Typed[R types.Result](convert func(from R, to string) (types.Result, error)) Converter {
	return func(from types.Result, to string) (types.Result, error) {
		r, err := As[R](from)
		if err != nil {
			return nil, err
		}
		return convert(r, to)
	}
}

// Unmarshal decodes data into r. It returns an error if the version of r is not supported then.
func Unmarshal(data []byte, r types.Result, supported []string) error {
	if err := json.Unmarshal(data, r); err != nil {
		return err
	}
	if !slices.Contains(supported, r.Version()) {
		return fmt.Errorf("result type supports %v but unmarshalled CNIVersion is %q",
			supported, r.Version())
	}
	return nil
}

// ConvertTo converts r to a version that has results of type R. It returns an error if r is nil or
// has no version.
func ConvertTo[R types.Result](r types.Result, version string) (R, error) {
	var none R
	if r == nil {
		return none, errConvert
	}
	converted, err := Convert(r, version)
	if err != nil {
		return none, err
	}
	return As[R](converted)
}

// Latest converts r by its own method to a version that has results of type R. The method first
// gives a result without version the newest version of its type. It returns an error if r is nil.
func Latest[R types.Result](r types.Result, version string) (R, error) {
	var none R
	if r == nil {
		return none, errConvert
	}
	converted, err := r.GetAsVersion(version)
	if err != nil {
		return none, err
	}
	return As[R](converted)
}

// Copies returns copies of the elements of a list; nil elements stay nil. The copy of an empty list
// is nil.
func Copies[E interface{ Copy() E }](list []E) []E {
	var copies []E
	for _, e := range list {
		copies = append(copies, e.Copy())
	}
	return copies
}
