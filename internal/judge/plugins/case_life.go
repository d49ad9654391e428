package plugins

import (
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// lifeCases are the usual life of attachments, without anything unusual.
var lifeCases = []*Case{{
	Name: "life", Roles: []Role{Interface, Chained, IPAM}, Variants: true,
	Rows: []string{"PL-VRS-04", "PL-ADD-01", "PL-ADD-04", "PL-CHK-07", "PL-CHK-09", "PL-DEL-01", "PL-DEL-02", "PL-DEL-07", "LIF-11", "LIF-14"},
	Script: func(s *Setup) (*script.Scenario, string) {
		calls := []script.Call{s.Call("add", cni.Add, 1), s.Call("add2", cni.Add, 2)}
		if s.Version >= cni.V040 {
			calls = slices.Insert(calls, 1, s.Call("check", cni.Check, 1))
		}
		calls = append(calls, s.Call("del", cni.Del, 1), s.Call("again", cni.Del, 1), s.Call("del2", cni.Del, 2),
			s.Call("add3", cni.Add, 3), s.Call("del3", cni.Del, 3))
		steps := Each(calls...)
		steps[len(steps)-2].Quiet = true // after add3
		return s.Scenario(3, append(steps, script.Step{Shell: s.end(3)})...), ""
	},
	Judge: judgeLife,
}, {
	Name: "settle", Roles: []Role{Interface, Chained}, Oldest: cni.V040, Once: true, Variants: true,
	Rows: []string{"PL-CHK-07"},
	Script: func(s *Setup) (*script.Scenario, string) {
		s.detection = true
		return s.Scenario(1, Each(s.Call("add", cni.Add, 1), s.Call("check", cni.Check, 1))...), ""
	},
	Judge: func(j *Judgment) {
		if j.Requires("add") {
			j.Succeeded("check", checkFails)
		}
	},
}, {
	Name: "name", Roles: []Role{Interface}, Once: true, Rows: []string{"PL-ADD-02"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if s.Config.IfName != "" {
			return nil, "the plugin concerns the interface " + s.Config.IfName
		}
		return s.Scenario(1, Each(s.Call("add", cni.Add, 1, Env("CNI_IFNAME", "net1")))...), ""
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") {
			return
		}
		j.Expect(hasLink(j.After("add"), "c1", "net1"), Verdict{Row: "PL-ADD-02",
			Severity: report.High, Title: "ADD ignores the name in CNI_IFNAME",
			Expected: "an interface net1 in the container", Actual: "links: " + links(j.After("add"), "c1"),
			Hint: "name the interface after CNI_IFNAME"})
	},
}}

func judgeLife(j *Judgment) {
	if r, _ := j.Call("add"); codeOf(r) == int(cni.CodeIncompatibleVersion) {
		j.Stopped = "the plugin refuses the version" // which is a finding of PL-VRS-04
		return
	}
	if !j.Succeeded("add", Verdict{Row: "PL-ADD-04", Severity: report.High, Title: "ADD fails"}) {
		return
	}
	j.Pass("PL-VRS-04")
	if !j.Requires("add") {
		return
	}
	name := j.Setup.ifName()
	if j.Setup.Role != IPAM {
		j.Expect(hasLink(j.After("add"), "c1", name), Verdict{Row: "PL-ADD-01",
			Severity: report.High, Title: "ADD creates no interface of the name in CNI_IFNAME",
			Expected: "an interface " + name + " in the container",
			Actual:   "links: " + links(j.After("add"), "c1"),
			Hint:     "create the interface in the namespace of CNI_NETNS, with the name of CNI_IFNAME"})
	} else {
		j.NotApplicable("PL-ADD-01", "IPAM plugins create no interface")
	}
	if j.Setup.Version >= cni.V040 {
		judgeCheck(j)
	}
	if !j.Requires("add2") || !judgeDel(j) || !j.Requires("del2") || !j.Requires("add3") || !j.Requires("del3") {
		return
	}
	judgeResidue(j)
}

var checkFails = Verdict{Row: "PL-CHK-07", Severity: report.High,
	Title: "CHECK directly after ADD fails",
	Hint:  "wait in ADD, or in CHECK, until what the plugin made is usable"}

// judgeCheck judges CHECK directly after ADD.
func judgeCheck(j *Judgment) {
	if !j.Succeeded("check", checkFails) {
		j.Skip("PL-CHK-09", "CHECK fails")
		return
	}
	changes := compare(j.Before("check"), j.After("check"))
	j.Expect(changes.empty(), Verdict{Row: "PL-CHK-09", Severity: report.Medium, Title: "CHECK changes something",
		Expected: "the same state", Actual: changes.String(), Hint: "CHECK must only compare"})
}

// judgeDel judges DEL of the first of two containers, and its repetition.
func judgeDel(j *Judgment) bool {
	if !j.Succeeded("del", Verdict{Row: "PL-DEL-01", Severity: report.High, Title: "DEL fails"}) {
		return false
	}
	j.Pass("LIF-14") // each call is a process of its own, without common memory
	_, kept := j.After("del").Containers["c1"]
	j.Expect(kept, Verdict{Row: "LIF-11", Severity: report.High, Title: "DEL removes the namespace",
		Expected: "the namespace of the container still exists", Actual: "it is gone",
		Hint: "leave the namespace to the runtime"})
	if kept && j.Setup.Role == Interface && j.Setup.Config.IfName == "" {
		j.Expect(!hasLink(j.After("del"), "c1", ifName), Verdict{Row: "PL-DEL-01", Severity: report.High,
			Title: "DEL leaves the interface in the container", Expected: "no interface " + ifName,
			Actual: "links: " + links(j.After("del"), "c1"), Hint: "delete the interface named by CNI_IFNAME"})
	}
	if j.Succeeded("again", Verdict{Row: "PL-DEL-02", Severity: report.High,
		Title: "the second DEL fails",
		Hint:  "treat an object that is already gone as success"}) {
		changes := compare(j.Before("again"), j.After("again"))
		j.Expect(changes.empty(), Verdict{Row: "PL-DEL-02", Severity: report.High,
			Title: "the second DEL changes something", Expected: "the same state", Actual: changes.String()})
	}
	return true
}

// judgeResidue judges what remains after DEL. Objects that several attachments share may stay: they do
// not become more with the next attachment.
func judgeResidue(j *Judgment) {
	other := compare(container(j.Before("del"), "c2"), container(j.After("del"), "c2"))
	if j.Setup.Role == Chained {
		beside := compare(j.Before("del"), j.After("del")).naming("host2")
		other.more, other.less = append(other.more, beside.more...), append(other.less, beside.less...)
	}
	j.Expect(other.empty(), Verdict{Row: "PL-DEL-01", Severity: report.Critical,
		Title: "DEL changes another container", Expected: "the other container as before",
		Actual: other.String(), Hint: "select objects by network, container ID and interface"})
	left, grown := compare(j.After("del2"), j.After("del3")), compare(j.After("del2"), j.last())
	v := Verdict{Row: "PL-DEL-01", Severity: report.High,
		Title: "each ADD and DEL leaves something behind", Expected: "the state before the third ADD",
		Actual: left.String(), Hint: "undo in DEL everything that ADD made for the attachment"}
	if len(grown.more) == 0 {
		v.Severity, v.Title = report.Low, "DEL does not undo a change that ends with the container"
	}
	ok := j.Expect(left.empty(), v)
	if stays := compare(j.Before("add"), j.After("del2")); ok && !stays.empty() {
		j.Info("PL-DEL-01", "stays after DEL, the same for all containers: "+stays.String())
	}
}
