package types

import (
	"io"
	"net"
	"reflect"
)

const ErrDecodingFailure uint = 6

const ErrIOFailure uint = 5

const ErrIncompatibleCNIVersion uint = 1

const ErrInternal uint = 999

const ErrInvalidEnvironmentVariables uint = 4

const ErrInvalidNetNS uint = 8

const ErrInvalidNetworkConfig uint = 7

const ErrLimitedConnectivity uint = 51

const ErrPluginNotAvailable uint = 50

const ErrTryAgainLater uint = 11

const ErrUnknown uint = 0

const ErrUnknownContainer uint = 3

const ErrUnsupportedField uint = 2

type CommonArgs struct {
	IgnoreUnknown UnmarshallableBool `json:"ignoreunknown,omitempty"`
}

type DNS struct {
	Domain      string   `json:"domain,omitempty"`
	Nameservers []string `json:"nameservers,omitempty"`
	Options     []string `json:"options,omitempty"`
	Search      []string `json:"search,omitempty"`
}

type Error struct {
	Code    uint   `json:"code"`
	Details string `json:"details,omitempty"`
	Msg     string `json:"msg"`
}

type GCAttachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

type IPAM struct {
	Type string `json:"type,omitempty"`
}

type IPNet struct {
	IP   net.IP
	Mask net.IPMask
}

type NetConf = PluginConf

type NetConfList struct {
	CNIVersion   string        `json:"cniVersion,omitempty"`
	DisableCheck bool          `json:"disableCheck,omitempty"`
	DisableGC    bool          `json:"disableGC,omitempty"`
	Name         string        `json:"name,omitempty"`
	Plugins      []*PluginConf `json:"plugins,omitempty"`
}

type PluginConf struct {
	CNIVersion       string                 `json:"cniVersion,omitempty"`
	Capabilities     map[string]bool        `json:"capabilities,omitempty"`
	DNS              DNS                    `json:"dns,omitempty"`
	IPAM             IPAM                   `json:"ipam,omitempty"`
	Name             string                 `json:"name,omitempty"`
	PrevResult       Result                 `json:"-"`
	RawPrevResult    map[string]interface{} `json:"prevResult,omitempty"`
	Type             string                 `json:"type,omitempty"`
	ValidAttachments []GCAttachment         `json:"cni.dev/valid-attachments,omitempty"`
}

type Result interface {
	GetAsVersion(version string) (Result, error)
	Print() error
	PrintTo(writer io.Writer) error
	Version() string
}

type Route struct {
	AdvMSS   int
	Dst      net.IPNet
	GW       net.IP
	MTU      int
	Priority int
	Scope    *int
	Table    *int
}

type UnmarshalableArgsError struct {
	error
}

type UnmarshallableBool bool

type UnmarshallableString string

func GetKeyField(keyString string, v reflect.Value) reflect.Value { panic("not implemented") }

func LoadArgs(args string, container interface{}) error { panic("not implemented") }

func NewError(code uint, msg string, details string) *Error { panic("not implemented") }

func ParseCIDR(s string) (*net.IPNet, error) { panic("not implemented") }

func PrintResult(result Result, version string) error { panic("not implemented") }

func (r *DNS) Copy() *DNS { panic("not implemented") }

func (r *DNS) IsEmpty() bool { panic("not implemented") }

func (r *Error) Error() string { panic("not implemented") }

func (r *Error) Print() error { panic("not implemented") }

func (r *IPAM) IsEmpty() bool { panic("not implemented") }

func (r *IPNet) UnmarshalJSON(data []byte) error { panic("not implemented") }

func (r *PluginConf) MarshalJSON() ([]byte, error) { panic("not implemented") }

func (r *Route) Copy() *Route { panic("not implemented") }

func (r *Route) String() string { panic("not implemented") }

func (r *Route) UnmarshalJSON(data []byte) error { panic("not implemented") }

func (r *UnmarshallableBool) UnmarshalText(data []byte) error { panic("not implemented") }

func (r *UnmarshallableString) UnmarshalText(data []byte) error { panic("not implemented") }

func (r IPNet) MarshalJSON() ([]byte, error) { panic("not implemented") }

func (r Route) MarshalJSON() ([]byte, error) { panic("not implemented") }
