package types_test

import (
	"encoding/json"
	"net"
	"reflect"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

func TestRouteJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text string }{
		{"all keys", `{"dst":"10.1.0.0/16","gw":"10.0.0.1","mtu":1400,"advmss":1360,` +
			`"priority":100,"table":0,"scope":253}`},
		{"destination only", `{"dst":"::/0"}`},
		{"scope 0 is present", `{"dst":"::/0","scope":0}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r types.Route
			if err := json.Unmarshal([]byte(tt.text), &r); err != nil {
				t.Fatal(err)
			}
			if b, err := json.Marshal(r); err != nil || string(b) != tt.text {
				t.Errorf("%s, %v, want %s", b, err, tt.text)
			}
			if b, err := json.Marshal(&r); err != nil || string(b) != tt.text {
				t.Errorf("pointer: %s, %v, want %s", b, err, tt.text)
			}
		})
	}
}

func TestRouteDecoding(t *testing.T) {
	t.Parallel()
	const unmarshal = "json: cannot unmarshal "
	for text, want := range map[string]string{
		`{"dst":""}`:                    "invalid CIDR address: ",
		`{"dst":"10.0.0.0/8","gw":"x"}`: "invalid IP address: x",
		`{"dst":"10.0.0.0/8","mtu":"1"}`: unmarshal + "string into Go struct " +
			"field route.mtu of type int",
		`[]`:                                    unmarshal + "array into Go value of type types.route",
		`{"gw":"10.0.0.1"}`:                     "",
		`{}`:                                    "",
		`{"dst":"10.0.0.0/8","gw":"","more":1}`: "",
	} {
		r := types.Route{MTU: 7}
		err := json.Unmarshal([]byte(text), &r)
		if got := message(err); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		if kept := r.MTU == 7; kept != (err != nil) {
			t.Errorf("%s: mtu %d", text, r.MTU)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestRouteString(t *testing.T) {
	t.Parallel()
	dst, err := types.ParseCIDR("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	table, scope := 5, 0
	for _, tt := range []struct {
		route *types.Route
		want  string
	}{
		{&types.Route{Dst: *dst, GW: net.IPv4(10, 0, 0, 1), MTU: 1, AdvMSS: 2, Priority: 3,
			Table: &table, Scope: &scope},
			"{Dst:{IP:10.0.0.0 Mask:ff000000} GW:10.0.0.1 MTU:1 AdvMSS:2 Priority:3 Table:5 Scope:0}"},
		{&types.Route{}, "{Dst:{IP:<nil> Mask:<nil>} GW:<nil> MTU:0 AdvMSS:0 Priority:0 " +
			"Table:<nil> Scope:<nil>}"},
		{nil, "<nil>"},
	} {
		if got := tt.route.String(); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

func TestRouteCopy(t *testing.T) {
	t.Parallel()
	if c := (*types.Route)(nil).Copy(); c != nil {
		t.Errorf("copy of nil: %v", c)
	}
	table, scope := 5, 0
	r := &types.Route{GW: net.IP{10, 0, 0, 1}, MTU: 3, Table: &table, Scope: &scope}
	c := r.Copy()
	if !reflect.DeepEqual(c, r) {
		t.Errorf("%v, want %v", c, r)
	}
	*c.Table, *c.Scope = 6, 7
	if table != 5 || scope != 0 {
		t.Error("the copy shares table or scope")
	}
	if &c.GW[0] != &r.GW[0] {
		t.Error("the copy has its own bytes of the gateway")
	}
}
