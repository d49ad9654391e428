package types100_test

import (
	"encoding/json"
	"net"
	"reflect"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
)

func TestIPConfigJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"interface":0,"address":"10.0.0.5/24","gateway":"10.0.0.1"}`,
		`{"address":"fd00::5/64"}`,
	} {
		var ip types100.IPConfig
		if err := json.Unmarshal([]byte(text), &ip); err != nil {
			t.Error(err)
		}
		if b, err := json.Marshal(&ip); err != nil || string(b) != text {
			t.Errorf("%s, %v, want %s", b, err, text)
		}
	}
	for _, text := range []string{
		`[]`, `{"interface":"0"}`, `{"address":"10.0.0.5"}`, `{"gateway":"x"}`,
	} {
		ip := types100.IPConfig{Gateway: net.IP{10, 0, 0, 1}}
		if err := json.Unmarshal([]byte(text), &ip); err == nil || ip.Gateway == nil {
			t.Errorf("%s: %v, %v", text, err, &ip)
		}
	}
	// Only pointers have the JSON form of the specification; a value shows the fields of Go.
	b, err := json.Marshal(types100.IPConfig{})
	if err != nil || string(b) != `{"Interface":null,"Address":{"IP":"","Mask":null},"Gateway":""}` {
		t.Errorf("value: %s, %v", b, err)
	}
}

func TestCopy(t *testing.T) {
	t.Parallel()
	if (*types100.IPConfig)(nil).Copy() != nil || (*types100.Interface)(nil).Copy() != nil {
		t.Error("a copy of nil is not nil")
	}
	ip := &types100.IPConfig{Interface: types100.Int(1), Gateway: net.IP{10, 0, 0, 1}}
	c := ip.Copy()
	if !reflect.DeepEqual(c, ip) || c.Interface == ip.Interface || &c.Gateway[0] != &ip.Gateway[0] {
		t.Errorf("%v, want %v", c, ip)
	}
	i := &types100.Interface{Name: "n", Mac: "m", Mtu: 1, Sandbox: "s", SocketPath: "k", PciID: "p"}
	if c := i.Copy(); c == i || *c != *i {
		t.Errorf("%v, want %v", c, i)
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	ip := &types100.IPConfig{Interface: types100.Int(1), Address: cidr(t, "10.0.0.5/24")}
	want := "{Interface:1 Address:{IP:10.0.0.5 Mask:ffffff00} Gateway:<nil>}"
	if got := ip.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	i := &types100.Interface{Name: "n", Mac: "m", Mtu: 1, Sandbox: "s", SocketPath: "k", PciID: "p"}
	want = "{Name:n Mac:m Mtu:1 Sandbox:s SocketPath:k PciID:p}"
	if got := i.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
