package ns

import (
	"os"

	"github.com/containernetworking/cni/pkg/types"
)

// CheckNetNS reports whether nsPath is the network namespace of the calling thread. A path that
// cannot be read is not. The code is [types.ErrInvalidNetNS] if the calling thread's own namespace
// cannot be read. On systems other than Linux the answer is always false.
func CheckNetNS(nsPath string) (bool, *types.Error) {
	target, err := os.Stat(nsPath)
	if err != nil {
		return false, nil
	}
	own, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return false, types.NewError(types.ErrInvalidNetNS, "get plugin's netns failed", err.Error())
	}
	return os.SameFile(target, own), nil
}
