package runtimes

import (
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// configuration adds a file to the directory of configurations.
func (s *Setup) configuration(path string, content any) {
	s.files = append(s.files, script.File{Path: confDir + "/" + path, Data: document(content)})
}

// single returns a configuration with one plugin.
func (s *Setup) single(typ string) map[string]any {
	return plugin(typ, map[string]any{"cniVersion": s.Version.String(), "name": netName})
}

// versioned returns a scenario with a list that offers several versions.
func versioned(own string, versions ...string) func(*Setup) *script.Scenario {
	return func(s *Setup) *script.Scenario {
		list := s.list(netName, first)
		list["cniVersion"], list["cniVersions"] = own, versions
		s.network("10-judged", list)
		s.answer(first, cni.Add, inVersion())
		return s.scenario(step(s.call("add", Add)))
	}
}

// selects judges the version that a runtime has selected for [versioned].
func selects(want cni.Version, v Verdict) func(*Judgment) {
	return func(j *Judgment) {
		v.Severity = report.Medium
		if !j.runs("add", sequence(cni.Add, first), v) {
			return
		}
		if requests, ok := j.requests(j.ran("add")); ok {
			v.Expected = "cniVersion " + want.String()
			j.each(requests, func(_ int, r request) string { return r.unless("cniVersion", want.String()) }, v)
		}
	}
}

var configCases = []*Case{{
	Name: "versions", Oldest: cni.V110, Once: true, Rows: []string{"VER-05", "VER-07"},
	Script: versioned("0.4.0", "0.4.0", "1.1.0", "1.0.0", "99.0.0"),
	Judge: selects(cni.V110, Verdict{Row: "VER-05", Also: []string{"VER-07"},
		Title: "the runtime does not select the highest version that it supports",
		Hint:  "ignore newer versions in cniVersions, and compare the others by number"}),
}, {
	Name: "versions-unpublished", Oldest: cni.V110, Once: true, Rows: []string{"VER-09"},
	Script: versioned("1.0.0", "1.0.0", "1.0.7"),
	Judge: selects(cni.V100, Verdict{Row: "VER-09", Title: "the runtime selects a version that does not exist",
		Hint: "select only published versions"}),
}, {
	Name: "versions-malformed", Oldest: cni.V110, Once: true, Rows: []string{"VER-08"},
	Script: versioned("1.1.0", "1.1.0", "latest"),
	Judge: func(j *Judgment) {
		j.startsNothing("add", Verdict{Row: "VER-08", Severity: report.Low,
			Title: "a list with a malformed entry of cniVersions is used"})
	},
}, {
	Name: "file-order", Once: true, Rows: []string{"DSC-03", "DSC-05"},
	Script: func(s *Setup) *script.Scenario {
		s.network("20-judged", s.list(netName, second))
		s.network("100-judged", s.list(netName, first))
		return s.scenario(step(s.call("add", Add)))
	},
	Judge: func(j *Judgment) {
		j.runs("add", sequence(cni.Add, first), Verdict{Row: "DSC-03", Also: []string{"DSC-05"}, Severity: report.Medium,
			Title: "100-judged.conflist is not used before 20-judged.conflist",
			Hint:  "sort files by the bytes of their names, and use the first one with the name"})
	},
}, {
	Name: "list-before-single", Once: true, Rows: []string{"DSC-04"},
	Script: func(s *Setup) *script.Scenario {
		s.configuration("00-judged.conf", s.single(second))
		s.network("99-judged", s.list(netName, first))
		return s.scenario(step(s.call("add", Add)))
	},
	Judge: func(j *Judgment) {
		j.runs("add", sequence(cni.Add, first), Verdict{Row: "DSC-04", Severity: report.Medium,
			Title: "00-judged.conf is used instead of 99-judged.conflist",
			Hint:  "look for the name in .conflist files first"})
	},
}, {
	Name: "single", Rows: []string{"CFG-21", "CFG-22"},
	Script: func(s *Setup) *script.Scenario {
		s.configuration("10-judged.conf", s.single(first))
		return s.scenario(step(s.call("add", Add)))
	},
	Judge: func(j *Judgment) {
		j.runs("add", sequence(cni.Add, first), Verdict{Row: "CFG-21", Also: []string{"CFG-22"}, Severity: report.Medium,
			Title: "a configuration with a single plugin is not used as a list of one"})
	},
}, {
	Name: "drop-ins", Oldest: cni.V110, Once: true, Rows: []string{"DRP-02", "DRP-03", "DRP-07"},
	Script: func(s *Setup) *script.Scenario {
		s.dropIns(s.list(netName, first))
		return s.scenario(step(s.call("add", Add)))
	},
	Judge: func(j *Judgment) {
		if !j.runs("add", sequence(cni.Add, first, second), Verdict{Row: "DRP-03", Also: []string{"DRP-02"},
			Severity: report.Medium, Title: "plugins of the directory of the network do not run after the plugins of the list",
			Hint: "append the files *.conf in the directory with the name of the network"}) {
			return
		}
		if requests, ok := j.requests(j.ran("add")); ok {
			j.each(requests, func(_ int, r request) string { return r.unless("name", netName) },
				Verdict{Row: "DRP-07", Severity: report.Medium, Title: "the name of a drop-in wins over the list's",
					Expected: "name " + netName})
		}
	},
}, {
	Name: "drop-ins-ignored", Oldest: cni.V110, Once: true, Rows: []string{"CFG-10"},
	Script: func(s *Setup) *script.Scenario {
		list := s.list(netName, first)
		list["loadOnlyInlinedPlugins"] = true
		s.dropIns(list)
		return s.scenario(step(s.call("add", Add)))
	},
	Judge: func(j *Judgment) {
		j.runs("add", sequence(cni.Add, first), Verdict{Row: "CFG-10", Severity: report.Medium,
			Title: "drop-ins run although loadOnlyInlinedPlugins is true"})
	},
}, {
	Name: "name-escapes", Once: true, Rows: []string{"CFG-03", "CFG-05", "DRP-09"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.list("../other", first))
		s.configuration("../other/10-second.conf", plugin(second))
		return s.scenario(step(s.call("add", Add, network("../other"))))
	},
	Judge: func(j *Judgment) {
		j.startsNothing("add", Verdict{Row: "CFG-03", Also: []string{"CFG-05", "DRP-09"}, Severity: report.High,
			Title: "a network with the name ../other is used", Hint: "check the name before it becomes a part of a path"})
	},
}, {
	Name: "type-escapes", Once: true, Rows: []string{"CFG-31", "SEC-02"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.list(netName, "../bin/"+first))
		return s.scenario(step(s.call("add", Add)))
	},
	Judge: func(j *Judgment) {
		j.startsNothing("add", Verdict{Row: "CFG-31", Also: []string{"SEC-02"}, Severity: report.High,
			Title: "a plugin with a path as type runs", Hint: "refuse a type with a separator of paths"})
	},
}}

// dropIns adds a list, and files in the directory of its network: one drop-in, and one with another suffix.
func (s *Setup) dropIns(list map[string]any) {
	s.network("10-judged", list)
	s.configuration(netName+"/20-second.conf", plugin(second, map[string]any{"name": "inner"}))
	s.configuration(netName+"/30-third.json", plugin(third))
}
