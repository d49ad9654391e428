package plugins

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// tuningCases judge changes of interfaces and sysctls.
var tuningCases = []*Case{{
	Name: "attributes", Roles: []Role{Chained}, Like: []string{"tuning"}, Oldest: cni.V040, Once: true,
	Rows:   []string{"CONV-15", "R-81", "R-112", "R-113", "R-114", "R-115"},
	Script: attributes, Judge: judgeAttributes,
}}

func attributes(s *Setup) (*script.Scenario, string) {
	const routes = `ip -n c1 route add default via 10.77.0.1
ip -n c1 -6 route add default via fd77::1`
	const notify = "net.ipv4.conf.IFNAME.arp_notify"
	none := Without("mtu", "promisc")
	dotted := func(d *Draft) {
		d.Env["CNI_IFNAME"] = "eth0.5"
		d.Request["prevResult"] = script.Literal(strings.ReplaceAll(s.PrevResult(2), `"eth0"`, `"eth0.5"`))
	}
	sysctl := func(key string) func(*Draft) { return With("sysctl", map[string]string{key: "1"}) }
	return s.Scenario(3,
		script.Step{Shell: routes, Quiet: true},
		call(s.Call("add", cni.Add, 1, none, With("runtimeConfig", map[string]any{"mac": requestedMAC}))),
		script.Step{Shell: "ip -n c2 link set eth0 down\nip -n c2 link set eth0 name eth0.5\nip -n c2 link set eth0.5 up", Quiet: true},
		quiet(s.Call("dotted", cni.Add, 2, none, dotted, sysctl(notify))),
		look("notify", "ip netns exec c2 cat /proc/sys/net/ipv4/conf/eth0.5/arp_notify"),
		quiet(s.Call("twice", cni.Add, 3, none, With("sysctl", script.Literal(
			fmt.Sprintf(`{%q:"1",%[1]q:"0"}`, notify))))),
		quiet(s.Call("dots", cni.Add, 3, none, sysctl("net/../../../tmp/conform"))),
		quiet(s.Call("outside", cni.Add, 3, none, sysctl("kernel.domainname"))),
		quiet(s.Call("absolute", cni.Add, 3, none, sysctl("/tmp/conform"))),
	), ""
}

func judgeAttributes(j *Judgment) {
	if !j.Requires("add") {
		return
	}
	before, after := container(j.Before("add"), "c1"), container(j.After("add"), "c1")
	l := j.After("add").Container("c1").LinkByName(ifName)
	if l == nil {
		j.Stopped = "the interface is gone"
		return
	}
	if j.Expect(strings.EqualFold(l.MAC, requestedMAC), Verdict{Row: "CONV-15", Severity: report.Medium,
		Title: "the MAC address in runtimeConfig is ignored", Expected: requestedMAC, Actual: l.MAC}) {
		lost := slices.DeleteFunc(compare(before, after).less, func(text string) bool { return !strings.Contains(text, "route ") })
		j.Expect(len(lost) == 0, Verdict{Row: "R-112", Severity: report.High,
			Title: "a new MAC address costs routes", Expected: "all routes as before", Actual: "missing: " + list(lost),
			Hint: "do not set the interface down, or restore the routes"})
		var macs []string
		for _, i := range j.result("add").Interfaces {
			if i.Name == ifName && i.Sandbox != "" {
				macs = append(macs, strings.ToLower(i.MAC))
			}
		}
		j.Expect(slices.Equal(macs, []string{requestedMAC}), Verdict{Row: "R-113", Severity: report.Medium,
			Title: "the result has the former MAC address", Expected: requestedMAC, Actual: list(macs)})
	}
	if j.Succeeded("dotted", Verdict{Row: "R-81", Severity: report.Medium, Title: "ADD fails if the name of the interface has a dot",
		Hint: "replace dots of the key before IFNAME"}) {
		j.Expect(j.seen("notify") == "1", Verdict{Row: "R-81", Severity: report.Medium,
			Title: "a sysctl of an interface with a dot in its name is not set", Expected: "1", Actual: j.seen("notify")})
	}
	r, _ := j.Call("twice")
	j.Expect(r.Status != 0, Verdict{Row: "R-114", Severity: report.Low,
		Title: "a sysctl that occurs twice is accepted", Expected: "an error", Actual: describe(r),
		Hint: "JSON decoders keep the last one silently; look at the text"})
	for _, name := range []string{"dots", "outside", "absolute"} {
		r, _ := j.Call(name)
		if !j.Expect(r.Status != 0, Verdict{Row: "R-115", Severity: report.Critical,
			Title: "a sysctl outside of /proc/sys/net is accepted", Expected: "an error",
			Actual: fmt.Sprintf("call %s: %s", name, describe(r)),
			Hint:   "clean the path, and compare its beginning with /proc/sys/net/"}) {
			return
		}
	}
}
