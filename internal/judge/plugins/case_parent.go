package plugins

import (
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// parentCases judge interfaces that have a parent.
var parentCases = []*Case{{
	Name: "wrong-parent", Roles: []Role{Interface}, Like: []string{"macvlan", "ipvlan", "vlan"}, Oldest: cni.V040, Once: true,
	Rows: []string{"R-78", "R-79"},
	Script: func(s *Setup) (*script.Scenario, string) {
		return s.Scenario(2,
			quiet(s.Call("mtu", cni.Add, 1, With("mtu", 9000))),
			quiet(s.Call("missing", cni.Add, 2, With("master", "none0"), With("linkInContainer", true))),
		), ""
	},
	Judge: func(j *Judgment) {
		if r, _ := j.Call("mtu"); j.Setup.Config.Like == "ipvlan" && r.Status == 0 {
			j.NotApplicable("R-78", "the kernel accepts any MTU for ipvlan")
		} else {
			text := string(r.Stdout)
			j.Expect(r.Status != 0 && strings.Contains(text, "9000") && strings.Contains(text, "1500"), Verdict{Row: "R-78",
				Severity: report.Low, Title: "an MTU above the parent's is not refused precisely",
				Expected: "an error that names 9000 and 1500", Actual: describe(r)})
		}
		r, _ := j.Call("missing")
		j.Expect(r.Status != 0 && isError(r.Stdout), Verdict{Row: "R-79",
			Severity: report.Medium, Title: "a missing parent in the container is no clear error",
			Expected: "an error object", Actual: describe(r)})
	},
}}

// deviceCases judge devices that move into containers and back.
var deviceCases = []*Case{{
	Name: "devices", Roles: []Role{Interface}, Like: []string{"host-device"}, Oldest: cni.V040, Once: true,
	Rows: []string{"R-23", "R-24", "R-84"},
	Script: func(s *Setup) (*script.Scenario, string) {
		return s.Scenario(3,
			script.Step{Shell: "ip -n c1 link add device1 type veth peer name other0", Quiet: true},
			quiet(s.Call("add", cni.Add, 1)), quiet(s.Call("del", cni.Del, 1)),
			look("clash", "ip -o link show device1\nip -n c1 -o link show device1"),
			quiet(s.Call("add2", cni.Add, 2)),
			script.Step{Shell: "ip -n c2 link set eth0 down\nip -n c2 link set eth0 name moved0\nip -n c2 link set moved0 up", Quiet: true},
			quiet(s.Call("del2", cni.Del, 2)), look("renamed", "ip -o link show device2"),
			quiet(s.Call("add3", cni.Add, 3)), look("up", "ip -n c3 -o link show eth0"),
			quiet(s.Call("del3", cni.Del, 3)), look("restored", "ip -o link show device3"),
		), ""
	},
	Judge: func(j *Judgment) {
		for _, x := range []struct{ row, add, del, look, title string }{
			{"R-84", "add", "del", "clash", "an interface of the container with the name of the device prevents the move"},
			{"R-23", "add2", "del2", "renamed", "a device that was renamed in the container does not come back"},
			{"R-24", "add3", "del3", "restored", "a device that is up does not come back"},
		} {
			v := Verdict{Row: x.row, Severity: report.High, Title: x.title,
				Hint: "record the name of the device in its alias, and find it by that"}
			if !j.Succeeded(x.add, v) || !j.Succeeded(x.del, v) {
				continue
			}
			r, _ := j.Call(x.look)
			v.Expected, v.Actual = "the device under its name in the host", fmt.Sprintf("%q", j.seen(x.look))
			j.Expect(r.Status == 0, v)
		}
	},
}}
