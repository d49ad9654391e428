// Package utils checks the names in a request as libcni does.
package utils

import (
	"strings"
	"unicode"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/tenon-cni/tenon/cni"
)

// maxInterfaceName is the longest name of an interface in bytes (Linux IFNAMSIZ less the NUL).
const maxInterfaceName = 15

// ValidateContainerID checks a container ID: an ASCII letter or digit, followed by letters, digits,
// underscores, dots and hyphens. The code is [types.ErrUnknownContainer] for the empty ID and
// [types.ErrInvalidEnvironmentVariables] for others.
func ValidateContainerID(containerID string) *types.Error {
	switch {
	case containerID == "":
		return types.NewError(types.ErrUnknownContainer, "missing containerID", "")
	case cni.ValidateContainerID(containerID) != nil:
		return types.NewError(types.ErrInvalidEnvironmentVariables,
			"invalid characters in containerID", containerID)
	}
	return nil
}

// ValidateNetworkName checks the name of a network by the rule for container IDs. The code is
// [types.ErrInvalidNetworkConfig].
func ValidateNetworkName(networkName string) *types.Error {
	switch {
	case networkName == "":
		return types.NewError(types.ErrInvalidNetworkConfig, "missing network name:", "")
	case cni.ValidateNetworkName(networkName) != nil:
		return types.NewError(types.ErrInvalidNetworkConfig,
			"invalid characters found in network name", networkName)
	}
	return nil
}

// ValidateInterfaceName checks the name of an interface: 1 to 15 bytes, not "." or "..", without
// slash, colon and Unicode white space. It accepts some names that Tenon's own packages refuse
// because the kernel would: those with NUL, a percent sign or the byte 0xA0. The code is
// [types.ErrInvalidEnvironmentVariables].
func ValidateInterfaceName(ifName string) *types.Error {
	msg, details := "", ""
	switch {
	case ifName == "":
		msg = "interface name is empty"
	case len(ifName) > maxInterfaceName:
		msg = "interface name is too long"
		details = "interface name should be less than 16 characters"
	case ifName == "." || ifName == "..":
		msg = "interface name is . or .."
	case strings.ContainsAny(ifName, "/:") || strings.ContainsFunc(ifName, unicode.IsSpace):
		msg = "interface name contains / or : or whitespace characters"
	default:
		return nil
	}
	return types.NewError(types.ErrInvalidEnvironmentVariables, msg, details)
}
