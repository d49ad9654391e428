package attach

import (
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

const maxMTU = 65535

// ValidateMTU refuses the MTU that no interface can have. 0 is the kernel's default.
func ValidateMTU(mtu int) error {
	if mtu < 0 || mtu > maxMTU {
		return cni.Errorf(cni.CodeInvalidConfig, "mtu: %d is not within 0 to %d", mtu, maxMTU)
	}
	return nil
}

// validate checks what all configurations have in common. inherits says that addresses can come from the plugins before.
func validate(c *plugin.AnyCall, inherits bool) error {
	given := c.IPAM.Type != "" || inherits && c.Prev != nil && len(c.Prev.IPs) > 0
	if !given && c.Version.SameForm(cni.V010) {
		return cni.Errorf(cni.CodeInvalidConfig, "cannot convert: no valid IP addresses").
			WithDetails(fmt.Sprintf("CNI version %v cannot describe a network without ipam; "+
				"add ipam or use cniVersion 0.3.0 or newer", c.Version))
	}
	if c.IPAM.Type != "" {
		if err := cni.ValidatePluginType(c.IPAM.Type); err != nil {
			return fmt.Errorf("ipam: %w", err)
		}
	}
	if err := validateSecondDefault(secondDefault(c.Config())); err != nil {
		return err
	}
	if err := validateDAD(c.Config()); err != nil {
		return err
	}
	return masqOf(c.Config()).validate(c.Env, c.Name)
}
