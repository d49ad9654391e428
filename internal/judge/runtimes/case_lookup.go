package runtimes

import (
	"path"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// reading is a directory of configurations, and what ADD of the network judged must make of it.
type reading struct {
	name  string            // of the call, the directory and the container
	files map[string]string // by path in the directory; $V stands for the version of the case
	links map[string]string // symbolic links, from a path in the directory to a target
	empty []string          // empty directories
	// plugins are the plugins that ADD must run; nil means that ADD must fail and start none.
	plugins []string
	title   string // of a finding
	hint    string
}

// at returns the directory of a reading.
func (r *reading) at() string { return confDir + "/" + r.name }

// readings completes a case: it adds a call of ADD for each reading. All findings have the first
// row of the case, and the others as related rows.
func readings(c Case, severity report.Severity, list ...reading) *Case {
	c.Once = true
	c.Script = func(s *Setup) *script.Scenario {
		var steps []script.Step
		for i := range list {
			r := &list[i]
			add := s.call(r.name, Add, with("confDir", r.at()), container(r.name))
			steps = append(steps, run(r.prepare(s)), step(add))
		}
		return s.scenario(steps...)
	}
	c.Judge = func(j *Judgment) {
		for _, r := range list {
			v := Verdict{Row: c.Rows[0], Also: c.Rows[1:], Severity: severity,
				Title: r.title, Hint: r.hint}
			if r.plugins == nil {
				j.startsNothing(r.name, v)
			} else {
				j.runs(r.name, sequence(cni.Add, r.plugins...), v)
			}
		}
	}
	return &c
}

// prepare adds the files of a reading, and returns the commands for its directories and links.
func (r *reading) prepare(s *Setup) string {
	for name, text := range r.files {
		text = strings.ReplaceAll(text, "$V", s.Version.String()) + "\n"
		s.files = append(s.files, script.File{Path: r.at() + "/" + name, Data: text})
	}
	commands := "mkdir -p " + r.at() + "\n"
	for _, dir := range r.empty {
		commands += "mkdir -p " + r.at() + "/" + dir + "\n"
	}
	for link, target := range r.links {
		commands += "ln -s " + target + " " + path.Join(r.at(), link) + "\n"
	}
	return commands
}

// The texts of usual configurations.
const (
	listFirst   = `{"cniVersion":"$V","name":"judged","plugins":[{"type":"conform-first"}]}`
	listSecond  = `{"cniVersion":"$V","name":"judged","plugins":[{"type":"conform-second"}]}`
	listNone    = `{"cniVersion":"$V","name":"judged"}`
	singleFirst = `{"cniVersion":"$V","name":"judged","type":"conform-first"}`
	begin       = `{"cniVersion":"$V","name":"judged",`
	alone       = "10-judged.conflist"
	broken      = `{"cniVersion":"$V","name":"broken","plugins":[`
)

var lookupCases = []*Case{
	readings(Case{Name: "plugins-empty", Oldest: cni.V110, Rows: []string{"CFG-11"}}, report.Medium,
		reading{name: "empty", title: "a list with an empty array of plugins is used",
			files: map[string]string{alone: begin + `"plugins":[]}`,
				"judged/10-first.conf": `{"type":"conform-first"}`}},
		reading{name: "null", title: "a list with null as plugins is used",
			files: map[string]string{alone: begin + `"plugins":null}`,
				"judged/10-first.conf": `{"type":"conform-first"}`}},
		reading{name: "object", title: "a list with an object as plugins is used",
			files: map[string]string{alone: begin + `"plugins":{"type":"conform-first"}}`}}),
	readings(Case{Name: "key-case", Rows: []string{"CFG-13"}}, report.Low,
		reading{name: "name", title: "the key Name is taken for name",
			hint: "compare the keys of a list with regard to case",
			files: map[string]string{alone: `{"cniVersion":"$V","Name":"judged",` +
				`"plugins":[{"type":"conform-first"}]}`}}),
	readings(Case{Name: "key-twice", Rows: []string{"CFG-14"}}, report.Low,
		reading{name: "name", plugins: []string{first},
			title: "the last of two keys name does not win",
			files: map[string]string{alone: `{"cniVersion":"$V","name":"other",` +
				`"plugins":[{"type":"conform-first"}],"name":"judged"}`}},
		reading{name: "plugins", plugins: []string{first},
			title: "the last of two keys plugins does not win",
			files: map[string]string{alone: begin + `"plugins":[{"type":"conform-second"}],` +
				`"plugins":[{"type":"conform-first"}]}`}}),
	readings(Case{Name: "key-unknown", Oldest: cni.V100, Rows: []string{"CFG-17"}}, report.High,
		reading{name: "unknown", plugins: []string{first},
			title: "a list with unknown keys is refused",
			hint:  "ignore unknown keys: later versions of the specification may define them",
			files: map[string]string{alone: `{"cniVersion":"$V","name":"judged",` +
				`"conformList":{"a":[1]},` +
				`"plugins":[{"type":"conform-first","conformPlugin":{"b":null}}]}`}}),
	readings(Case{Name: "single-old", Newest: cni.V040, Rows: []string{"CFG-20"}}, report.Medium,
		reading{name: "single", plugins: []string{first},
			title: "a single plugin with name and type is refused",
			files: map[string]string{"10-judged.conf": singleFirst}}),
	readings(Case{Name: "single-without-type", Rows: []string{"CFG-23"}}, report.Medium,
		reading{name: "conf", title: "a list in a file .conf is used",
			files: map[string]string{"10-judged.conf": listFirst},
			hint:  "require the key type in files .conf and .json"},
		reading{name: "json", title: "a list in a file .json is used",
			files: map[string]string{"10-judged.json": listFirst},
			hint:  "require the key type in files .conf and .json"}),
	readings(Case{Name: "capability-text", Rows: []string{"CFG-32"}}, report.Low,
		reading{name: "text", title: "a capability that is no boolean is accepted",
			files: map[string]string{alone: begin + `"plugins":[{"type":"conform-first",` +
				`"capabilities":{"portMappings":"true"}}]}`}}),
	readings(Case{Name: "reserved-keys", Oldest: cni.V100, Rows: []string{"CFG-33"}}, report.Medium,
		reading{name: "reserved", plugins: []string{first},
			title: "a list with keys of the runtime is refused",
			hint:  "ignore reserved keys, with a warning at most",
			files: map[string]string{alone: begin + `"plugins":[{"type":"conform-first",` +
				`"runtimeConfig":{"mac":"02:00:00:00:00:07"},"args":{"cni":{}},` +
				`"cni.dev/conform":1}]}`}}),
	readings(Case{Name: "file-names", Rows: []string{"DSC-02"}}, report.Medium,
		reading{name: "suffixes", plugins: []string{first}, empty: []string{"04-judged.conflist"},
			title: "a file with another suffix, or a directory, is not ignored",
			hint:  "read only files with the suffixes .conflist, .conf and .json",
			files: map[string]string{alone: listFirst, "00-judged.conflist.bak": listSecond,
				"01-judged.CONFLIST": listSecond,
				"02-judged.yaml":     listSecond, "03-judged": listSecond}},
		reading{name: "hidden", plugins: []string{first}, title: "a hidden file is ignored",
			files: map[string]string{".judged.conflist": listFirst}},
		reading{name: "linked", plugins: []string{first},
			title: "a symbolic link to a file is ignored",
			files: map[string]string{"data/list": listFirst},
			links: map[string]string{alone: "data/list"}}),
	readings(Case{Name: "file-broken", Rows: []string{"DSC-06"}}, report.Medium,
		reading{name: "after", plugins: []string{first},
			title: "a broken file after the file of the network disturbs it",
			files: map[string]string{alone: listFirst, "20-broken.conflist": broken}},
		reading{name: "single", plugins: []string{first},
			title: "a broken .conf disturbs a network in a .conflist",
			files: map[string]string{alone: listFirst, "00-broken.conf": broken}}),
	{
		Name: "file-broken-before", Once: true, Rows: []string{"R-07", "DSC-06"},
		Script: func(s *Setup) *script.Scenario {
			s.configuration("00-broken.conflist", []any{"conform"})
			s.network("10-judged", s.list(netName, first))
			return s.scenario(step(s.call("add", Add)))
		},
		Judge: judgeBrokenBefore,
	},
	readings(Case{Name: "drop-in-without-type", Oldest: cni.V110,
		Rows: []string{"DRP-04"}}, report.Medium,
		reading{name: "untyped", title: "a network runs without a drop-in that has no type",
			files: map[string]string{alone: listFirst, "judged/20-untyped.conf": `{"conform":1}`}}),
	readings(Case{Name: "drop-in-directory", Oldest: cni.V110,
		Rows: []string{"DRP-05"}}, report.Medium,
		reading{name: "file", title: "a file with the name of the network is not refused",
			hint:  "report an error if the directory for drop-ins is a file",
			files: map[string]string{alone: listFirst, "judged": "conform"}},
		reading{name: "empty", plugins: []string{first}, empty: []string{"judged"},
			title: "a network with an empty directory for drop-ins is refused",
			files: map[string]string{alone: listFirst}}),
	readings(Case{Name: "drop-ins-none", Oldest: cni.V110, Rows: []string{"DRP-06"}}, report.Medium,
		reading{name: "none",
			title: "a network without plugins is used", hint: "refuse it with code 7",
			files: map[string]string{alone: listNone}}),
	readings(Case{Name: "drop-ins-old", Newest: cni.V100, Rows: []string{"DRP-08"}}, report.Low,
		reading{name: "old", plugins: []string{first, second},
			title: "drop-ins of a list below 1.1.0 are ignored",
			files: map[string]string{alone: listFirst,
				"judged/20-second.conf": `{"type":"conform-second"}`}}),
	readings(Case{Name: "disable-check-text", Oldest: cni.V040,
		Rows: []string{"R-13"}}, report.Medium,
		reading{name: "true", plugins: []string{first},
			title: "disableCheck as a string is refused",
			files: map[string]string{alone: begin + `"disableCheck":"true",` +
				`"plugins":[{"type":"conform-first"}]}`}}),
	{
		Name: "directory-empty", Once: true, Rows: []string{"DSC-07", "DSC-09"},
		Script: func(s *Setup) *script.Scenario {
			add := func(name string) script.Step {
				return step(s.call(name, Add, with("confDir", confDir+"/empty"), container(name)))
			}
			s.configuration("other.conflist", s.list("other", first))
			return s.scenario(add("missing"), run("mkdir -p "+confDir+"/empty"), add("empty"),
				run("ln -s nothing "+confDir+"/empty/00-judged.conflist"), add("dangling"),
				run("rm -f "+confDir+"/empty/*; cp "+confDir+"/other.conflist "+confDir+"/empty"),
				add("unknown"))
		},
		Judge: judgeEmpty,
	}, {
		Name: "runtime-config", Rows: []string{"REQ-10"},
		Script: func(s *Setup) *script.Scenario {
			list := s.list(netName)
			list["plugins"] = []any{plugin(first, map[string]any{
				"capabilities":  map[string]any{"mac": true},
				"runtimeConfig": map[string]any{"stray": "of the file"},
			})}
			s.network("10-judged", list)
			return s.scenario(step(s.call("add", Add, with("capabilityArgs", fileCapabilities))))
		},
		Judge: func(j *Judgment) {
			if !j.Requires("add") {
				return
			}
			if requests, ok := j.requests(j.ran("add")); ok {
				j.each(requests, func(_ int, r request) string {
					return r.unless("runtimeConfig", fileCapabilities)
				},
					Verdict{Row: "REQ-10", Severity: report.Low,
						Title:    "runtimeConfig of the file reaches the plugin",
						Expected: "only the arguments of the attachment in runtimeConfig",
						Hint:     "replace runtimeConfig of the file; do not merge the keys"})
			}
		},
	},
}

// fileCapabilities are the arguments for a plugin with a runtimeConfig in its file.
var fileCapabilities = map[string]any{"mac": "02:00:00:00:00:07"}

// judgeBrokenBefore judges ADD of a network that comes after a broken file. A runtime may fail, as
// libcni does, but then its error names the file.
func judgeBrokenBefore(j *Judgment) {
	r, _ := j.Call("add")
	ran, choice := order(j.ran("add")), "a broken file before the network ends the search"
	named := j.failed("add") && ran == "no plugin" && strings.Contains(string(r.Stdout), "00-broken")
	used := r.Failed == "" && r.Status == 0 && ran == sequence(cni.Add, first)
	if used {
		choice = "the runtime skips a broken file before the network"
	}
	if j.Expect(used || named, Verdict{Row: "R-07", Severity: report.Medium,
		Title:    "a broken file hides a network in a later file",
		Expected: sequence(cni.Add, first) + ", or an error with the name of the broken file",
		Actual:   ran + "; " + trial.Describe(r), Hint: "name the broken file, or skip and log it"}) {
		j.Info("DSC-06", choice)
	}
}

// judgeEmpty judges the errors for a directory without the network. All calls have the same network
// and directory, so only the cause distinguishes their messages.
func judgeEmpty(j *Judgment) {
	text := map[string]string{}
	for _, name := range []string{"missing", "empty", "dangling", "unknown"} {
		row, title := "DSC-07", "ADD succeeds without a configuration"
		if name == "dangling" {
			row, title = "DSC-09", "ADD succeeds although its file cannot be read"
		}
		if !j.startsNothing(name, Verdict{Row: row, Severity: report.Medium, Title: title}) {
			return
		}
		r, _ := j.Call(name)
		text[name] = trial.Describe(r)
	}
	j.Expect(text["unknown"] != text["missing"] && text["unknown"] != text["empty"], Verdict{
		Row: "DSC-07", Severity: report.Low,
		Title:    "the error for no configuration is the one for an unknown network",
		Expected: "another error than for a directory with other networks", Actual: text["unknown"],
		Hint: "report an empty directory as such"})
	j.Expect(text["dangling"] != text["empty"], Verdict{Row: "DSC-09", Severity: report.Medium,
		Title:    "a file that cannot be read is skipped",
		Expected: "another error than for an empty directory", Actual: text["dangling"],
		Hint: "report an error for a dangling link and for a file without permission"})
}
