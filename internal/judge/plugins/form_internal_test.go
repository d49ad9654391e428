package plugins

import (
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// TestForm checks that each violation of the form of a result is found with its row.
func TestForm(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		version cni.Version
		ipam    bool
		result  string
		want    string // row of the only problem; "" if there is none
	}{
		{"0.2.0", cni.V020, false, `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","routes":[{"dst":"0.0.0.0/0"}]},"dns":{}}`, ""},
		{"0.4.0", cni.V040, false, `{"cniVersion":"0.4.0","interfaces":[{"name":"eth0"}],"ips":[{"version":"4","address":"10.0.0.2/24","interface":0}]}`, ""},
		{"1.1.0", cni.V110, false, `{"cniVersion":"1.1.0","ips":[{"address":"fd00::2/64","gateway":""}]}`, ""},
		{"members of other versions", cni.V010, false, `{"cniVersion":"0.1.0","ips":[]}`, "RES-01"},
		{"ip4 in 1.0.0", cni.V100, false, `{"cniVersion":"1.0.0","ip4":{"ip":"10.0.0.2/24"}}`, "RES-01"},
		{"IPv6 address in ip4", cni.V010, false, `{"cniVersion":"0.1.0","ip4":{"ip":"fd00::2/64"}}`, "RES-01"},
		{"no version in ips", cni.V031, false, `{"cniVersion":"0.3.1","ips":[{"address":"10.0.0.2/24"}]}`, "RES-01"},
		{"version of the other family", cni.V031, false, `{"cniVersion":"0.3.1","ips":[{"version":"6","address":"10.0.0.2/24"}]}`, "RES-18"},
		{"version of the result", cni.V100, false, `{"cniVersion":"1.1.0"}`, "VER-02"},
		{"no version of the result", cni.V100, false, `{}`, "VER-02"},
		{"index equal to the number of interfaces", cni.V100, false, `{"cniVersion":"1.0.0","interfaces":[{"name":"a"}],"ips":[{"address":"10.0.0.2/24","interface":1}]}`, "RES-03"},
		{"negative index", cni.V100, false, `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24","interface":-1}]}`, "RES-03"},
		{"gateway with prefix length", cni.V100, false, `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1/24"}]}`, "RES-09"},
		{"leading zeros", cni.V100, false, `{"cniVersion":"1.0.0","routes":[{"dst":"10.01.0.0/16"}]}`, "RES-09"},
		{"upper case", cni.V100, false, `{"cniVersion":"1.0.0","routes":[{"dst":"FD00::/64"}]}`, "RES-12"},
		{"interfaces of IPAM", cni.V100, true, `{"cniVersion":"1.0.0","interfaces":[{"name":"a"}]}`, "IPAM-03"},
		{"index of IPAM", cni.V100, true, `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24","interface":0}]}`, "IPAM-03"},
		{"nameserver with a name", cni.V100, false, `{"cniVersion":"1.0.0","dns":{"nameservers":["ns.example"]}}`, "DNS-03"},
		{"empty interface name", cni.V100, false, `{"cniVersion":"1.0.0","interfaces":[{"name":""}]}`, "RES-01"},
		{"null element", cni.V100, false, `{"cniVersion":"1.0.0","ips":[null]}`, "RES-01"},
		{"no object", cni.V100, false, `[]`, "RES-01"},
	} {
		f := form{version: row.version, ipam: row.ipam}
		f.check([]byte(row.result))
		got := ""
		for _, p := range f.problems {
			got += p.row
		}
		if got != row.want {
			t.Errorf("%s: rows %q, want %q: %+v", row.name, got, row.want, f.problems)
		}
	}
}
