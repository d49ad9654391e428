package types040

import (
	"encoding/json"
	"fmt"
	"net"

	"github.com/containernetworking/cni/pkg/types"
)

// IPConfig is an address of a result.
type IPConfig struct {
	Version   string    // "4" or "6"
	Interface *int      // index into Result.Interfaces; nil if the address belongs to none
	Address   net.IPNet // the address with its prefix length
	Gateway   net.IP
}

// ipConfig is the JSON form of an IPConfig.
type ipConfig struct {
	Version   string      `json:"version"`
	Interface *int        `json:"interface,omitempty"`
	Address   types.IPNet `json:"address"`
	Gateway   net.IP      `json:"gateway,omitempty"`
}

// String returns the members of i in one line, for messages: the mask is hexadecimal, and "<nil>"
// stands for an absent interface.
func (i *IPConfig) String() string {
	index := "<nil>"
	if i.Interface != nil {
		index = fmt.Sprint(*i.Interface)
	}
	return fmt.Sprintf("{Version:%s Interface:%s Address:%+v Gateway:%v}",
		i.Version, index, i.Address, i.Gateway)
}

// Copy returns a copy of i with its own index; the copy shares the bytes of the addresses. Copy of
// nil is nil.
func (i *IPConfig) Copy() *IPConfig {
	if i == nil {
		return nil
	}
	c := *i
	if i.Interface != nil {
		c.Interface = Int(*i.Interface)
	}
	return &c
}

// MarshalJSON encodes the version, the address and the members that are present. It keeps the index
// 0.
func (i *IPConfig) MarshalJSON() ([]byte, error) {
	return json.Marshal(ipConfig{
		Version:   i.Version,
		Interface: i.Interface,
		Address:   types.IPNet(i.Address),
		Gateway:   i.Gateway,
	})
}

// UnmarshalJSON decodes an address and replaces all members of i. It accepts missing members. It
// returns errors of encoding/json and, for the address, of [types.ParseCIDR].
func (i *IPConfig) UnmarshalJSON(data []byte) error {
	var w ipConfig
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*i = IPConfig{
		Version:   w.Version,
		Interface: w.Interface,
		Address:   net.IPNet(w.Address),
		Gateway:   w.Gateway,
	}
	return nil
}
