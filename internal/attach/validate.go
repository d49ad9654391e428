package attach

import "github.com/tenon-cni/tenon/cni"

const maxMTU = 65535

// ValidateMTU refuses the MTU that no interface can have. 0 is the kernel's default.
func ValidateMTU(mtu int) error {
	if mtu < 0 || mtu > maxMTU {
		return cni.Errorf(cni.CodeInvalidConfig, "mtu: %d is not within 0 to %d", mtu, maxMTU)
	}
	return nil
}
