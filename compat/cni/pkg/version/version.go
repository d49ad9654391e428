// Package version compares versions of the specification, decodes replies to VERSION and decides
// whether a plugin supports the version of a configuration.
package version

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// The sets of versions that plugins usually support. Do not change them.
var (
	// All holds all versions that this module implements.
	All = PluginSupports(published()...)

	// Legacy holds the versions of plugins that do not know VERSION.
	Legacy = PluginSupports("0.1.0", "0.2.0")
)

// Current returns the newest version that this module implements.
func Current() string { return cni.Newest.String() }

// VersionsStartingFrom returns the versions of [All] from minVer on. It panics if minVer is none of
// them.
func VersionsStartingFrom(minVer string) PluginInfo {
	all := published()
	for len(all) > 0 && all[0] != minVer {
		all = all[1:]
	}
	return PluginSupports(all...)
}

func published() []string {
	var all []string
	for _, v := range cni.Versions() {
		all = append(all, v.String())
	}
	return all
}

// ParseVersion returns the three numbers of a version. The empty text means 0.1.0, and missing
// numbers are 0. The numbers may have a sign and leading zeros. With an error all three are -1.
func ParseVersion(version string) (int, int, int, error) {
	if version == "" {
		version = cni.V010.String()
	}
	parts := strings.Split(version, ".")
	names := [...]string{"major", "minor", "micro"}
	if len(parts) > len(names) {
		return -1, -1, -1, fmt.Errorf("invalid version %q: too many parts", version)
	}
	var numbers [len(names)]int
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil {
			return -1, -1, -1, fmt.Errorf("failed to convert %s version part %q: %w", names[i], part, err)
		}
		numbers[i] = n
	}
	return numbers[0], numbers[1], numbers[2], nil
}

// GreaterThan reports whether version is newer than otherVersion. It returns errors of
// [ParseVersion] for either.
func GreaterThan(version, otherVersion string) (bool, error) {
	c, err := compare(version, otherVersion)
	return c > 0 && err == nil, err
}

// GreaterThanOrEqualTo reports whether version is otherVersion or newer. It returns errors
// of [ParseVersion] for either.
func GreaterThanOrEqualTo(version, otherVersion string) (bool, error) {
	c, err := compare(version, otherVersion)
	return c >= 0 && err == nil, err
}

// compare returns the order of two versions by their numbers, as [slices.Compare] does.
func compare(a, b string) (int, error) {
	numbers := func(version string) ([]int, error) {
		major, minor, micro, err := ParseVersion(version)
		return []int{major, minor, micro}, err
	}
	first, err := numbers(a)
	if err != nil {
		return 0, err
	}
	second, err := numbers(b)
	if err != nil {
		return 0, err
	}
	return slices.Compare(first, second), nil
}
