package dhcp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
)

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		name, ipam, args string
		provide          []dhcp.Option
		request          []byte
		wrong            string
	}{
		{name: "R-64: router and mask are requested", ipam: `{}`, request: []byte{3, 1}},
		{name: "in order, then the defaults",
			ipam: `{"request": [{"option": "121"}, {"option": ""}, {"option": "classless-static-routes"}, {"option": "33"}]}`, request: []byte{121, 33, 3, 1}},
		{name: "without the defaults",
			ipam: `{"request": [{"option": "121"}, {"skipDefault": true}]}`, request: []byte{121}},
		{name: "nothing", ipam: `{"request": [{"skipDefault": true}]}`,
			request: []byte{1, 3, 15, 6}},
		{name: "values", ipam: `{"provide": [{"option": "host-name", "value": "a"}, {"option": "60", "value": "v", "fromArg": "X"}, {"option": "12", "value": "b"}, {"option": "77", "fromArg": "K8S_POD_NAME"}, {"option": "user-class"}]}`,
			args: "IgnoreThis;K8S_POD_NAME=web=1;Z",
			provide: []dhcp.Option{{Code: 60, Value: []byte("v")},
				{Code: 12, Value: []byte("b")}, {Code: 77, Value: []byte("web=1")}},
			request: []byte{3, 1}},
		{name: "an argument takes precedence",
			ipam: `{"provide": [{"option": "12", "value": "a", "fromArg": "N"}]}`, args: "N=b",
			provide: []dhcp.Option{{Code: 12, Value: []byte("b")}}, request: []byte{3, 1}},
		{name: "unknown name", ipam: `{"request": [{"option": "host name"}]}`,
			wrong: `"host name" is not a DHCP option`},
		{name: "number too large", ipam: `{"provide": [{"option": "256"}]}`,
			wrong: `"256" is not a DHCP option`},
		{name: "unknown kind of DHCPv6", ipam: `{"dhcp6": "yes"}`,
			wrong: `dhcp6: "yes" is not one of`},
		{name: "value too long", ipam: `{"provide": [{"option": "12", "value": "` +
			strings.Repeat("x", 256) + `"}]}`, wrong: "longer than 255 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s dhcp.Settings
			if err := json.Unmarshal([]byte(tt.ipam), &s); err != nil {
				t.Fatal(err)
			}
			provide, request, err := s.Options(tt.args)
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) ||
					cni.CodeOf(err) != cni.CodeInvalidConfig {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.provide, provide) + cmp.Diff(tt.request, request); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParse(t *testing.T) {
	if _, err := dhcp.Parse([]byte(`{"name": "n"}`)); cni.CodeOf(err) != cni.CodeInvalidConfig {
		t.Errorf("without ipam: %v", err)
	}
	if _, err := dhcp.Parse([]byte(`{"ipam": []}`)); cni.CodeOf(err) != cni.CodeDecodingFailure {
		t.Errorf("malformed: %v", err)
	}
}
