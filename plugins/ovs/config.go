package ovs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	attach.Common
	Settings

	// ConfigurationPath is a JSON file with values for options that the network configuration
	// omits. If it does not exist, the files /etc/kubernetes/cni/net.d/ovs.d/ovs.conf and
	// /etc/cni/net.d/ovs.d/ovs.conf are tried.
	ConfigurationPath string `json:"configuration_path"`

	dial   Dialer
	alone  bool             // there is no switch, see [Plugin]
	file   error            // of reading the file with further options
	mac    net.HardwareAddr // derived from the call by [Config.Validate]
	ovn    string           // the port in OVN, or ""
	filled bool
	sw     Switch
}

// Settings are the options that the file at configuration_path can provide as well.
type Settings struct {
	// Bridge is the name of the Open vSwitch bridge. With a port in OVN the default is br-int.
	Bridge string `json:"bridge"`
	// CreateBridge creates the bridge if it does not exist. No call removes it.
	CreateBridge bool `json:"createBridge"`
	// DatapathType is the datapath of a bridge that ADD creates: "system" forwards packets in the
	// kernel, "netdev" in ovs-vswitchd.
	DatapathType Datapath `json:"datapathType" enum:"system,netdev" default:"system"`

	// VLAN makes the port an access port of this VLAN. With vxlanID it is the VLAN that represents
	// the segment on this bridge. It is ignored if trunk has elements.
	VLAN *int `json:"vlan" min:"1" max:"4094"`
	// Trunk makes the port a trunk of these VLANs. Without vlan, trunk and vxlanID the port is a
	// trunk of all VLANs, which excludes segments on the same bridge.
	Trunk []Trunk `json:"trunk"`

	// VXLANID is the VXLAN network identifier of the segment to which the container belongs. 0
	// means no segment. It excludes trunk.
	VXLANID int `json:"vxlanID" min:"0" max:"16777215"`
	// VXLANRemotes are the addresses of the other nodes of the segment. Addresses of this node are
	// skipped, so all nodes can have the same list.
	VXLANRemotes []netip.Addr `json:"vxlanRemotes"`
	// VXLANLocalIP is the source address of the tunnels. By default the node's routes decide.
	VXLANLocalIP netip.Addr `json:"vxlanLocalIP"`
	// VXLANPort is the UDP port of the tunnels.
	VXLANPort int `json:"vxlanPort" min:"1" max:"65535" default:"4789"`

	// MTU is the MTU of the veth pair in bytes. 0 keeps the kernel's default, or with vxlanRemotes
	// leaves room for the headers of the tunnels: 1450 over IPv4, 1430 over IPv6.
	MTU int `json:"mtu" min:"0" max:"65535"`
	// MAC is the MAC address of the container's interface, if the runtime requests none.
	MAC string `json:"mac"`
	// MACFromIP derives the MAC address from the first address of IPAM, unless an address is
	// requested: 0a:58 and the four bytes of an IPv4 address, or four bytes of the SHA-256 sum of an
	// IPv6 address.
	MACFromIP bool `json:"macFromIP"`
	// Isolated prevents the exchange of frames between this port and other isolated ports of the
	// bridge. It excludes vxlanRemotes.
	Isolated bool `json:"isolated"`

	// OFPortRequest is the requested OpenFlow port number. 0 lets the switch choose.
	OFPortRequest int `json:"ofport_request" min:"0" max:"65279"`
	// InterfaceType is the type of the interface in the database. The default is a kernel link.
	InterfaceType string `json:"interface_type"`
	// DeviceID is not supported: ADD with it fails with code 2.
	DeviceID string `json:"deviceID"`

	// SocketFile is the endpoint of the database: unix:PATH, tcp:ADDRESS:PORT, ssl:ADDRESS:PORT or
	// the path of a socket.
	SocketFile string `json:"socket_file" default:"unix:/var/run/openvswitch/db.sock"`
	// LinkStateCheckRetries is the number of intervals for which ADD waits for the port to come up,
	// at most 30 seconds in total. ADD waits only with ipam.
	LinkStateCheckRetries int `json:"link_state_check_retries" min:"0" default:"5"`
	// LinkStateCheckInterval is the length of such an interval in milliseconds.
	LinkStateCheckInterval int `json:"link_state_check_interval" min:"0" default:"600"`
}

const (
	integrationBridge = "br-int" // of OVN
	defaultSocket     = "unix:/var/run/openvswitch/db.sock"
	defaultPort       = 4789
	defaultRetries    = 5
	defaultInterval   = 600 // milliseconds

	maxVLAN     = 4094
	maxVNI      = 1<<24 - 1
	maxOpenFlow = 65279 // OFPP_MAX of the schema
	minMTU      = 68    // RFC 791
	minMTU6     = 1280  // RFC 8200, section 5

	// The MTU of a link that has the usual 1500 bytes, less the outer headers and the inner
	// Ethernet header (RFC 7348, section 4.3).
	tunnelMTU4 = 1500 - 50
	tunnelMTU6 = 1500 - 70
)

// flatFiles are tried after configuration_path.
var flatFiles = [...]string{
	"/etc/kubernetes/cni/net.d/ovs.d/ovs.conf",
	"/etc/cni/net.d/ovs.d/ovs.conf",
}

// fill adds the options of the first file that exists, and what the runtime requests. It works with
// any part of a request, for DEL and GC; the error concerns the file.
func (c *Config) fill(call *plugin.Call) error {
	if c.filled {
		return c.file
	}
	c.filled = true
	c.ovn = ovnPort(call)
	for _, path := range append([]string{c.ConfigurationPath}, flatFiles[:]...) {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var more Settings
		if err == nil {
			err = json.Unmarshal(text, &more)
		}
		if err != nil {
			c.file = cni.Errorf(cni.CodeInvalidConfig, "file with further options %s: %w", path, err)
			return c.file
		}
		complete(&c.Settings, more)
		break
	}
	return nil
}

// complete sets the options that have their zero value to those of more.
func complete(o *Settings, more Settings) {
	own, other := reflect.ValueOf(o).Elem(), reflect.ValueOf(more)
	for i := range own.NumField() {
		if own.Field(i).IsZero() {
			own.Field(i).Set(other.Field(i))
		}
	}
}

// ovnPort returns the port in OVN that the runtime requests: args.cni.ovnPort or, with less
// precedence, OvnPort in CNI_ARGS.
func ovnPort(call *plugin.Call) string {
	var request struct {
		Args struct {
			CNI struct {
				OvnPort any `json:"ovnPort"`
			} `json:"cni"`
		} `json:"args"`
	}
	if json.Unmarshal(call.Stdin(), &request) == nil {
		if port, ok := request.Args.CNI.OvnPort.(string); ok && port != "" {
			return port
		}
	}
	args, err := cni.ParseArgs(call.Args)
	if err != nil { // ADD refuses it before
		return ""
	}
	port, _ := args.Get("OvnPort")
	return port
}

func (c *Config) bridge() string {
	if c.Bridge == "" && c.ovn != "" {
		return integrationBridge
	}
	return c.Bridge
}

// endpoint returns the endpoint of the database in the form of a [Dialer].
func (c *Config) endpoint() string {
	e := cmp.Or(c.SocketFile, defaultSocket)
	for _, scheme := range []string{"unix:", "tcp:", "ssl:"} {
		if strings.HasPrefix(e, scheme) {
			return e
		}
	}
	return "unix:" + e
}

func (c *Config) datapath() Datapath { return cmp.Or(c.DatapathType, DatapathSystem) }

// mtu returns the MTU of the veth pair, or 0 for the kernel's default.
func (c *Config) mtu() int {
	switch {
	case c.MTU != 0 || len(c.VXLANRemotes) == 0:
		return c.MTU
	case c.VXLANRemotes[0].Is4():
		return tunnelMTU4
	}
	return tunnelMTU6
}

// patience returns the time that ADD waits for the port to come up.
func (c *Config) patience() time.Duration {
	retries := cmp.Or(c.LinkStateCheckRetries, defaultRetries)
	interval := cmp.Or(c.LinkStateCheckInterval, defaultInterval)
	return time.Duration(retries) * time.Duration(interval) * time.Millisecond
}

// tag returns the VLAN of an access port, or 0.
func (c *Config) tag() int {
	if c.VLAN == nil || len(c.Trunk) > 0 {
		return 0
	}
	return *c.VLAN
}

// segment returns the segment of the container, or nil. skip selects remotes that are this node.
func (c *Config) segment(skip func(netip.Addr) bool) *Segment {
	if c.VXLANID == 0 {
		return nil
	}
	s := &Segment{VNI: c.VXLANID, Tag: c.tag()}
	for _, remote := range c.VXLANRemotes {
		t := Tunnel{Remote: remote, Local: c.VXLANLocalIP, Port: cmp.Or(c.VXLANPort, defaultPort)}
		if remote != c.VXLANLocalIP && !skip(remote) && !slices.Contains(s.Tunnels, t) {
			s.Tunnels = append(s.Tunnels, t)
		}
	}
	return s
}

// invalid returns an error about an option.
func invalid(format string, args ...any) *cni.Error {
	return cni.Errorf(cni.CodeInvalidConfig, format, args...)
}

// Validate refuses contradictory options and values out of range.
func (c *Config) Validate(call *plugin.Call) (err error) {
	if err := c.fill(call); err != nil {
		return err
	}
	if c.DeviceID != "" {
		return cni.Errorf(cni.CodeUnsupportedField, "deviceID: hardware offload is not supported").
			WithDetails("remove deviceID to connect the container by a veth pair")
	}
	for _, validate := range []func() error{
		c.validateBridge, c.validateVLANs, c.validateSegment, c.validateInterface,
	} {
		if err := validate(); err != nil {
			return err
		}
	}
	if c.MACFromIP && call.IPAM.Type == "" {
		return invalid("macFromIP has no effect without ipam").
			WithDetails("add ipam, or remove macFromIP")
	}
	c.mac, err = attach.ParseMAC(cmp.Or(call.Asked.MAC, c.MAC))
	return err
}

func (c *Config) validateBridge() error {
	name := c.bridge()
	if name == "" {
		return invalid("bridge: the name of the bridge is missing").
			WithDetails(`add "bridge", the name of a bridge that "ovs-vsctl list-br" shows`)
	}
	if cni.ValidateIfName(name) != nil {
		return invalid("bridge: %q is not a valid interface name", name)
	}
	switch c.DatapathType {
	case "", DatapathSystem, DatapathNetdev:
	default:
		return invalid("datapathType: %q is unknown; use %q or %q", c.DatapathType, DatapathSystem,
			DatapathNetdev)
	}
	return validateEndpoint(c.endpoint())
}

func validateEndpoint(endpoint string) error {
	scheme, rest, _ := strings.Cut(endpoint, ":")
	if scheme == "unix" {
		if rest == "" {
			return invalid("socket_file: the path of the socket is missing")
		}
		return nil
	}
	if _, err := netip.ParseAddrPort(rest); err != nil {
		return invalid("socket_file: %q is not ADDRESS:PORT", rest).
			WithDetails("use the form tcp:192.0.2.1:6640 or ssl:[2001:db8::1]:6640")
	}
	return nil
}

func (c *Config) validateInterface() error {
	switch {
	case c.MTU < 0 || c.MTU > 0 && c.MTU < minMTU:
		return invalid("mtu: %d is less than %d", c.MTU, minMTU)
	case c.OFPortRequest < 0 || c.OFPortRequest > maxOpenFlow:
		return invalid("ofport_request: %d is not within 0 to %d", c.OFPortRequest, maxOpenFlow)
	case c.LinkStateCheckRetries < 0:
		return invalid("link_state_check_retries: %d is negative", c.LinkStateCheckRetries)
	case c.LinkStateCheckInterval < 0:
		return invalid("link_state_check_interval: %d is negative", c.LinkStateCheckInterval)
	}
	return attach.ValidateMTU(c.MTU)
}

func (c *Config) validateSegment() error {
	switch {
	case c.VXLANID < 0 || c.VXLANID > maxVNI:
		return invalid("vxlanID: %d is not within 1 to %d", c.VXLANID, maxVNI)
	case c.VXLANID != 0 && len(c.Trunk) > 0:
		return invalid("vxlanID excludes trunk").
			WithDetails("a port of a segment is an access port; use a network for each VLAN")
	case c.VXLANID == 0 && len(c.VXLANRemotes) > 0:
		return invalid("vxlanRemotes has no effect without vxlanID")
	case c.VXLANID == 0 && c.VXLANLocalIP.IsValid():
		return invalid("vxlanLocalIP has no effect without vxlanID")
	case c.VXLANPort < 0 || c.VXLANPort > 1<<16-1:
		return invalid("vxlanPort: %d is not within 1 to 65535", c.VXLANPort)
	case c.Isolated && len(c.VXLANRemotes) > 0:
		return invalid("isolated excludes vxlanRemotes").
			WithDetails("the switch passes no frames between isolated ports and tunnels")
	}
	all := c.VXLANRemotes
	if c.VXLANLocalIP != (netip.Addr{}) {
		all = append(slices.Clone(all), c.VXLANLocalIP)
	}
	for _, a := range all {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() || a.Zone() != "" {
			return invalid("vxlanRemotes: %q is not an address of a node", text(a))
		}
		if a.Is4() != all[0].Is4() {
			return invalid("vxlanRemotes: %s and %s are of different families", all[0], a).
				WithDetails("use one family for all tunnels of a network")
		}
	}
	return nil
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func (c *Config) validateVLANs() error {
	if c.VLAN != nil && (*c.VLAN < 1 || *c.VLAN > maxVLAN) {
		return invalid("vlan: %d is not within 1 to %d", *c.VLAN, maxVLAN)
	}
	for i, t := range c.Trunk {
		if t.valid() {
			continue
		}
		return invalid("trunk parameter is misconfigured").WithDetails(fmt.Sprintf(
			"trunk: element %d is %s; use id, or minID and maxID, from 1 to %d", i, t, maxVLAN))
	}
	return nil
}

// Trunk is an element of trunk: a single VLAN, a range, or both.
type Trunk struct {
	// ID is a single VLAN ID.
	ID *int `json:"id,omitempty" min:"1" max:"4094"`
	// MinID is the first VLAN ID of a range. It requires MaxID.
	MinID *int `json:"minID,omitempty" min:"1" max:"4094"`
	// MaxID is the last VLAN ID of a range. It requires MinID.
	MaxID *int `json:"maxID,omitempty" min:"1" max:"4094"`
}

func (t Trunk) valid() bool {
	for _, id := range []*int{t.ID, t.MinID, t.MaxID} {
		if id != nil && (*id < 1 || *id > maxVLAN) {
			return false
		}
	}
	if t.MinID == nil || t.MaxID == nil {
		return t.MinID == t.MaxID && t.ID != nil
	}
	return *t.MinID <= *t.MaxID
}

// String returns the element as JSON.
func (t Trunk) String() string {
	out, err := json.Marshal(t)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// trunks returns the VLANs of a trunk in ascending order; nil stands for all.
func (c *Config) trunks() (ids []int) {
	for _, t := range c.Trunk {
		if t.ID != nil {
			ids = append(ids, *t.ID)
		}
		if t.MinID != nil {
			for id := *t.MinID; id <= *t.MaxID; id++ {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
