package plugins

import (
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// masqueradeCases judge the traffic of containers to other hosts, and its rules.
var masqueradeCases = []*Case{{
	Name: "masquerade", Roles: []Role{Interface}, Like: []string{"bridge", "ptp"}, Oldest: cni.V040, Once: true, Variants: true,
	Needs: needsTraffic, Rows: []string{"R-35", "R-98", "R-100", "PL-CHK-06"},
	Script: masquerade, Judge: judgeMasquerade,
}}

// outside connects the host with the namespace out, which has the address 198.51.100.2.
const outside = `echo 1 >/proc/sys/net/ipv4/ip_forward
for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$f; done
ip netns add out
ip link add out1 type veth peer name eth0 netns out
ip address add 198.51.100.1/24 dev out1
ip link set out1 up
ip -n out address add 198.51.100.2/24 dev eth0
ip -n out link set lo up
ip -n out link set eth0 up
ip -n out route add default via 198.51.100.1
`

// hostSide sets $peer to the host-side veth of the interface eth0 in a container.
func hostSide(container string) string {
	return fmt.Sprintf(`index=$(ip netns exec %s cat /sys/class/net/eth0/iflink)
peer=$(ip -o link show | sed -n "s/^$index: \([^@:]*\).*/\1/p")
`, container)
}

func masquerade(s *Setup) (*script.Scenario, string) {
	if s.Config.Network["ipMasq"] != true {
		return nil, "the configuration does not masquerade"
	}
	connect := func(name, source string) script.Step {
		return ask(name, "c1", "tcp", source+" 0", "198.51.100.2 80")
	}
	return withTraffic(s.Scenario(3,
		script.Step{Shell: outside, Quiet: true},
		servers([]string{"out"}, server("out", "out", "tcp:198.51.100.2:80")),
		quiet(s.Call("add3", cni.Add, 3)), quiet(s.Call("check3", cni.Check, 3)),
		script.Step{Shell: hostSide("c3") + "ip link set $peer down", Quiet: true},
		quiet(s.Call("unreachable", cni.Check, 3)), quiet(s.Call("del3", cni.Del, 3)),
		call(s.Call("add", cni.Add, 1)), connect("own", "10.77.0.2"),
		quiet(s.Call("add2", cni.Add, 2)), script.Step{Shell: s.end(2), Quiet: true},
		call(s.Call("del2", cni.Del, 2, Env("CNI_NETNS", ""), Without("prevResult"))),
		script.Step{Shell: "ip -n c1 address add 10.77.0.200/32 dev eth0\n" + hostSide("c1") +
			"test -e /sys/class/net/$peer/master || ip route add 10.77.0.200 dev $peer", Quiet: true},
		connect("neighbor", "10.77.0.200"),
		script.Step{Shell: flush.Shell, Quiet: true}, quiet(s.Call("del", cni.Del, 1)),
	)), ""
}

func judgeMasquerade(j *Judgment) {
	for _, name := range []string{"add3", "check3", "add", "add2", "del2"} {
		if !j.Requires(name) {
			return
		}
	}
	r, _ := j.Call("unreachable")
	j.Expect(r.Status != 0, Verdict{Row: "PL-CHK-06", Severity: report.Low,
		Title:    "CHECK succeeds although the interface of the container has no carrier",
		Expected: "an error, because the host-side veth is down", Actual: describe(r),
		Hint: "look at the operational state of the interface and of its peer"})
	if j.answers("own", "out 198.51.100.1", Verdict{Row: "R-100", Severity: report.High,
		Title: "traffic of the container is not masqueraded"}) {
		j.answers("neighbor", "out 10.77.0.200", Verdict{Row: "R-100", Severity: report.Medium,
			Title: "ADD of one container masquerades other addresses of its subnet",
			Hint:  "match the addresses of the container only"})
	}
	left := difference{more: compare(j.After("add"), j.After("del2")).more}
	j.Expect(left.empty(), Verdict{Row: "R-35", Severity: report.High,
		Title:    "DEL without namespace and prevResult leaves rules",
		Expected: "the state before ADD of the container", Actual: left.String(),
		Hint: "find the rules by network, container ID and interface"})
	j.Succeeded("del", Verdict{Row: "R-98", Severity: report.High, Title: "DEL fails after the rules were flushed"})
}
