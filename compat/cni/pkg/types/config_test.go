package types_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

func TestPluginConfEncoding(t *testing.T) {
	t.Parallel()
	type own struct {
		types.PluginConf
		Bridge string `json:"bridge"`
	}
	conf := types.PluginConf{
		CNIVersion:    "1.1.0",
		Name:          "net",
		Type:          "bridge",
		Capabilities:  map[string]bool{"mac": true, "ips": false},
		RawPrevResult: map[string]interface{}{"big": json.Number("12345678901234567890")},
		ValidAttachments: []types.GCAttachment{
			{ContainerID: "c1", IfName: "eth0"},
		},
	}
	small := types.PluginConf{Type: "t", DNS: types.DNS{Domain: "d"}, IPAM: types.IPAM{Type: "i"}}
	for _, tt := range []struct {
		name string
		conf any
		want string
	}{
		{"pointer: sorted keys, no empty dns", &conf, `{"capabilities":{"ips":false,"mac":true},` +
			`"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}],` +
			`"cniVersion":"1.1.0","ipam":{},"name":"net","prevResult":{"big":12345678901234567890},` +
			`"type":"bridge"}`},
		{"pointer: present members", &small,
			`{"dns":{"domain":"d"},"ipam":{"type":"i"},"type":"t"}`},
		{"value: order of the struct, empty dns", types.PluginConf{Type: "t", Name: "n"},
			`{"name":"n","type":"t","ipam":{},"dns":{}}`},
		{"pointer to an embedding struct loses its own keys", &own{small, "br0"},
			`{"dns":{"domain":"d"},"ipam":{"type":"i"},"type":"t"}`},
		{"value of an embedding struct keeps them", own{types.PluginConf{Type: "t"}, "br0"},
			`{"type":"t","ipam":{},"dns":{},"bridge":"br0"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if b, err := json.Marshal(tt.conf); err != nil || string(b) != tt.want {
				t.Errorf("%s, %v\nwant %s", b, err, tt.want)
			}
		})
	}
}

func TestPluginConfDecoding(t *testing.T) {
	t.Parallel()
	var conf types.PluginConf
	if err := json.Unmarshal([]byte(`{"prevResult":[]}`), &conf); err == nil {
		t.Error("a prevResult that is no object is accepted")
	}
	err := json.Unmarshal([]byte(`{"type":"t","ipam":{"type":"i","more":1},"dns":{"search":["a"]},
		"cni.dev/valid-attachments":[{"containerID":"c","ifname":"e"}],"prevResult":{"a":"b"}}`), &conf)
	if err != nil {
		t.Fatal(err)
	}
	want := types.PluginConf{
		Type:             "t",
		IPAM:             types.IPAM{Type: "i"},
		DNS:              types.DNS{Search: []string{"a"}},
		ValidAttachments: []types.GCAttachment{{ContainerID: "c", IfName: "e"}},
		RawPrevResult:    map[string]interface{}{"a": "b"},
	}
	if !reflect.DeepEqual(conf, want) {
		t.Errorf("%+v\nwant %+v", conf, want)
	}
}

func TestIsEmpty(t *testing.T) {
	t.Parallel()
	if !(&types.IPAM{}).IsEmpty() || (&types.IPAM{Type: "x"}).IsEmpty() {
		t.Error("IPAM is empty if it has no type")
	}
	for name, tt := range map[string]struct {
		dns  types.DNS
		want bool
	}{
		"zero":        {types.DNS{}, true},
		"empty lists": {types.DNS{Nameservers: []string{}, Search: []string{}}, true},
		"nameserver":  {types.DNS{Nameservers: []string{""}}, false},
		"domain":      {types.DNS{Domain: "d"}, false},
		"search":      {types.DNS{Search: []string{"s"}}, false},
		"option":      {types.DNS{Options: []string{"o"}}, false},
	} {
		if got := tt.dns.IsEmpty(); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestDNSCopy(t *testing.T) {
	t.Parallel()
	if c := (*types.DNS)(nil).Copy(); c != nil {
		t.Errorf("copy of nil: %v", c)
	}
	want := &types.DNS{Nameservers: []string{"n"}, Domain: "d", Search: []string{"s"}}
	d := &types.DNS{
		Nameservers: []string{"n"}, Domain: "d", Search: []string{"s"}, Options: []string{},
	}
	c := d.Copy()
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
	c.Nameservers[0], c.Search[0] = "x", "x"
	if strings.Join(append(d.Nameservers, d.Search...), "") != "ns" {
		t.Error("the copy shares a list")
	}
}
