//go:build !linux

package ns

import "github.com/containernetworking/cni/pkg/types"

// CheckNetNS returns false: only Linux has network namespaces.
func CheckNetNS(nsPath string) (bool, *types.Error) { return false, nil }
