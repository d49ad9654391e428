package types100

import "fmt"

// Interface is a network interface of a result.
type Interface struct {
	Name    string `json:"name"`
	Mac     string `json:"mac,omitempty"`
	Mtu     int    `json:"mtu,omitempty"`     // bytes. Since 1.1.0
	Sandbox string `json:"sandbox,omitempty"` // CNI_NETNS; empty on the host

	SocketPath string `json:"socketPath,omitempty"` // stands for the interface. Since 1.1.0
	PciID      string `json:"pciID,omitempty"`      // PCI address of the device. Since 1.1.0
}

// String returns the members of i in one line, for messages.
func (i *Interface) String() string { return fmt.Sprintf("%+v", *i) }

// Copy returns a copy of i. Copy of nil is nil.
func (i *Interface) Copy() *Interface {
	if i == nil {
		return nil
	}
	c := *i
	return &c
}

// Int returns a pointer to v, for [IPConfig.Interface].
func Int(v int) *int { return &v }
