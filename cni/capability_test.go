package cni_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

// text returns the arguments as one JSON object.
func text(t *testing.T, c cni.Capabilities) string {
	t.Helper()
	m, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Names and forms follow the CNI conventions.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	for _, row := range []struct {
		name string
		c    cni.Capabilities
		want string
	}{
		{"nothing", cni.Capabilities{}, `{}`},
		{"CONV-10 portMappings", cni.Capabilities{PortMappings: []cni.PortMapping{
			{HostPort: 8080, ContainerPort: 80},
			{HostPort: 53, ContainerPort: 5353, Protocol: "UDP", HostIP: addr("::ffff:192.0.2.1")},
			{HostPort: 65535, ContainerPort: 1, Protocol: cni.SCTP, HostIP: addr("::"), Range: 1},
			{HostPort: 30000, ContainerPort: 30000, Range: 1000},
		}}, `{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"},` +
			`{"hostPort":53,"containerPort":5353,"protocol":"udp","hostIP":"192.0.2.1"},` +
			`{"hostPort":65535,"containerPort":1,"protocol":"sctp","hostIP":"::","range":1},` +
			`{"hostPort":30000,"containerPort":30000,"protocol":"tcp","range":1000}]}`},
		{"CONV-11 ipRanges", cni.Capabilities{IPRanges: [][]cni.IPRange{
			{{Subnet: prefix("10.1.0.0/16"), RangeStart: addr("10.1.2.3"),
				RangeEnd: addr("10.1.2.9"), Gateway: addr("10.9.0.1")},
				{Subnet: prefix("10.2.0.0/16")}},
			{{Subnet: prefix("fd00::/64")}},
		}}, `{"ipRanges":[[{"subnet":"10.1.0.0/16","rangeStart":"10.1.2.3","rangeEnd":"10.1.2.9","gateway":"10.9.0.1"},{"subnet":"10.2.0.0/16"}],[{"subnet":"fd00::/64"}]]}`},
		{"CONV-12 bandwidth", cni.Capabilities{Bandwidth: cni.Bandwidth{
			IngressRate: 10 * cni.Mbit, IngressBurst: 2 * cni.Mibit, EgressRate: 3 * cni.Gbit / 2,
		}}, `{"bandwidth":{"ingressRate":10000000,"ingressBurst":2097152,"egressRate":1500000000}}`},
		{"CONV-13 dns", cni.Capabilities{DNS: cni.Resolver{
			Servers: []netip.Addr{addr("192.0.2.53")}, Searches: []string{"example.com"},
			Options: []string{"ndots:5"},
		}}, `{"dns":{"servers":["192.0.2.53"],"searches":["example.com"],"options":["ndots:5"]}}`},
		{"CONV-14 ips", cni.Capabilities{IPs: []netip.Prefix{prefix("10.1.2.3/24"),
			netip.PrefixFrom(addr("fd00::1"), -1)}},
			`{"ips":["10.1.2.3/24","fd00::1"]}`},
		{"CONV-15 mac", cni.Capabilities{MAC: "c2:11:22:33:44:5F"}, `{"mac":"c2:11:22:33:44:5F"}`},
		{"CONV-16 infinibandGUID", cni.Capabilities{InfinibandGUID: "c2:11:22:33:44:55:66:77"},
			`{"infinibandGUID":"c2:11:22:33:44:55:66:77"}`},
		{"CONV-17 deviceID", cni.Capabilities{DeviceID: "0000:04:00.5"},
			`{"deviceID":"0000:04:00.5"}`},
		{"CONV-18 aliases", cni.Capabilities{Aliases: []string{"db", "db.<local>"}},
			`{"aliases":["db","db.<local>"]}`},
		{"CONV-19 cgroupPath", cni.Capabilities{CgroupPath: "/kubepods/pod1"},
			`{"cgroupPath":"/kubepods/pod1"}`},
		{"raw and typed arguments", cni.Capabilities{
			MAC: "c2-11-22-33-44-5f",
			Raw: map[string]json.RawMessage{"io.kubernetes.cri.pod-annotations": json.RawMessage(`{"a":1}`), "dns": json.RawMessage(`{"servers":[]}`)},
		}, `{"dns":{"servers":[]},"io.kubernetes.cri.pod-annotations":{"a":1},"mac":"c2-11-22-33-44-5f"}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			// undo the escaping by text
			got := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(text(t, row.c))
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Encode does not change its receiver: a second Encode returns the same.
func TestCapabilitiesAreNotChanged(t *testing.T) {
	t.Parallel()
	c := cni.Capabilities{PortMappings: []cni.PortMapping{{HostPort: 1, ContainerPort: 2,
		Protocol: "UDP"}}}
	text(t, c)
	if c.PortMappings[0].Protocol != "UDP" {
		t.Errorf("protocol changed to %q", c.PortMappings[0].Protocol)
	}
}

// CONV-07 for runtimes: Encode refuses arguments that plugins would refuse later.
func TestCapabilitiesRefused(t *testing.T) {
	t.Parallel()
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	port := func(m cni.PortMapping) cni.Capabilities { return cni.Capabilities{PortMappings: []cni.PortMapping{m}} }
	ranges := func(r ...cni.IPRange) cni.Capabilities { return cni.Capabilities{IPRanges: [][]cni.IPRange{r}} }
	band := func(b cni.Bandwidth) cni.Capabilities { return cni.Capabilities{Bandwidth: b} }
	raw := func(name, value string) map[string]json.RawMessage {
		return map[string]json.RawMessage{name: json.RawMessage(value)}
	}
	for _, row := range []struct {
		name string
		c    cni.Capabilities
		says string
	}{
		{"host port 0", port(cni.PortMapping{ContainerPort: 80}),
			"portMappings: host port 0 to container port 80: port 0 is not valid"},
		{"container port 0", port(cni.PortMapping{HostPort: 80}), "port 0 is not valid"},
		{"protocol", port(cni.PortMapping{HostPort: 1, ContainerPort: 1, Protocol: "icmp"}),
			`protocol "icmp"`},
		{"range of host ports", port(cni.PortMapping{HostPort: 65000, ContainerPort: 1,
			Range: 537}), "exceeds 65535"},
		{"range of container ports", port(cni.PortMapping{HostPort: 1, ContainerPort: 65535,
			Range: 2}), "exceeds 65535"},
		{"zone", port(cni.PortMapping{HostPort: 1, ContainerPort: 1, HostIP: addr("fe80::1%eth0")}),
			"zone"},
		{"no pool", ranges(), "pool without a range"},
		{"no subnet", ranges(cni.IPRange{RangeStart: addr("10.0.0.1")}),
			"not the prefix of a network"},
		{"host bits", ranges(cni.IPRange{Subnet: prefix("10.0.0.1/24")}),
			"not the prefix of a network"},
		{"IPv4 as IPv6", ranges(cni.IPRange{Subnet: prefix("::ffff:10.0.0.0/120")}),
			"not the prefix of a network"},
		{"start of the other family", ranges(cni.IPRange{Subnet: prefix("10.0.0.0/24"),
			RangeStart: addr("fd00::1")}), "fd00::1 is not in it"},
		{"end outside", ranges(cni.IPRange{Subnet: prefix("10.0.0.0/24"),
			RangeEnd: addr("10.0.1.1")}), "10.0.1.1 is not in it"},
		{"end before start", ranges(cni.IPRange{Subnet: prefix("10.0.0.0/24"),
			RangeStart: addr("10.0.0.9"), RangeEnd: addr("10.0.0.8")}), "empty"},
		{"gateway of the other family", ranges(cni.IPRange{Subnet: prefix("fd00::/64"),
			Gateway: addr("10.0.0.1")}), "gateway 10.0.0.1"},
		{"families in one pool", ranges(cni.IPRange{Subnet: prefix("10.0.0.0/24")},
			cni.IPRange{Subnet: prefix("fd00::/64")}), "different families"},
		{"burst without rate", band(cni.Bandwidth{EgressBurst: cni.Mbit}),
			"egressBurst is given without egressRate"},
		{"rate below a byte", band(cni.Bandwidth{IngressRate: 7}), "ingressRate: 7 bit/s"},
		{"burst below a byte", band(cni.Bandwidth{IngressRate: 8, IngressBurst: 7}),
			"ingressBurst: 7 bit"},
		{"burst of 4 GiB", band(cni.Bandwidth{EgressRate: 8, EgressBurst: 8 * (1<<32 - 1)}),
			"4 GiB"},
		{"address invalid", cni.Capabilities{IPs: []netip.Prefix{{}}}, "ips: "},
		{"address IPv4 as IPv6",
			cni.Capabilities{IPs: []netip.Prefix{prefix("::ffff:10.0.0.1/120")}}, "ips: "},
		{"server invalid", cni.Capabilities{DNS: cni.Resolver{Servers: []netip.Addr{{}}}}, "dns: "},
		{"set twice", cni.Capabilities{CgroupPath: "/a", Raw: raw("cgroupPath", `"/a"`)},
			"cgroupPath: it is set both"},
		{"addresses set twice", cni.Capabilities{IPs: []netip.Prefix{prefix("10.0.0.1/24")},
			Raw: raw("ips", `[]`)}, "ips: it is set both"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			m, err := row.c.Encode()
			if cni.CodeOf(err) != cni.CodeInvalidConfig ||
				!strings.HasPrefix(fmt.Sprint(err), "capability ") ||
				!strings.Contains(fmt.Sprint(err), row.says) {
				t.Errorf("%v, code %d; %v", err, cni.CodeOf(err), m)
			}
		})
	}
	if _, err := (cni.Capabilities{Raw: raw("x",
		"{")}).Encode(); cni.CodeOf(err) != cni.CodeDecodingFailure {
		t.Errorf("raw that is not JSON: %v", err)
	}
	for _, mac := range []string{"c2:11:22:33:44", "c2:11:22:33:44:5g", "c2:11-22:33:44:55",
		"020:0:00:00:00:01", "0200.5e00.5301", "c3:11:22:33:44:55", "00:00:00:00:00:00",
		"+2:11:22:33:44:55"} {
		if _, err := (cni.Capabilities{MAC: mac}).Encode(); cni.CodeOf(err) != cni.CodeInvalidConfig {
			t.Errorf("mac %q: %v", mac, err)
		}
	}
}
