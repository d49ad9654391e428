package ovs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugins/ovs"
)

// validate checks a network with further members.
func validate(members string) error {
	return ovs.Plugin.Validate([]byte(`{"cniVersion":"1.1.0","name":"net","type":"ovs"` + members + `}`))
}

// TestValidate: contradictions and values out of range are refused with code 7, deviceID with code
// 2. The error names the key.
func TestValidate(t *testing.T) {
	t.Parallel()
	const br = `,"bridge":"ovs0"`
	for _, row := range []struct {
		name, members string
		code          cni.Code // 0: valid
		msg           string
	}{
		{"no bridge", ``, 7, "bridge: the name of the bridge is missing"},
		{"no bridge, port in OVN", `,"args":{"cni":{"ovnPort":"p"}}`, 0, ""},
		{"no bridge, port in OVN in capitals", `,"args":{"cni":{"OVNPORT":"p"}}`, 0, ""},
		{"no bridge, port in OVN is a number", `,"args":{"cni":{"ovnPort":5}}`, 7, "bridge"},
		{"a name that is too long", `,"bridge":"b234567890123456"`, 7, `"b234567890123456"`},
		{"only a bridge", br, 0, ""},
		{"unknown args", br + `,"args":{"labels":{"appVersion":"1.0"}}`, 0, ""},

		{"no segment", br + `,"vxlanID":0`, 0, ""},
		{"smallest segment", br + `,"vxlanID":1`, 0, ""},
		{"largest segment", br + `,"vxlanID":16777215`, 0, ""},
		{"negative segment", br + `,"vxlanID":-1`, 7, "vxlanID: -1 is not within 1 to 16777215"},
		{"segment too large", br + `,"vxlanID":16777216`, 7, "vxlanID: 16777216"},
		{"segment is text", br + `,"vxlanID":"42"`, 6, "vxlanID"},
		{"segment and trunk", br + `,"vxlanID":42,"trunk":[{"id":1}]`, 7, "vxlanID excludes trunk"},
		{"segment and no trunk", br + `,"vxlanID":42,"trunk":[]`, 0, ""},
		{"segment and tag", br + `,"vxlanID":42,"vlan":5`, 0, ""},
		{"remotes without segment", br + `,"vxlanRemotes":["192.0.2.1"]`, 7, "vxlanRemotes has no effect"},
		{"local address without segment", br + `,"vxlanLocalIP":"192.0.2.1"`, 7, "vxlanLocalIP has no effect"},
		{"remotes", br + `,"vxlanID":42,"vxlanRemotes":["192.0.2.1","192.0.2.2"],"vxlanLocalIP":"192.0.2.1"`, 0, ""},
		{"remotes over IPv6", br + `,"vxlanID":42,"vxlanRemotes":["2001:db8::1"]`, 0, ""},
		{"two families", br + `,"vxlanID":42,"vxlanRemotes":["192.0.2.1","2001:db8::1"]`, 7,
			"192.0.2.1 and 2001:db8::1 are of different families"},
		{"local address of another family", br + `,"vxlanID":42,"vxlanRemotes":["192.0.2.1"],"vxlanLocalIP":"2001:db8::1"`,
			7, "different families"},
		{"remote is a name", br + `,"vxlanID":42,"vxlanRemotes":["node1"]`, 6, "node1"},
		{"remote is empty", br + `,"vxlanID":42,"vxlanRemotes":[""]`, 7, `vxlanRemotes: ""`},
		{"remote is multicast", br + `,"vxlanID":42,"vxlanRemotes":["239.1.1.1"]`, 7, "239.1.1.1"},
		{"remote is unspecified", br + `,"vxlanID":42,"vxlanRemotes":["::"]`, 7, "::"},
		{"remote has a zone", br + `,"vxlanID":42,"vxlanRemotes":["fe80::1%eth0"]`, 7, "fe80::1%eth0"},
		{"port too large", br + `,"vxlanID":42,"vxlanPort":65536`, 7, "vxlanPort: 65536"},
		{"isolated segment without remotes", br + `,"vxlanID":42,"isolated":true`, 0, ""},
		{"isolated with remotes", br + `,"vxlanID":42,"isolated":true,"vxlanRemotes":["192.0.2.1"]`, 7,
			"isolated excludes vxlanRemotes"},

		{"smallest VLAN", br + `,"vlan":1`, 0, ""},
		{"largest VLAN", br + `,"vlan":4094`, 0, ""},
		{"no VLAN", br + `,"vlan":null`, 0, ""},
		{"VLAN 0", br + `,"vlan":0`, 7, "vlan: 0 is not within 1 to 4094"},
		{"VLAN 4095", br + `,"vlan":4095`, 7, "vlan: 4095"},
		{"trunk", br + `,"trunk":[{"id":1},{"minID":5,"maxID":5},{"id":7,"minID":8,"maxID":9}]`, 0, ""},
		{"empty element", br + `,"trunk":[{}]`, 7, "trunk: element 0 is {}"},
		{"lone bound", br + `,"trunk":[{"id":1},{"minID":5}]`, 7, `trunk: element 1 is {"minID":5}`},
		{"bounds exchanged", br + `,"trunk":[{"minID":6,"maxID":5}]`, 7, "trunk parameter is misconfigured"},
		{"element 4095", br + `,"trunk":[{"id":4095}]`, 7, `{"id":4095}`},

		{"small MTU", br + `,"mtu":67`, 7, "mtu: 67 is less than 68"},
		{"large MTU", br + `,"mtu":65536`, 7, "mtu: 65536"},
		{"MAC address", br + `,"mac":"02:00:00:00:00:01"`, 0, ""},
		{"multicast MAC address", br + `,"mac":"01:00:00:00:00:01"`, 7, "mac: 01:00:00:00:00:01"},
		{"MAC address from nothing", br + `,"macFromIP":true`, 7, "macFromIP has no effect without ipam"},
		{"OpenFlow port", br + `,"ofport_request":65280`, 7, "ofport_request: 65280"},
		{"retries", br + `,"link_state_check_retries":-1`, 7, "link_state_check_retries"},
		{"interval", br + `,"link_state_check_interval":-1`, 7, "link_state_check_interval"},
		{"datapath", br + `,"datapathType":"dpdk"`, 7, `datapathType: "dpdk" is unknown`},
		{"hardware offload", br + `,"deviceID":"0000:03:00.0"`, 2, "deviceID"},

		{"socket", br + `,"socket_file":"unix:/run/ovs/db.sock"`, 0, ""},
		{"path of a socket", br + `,"socket_file":"/run/ovs/db.sock"`, 0, ""},
		{"no path", br + `,"socket_file":"unix:"`, 7, "socket_file: the path of the socket is missing"},
		{"TCP", br + `,"socket_file":"tcp:192.0.2.1:6640"`, 0, ""},
		{"TLS over IPv6", br + `,"socket_file":"ssl:[2001:db8::1]:6640"`, 0, ""},
		{"TCP without port", br + `,"socket_file":"tcp:192.0.2.1"`, 7, `"192.0.2.1" is not ADDRESS:PORT`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			err := validate(row.members)
			if code := cni.CodeOf(err); code != row.code {
				t.Errorf("code %d, want %d: %v", code, row.code, err)
			}
			if err != nil && !strings.Contains(err.Error(), row.msg) {
				t.Errorf("%v lacks %q", err, row.msg)
			}
		})
	}
}

// TestSecondFile: the file at configuration_path provides what the network omits, and its values are
// checked as well.
func TestSecondFile(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, file, members string
		msg                 string // "": valid
	}{
		{"provides the bridge", `{"bridge":"ovs0"}`, ``, ""},
		{"does not replace", `{"bridge":"ovs0","vlan":4095}`, `,"vlan":5`, ""},
		{"is checked", `{"bridge":"ovs0","vlan":4095}`, ``, "vlan: 4095"},
		{"contradicts", `{"bridge":"ovs0","trunk":[{"id":1}]}`, `,"vxlanID":42`, "vxlanID excludes trunk"},
		{"is not JSON", `bridge: ovs0`, `,"bridge":"ovs0"`, "file with further options"},
		{"does not exist", ``, ``, "bridge: the name of the bridge is missing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ovs.conf")
			if row.file != "" {
				if err := os.WriteFile(path, []byte(row.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			quoted, err := json.Marshal(path)
			if err != nil {
				t.Fatal(err)
			}
			err = validate(row.members + `,"configuration_path":` + string(quoted))
			if row.msg == "" && err != nil || row.msg != "" && !strings.Contains(err.Error(), row.msg) {
				t.Errorf("%v, want %q", err, row.msg)
			}
		})
	}
}
