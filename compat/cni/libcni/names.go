package libcni

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
)

const noPath = "it must not be a path"

// pathLike reports whether a name leads to another directory when it is part of a path.
func pathLike(name string) bool {
	return name == "." || name == ".." ||
		strings.ContainsAny(name, "/"+string(filepath.Separator))
}

// refusePaths returns a [*types.Error] if a part of the key of an attachment is a path. Plugins and
// the cache build file names from these parts. Only ADD checks the parts completely, because DEL
// must be able to clean up.
func refusePaths(network string, rt *RuntimeConf) error {
	for _, part := range []struct {
		name, value string
		code        uint
	}{
		{"network name", network, types.ErrInvalidNetworkConfig},
		{"container ID", rt.ContainerID, types.ErrInvalidEnvironmentVariables},
		{"interface name", rt.IfName, types.ErrInvalidEnvironmentVariables},
	} {
		if pathLike(part.value) {
			return types.NewError(part.code,
				fmt.Sprintf("invalid %s %q", part.name, part.value), noPath)
		}
	}
	return nil
}

// validate checks the key of an attachment before ADD.
func validate(network string, rt *RuntimeConf) error {
	if err := utils.ValidateContainerID(rt.ContainerID); err != nil {
		return err
	}
	if err := utils.ValidateNetworkName(network); err != nil {
		return err
	}
	if err := utils.ValidateInterfaceName(rt.IfName); err != nil {
		return err
	}
	return nil
}
