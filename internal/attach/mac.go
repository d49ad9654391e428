package attach

import (
	"cmp"
	"net"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// ParseMAC reads the hardware address that an interface is to have; none is nil. The code of the error is
// [cni.CodeInvalidConfig].
func ParseMAC(text string) (net.HardwareAddr, error) {
	if text == "" {
		return nil, nil
	}
	mac, err := net.ParseMAC(text)
	if err != nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "invalid args %s for MAC addr: %w", text, err)
	}
	if len(mac) != 6 || mac[0]&1 != 0 || mac.String() == "00:00:00:00:00:00" {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "mac: %s is not the address of one Ethernet interface", mac).
			WithDetails("it has 6 bytes, not all zero, and the first of them is even")
	}
	return mac, nil
}

// AskedMAC is ParseMAC of the address that plugins with a key mac get: the capability wins over MAC in CNI_ARGS, and that over
// the key. Other than in [plugin.Request] args.cni.mac does not count, as with the reference plugins.
func AskedMAC(c *plugin.Call, key string) (net.HardwareAddr, error) {
	args, err := cni.ParseArgs(c.Args)
	if err != nil {
		return nil, err
	}
	arg, _ := args.Get("MAC")
	return ParseMAC(cmp.Or(c.RuntimeConfig.MAC, arg, key))
}
