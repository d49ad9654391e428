package plugins

import (
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// portmapCases judge the effect of port mappings on real traffic.
var portmapCases = []*Case{{
	Name: "port-mappings", Roles: []Role{Chained}, Like: []string{"portmap"}, Oldest: cni.V040, Once: true, Variants: true,
	Needs: needsTraffic + "\nnft list ruleset",
	Rows: []string{"CONV-10", "R-86", "R-89", "R-90", "R-91", "R-92", "R-93", "R-95", "R-96",
		"R-97", "R-98", "R-101"},
	Script: portMappings, Judge: judgePortMappings,
}, {
	Name: "port-conditions", Roles: []Role{Chained}, Like: []string{"portmap"}, Oldest: cni.V040, Once: true, Variants: true,
	Needs: needsTraffic, Rows: []string{"R-87", "R-88"},
	Script: portConditions, Judge: judgePortConditions,
}}

// street connects the host with the namespace out, which has the addresses 198.51.100.2 and .3, and
// routes the addresses of three containers. 203.0.113.9 is a foreign address in container 3.
const street = `echo 1 >/proc/sys/net/ipv4/ip_forward
for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$f; done
ip netns add out
ip link add out1 type veth peer name eth0 netns out
ip address add 198.51.100.1/24 dev out1
ip link set out1 up
ip -n out address add 198.51.100.2/24 dev eth0
ip -n out address add 198.51.100.3/24 dev eth0
ip -n out link set lo up
ip -n out link set eth0 up
ip -n out route add default via 198.51.100.1
for n in 1 2 3; do
	ip address add 10.77.0.1/32 dev host$n
	ip route add 10.77.0.$((n + 1)) dev host$n
	ip -n c$n route add default via 10.77.0.1
done
ip -n c3 address add 203.0.113.9/32 dev eth0
ip route add 203.0.113.9 dev host3
`

// unrelated is a flow of another service: its NAT is gone, and the kernel remembers the flow.
const unrelated = `echo 600 >/proc/sys/net/netfilter/nf_conntrack_udp_timeout
nft add table ip conform
nft add chain ip conform pre '{ type nat hook prerouting priority -110; }'
nft add rule ip conform pre udp dport 7001 dnat to 10.77.0.3:53
`

func portMappings(s *Setup) (*script.Scenario, string) {
	mapping := func(ports ...map[string]any) func(*Draft) {
		return With("runtimeConfig", map[string]any{"portMappings": ports})
	}
	port := func(n int, ip string) map[string]any {
		m := map[string]any{"hostPort": n, "containerPort": 80, "protocol": "tcp"}
		if ip != "" {
			m["hostIP"] = ip
		}
		return m
	}
	several := mapping(port(8002, ""), port(8004, "fd77::99"), port(8005, "0.0.0.0"))
	steps := []script.Step{
		{Shell: street, Quiet: true},
		servers([]string{"c1", "c2", "c3"}, server("c1", "c1", "tcp:10.77.0.2:80", "udp:10.77.0.2:53"),
			server("c2", "c2", "tcp:10.77.0.3:80", "udp:10.77.0.3:53"), server("c3", "c3", "tcp:203.0.113.9:8001", "tcp:10.77.0.4:80")),
		{Shell: unrelated, Quiet: true},
		ask("flow", "out", "udp", "198.51.100.2 5002", "198.51.100.1 7001"),
		{Shell: "nft delete table ip conform", Quiet: true},
		quiet(s.Call("tools", cni.Add, 3, mapping(port(8009, "")), Env("PATH", "/none"))),
		ask("without-tools", "out", "tcp", "198.51.100.2 0", "198.51.100.1 8009"),
		quiet(s.Call("del-tools", cni.Del, 3, mapping(port(8009, "")), Without("prevResult"))),
		quiet(s.Call("add", cni.Add, 1)), quiet(s.Call("add2", cni.Add, 2, several)),
		ask("flow-after", "out", "udp", "198.51.100.2 5002", "198.51.100.1 7001"),
		ask("forward", "out", "tcp", "198.51.100.2 0", "198.51.100.1 8001"),
		ask("udp", "out", "udp", "198.51.100.2 5001", "198.51.100.1 9001"),
		ask("hairpin", "c1", "tcp", "10.77.0.2 0", "198.51.100.1 8001"),
		ask("sibling", "c2", "tcp", "10.77.0.3 0", "198.51.100.1 8001"),
		ask("foreign", "out", "tcp", "198.51.100.2 0", "203.0.113.9 8001"),
		ask("second", "out", "tcp", "198.51.100.2 0", "198.51.100.1 8002"),
		ask("other-family", "out", "tcp", "198.51.100.2 0", "198.51.100.1 8004"),
		ask("any", "out", "tcp", "198.51.100.2 0", "198.51.100.1 8005"),
		quiet(s.Call("taken", cni.Add, 3, mapping(port(8001, "")))),
		quiet(s.Call("taken-del", cni.Del, 3, mapping(port(8001, "")), Without("prevResult"))),
		ask("forward-taken", "out", "tcp", "198.51.100.2 0", "198.51.100.1 8001"),
		quiet(s.Call("del2", cni.Del, 2, Without("runtimeConfig"))),
		ask("second-gone", "out", "tcp", "198.51.100.2 0", "198.51.100.1 8002"),
		ask("forward-kept", "out", "tcp", "198.51.100.2 0", "198.51.100.1 8001"),
		quiet(s.Call("check", cni.Check, 1)),
		{Shell: flush.Shell, Quiet: true},
		quiet(s.Call("check-flushed", cni.Check, 1)), quiet(s.Call("del", cni.Del, 1)),
		quiet(s.Call("retry", cni.Add, 1)),
		ask("udp-retry", "out", "udp", "198.51.100.2 5001", "198.51.100.1 9001"),
		quiet(s.Call("del-retry", cni.Del, 1)),
		servers([]string{"host"}, server("", "host", "udp:198.51.100.1:9001")),
		ask("udp-gone", "out", "udp", "198.51.100.2 5001", "198.51.100.1 9001"),
	}
	return withTraffic(s.Scenario(3, steps...)), ""
}

func judgePortMappings(j *Judgment) {
	if !j.Requires("add") || !j.Requires("add2") {
		return
	}
	if !j.answers("forward", "c1 198.51.100.2", Verdict{Row: "CONV-10", Severity: report.High,
		Title: "a connection to the host port does not reach the container with its source"}) {
		return
	}
	j.judgeForwarding()
	tools, _ := j.Call("tools")
	reached := strings.HasPrefix(j.seen("without-tools"), "c3 ")
	j.Expect(tools.Status != 0 || reached, Verdict{Row: "R-101", Severity: report.High,
		Title:    "ADD succeeds without the tools that it needs, and the port is not reachable",
		Expected: "an error, or an effect", Actual: describe(tools) + "; " + j.seen("without-tools")})
	r, _ := j.Call("taken")
	taken := Verdict{Row: "R-89", Severity: report.High, Title: "two containers get the same host port"}
	if taken.Expected, taken.Actual = "ADD of the second container fails", describe(r); j.Expect(r.Status != 0, taken) {
		j.answers("forward-taken", "c1", Verdict{Row: "R-89", Severity: severe,
			Title: "a refused ADD damages the mapping of another container"})
	}
	if j.Succeeded("del2", Verdict{Row: "R-86", Severity: report.High, Title: "DEL without ports fails"}) {
		j.unanswered("second-gone", "c2", Verdict{Row: "R-86", Severity: report.High,
			Title: "DEL without ports leaves the mappings",
			Hint:  "find the mappings by network and container ID"})
	}
	j.Succeeded("check", Verdict{Row: "R-97", Severity: report.Medium, Title: "CHECK fails although the mappings exist"})
	flushed, _ := j.Call("check-flushed")
	j.Expect(flushed.Status != 0, Verdict{Row: "R-97", Severity: report.Medium,
		Title: "CHECK succeeds although the rules are gone", Expected: "an error", Actual: describe(flushed)})
	j.Succeeded("del", Verdict{Row: "R-98", Severity: report.High, Title: "DEL fails after the rules were flushed"})
	if j.Requires("retry") && j.Requires("del-retry") {
		j.judgeFlows()
	}
}

// judgeForwarding judges which connections reach container 1 and container 2.
func (j *Judgment) judgeForwarding() {
	ok := j.answers("hairpin", "c1", Verdict{Row: "R-95", Severity: report.Medium,
		Title: "a container does not reach its own host port",
		Hint:  "masquerade connections of the container to itself"})
	if ok {
		j.answers("sibling", "c1", Verdict{Row: "R-95", Severity: report.Medium,
			Title: "a container does not reach the host port of another container of its subnet",
			Hint:  "masquerade connections from the subnet, because the answer would bypass the host"})
	}
	j.answers("foreign", "c3", Verdict{Row: "R-96", Severity: severe,
		Title: "traffic to the port of another host is captured",
		Hint:  "match only packets to local addresses"})
	j.unanswered("other-family", "c2", Verdict{Row: "R-92", Severity: report.High,
		Title: "a mapping for an IPv6 address is also effective for IPv4",
		Hint:  "skip a mapping if hostIP has the other family"})
	j.answers("any", "c2", Verdict{Row: "R-93", Severity: report.Medium,
		Title: "a mapping for 0.0.0.0 is not effective",
		Hint:  "an unspecified hostIP means all addresses of its family"})
}

// judgeFlows judges what happens to flows that the kernel remembers.
func (j *Judgment) judgeFlows() {
	if j.seen("flow") != "c2 198.51.100.2" {
		j.Skip("R-91", "the kernel does not remember the flow: "+j.seen("flow"))
	} else {
		j.answers("flow-after", "c2", Verdict{Row: "R-91", Severity: severe,
			Title: "ADD ends UDP flows of other services",
			Hint:  "delete only conntrack entries with the port of the mapping"})
	}
	if got := j.seen("udp-retry"); got != "c1 198.51.100.2" {
		j.Skip("R-90", "no answer through the UDP port: "+got)
		return
	}
	j.answers("udp-gone", "host", Verdict{Row: "R-90", Severity: severe,
		Title: "UDP packets of a known flow still go to the container after DEL",
		Hint:  "delete the conntrack entries of the mapping"})
}

// secondLink creates the interface eth1 in container 1.
const secondLink = `ip link add host1b type veth peer name eth1 netns c1
ip address add 10.88.0.1/24 dev host1b
ip link set host1b address 02:00:00:01:01:01 up
ip -n c1 link set eth1 address 02:00:00:00:01:01 up
ip -n c1 address add 10.88.0.2/24 dev eth1
`

// secondResult is the result of an earlier plugin about that interface.
func (s *Setup) secondResult() map[string]any {
	ip := map[string]any{"address": "10.88.0.2/24", "interface": 1}
	if s.Version < cni.V100 {
		ip["version"] = "4"
	}
	return map[string]any{"cniVersion": s.Version.String(), "interfaces": []any{
		map[string]any{"name": "host1b", "mac": "02:00:00:01:01:01"},
		map[string]any{"name": "eth1", "mac": "02:00:00:00:01:01", "sandbox": netns(1)},
	}, "ips": []any{ip}}
}

// portConditions attaches a container to two networks, each with a port and a condition for clients.
func portConditions(s *Setup) (*script.Scenario, string) {
	from := func(address string) func(*Draft) {
		condition := []string{"-s", address}
		if s.Config.Network["backend"] == "nftables" {
			condition = []string{"ip", "saddr", address}
		}
		return With("conditionsV4", condition)
	}
	second := func(d *Draft) {
		d.Env["CNI_IFNAME"], d.Request["name"], d.Request["prevResult"] = "eth1", "other", s.secondResult()
		d.Request["runtimeConfig"] = map[string]any{"portMappings": []any{
			map[string]any{"hostPort": 8003, "containerPort": 80, "protocol": "tcp"},
		}}
		from("198.51.100.3")(d)
	}
	connect := func(name, source, port string) script.Step {
		return ask(name, "out", "tcp", source+" 0", "198.51.100.1 "+port)
	}
	return withTraffic(s.Scenario(3,
		script.Step{Shell: street + secondLink, Quiet: true},
		servers([]string{"c1"}, server("c1", "c1", "tcp:10.77.0.2:80", "tcp:10.88.0.2:80")),
		quiet(s.Call("add", cni.Add, 1, from("198.51.100.2"))),
		connect("alone", "198.51.100.2", "8001"), connect("alone-foreign", "198.51.100.3", "8001"),
		quiet(s.Call("add2", cni.Add, 1, second)),
		connect("first", "198.51.100.2", "8001"), connect("first-foreign", "198.51.100.3", "8001"),
		connect("second", "198.51.100.3", "8003"), connect("second-foreign", "198.51.100.2", "8003"),
		quiet(s.Call("del2", cni.Del, 1, second)),
		connect("kept", "198.51.100.2", "8001"), connect("gone", "198.51.100.3", "8003"),
	)), ""
}

func judgePortConditions(j *Judgment) {
	if r, _ := j.Call("add"); r.Status != 0 {
		for _, row := range []string{"R-87", "R-88"} {
			j.NotApplicable(row, "the plugin refuses the condition: "+describe(r))
		}
		return
	}
	if !j.Requires("add2") {
		return
	}
	if a, b := j.seen("alone"), j.seen("alone-foreign"); a != "c1 198.51.100.2" || b == "c1 198.51.100.3" {
		j.Stopped = "the plugin does not apply conditionsV4: " + a + "; " + b
		return
	}
	both := Verdict{Row: "R-88", Severity: report.High,
		Title: "the conditions of one network replace the conditions of another one",
		Hint:  "apply conditions only to the mappings of their network"}
	wider := both
	wider.Severity = severe
	_ = j.unanswered("first-foreign", "c1", wider) && j.unanswered("second-foreign", "c1", wider) &&
		j.answers("first", "c1", both) && j.answers("second", "c1", both)
	if j.Requires("del2") && j.seen("first") == "c1 198.51.100.2" {
		j.answers("kept", "c1", Verdict{Row: "R-87", Severity: report.High,
			Title: "DEL of one network removes the mappings of another network of the container",
			Hint:  "select mappings by network, container ID and interface"})
	}
}
