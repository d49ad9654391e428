package journal

import (
	"encoding/json"

	"github.com/tenon-cni/tenon/cni"
)

// SetResult sets the addresses and interfaces of an attachment. r may be nil.
func (r *Record) SetResult(result *cni.Result) {
	if result == nil {
		return
	}
	r.Addresses, r.Interfaces = nil, nil
	for _, ip := range result.IPs {
		r.Addresses = append(r.Addresses, ip.Address.Addr())
	}
	for _, i := range result.Interfaces {
		r.Interfaces = append(r.Interfaces,
			Interface{Name: i.Name, MAC: i.MAC, Container: i.Sandbox != ""})
	}
}

// SetPorts sets the published ports from the capability argument portMappings. It ignores arguments
// that are no list of ports; portmap refuses them.
func (r *Record) SetPorts(portMappings json.RawMessage) {
	var ports []Port
	if len(portMappings) > 0 && json.Unmarshal(portMappings, &ports) == nil {
		r.Ports = ports
	}
}
