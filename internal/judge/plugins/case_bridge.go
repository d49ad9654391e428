package plugins

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// bridgeCases judge ports of bridges, and interfaces that share a link.
var bridgeCases = []*Case{{
	Name: "ports", Roles: []Role{Interface}, Like: []string{"bridge"}, Oldest: cni.V040, Once: true,
	Rows: []string{"CONV-15", "R-67", "R-68", "R-70", "R-71", "R-85"},
	Script: func(s *Setup) (*script.Scenario, string) {
		plain := func(name string) []func(*Draft) {
			return []func(*Draft){Without("ipam", "isGateway", "ipMasq"), With("bridge", name)}
		}
		return s.Scenario(3,
			call(s.Call("add", cni.Add, 1, With("runtimeConfig", map[string]any{"mac": requestedMAC}))),
			look("queues", "ip -n c1 -o link show dev eth0\n"+hostSide("c1")+"ip -o link show dev $peer"),
			call(s.Call("add2", cni.Add, 2, plain("conform1")...)),
			call(s.Call("vlan", cni.Add, 3, append(plain("conform2"), With("vlan", 42))...)),
		), ""
	},
	Judge: judgePorts,
}, {
	Name: "neighbors", Roles: []Role{Interface}, Like: []string{"bridge", "macvlan"}, Oldest: cni.V040, Once: true,
	Needs: needsTraffic, Rows: []string{"R-73"},
	Script: neighbors,
	Judge: func(j *Judgment) {
		if !j.Requires("add") || !j.Requires("del") || !j.Requires("again") {
			return
		}
		if known := j.seen("known"); strings.Count(known, "lladdr") != 2 {
			j.Stopped = "the observer does not know the first container: " + known
			return
		}
		now := strings.Fields(j.seen("now"))
		for i, family := range []string{"IPv4", "IPv6"} {
			ok := len(now) == 3 && now[i+1] == now[0]
			if !j.Expect(ok, Verdict{Row: "R-73", Severity: report.Medium,
				Title:    "neighbors keep the MAC address of the former owner of an " + family + " address",
				Expected: "the MAC address of the new container in the neighbor table",
				Actual:   "MAC address, IPv4 neighbor, IPv6 neighbor: " + strings.Join(now, ", "),
				Hint:     "send gratuitous ARP and unsolicited neighbor advertisements, for example with arp_notify and ndisc_notify"}) {
				return
			}
		}
	},
}}

// requestedMAC is the MAC address in runtimeConfig.
const requestedMAC = "02:00:00:00:77:01"

// port returns the bridge port of the container in the result of an ADD.
func (j *Judgment) port(add string) (bridge, port *host.Link) {
	result, own := j.result(add), j.After(add).Host.Own()
	if result == nil {
		return nil, nil
	}
	for _, i := range result.Interfaces {
		l := own.LinkByName(i.Name)
		if i.Sandbox == "" && l != nil && l.Port != nil {
			return own.Link(l.Master), l
		}
	}
	return nil, nil
}

func judgePorts(j *Judgment) {
	if !j.Requires("add") {
		return
	}
	bridge, port := j.port("add")
	if bridge == nil || port == nil {
		j.Stopped = "the result lists no port of a bridge"
		return
	}
	mac := ""
	if l := j.After("add").Container("c1").LinkByName(ifName); l != nil {
		mac = l.MAC
	}
	j.Expect(strings.EqualFold(mac, requestedMAC), Verdict{Row: "CONV-15", Severity: report.Medium,
		Title: "the MAC address in runtimeConfig is ignored", Expected: requestedMAC, Actual: mac})
	j.Expect(port.Port.State == "forwarding" && port.Running(), Verdict{Row: "R-67", Severity: report.Medium,
		Title:    "the port does not forward when ADD returns",
		Expected: "a port that is up and forwards", Actual: fmt.Sprintf("%s, %s", port.Port.State, port.OperState),
		Hint: "wait until the port forwards"})
	j.Expect(!bridge.Bridge.VLANFiltering, Verdict{Row: "R-68", Severity: report.Medium,
		Title:    "the bridge filters VLANs although no VLAN is configured",
		Expected: "a bridge that a kernel without VLAN filtering also has", Actual: "vlan_filtering 1",
		Hint: "enable VLAN filtering only if the configuration has a VLAN"})
	queues := j.seen("queues")
	j.Expect(strings.Count(queues, " qlen ") == 2, Verdict{Row: "R-85", Severity: report.Low,
		Title:    "the veth pair has no transmit queue",
		Expected: "the queue length that the kernel chooses", Actual: queues,
		Hint: "leave out the attribute IFLA_TXQLEN, or set it"})
	if j.Succeeded("add2", Verdict{Row: "R-71", Severity: report.Medium, Title: "ADD without ipam fails"}) {
		l := j.After("add2").Container("c2").LinkByName(ifName)
		j.Expect(l != nil && l.Up(), Verdict{Row: "R-71", Severity: report.Medium,
			Title:    "the interface of a container without addresses is not up",
			Expected: "an interface that is up", Actual: links(j.After("add2"), "c2")})
	}
	r, _ := j.Call("vlan")
	_, port = j.port("vlan")
	if r.Status != 0 || port == nil {
		j.Skip("R-70", "ADD with a VLAN: "+describe(r))
		return
	}
	j.Expect(slices.Equal(port.Port.VLANs, []host.VLAN{{ID: 42, PVID: true, Untagged: true}}), Verdict{
		Row: "R-70", Severity: report.High, Title: "an access port has other VLANs than its own",
		Expected: "VLAN 42, untagged, and no other", Actual: fmt.Sprintf("%+v", port.Port.VLANs),
		Hint: "delete the default VLAN of the port"})
}

// neighbors gives the addresses of a container to another one, and looks at the neighbor table of a
// third.
func neighbors(s *Setup) (*script.Scenario, string) {
	const known = `ip -n c3 neighbor show 10.77.0.2
ip -n c3 neighbor show fd77::2`
	// The kernel ignores changes of an entry that is younger than a second.
	const now = `own=$(ip -n c2 -o link show eth0 | sed 's/.*link.ether \([0-9a-f:]*\).*/\1/')
tries=0
until
	seen=$(for a in 10.77.0.2 fd77::2; do
		ip -n c3 neighbor show $a | sed -n 's/.*lladdr \([0-9a-f:]*\).*/\1/p'
	done)
	[ "$(echo $seen)" = "$own $own" ] || [ $tries -ge 50 ]
do
	tries=$((tries + 1))
	sleep 0.1
done
echo $own $seen`
	again := s.Call("again", cni.Add, 2, Env("CNI_CONTAINERID", "again-1"))
	return withTraffic(s.Scenario(3,
		quiet(s.Call("add3", cni.Add, 3)), quiet(s.Call("add", cni.Add, 1)),
		ask("ask4", "c3", "udp", "10.77.0.4 0", "10.77.0.2 9"), ask("ask6", "c3", "udp", "fd77::4 0", "fd77::2 9"),
		look("known", known), quiet(s.Call("del", cni.Del, 1)), script.Step{Shell: "sleep 1.2", Quiet: true},
		quiet(again), look("now", now),
	)), ""
}
