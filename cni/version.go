package cni

import (
	"slices"
	"strconv"
	"strings"
)

// Version is a published version of the specification. Versions are ordered: compare them with <
// and >. The zero value is not a version.
type Version uint8

// The published versions, oldest first.
const (
	V010 Version = iota + 1 // 0.1.0
	V020                    // 0.2.0
	V030                    // 0.3.0
	V031                    // 0.3.1
	V040                    // 0.4.0
	V100                    // 1.0.0
	V110                    // 1.1.0

	// Newest is the newest version that this package implements.
	Newest = V110
)

var versionNames = [...]string{"", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Versions returns all published versions, oldest first.
func Versions() []Version { return []Version{V010, V020, V030, V031, V040, V100, V110} }

// String returns the version as the protocol writes it, "1.1.0".
func (v Version) String() string {
	if int(v) < len(versionNames) {
		return versionNames[v]
	}
	return "Version(" + strconv.Itoa(int(v)) + ")"
}

// MarshalText implements [encoding.TextMarshaler].
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// ParseVersion parses the value of a cniVersion member. The empty string means 0.1.0, because the
// member was introduced with 0.2.0. The code is [CodeDecodingFailure] for text that is not three
// decimal numbers, and [CodeIncompatibleVersion] for a well-formed version that was never published
// or is newer than [Newest].
func ParseVersion(s string) (Version, error) {
	if s == "" {
		return V010, nil
	}
	if i := slices.Index(versionNames[:], s); i > 0 {
		return Version(i), nil
	}
	if !wellFormedVersion(s) {
		return 0, Errorf(CodeDecodingFailure,
			"cniVersion %q is not of the form MAJOR.MINOR.PATCH", s)
	}
	return 0, Errorf(CodeIncompatibleVersion, "CNI version %q is not supported", s).
		WithDetails(supported())
}

func supported() string { return "supported: " + strings.Join(versionNames[1:], ", ") }

// wellFormedVersion reports whether s is three decimal numbers without leading zeros (Semantic
// Versioning 2.0.0, 2).
func wellFormedVersion(s string) bool {
	numbers := strings.Split(s, ".")
	return len(numbers) == 3 && !slices.ContainsFunc(numbers, func(n string) bool {
		return n == "" || strings.Trim(n, "0123456789") != "" || len(n) > 1 && n[0] == '0'
	})
}

// SelectVersion returns the version in which a network runs: the newest supported one of cniVersion
// and cniVersions (specification 1.1.0, "Network configuration format"). It skips versions that
// this package does not support. If cniVersions is empty, cniVersion alone decides, and an empty
// cniVersion means 0.1.0. The code is [CodeDecodingFailure] if any entry of cniVersions is not a
// version, and [CodeIncompatibleVersion] if no version is supported.
func SelectVersion(cniVersion string, cniVersions []string) (Version, error) {
	all, err := candidates(cniVersion, cniVersions)
	if err != nil {
		return 0, err
	}
	return slices.Max(all), nil
}

// candidates returns the versions from which [SelectVersion] chooses: at least one, oldest first.
func candidates(cniVersion string, cniVersions []string) ([]Version, error) {
	if len(cniVersions) == 0 {
		v, err := ParseVersion(cniVersion)
		return []Version{v}, at("cniVersion", err)
	}
	var all []Version
	read := func(s string) error {
		v, err := ParseVersion(s)
		if CodeOf(err) == CodeDecodingFailure {
			return err
		}
		if err == nil {
			all = append(all, v)
		}
		return nil
	}
	for i, s := range cniVersions {
		err := read(s)
		if s == "" {
			err = Errorf(CodeDecodingFailure, "cniVersions has an empty entry")
		}
		if err != nil {
			return nil, at("cniVersions", at(strconv.Itoa(i), err))
		}
	}
	asked := cniVersions
	if cniVersion != "" {
		if err := read(cniVersion); err != nil {
			return nil, at("cniVersion", err)
		}
		asked = append(slices.Clone(asked), cniVersion)
	}
	if all == nil {
		err := Errorf(CodeIncompatibleVersion, "none of the CNI versions %q is supported", asked)
		return nil, at("cniVersions", err.WithDetails(supported()))
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Has reports whether the verb exists in this version of the specification.
func (v Version) Has(c Command) bool {
	switch c {
	case Add, Del, VersionCommand:
		return true
	case Check:
		return v >= V040
	case GC, Status:
		return v >= V110
	}
	return false
}

// PrevResultOnDel reports whether a DEL of this version carries the result of ADD.
func (v Version) PrevResultOnDel() bool { return v >= V040 }

// SameForm reports whether results of v and w have the same form, so that either can be decoded as
// the other.
func (v Version) SameForm(w Version) bool { return v.generation() == w.generation() }

// generation is a group of versions with the same form of result.
type generation uint8

const (
	genA generation = iota // 0.1.0, 0.2.0: ip4, ip6
	genB                   // 0.3.0 to 0.4.0: ips with a version member
	genC                   // 1.0.0, 1.1.0: ips without version member
)

func (v Version) generation() generation {
	switch {
	case v <= V020:
		return genA
	case v <= V040:
		return genB
	}
	return genC
}
