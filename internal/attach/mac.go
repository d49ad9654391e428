package attach

import (
	"cmp"
	"net"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// ParseMAC parses the MAC address requested for an interface and returns nil for "". Its errors
// have the code [cni.CodeInvalidConfig].
func ParseMAC(text string) (net.HardwareAddr, error) {
	if text == "" {
		return nil, nil
	}
	mac, err := net.ParseMAC(text)
	if err != nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "invalid args %s for MAC addr: %w", text, err)
	}
	if len(mac) != 6 || mac[0]&1 != 0 || mac.String() == "00:00:00:00:00:00" {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "mac: %s is not a unicast Ethernet address", mac).
			WithDetails("it must have 6 bytes that are not all zero, and the first byte must be even")
	}
	return mac, nil
}

// AskedMAC parses the MAC address for plugins with a key mac. The capability takes precedence over
// MAC in CNI_ARGS, and CNI_ARGS over the key. Unlike in [plugin.Request], args.cni.mac does not
// count, as in the upstream plugins.
func AskedMAC(c *plugin.Call, key string) (net.HardwareAddr, error) {
	args, err := cni.ParseArgs(c.Args)
	if err != nil {
		return nil, err
	}
	arg, _ := args.Get("MAC")
	return ParseMAC(cmp.Or(c.RuntimeConfig.MAC, arg, key))
}
