package all_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/bandwidth"
	"github.com/tenon-cni/tenon/plugins/hostdevice"
	"github.com/tenon-cni/tenon/plugins/portmap"
)

// arguments has a value for each field of each capability.
var arguments = cni.Capabilities{
	PortMappings: []cni.PortMapping{
		{HostPort: 8080, ContainerPort: 80, HostIP: netip.MustParseAddr("192.0.2.1")},
		{HostPort: 5000, ContainerPort: 6000, Protocol: cni.UDP, Range: 10},
	},
	IPRanges: [][]cni.IPRange{{{
		Subnet: netip.MustParsePrefix("10.9.0.0/16"), RangeStart: netip.MustParseAddr("10.9.1.0"),
		RangeEnd: netip.MustParseAddr("10.9.1.9"), Gateway: netip.MustParseAddr("10.9.0.1"),
	}}},
	Bandwidth: cni.Bandwidth{IngressRate: 10 * cni.Mbit, IngressBurst: cni.Mbit,
		EgressRate: cni.Gbit, EgressBurst: 10 * cni.Mbit},
	MAC:      "02:00:00:00:00:01",
	IPs:      []netip.Prefix{netip.MustParsePrefix("10.1.2.3/24")},
	DeviceID: "0000:04:00.5",
}

// TestTypedCapabilities: every plugin accepts the encoded cni.Capabilities for the capabilities
// that it declares, and refuses invalid values.
func TestTypedCapabilities(t *testing.T) {
	t.Parallel()
	encoded, err := arguments.Encode()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, d := range all.Plugins {
		for _, name := range d.Capabilities {
			count++
			t.Run(d.Name+" "+name, func(t *testing.T) {
				t.Parallel()
				err := d.Validate(request(t, d, name, encoded[name]))
				if name == "deviceID" && err != nil &&
					strings.Contains(err.Error(), "runtime config DeviceID "+arguments.DeviceID) {
					err = nil // this host has no such device
				}
				if err != nil {
					t.Errorf("%s: %v", encoded[name], err)
				}
				if err := d.Validate(request(t, d, name, json.RawMessage(`true`))); err == nil {
					t.Error("the plugin ignores the argument")
				}
			})
		}
	}
	if count < 10 {
		t.Errorf("only %d capabilities", count)
	}
}

// request returns the input of a plugin with its first example and the argument of a capability.
func request(t *testing.T, d plugin.Definition, name string, argument json.RawMessage) []byte {
	t.Helper()
	var config map[string]any
	if err := json.Unmarshal([]byte(d.Examples()[0].Config), &config); err != nil {
		t.Fatal(err)
	}
	delete(config, "runtimeConfig")
	config["capabilities"] = map[string]bool{name: true}
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	l, err := cni.ParseSingle(b)
	if err != nil {
		t.Fatal(err)
	}
	out, err := l.Request(cni.Add, 0,
		cni.RequestData{Capabilities: map[string]json.RawMessage{name: argument}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTypedCapabilitiesAreUnderstood: the plugins know every member of the encoded capabilities.
func TestTypedCapabilitiesAreUnderstood(t *testing.T) {
	t.Parallel()
	encoded, err := arguments.Encode()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"runtimeConfig": encoded})
	if err != nil {
		t.Fatal(err)
	}
	var (
		ports  portmap.Config
		limits bandwidth.Config
		device hostdevice.Config
		common plugin.Common
	)
	for _, c := range []any{&ports, &limits, &device, &common} {
		if err := json.Unmarshal(b, c); err != nil {
			t.Fatal(err)
		}
	}
	ingress, ingressBurst, egress, egressBurst := uint64(10e6), uint64(1e6), uint64(1e9), uint64(
		10e6)
	for _, row := range []struct {
		name      string
		got, want any
	}{
		{"CONV-10", ports.RuntimeConfig.PortMappings, []portmap.PortMapping{
			{HostPort: 8080, ContainerPort: 80, Protocol: "tcp", HostIP: "192.0.2.1"},
			{HostPort: 5000, ContainerPort: 6000, Protocol: "udp", Range: 10},
		}},
		{"CONV-11", string(common.RuntimeConfig.IPRanges),
			`[[{"subnet":"10.9.0.0/16","rangeStart":"10.9.1.0","rangeEnd":"10.9.1.9","gateway":"10.9.0.1"}]]`},
		{"CONV-12", limits.RuntimeConfig.Bandwidth, bandwidth.Limits{
			IngressRate: &ingress, IngressBurst: &ingressBurst, EgressRate: &egress,
			EgressBurst: &egressBurst,
		}},
		{"CONV-14", common.RuntimeConfig.IPs, []string{"10.1.2.3/24"}},
		{"CONV-15", common.RuntimeConfig.MAC, "02:00:00:00:00:01"},
		{"CONV-17", device.RuntimeConfig.DeviceID, "0000:04:00.5"},
	} {
		if diff := cmp.Diff(row.want, row.got); diff != "" {
			t.Errorf("%s: %s", row.name, diff)
		}
	}
}
