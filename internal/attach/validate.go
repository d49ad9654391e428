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

// ValidateMasqueradeBackend refuses a value of ipMasqBackend that [Session.Masquerade] cannot act on.
func ValidateMasqueradeBackend(backend string) error {
	switch backend {
	case "", "nftables":
		return nil
	case "iptables":
		return cni.Errorf(cni.CodeUnsupportedField, "ipMasqBackend: %s is not supported by this version of Tenon", backend)
	}
	return cni.Errorf(cni.CodeInvalidConfig, "ipMasqBackend: %q is neither \"nftables\" nor \"iptables\"", backend)
}
