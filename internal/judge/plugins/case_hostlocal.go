package plugins

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// hostLocalCases judge the reservations in the directory that host-local shares with other programs.
var hostLocalCases = []*Case{{
	Name: "reservations", Roles: []Role{IPAM}, Like: []string{"host-local"}, Oldest: cni.V040, Once: true,
	Rows:   []string{"CONV-11", "R-41", "R-42", "R-43", "R-45", "R-46", "R-47", "R-49", "R-52"},
	Script: reservations, Judge: judgeReservations,
}, {
	Name: "many-reservations", Roles: []Role{IPAM}, Like: []string{"host-local"}, Oldest: cni.V040, Once: true,
	Rows: []string{"R-44"}, Script: manyReservations, Judge: judgeManyReservations,
}}

// reserved is the directory of the network's reservations.
const reserved = "/var/lib/cni/networks/" + network

// hostLocal sets the section of the plugin.
func hostLocal(keys map[string]any) func(*Draft) {
	section := map[string]any{"type": "host-local"}
	for k, v := range keys {
		section[k] = v
	}
	return With("ipam", section)
}

// single is a range of one address.
func single(subnet, address string) map[string]any {
	return map[string]any{"subnet": subnet, "rangeStart": address, "rangeEnd": address}
}

func reservations(s *Setup) (*script.Scenario, string) {
	add := func(name string, n int, options ...func(*Draft)) script.Step {
		return quiet(s.Call(name, cni.Add, n, options...))
	}
	del := func(name string, n int, options ...func(*Draft)) script.Step {
		return quiet(s.Call(name, cni.Del, n, append(options, Without("prevResult"))...))
	}
	// files prints the reservations of a container.
	files := func(name string, n int) script.Step {
		return look(name, fmt.Sprintf("grep -rl '^%s' %s || :", containerID(n), reserved))
	}
	one := hostLocal(single("10.78.0.0/24", "10.78.0.9"))
	zero := hostLocal(map[string]any{"subnet": "0:1::/64"})
	return s.Scenario(9,
		// The first file is the judge's, and stays if the plugin does not take the address.
		script.Step{Shell: "mkdir -p " + reserved + "\n: >" + reserved + "/10.78.0.9", Quiet: true},
		add("empty", 1, one), del("del-empty", 1, one),
		script.Step{Shell: "printf %s " + containerID(2) + " >" + reserved + "/10.78.0.20", Quiet: true},
		del("old", 2), files("after-old", 2),
		add("add", 1), look("readable", "find "+reserved+" -name '10.78.*' ! -name 10.78.0.9 ! -perm 600"),
		add("again", 1, Env("CNI_ARGS", "IP=10.78.0.50")), files("after-again", 1),
		add("gateway", 3, Env("CNI_ARGS", "IP=10.78.0.1")),
		del("bare", 1, hostLocal(nil)), files("after-bare", 1),
		add("add4", 4), del("invalid", 4, hostLocal(map[string]any{"subnet": "10.78.0.5/24"})), files("after-invalid", 4),
		add("hold", 5, hostLocal(single("10.81.0.0/24", "10.81.0.9"))),
		add("partial", 6, hostLocal(map[string]any{"ranges": []any{
			[]any{map[string]any{"subnet": "10.80.0.0/24"}}, []any{single("10.81.0.0/24", "10.81.0.9")},
		}})), files("after-partial", 6),
		add("zero", 7, zero), add("zero2", 8, zero),
		add("ranges", 9, With("runtimeConfig", map[string]any{"ipRanges": []any{
			[]any{map[string]any{"subnet": "10.88.0.0/24"}},
		}})),
	), ""
}

func judgeReservations(j *Judgment) {
	if !j.Requires("add") {
		return
	}
	j.Succeeded("empty", Verdict{Row: "R-41", Severity: report.High,
		Title: "an empty reservation file blocks its address for ever",
		Hint:  "a crash between the creation and the content leaves such a file; take the address"})
	j.unreserved("old", "after-old", "R-46", "DEL does not release a reservation in the old format, which has no interface")
	readable := j.seen("readable")
	j.Expect(readable == "", Verdict{Row: "R-52", Severity: report.Low,
		Title: "other users can read or change reservations", Expected: "files with mode 0600", Actual: readable})
	owned, _ := j.Call("again")
	files := strings.Fields(j.seen("after-again"))
	j.Expect(len(files) <= 1, Verdict{Row: "R-42", Severity: report.High,
		Title:    "a second ADD with a requested address reserves a second address",
		Expected: "a refusal or the same address", Actual: describe(owned) + "; " + list(files),
		Hint: "look for a reservation of the container and interface also if an address is requested"})
	r, _ := j.Call("gateway")
	j.Expect(r.Status != 0, Verdict{Row: "R-49", Severity: report.High,
		Title: "a container gets the address of the gateway on request", Expected: "an error", Actual: describe(r)})
	if j.unreserved("bare", "after-bare", "R-43", "DEL without ranges does not release the address") {
		j.unreserved("invalid", "after-invalid", "R-43", "DEL with an invalid range does not release the address")
	}
	if j.Requires("hold") {
		partial, _ := j.Call("partial")
		left := j.seen("after-partial")
		j.Expect(partial.Status != 0 && left == "", Verdict{Row: "R-47", Severity: report.High,
			Title:    "a failed allocation of two addresses keeps the first",
			Expected: "an error and no reservation", Actual: describe(partial) + "; " + left})
	}
	j.judgeRanges()
}

// judgeRanges judges the choice of addresses.
func (j *Judgment) judgeRanges() {
	address := func(call string) (a netip.Addr) {
		if r := j.result(call); r != nil && len(r.IPs) > 0 {
			a = r.IPs[0].Address.Addr()
		}
		return a
	}
	r, _ := j.Call("ranges")
	j.Expect(netip.MustParsePrefix("10.88.0.0/24").Contains(address("ranges")), Verdict{Row: "CONV-11",
		Severity: report.Medium, Title: "the ranges in runtimeConfig are ignored",
		Expected: "an address of 10.88.0.0/24", Actual: describe(r)})
	first, second := address("zero"), address("zero2")
	r, _ = j.Call("zero2")
	j.Expect(first.IsValid() && second == first.Next(), Verdict{Row: "R-45", Severity: report.Medium,
		Title:    "the successor of an address whose first byte is zero is wrong",
		Expected: "addresses that follow each other", Actual: fmt.Sprintf("%s, then %s", first, describe(r)),
		Hint: "keep leading zeros when an address becomes a number"})
}

// unreserved expects that a DEL succeeds and that no reservation remains.
func (j *Judgment) unreserved(del, files, row, title string) bool {
	r, _ := j.Call(del)
	left := j.seen(files)
	return j.Expect(r.Status == 0 && left == "", Verdict{Row: row, Severity: report.High, Title: title,
		Expected: "DEL succeeds, and no reservation is left", Actual: describe(r) + "; " + left,
		Hint: "DEL needs the network name, the container ID and the interface only"})
}

// rounds is the number of measurements, of which the shortest counts.
const rounds = 3

func manyReservations(s *Setup) (*script.Scenario, string) {
	const fill = `cd ` + reserved + `
for i in $(seq 0 59); do
	for j in $(seq 1 250); do printf 'other-%s\r\neth0' $i.$j >10.64.$i.$j; done
done
printf 10.64.59.250 >last_reserved_ip.0`
	section := hostLocal(map[string]any{"subnet": "10.64.0.0/16"})
	measure := func(prefix string) (steps []script.Step) {
		for n := range rounds {
			steps = append(steps, quiet(s.Call(fmt.Sprint(prefix, n), cni.Add, 1, section)),
				quiet(s.Call(fmt.Sprint(prefix, "del", n), cni.Del, 1, section, Without("prevResult"))))
		}
		return steps
	}
	return s.Scenario(1, slices.Concat(measure("few"), []script.Step{{Shell: fill, Quiet: true}}, measure("many"))...), ""
}

func judgeManyReservations(j *Judgment) {
	shortest := func(prefix string) time.Duration {
		var all []time.Duration
		for n := range rounds {
			if !j.Requires(fmt.Sprint(prefix, n)) {
				return 0
			}
			r, _ := j.Call(fmt.Sprint(prefix, n))
			all = append(all, r.Took)
		}
		return slices.Min(all)
	}
	few, many := shortest("few"), shortest("many")
	if few == 0 || many == 0 {
		return
	}
	j.Expect(many < 4*few+100*time.Millisecond, Verdict{Row: "R-44", Severity: report.Low,
		Title:    "the time of ADD grows with the number of reservations",
		Expected: fmt.Sprintf("about %s, as without other reservations", few.Round(time.Millisecond)),
		Actual:   fmt.Sprintf("%s with 15000 reservations", many.Round(time.Millisecond)),
		Hint:     "do not read all files of the directory to find one container"})
}
