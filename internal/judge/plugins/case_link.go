package plugins

import (
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// linkCases judge interfaces under unusual names, networks and kernels.
var linkCases = []*Case{{
	Name: "unusual-links", Roles: []Role{Interface}, Oldest: cni.V040, Once: true,
	Rows:   []string{"PL-DEL-10", "R-33", "R-69", "R-77", "R-81"},
	Script: unusualLinks, Judge: judgeUnusualLinks,
}, {
	Name: "address-usable", Roles: []Role{Interface}, Oldest: cni.V040, Once: true, Rows: []string{"R-75"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if reason := delegates(s); reason != "" {
			return nil, reason
		}
		s.detection = true
		return s.answered(`echo '{"cniVersion":"%[1]s","ips":[{%.0[2]s%[3]s"address":"fd77::99/64"}]}'`,
			s.Scenario(1, quiet(s.Call("add", cni.Add, 1, viaBroken)),
				look("tentative", "ip -n c1 -6 -o address show dev eth0 scope global tentative"))), ""
	},
	Judge: func(j *Judgment) {
		if r, _ := j.Call("add"); r.Status != 0 {
			j.NotApplicable("R-75", "the plugin needs a gateway: "+describe(r))
			return
		}
		seen := j.seen("tentative")
		j.Expect(seen == "" || strings.Contains(seen, "optimistic"), Verdict{Row: "R-75", Severity: report.Medium,
			Title:    "an IPv6 address without gateway is not usable when ADD returns",
			Expected: "no tentative address", Actual: seen,
			Hint: "wait for the end of duplicate address detection, or disable it"})
	},
}, {
	Name: "route-attributes", Roles: []Role{Interface}, Oldest: cni.V110, Once: true, Rows: []string{"R-76"},
	Like: []string{"bridge", "ptp", "macvlan", "ipvlan", "vlan", "dummy", "tap", "host-device"},
	Script: func(s *Setup) (*script.Scenario, string) {
		const change = "ip -n c1 route change 192.0.2.0/24 via 10.77.0.1 dev eth0 metric 5 mtu 1280"
		return s.answered(`echo '{"cniVersion":"%[1]s","ips":[{%[2]s"address":"10.77.0.99/24","gateway":"10.77.0.1"}],`+
			`"routes":[{"dst":"192.0.2.0/24","gw":"10.77.0.1","mtu":1300,"advmss":1200,"priority":5}]}'%.0[3]s`,
			s.Scenario(1, quiet(s.Call("add", cni.Add, 1, viaBroken)), look("route", "ip -n c1 route show 192.0.2.0/24"),
				quiet(s.Call("check", cni.Check, 1, viaBroken)), script.Step{Shell: change, Try: true, Quiet: true},
				quiet(s.Call("changed", cni.Check, 1, viaBroken)))), ""
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") || !j.Requires("check") {
			return
		}
		v := Verdict{Row: "R-76", Severity: report.Medium, Title: "ADD ignores attributes of a route"}
		for _, attribute := range []string{"mtu 1300", "advmss 1200", "metric 5"} {
			if v.Expected, v.Actual = attribute, j.seen("route"); !strings.Contains(v.Actual, attribute) {
				j.Fail(v)
				return
			}
		}
		r, _ := j.Call("changed")
		j.Expect(r.Status != 0, Verdict{Row: "R-76", Severity: report.Low,
			Title: "CHECK does not notice the changed MTU of a route", Expected: "an error", Actual: describe(r)})
	},
}, {
	Name: "owner", Roles: []Role{Interface}, Oldest: cni.V040, Once: true, Rows: []string{"R-34"},
	Like: []string{"bridge", "ptp", "macvlan", "ipvlan", "vlan", "dummy", "tap", "host-device"},
	Script: func(s *Setup) (*script.Scenario, string) {
		c := s.Scenario(1, quiet(s.Call("add", cni.Add, 1)), quiet(s.Call("del", cni.Del, 1)),
			look("live", "cat "+script.Dir+"/live"))
		c.Files = append(c.Files, script.Answers(scriptedIPAM, "DEL",
			"{ ip -n c1 -o address show to 10.77.0.2 2>&1 || :; } >"+script.Dir+"/live\n"))
		return c, ""
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") || !j.Requires("del") {
			return
		}
		live := j.seen("live")
		j.Expect(!strings.Contains(live, "10.77.0.2/"), Verdict{Row: "R-34", Severity: report.Medium,
			Title:    "the address is released while the interface still has it",
			Expected: "DEL deletes the interface before it calls the IPAM plugin", Actual: live,
			Hint: "another container can get the address at once"})
	},
}}

// viaBroken selects the IPAM plugin with the answer of [Setup.answered].
var viaBroken = With("ipam", map[string]any{"type": brokenIPAM})

// answered adds an IPAM plugin with an answer to a scenario, see [Setup.broken].
func (s *Setup) answered(answer string, c *script.Scenario) *script.Scenario {
	family := ""
	if s.Version < cni.V100 {
		family = `"version":"6",`
	}
	text := fmt.Sprintf(answer+"%.0[1]s%.0[2]s%.0[3]s\n", s.Version, strings.Replace(family, "6", "4", 1), family)
	c.Files = append(c.Files, script.RecorderFile(brokenIPAM), script.Answers(brokenIPAM, "ADD", text))
	return c
}

func unusualLinks(s *Setup) (*script.Scenario, string) {
	if s.Config.IfName != "" {
		return nil, "the plugin concerns the interface " + s.Config.IfName
	}
	ifname := func(name string) func(*Draft) { return Env("CNI_IFNAME", name) }
	steps := []script.Step{
		quiet(s.Call("add", cni.Add, 1, ifname("eth0.1"))), quiet(s.Call("check", cni.Check, 1, ifname("eth0.1"))),
		quiet(s.Call("del", cni.Del, 1, ifname("eth0.1"))),
		quiet(s.Call("add2", cni.Add, 2)), quiet(s.Call("renamed", cni.Del, 2, With("name", "renamed"))),
		look("links", "ip -n c2 -o link show"),
	}
	if !s.Config.ScriptedIPAM {
		return s.Scenario(5, steps...), ""
	}
	const hide = "mkdir -p /tmp/none\nmount --bind /tmp/none /proc/sys/net/ipv6"
	empty := With("ipam", map[string]any{"type": ""})
	return s.answered(`echo '{"cniVersion":"%[1]s","ips":[{%[2]s"address":"10.77.0.99/24","gateway":"10.77.0.1"}]}'%.0[3]s`,
		s.Scenario(6, append(steps,
			quiet(s.Call("add3", cni.Add, 3)),
			quiet(s.Call("second", cni.Add, 5, ifname("eth1"), Env("CNI_NETNS", netns(3)))),
			look("defaults", "ip -n c3 route show default\nip -n c3 -6 route show default"),
			quiet(s.Call("empty", cni.Add, 4, empty)),
			quiet(s.Call("del-empty", cni.Del, 4, empty, Without("prevResult"))),
			script.Step{Shell: hide, Quiet: true},
			quiet(s.Call("old", cni.Add, 6, viaBroken)),
			script.Step{Shell: "umount /proc/sys/net/ipv6", Quiet: true},
		)...)), ""
}

func judgeUnusualLinks(j *Judgment) {
	dots := Verdict{Row: "R-81", Severity: report.Medium, Title: "ADD, CHECK or DEL fails if CNI_IFNAME has a dot",
		Hint: "a dot of the name is no separator of a sysctl"}
	_ = j.Succeeded("add", dots) && j.Succeeded("check", dots) && j.Succeeded("del", dots)
	if j.Requires("add2") {
		j.judgeRenamed()
	}
	if !j.Setup.Config.ScriptedIPAM {
		for _, row := range []string{"R-33", "R-69", "R-77"} {
			j.NotApplicable(row, "the plugin calls no IPAM plugin")
		}
		return
	}
	j.judgeDefaults()
	if j.Succeeded("del-empty", Verdict{Row: "R-33", Severity: report.High, Title: "DEL with an empty ipam type fails",
		Hint: "an empty type stands for no IPAM plugin"}) {
		r, _ := j.Call("empty")
		j.Expect(r.Status == 0 || strings.Contains(strings.ToLower(string(r.Stdout)), "ipam"), Verdict{Row: "R-33",
			Severity: report.Low, Title: "ADD with an empty ipam type fails without a clear reason",
			Expected: "success, or an error that names ipam", Actual: describe(r)})
	}
	j.Succeeded("old", Verdict{Row: "R-69", Severity: report.High,
		Title: "ADD of an IPv4 address fails on a host without /proc/sys/net/ipv6",
		Hint:  "ignore missing sysctls of IPv6"})
}

// judgeRenamed judges DEL under another network name. Plugins may identify interfaces by it.
func (j *Judgment) judgeRenamed() {
	r, _ := j.Call("renamed")
	links := j.seen("links")
	gone := !strings.Contains(links, ifName+"@") && !strings.Contains(links, ifName+":")
	if j.Setup.Config.Like == "" {
		j.Info("PL-DEL-10", fmt.Sprintf("DEL: %s; the interface is gone: %t", describe(r), gone))
		return
	}
	j.Expect(r.Status == 0 && gone, Verdict{Row: "PL-DEL-10", Severity: report.Low,
		Title:    "DEL under another network name leaves the interface or fails",
		Expected: "exit status 0, and no interface eth0 in the container", Actual: describe(r) + "; " + links,
		Hint: "administrators rename networks; the interface in the container is known by its name"})
}

// judgeDefaults judges the default routes of a container with two interfaces.
func (j *Judgment) judgeDefaults() {
	if r, _ := j.Call("second"); r.Status != 0 {
		j.NotApplicable("R-77", "the plugin refuses a second default route: "+describe(r))
		return
	}
	if !j.Requires("add3") {
		return
	}
	routes := j.seen("defaults")
	j.Expect(!strings.Contains(routes, "nexthop"), Verdict{Row: "R-77", Severity: report.High,
		Title:    "the default routes of two interfaces become one route with several hops",
		Expected: "a default route of the first interface, or one with a metric", Actual: routes,
		Hint: "add routes with NLM_F_EXCL, because the kernel appends a hop otherwise"})
}
