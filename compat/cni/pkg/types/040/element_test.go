package types040_test

import (
	"encoding/json"
	"net"
	"reflect"
	"testing"

	types040 "github.com/containernetworking/cni/pkg/types/040"
)

func TestIPConfigJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"version":"4","interface":0,"address":"10.0.0.5/24","gateway":"10.0.0.1"}`,
		`{"version":"6","address":"fd00::5/64"}`,
	} {
		var ip types040.IPConfig
		if err := json.Unmarshal([]byte(text), &ip); err != nil {
			t.Error(err)
		}
		if b, err := json.Marshal(&ip); err != nil || string(b) != text {
			t.Errorf("%s, %v, want %s", b, err, text)
		}
	}
	for _, text := range []string{
		`[]`, `{"interface":"0"}`, `{"address":"10.0.0.5"}`, `{"gateway":"x"}`, `{"version":4}`,
	} {
		ip := types040.IPConfig{Version: "4"}
		if err := json.Unmarshal([]byte(text), &ip); err == nil || ip.Version != "4" {
			t.Errorf("%s: %v, %v", text, err, &ip)
		}
	}
}

func TestCopy(t *testing.T) {
	t.Parallel()
	if (*types040.IPConfig)(nil).Copy() != nil || (*types040.Interface)(nil).Copy() != nil {
		t.Error("a copy of nil is not nil")
	}
	ip := &types040.IPConfig{Version: "4", Interface: types040.Int(1), Gateway: net.IP{10, 0, 0, 1}}
	c := ip.Copy()
	if !reflect.DeepEqual(c, ip) || c.Interface == ip.Interface || &c.Gateway[0] != &ip.Gateway[0] {
		t.Errorf("%v, want %v", c, ip)
	}
	i := &types040.Interface{Name: "eth0", Mac: "m", Sandbox: "s"}
	if c := i.Copy(); c == i || *c != *i {
		t.Errorf("%v, want %v", c, i)
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	ip := &types040.IPConfig{Version: "4", Interface: types040.Int(1), Address: cidr(t, "10.0.0.5/24")}
	want := "{Version:4 Interface:1 Address:{IP:10.0.0.5 Mask:ffffff00} Gateway:<nil>}"
	if got := ip.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	want = "{Version: Interface:<nil> Address:{IP:<nil> Mask:<nil>} Gateway:<nil>}"
	if got := (&types040.IPConfig{}).String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	i := &types040.Interface{Name: "eth0", Mac: "m", Sandbox: "s"}
	if got := i.String(); got != "{Name:eth0 Mac:m Sandbox:s}" {
		t.Error(got)
	}
}
