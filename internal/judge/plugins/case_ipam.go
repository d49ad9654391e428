package plugins

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// ipamCases judge IPAM plugins alone.
var ipamCases = []*Case{ipamCase, ipamPoolCase, ipamStateCase, ipamParallelCase, ipamRequestCase, ipamFamilyCase}

// The reasons for cases that are not judged.
const (
	noPool     = `the configuration of the judge has no pool of one address (key "exhausted")`
	overbooked = "a second container gets an address of the pool of one address"
)

// exhausted selects the pool of one address.
func (s *Setup) exhausted() func(*Draft) { return replace(s.Config.Exhausted) }

// replace sets keys of the request.
func replace(keys map[string]any) func(*Draft) {
	return func(d *Draft) {
		for k, v := range keys {
			d.Request[k] = v
		}
	}
}

// ipamCase judges the result of an IPAM plugin.
var ipamCase = &Case{
	Name: "ipam", Roles: []Role{IPAM}, Rows: []string{"IPAM-02", "IPAM-03", "IPAM-05", "IPAM-06"},
	Script: func(s *Setup) (*script.Scenario, string) {
		return s.Scenario(1, quiet(s.Call("add", cni.Add, 1)), quiet(s.Call("old", cni.Add, 2, With("cniVersion", "99.0.0"))),
			script.Step{Shell: "ip netns del c1", Quiet: true}, quiet(s.Call("gone", cni.Del, 1)),
			quiet(s.Call("empty", cni.Del, 1, Env("CNI_NETNS", "")))), ""
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") {
			return
		}
		got := j.result("add")
		if got == nil {
			j.Stopped = "the result of ADD is invalid"
			return
		}
		r, _ := j.Call("add")
		j.Expect(len(got.IPs) > 0, Verdict{Row: "IPAM-02", Severity: report.High, Title: "the result of ADD has no address",
			Expected: "one address or more", Actual: describe(r)})
		indexed := slices.ContainsFunc(got.IPs, func(ip cni.IP) bool { return ip.Interface.Set })
		j.Expect(len(got.Interfaces) == 0 && !indexed, Verdict{Row: "IPAM-03", Severity: report.Medium,
			Title:    "the result of ADD has interfaces",
			Expected: "no key interfaces, and no key interface in ips", Actual: describe(r),
			Hint: "the plugin that calls the IPAM plugin fills them in"})
		var header struct{ CNIVersion string }
		want := j.Setup.Version.String()
		refused, _ := j.Call("old")
		e, err := cni.DecodeError(refused.Stdout)
		if j.Expect(trial.DecodeExactly(r.Stdout, &header) == nil && header.CNIVersion == want, Verdict{Row: "IPAM-05", Severity: report.Medium,
			Title:    "the result of ADD has another version than the request",
			Expected: "cniVersion " + want, Actual: describe(r)}) {
			j.Expect(j.failed("old") && err == nil && e.Code == cni.CodeIncompatibleVersion, Verdict{Row: "IPAM-05", Severity: report.Medium,
				Title:    "ADD in an unknown version does not fail with code 1",
				Expected: "exit status other than 0, code 1", Actual: describe(refused)})
		}
		if j.Succeeded("gone", Verdict{Row: "IPAM-06", Severity: report.High, Title: "DEL fails after the namespace of the container is gone",
			Hint: "an IPAM plugin needs no namespace to release an address"}) {
			j.Succeeded("empty", Verdict{Row: "IPAM-06", Severity: report.High, Title: "DEL without CNI_NETNS fails"})
		}
	},
}

// ipamPoolCase judges what DEL releases, with a pool of one address: ADD of the next container
// succeeds only if the address is free.
var ipamPoolCase = &Case{
	Name: "ipam-pool", Roles: []Role{IPAM}, Once: true,
	Rows: []string{"IPAM-02", "IPAM-06", "PL-DEL-01", "PL-DEL-03", "PL-DEL-04", "PL-DEL-05"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if s.Config.Exhausted == nil {
			return nil, noPool
		}
		one := func(name string, verb cni.Command, n int, options ...func(*Draft)) script.Step {
			return quiet(s.Call(name, verb, n, append([]func(*Draft){s.exhausted()}, options...)...))
		}
		foreign := fmt.Sprintf(`{"cniVersion":%q,"ips":[{"version":"4","address":"192.0.2.9/24"}]}`, s.Version)
		switch {
		case s.Version < cni.V030:
			foreign = fmt.Sprintf(`{"cniVersion":%q,"ip4":{"ip":"192.0.2.9/24"}}`, s.Version)
		case s.Version >= cni.V100:
			foreign = strings.Replace(foreign, `"version":"4",`, "", 1)
		}
		upper, lower := Env("CNI_CONTAINERID", capitals), Env("CNI_CONTAINERID", strings.ToLower(capitals))
		gone := Env("CNI_NETNS", script.Netns+"/gone")
		return s.Scenario(9,
			one("add", cni.Add, 1), one("full", cni.Add, 9),
			one("del-other", cni.Del, 1, Env("CNI_IFNAME", "other0")), one("after-other", cni.Add, 9),
			one("del-plain", cni.Del, 1, Without("prevResult")), one("add2", cni.Add, 2),
			one("del-foreign", cni.Del, 2, With("prevResult", script.Literal(foreign))), one("add3", cni.Add, 3),
			one("del-gone", cni.Del, 3, gone), one("add4", cni.Add, 4),
			one("del-empty", cni.Del, 4, Env("CNI_NETNS", "")), one("add5", cni.Add, 5, upper),
			one("del-lower", cni.Del, 5, lower), one("after-lower", cni.Add, 9),
			one("del-upper", cni.Del, 5, upper), one("add6", cni.Add, 6),
		), ""
	},
	Judge: judgeIPAMPool,
}

func judgeIPAMPool(j *Judgment) {
	if !j.Requires("add") {
		return
	}
	r, _ := j.Call("full")
	if !j.Expect(j.failed("full"), Verdict{Row: "IPAM-02", Severity: report.Critical,
		Title:    "two containers get addresses of a pool of one address",
		Expected: "ADD of the second container fails", Actual: describe(r)}) {
		return
	}
	kept := func(del, add, title string) bool {
		r, _ := j.Call(add)
		released, _ := j.Call(del)
		return j.Expect(j.failed(add), Verdict{Row: "PL-DEL-05", Severity: report.Critical, Title: title,
			Expected: "the address remains reserved, and ADD of another container fails",
			Actual:   "DEL: " + describe(released) + "; ADD of another container: " + describe(r),
			Hint:     "release the addresses of the network, CNI_CONTAINERID and CNI_IFNAME of the request, compared exactly"})
	}
	if !kept("del-other", "after-other", "DEL of one interface releases the address of another interface of the container") {
		return
	}
	for _, step := range []struct{ del, add, row, title, hint string }{
		{"del-plain", "add2", "PL-DEL-04", "DEL without prevResult does not release the address",
			"find reservations by network, CNI_CONTAINERID and CNI_IFNAME"},
		{"del-foreign", "add3", "PL-DEL-05", "DEL releases only the addresses that prevResult lists",
			"release everything that belongs to the network, CNI_CONTAINERID and CNI_IFNAME"},
		{"del-gone", "add4", "PL-DEL-03", "DEL does not release the address after the namespace is gone",
			"an IPAM plugin needs no namespace to release an address"},
		{"del-empty", "add5", "PL-DEL-03", "DEL without CNI_NETNS does not release the address",
			"an IPAM plugin needs no namespace to release an address"},
	} {
		if !j.frees(step.del, step.add, step.row, step.title, step.hint) {
			return
		}
	}
	j.Pass("IPAM-06")
	if kept("del-lower", "after-lower", "DEL confuses container IDs that differ in case") {
		j.frees("del-upper", "add6", "PL-DEL-01", "DEL does not release the address", "")
	}
}

// frees expects that a DEL succeeds and that the next ADD then gets the address.
func (j *Judgment) frees(del, add, row, title, hint string) bool {
	released, _ := j.Call(del)
	r, _ := j.Call(add)
	return j.Expect(released.Status == 0 && r.Status == 0, Verdict{Row: row, Severity: report.High, Title: title,
		Expected: "DEL succeeds, and ADD of the next container gets the address",
		Actual:   "DEL: " + describe(released) + "; ADD of the next container: " + describe(r), Hint: hint})
}

// ipamStateCase compares the files after two rounds of ADD and DEL.
var ipamStateCase = &Case{
	Name: "ipam-state", Roles: []Role{IPAM}, Once: true, Rows: []string{"PL-DEL-05"},
	Script: func(s *Setup) (*script.Scenario, string) {
		return s.Scenario(2, quiet(s.Call("add", cni.Add, 1)), call(s.Call("del", cni.Del, 1)),
			quiet(s.Call("add2", cni.Add, 2)), call(s.Call("del2", cni.Del, 2))), ""
	},
	Judge: func(j *Judgment) {
		for _, name := range []string{"add", "del", "add2", "del2"} {
			if !j.Requires(name) {
				return
			}
		}
		var grown []string
		for _, path := range sortedKeys(j.After("del2").Files) {
			if _, known := j.After("del").Files[path]; !known {
				grown = append(grown, path)
			}
		}
		j.Expect(grown == nil, Verdict{Row: "PL-DEL-05", Severity: report.High,
			Title:    "files remain after DEL",
			Expected: "as many files after the second container as after the first", Actual: "new: " + strings.Join(grown, ", ")})
	},
}

// ipamParallelCase adds and deletes many containers at the same time.
var ipamParallelCase = &Case{
	Name: "ipam-parallel", Roles: []Role{IPAM}, Once: true, Rows: []string{"IPAM-11", "LIF-07"},
	Script: func(s *Setup) (*script.Scenario, string) {
		const containers = 64
		namespaces := 1
		if s.Config.Container != "" {
			namespaces = containers // the plugin works on the interface
		}
		all := func(prefix string, verb cni.Command) script.Step {
			step := script.Step{Quiet: true}
			for n := 1; n <= containers; n++ {
				step.Calls = append(step.Calls, s.Call(prefix+strconv.Itoa(n), verb, n,
					Without("prevResult"), Env("CNI_NETNS", netns(min(n, namespaces)))))
			}
			return step
		}
		return s.Scenario(namespaces, all("add-", cni.Add), all("del-", cni.Del), all("again-", cni.Add)), ""
	},
	Judge: func(j *Judgment) {
		if j.parallel(0, "ADD") && j.parallel(1, "DEL") {
			j.parallel(2, "ADD")
		}
	},
}

// parallel judges the calls of the n-th step with calls: all must succeed, and no address may be
// given twice, unless the plugin has only one.
func (j *Judgment) parallel(n int, verb string) bool {
	var events []script.Event
	for _, e := range j.Events {
		if e.Calls != nil {
			events = append(events, e)
		}
	}
	calls := events[n].Calls
	var failed, twice []string
	holder := map[netip.Prefix]string{}
	for _, c := range calls {
		if c.Status != 0 || c.Failed != "" {
			failed = append(failed, c.Name+": "+describe(c))
			continue
		}
		if verb != "ADD" {
			continue
		}
		r, err := cni.DecodeResult(c.Stdout, j.Setup.Version)
		if err != nil {
			failed = append(failed, c.Name+": "+err.Error())
			continue
		}
		for _, ip := range r.IPs {
			if first, taken := holder[ip.Address]; taken {
				twice = append(twice, fmt.Sprintf("%s and %s both have %s", first, c.Name, ip.Address))
			}
			holder[ip.Address] = c.Name
		}
	}
	if !j.Expect(failed == nil, Verdict{Row: "LIF-07", Severity: report.High,
		Title:    fmt.Sprintf("%s fails while other containers are added or deleted", verb),
		Expected: fmt.Sprintf("%d calls at the same time succeed", len(calls)),
		Actual:   fmt.Sprintf("%d fail; %s", len(failed), first(failed)),
		Hint:     "lock shared state, and wait for the lock instead of failing"}) {
		return false
	}
	if len(holder) == 1 && verb == "ADD" {
		j.NotApplicable("IPAM-11", "the configuration has a single address, which every container gets")
		return false
	}
	return j.Expect(twice == nil, Verdict{Row: "IPAM-11", Severity: report.Critical,
		Title:    "two containers get the same address",
		Expected: fmt.Sprintf("%d different addresses", len(calls)),
		Actual:   fmt.Sprintf("%d of %d addresses given twice; %s", len(twice), len(calls), first(twice)),
		Hint:     "choose and record an address under one lock, or create its file with O_EXCL"})
}

func first(list []string) string {
	if list == nil {
		return ""
	}
	return list[0]
}

// ipamRequestCase asks for addresses in the ways that the conventions list.
var ipamRequestCase = &Case{
	Name: "ipam-request", Roles: []Role{IPAM}, Oldest: cni.V030, Once: true,
	Rows: []string{"IPAM-10", "CONV-04", "CONV-14", "CONV-20", "CONV-21", "CONV-22", "CONV-24"},
	Script: func(s *Setup) (*script.Scenario, string) {
		c := s.Config
		if len(c.Requests) < 3 {
			return nil, `the configuration of the judge has no addresses to ask for (key "requests")`
		}
		variable := func(i int) func(*Draft) { return Env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=p;IP="+c.Requests[i]) }
		args := func(i int) func(*Draft) {
			return With("args", map[string]any{"cni": map[string]any{"ips": []string{c.Requests[i]}}})
		}
		capability := func(i int) func(*Draft) { return With("runtimeConfig", map[string]any{"ips": []string{c.Requests[i]}}) }
		base := replace(c.Requestable)
		add := func(name string, options ...func(*Draft)) []script.Step {
			options = append([]func(*Draft){base}, options...)
			return []script.Step{quiet(s.Call(name, cni.Add, 1, options...)),
				quiet(s.Call("del-"+name, cni.Del, 1, append(options, Without("prevResult"))...))}
		}
		return s.Scenario(1, slices.Concat(
			add("variable", variable(0)), add("args", args(1)), add("capability", capability(2)),
			add("args-variable", variable(0), args(1)), add("capability-args", args(1), capability(2)),
			add("unknown", Env("CNI_ARGS", "conform=1;IP="+c.Requests[0])),
		)...), ""
	},
	Judge: func(j *Judgment) {
		requests := j.Setup.Config.Requests
		sources := []struct {
			name, row, title string
			want             string
		}{
			{"variable", "CONV-21", "the address in CNI_ARGS is ignored", requests[0]},
			{"args", "CONV-20", "the address in args.cni.ips is ignored", requests[1]},
			{"capability", "CONV-14", "the address in runtimeConfig.ips is ignored", requests[2]},
			{"args-variable", "CONV-04", "the address in args.cni.ips does not replace that in CNI_ARGS", requests[1]},
			{"capability-args", "CONV-24", "the address in runtimeConfig.ips does not replace that in args.cni.ips", requests[2]},
		}
		for _, s := range sources {
			j.gets(s.name, s.row, s.title, s.want)
		}
		j.Pass("IPAM-10")
		r, _ := j.Call("unknown")
		j.Expect(j.failed("unknown"), Verdict{Row: "CONV-22", Severity: report.Low,
			Title:    "an unknown key in CNI_ARGS is accepted without IgnoreUnknown",
			Expected: "an exit status other than 0", Actual: describe(r),
			Hint: "a plugin that reads CNI_ARGS refuses keys that it does not know, unless IgnoreUnknown is true"})
	},
}

// gets expects that ADD returns exactly one address, the requested one.
func (j *Judgment) gets(name, row, title, want string) {
	r, _ := j.Call(name)
	address, _, _ := strings.Cut(want, "/")
	got, err := cni.DecodeResult(r.Stdout, j.Setup.Version)
	ok := r.Status == 0 && err == nil && len(got.IPs) == 1 && got.IPs[0].Address.Addr().String() == address
	j.Expect(ok, Verdict{Row: row, Severity: report.Medium, Title: title,
		Expected: "the address " + address + " and no other", Actual: describe(r),
		Hint: "for the same datum, runtimeConfig wins over args.cni, and args.cni over CNI_ARGS"})
}

// ipamFamilyCase asks for two addresses of one family in a version that cannot express them.
var ipamFamilyCase = &Case{
	Name: "ipam-family", Roles: []Role{IPAM}, Newest: cni.V020, Once: true, Rows: []string{"IPAM-07"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if s.Config.TwoAddresses == nil {
			return nil, `the configuration of the judge has no second address of a family (key "twoAddresses")`
		}
		return s.Scenario(1, quiet(s.Call("add", cni.Add, 1, replace(s.Config.TwoAddresses)))), ""
	},
	Judge: func(j *Judgment) {
		r, _ := j.Call("add")
		j.Expect(j.failed("add"), Verdict{Row: "IPAM-07", Severity: report.Medium,
			Title:    "an address is lost without an error",
			Expected: "an exit status other than 0, because results before 0.3.0 have one address for each family",
			Actual:   describe(r)})
	},
}
