package types100

import (
	"github.com/containernetworking/cni/pkg/types"
	"io"
	"net"
)

const ImplementedSpecVersion string = "1.1.0"

type IPConfig struct {
	Address   net.IPNet
	Gateway   net.IP
	Interface *int
}

type Interface struct {
	Mac        string `json:"mac,omitempty"`
	Mtu        int    `json:"mtu,omitempty"`
	Name       string `json:"name"`
	PciID      string `json:"pciID,omitempty"`
	Sandbox    string `json:"sandbox,omitempty"`
	SocketPath string `json:"socketPath,omitempty"`
}

type Result struct {
	CNIVersion string         `json:"cniVersion,omitempty"`
	DNS        types.DNS      `json:"dns,omitempty"`
	IPs        []*IPConfig    `json:"ips,omitempty"`
	Interfaces []*Interface   `json:"interfaces,omitempty"`
	Routes     []*types.Route `json:"routes,omitempty"`
}

func GetResult(r types.Result) (*Result, error) { panic("not implemented") }

func Int(v int) *int { panic("not implemented") }

func NewResult(data []byte) (types.Result, error) { panic("not implemented") }

func NewResultFromResult(result types.Result) (*Result, error) { panic("not implemented") }

func (r *IPConfig) Copy() *IPConfig { panic("not implemented") }

func (r *IPConfig) MarshalJSON() ([]byte, error) { panic("not implemented") }

func (r *IPConfig) String() string { panic("not implemented") }

func (r *IPConfig) UnmarshalJSON(data []byte) error { panic("not implemented") }

func (r *Interface) Copy() *Interface { panic("not implemented") }

func (r *Interface) String() string { panic("not implemented") }

func (r *Result) GetAsVersion(version string) (types.Result, error) { panic("not implemented") }

func (r *Result) MarshalJSON() ([]byte, error) { panic("not implemented") }

func (r *Result) Print() error { panic("not implemented") }

func (r *Result) PrintTo(writer io.Writer) error { panic("not implemented") }

func (r *Result) Version() string { panic("not implemented") }
