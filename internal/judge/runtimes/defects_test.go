package runtimes_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/driver"
	"github.com/tenon-cni/tenon/invoke"
)

// defect is a planted defect of the driver of package network. It changes what passes between the judge,
// the library and the plugins.
type defect struct {
	name string
	// rows are the rows of which a finding is right. A finding must be one of them, and the judge
	// must find at least one.
	rows     []string
	scenario string // that finds it
	slow     bool   // the scenario waits for a deadline

	input   func(verb string, in map[string]any)   // of the driver
	request func(c *invoke.Call, r map[string]any) // of a plugin
	start   func(c *invoke.Call, call func() (invoke.Reply, error)) (invoke.Reply, error)
	process invoke.Process
	output  func(verb string, status int, out []byte) (int, []byte) // of the driver
}

// run is the driver with the defect.
func (d *defect) run(verb string) int {
	in := map[string]any{}
	if err := exactly(os.Stdin, &in); err != nil {
		panic(err)
	}
	if d.input != nil {
		d.input(verb, in)
	}
	var out bytes.Buffer
	status := driver.Run(context.Background(), verb, bytes.NewReader(encode(in)), &out, d)
	text := out.Bytes()
	if d.output != nil {
		status, text = d.output(verb, status, text)
	}
	_, _ = os.Stdout.Write(text)
	return status
}

// Call implements [invoke.Caller].
func (d *defect) Call(ctx context.Context, c invoke.Call) (invoke.Reply, error) {
	if d.request != nil && c.Env.Command != cni.VersionCommand {
		r := map[string]any{}
		if err := exactly(bytes.NewReader(c.Stdin), &r); err != nil {
			panic(err)
		}
		d.request(&c, r)
		c.Stdin = encode(r)
	}
	call := func() (invoke.Reply, error) { return d.process.Call(ctx, c) }
	if d.start != nil && c.Env.Command != cni.VersionCommand {
		return d.start(&c, call)
	}
	return call()
}

func exactly(r io.Reader, to any) error {
	d := json.NewDecoder(r)
	d.UseNumber()
	return d.Decode(to)
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// is reports whether a call is one of a scripted plugin for a command.
func is(c *invoke.Call, plugin string, verb cni.Command) bool {
	return strings.HasSuffix(c.Path, "/conform-"+plugin) && c.Env.Command == verb
}

// onAdd returns a change of the request of one plugin for ADD.
func onAdd(plugin string, change func(r map[string]any)) func(*invoke.Call, map[string]any) {
	return func(c *invoke.Call, r map[string]any) {
		if is(c, plugin, cni.Add) {
			change(r)
		}
	}
}

// setting returns a change of one member of the request of a plugin for ADD.
func setting(plugin, key string, value any) func(*invoke.Call, map[string]any) {
	return onAdd(plugin, func(r map[string]any) { r[key] = value })
}

// variables returns a change of the variables of each plugin.
func variables(change func(e *cni.Env)) func(*invoke.Call, map[string]any) {
	return func(c *invoke.Call, _ map[string]any) { change(&c.Env) }
}

// started runs a plugin by a command without a look at its exit status.
func started(c *invoke.Call, name string, args ...string) (invoke.Reply, error) {
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Env = bytes.NewReader(c.Stdin), append(os.Environ(), c.Env.Environ()...)
	out, _ := cmd.Output()
	return invoke.Reply{Stdout: out}, nil
}

// errorWith returns a change of the error object of a verb.
func errorWith(verb string, change func(e map[string]any)) func(string, int, []byte) (int, []byte) {
	return func(v string, status int, out []byte) (int, []byte) {
		e := map[string]any{}
		if v != verb || status == 0 || exactly(bytes.NewReader(out), &e) != nil {
			return status, out
		}
		change(e)
		return status, encode(e)
	}
}

// forgives returns an output without failures of a verb.
func forgives(verb string) func(string, int, []byte) (int, []byte) {
	return func(v string, status int, out []byte) (int, []byte) {
		if v == verb && status == 1 {
			return 0, nil
		}
		return status, out
	}
}

// defects are the planted defects.
var defects = []*defect{{
	name: "correct",
}, {
	name: "passes numbers through floating point", rows: []string{"CFG-34"}, scenario: "add",
	start: func(c *invoke.Call, call func() (invoke.Reply, error)) (invoke.Reply, error) {
		var r any
		if err := json.Unmarshal(c.Stdin, &r); err != nil {
			panic(err)
		}
		c.Stdin = encode(r)
		return call()
	},
}, {
	name: "passes keys of the list", rows: []string{"CFG-12"}, scenario: "add",
	request: setting("second", "owner", "judge"),
}, {
	name: "lets the inner name win", rows: []string{"CFG-41"}, scenario: "add",
	request: setting("first", "name", "inner"),
}, {
	name: "gives a plugin its own version", rows: []string{"VER-10", "REQ-06"}, scenario: "add",
	request: setting("second", "cniVersion", "0.3.0"),
}, {
	name: "passes a prevResult of the file", rows: []string{"REQ-02"}, scenario: "add",
	request: setting("first", "prevResult", map[string]any{"dns": map[string]any{"domain": "stray"}}),
}, {
	name: "gives arguments to capabilities that are false", rows: []string{"REQ-07"}, scenario: "add",
	request: onAdd("first", func(r map[string]any) {
		if config, ok := r["runtimeConfig"].(map[string]any); ok {
			config["mac"] = "02:00:00:00:00:09"
		}
	}),
}, {
	name: "inserts an empty runtimeConfig", rows: []string{"REQ-08"}, scenario: "add",
	request: setting("third", "runtimeConfig", map[string]any{}),
}, {
	name: "passes capabilities", rows: []string{"REQ-09"}, scenario: "add",
	request: setting("second", "capabilities", map[string]any{"mac": true}),
}, {
	name: "passes reserved keys", rows: []string{"REQ-11"}, scenario: "add",
	request: setting("first", "cni.dev/conform", "of the file"),
}, {
	name: "gives the third plugin the result of the first", rows: []string{"RT-ADD-02"}, scenario: "add",
	request: onAdd("third", func(r map[string]any) { delete(r["prevResult"].(map[string]any), "routes") }),
}, {
	name: "drops prevResult", rows: []string{"RT-ADD-02", "REQ-06", "RES-06", "VER-12"}, scenario: "add",
	request: onAdd("second", func(r map[string]any) { delete(r, "prevResult") }),
}, {
	name: "leaves out a plugin", rows: []string{"RT-ADD-01", "EXE-05"}, scenario: "add",
	start: func(c *invoke.Call, call func() (invoke.Reply, error)) (invoke.Reply, error) {
		if !is(c, "second", cni.Add) {
			return call()
		}
		var r struct{ PrevResult json.RawMessage }
		err := json.Unmarshal(c.Stdin, &r)
		return invoke.Reply{Stdout: r.PrevResult}, err
	},
}, {
	name: "sorts CNI_ARGS", rows: []string{"ENV-11"}, scenario: "add",
	request: variables(func(e *cni.Env) {
		args := strings.Split(e.Args, ";")
		slices.Sort(args)
		e.Args = strings.Join(args, ";")
	}),
}, {
	name: "sets no CNI_PATH", rows: []string{"ENV-09"}, scenario: "add",
	request: variables(func(e *cni.Env) { e.Path = "" }),
}, {
	name: "gives a plugin another interface name", rows: []string{"ENV-06", "ENV-14"}, scenario: "add",
	request: func(c *invoke.Call, _ map[string]any) {
		if is(c, "third", cni.Add) {
			c.Env.IfName = "eth1"
		}
	},
}, {
	name: "clears the environment", rows: []string{"EXE-09"}, scenario: "add",
	process: invoke.Process{Base: []string{}},
}, {
	name: "inherits CNI_ARGS", rows: []string{"ENV-12"}, scenario: "variables-stale",
	request: variables(func(e *cni.Env) { e.Args = cmp.Or(os.Getenv("CNI_ARGS"), e.Args) }),
}, {
	name: "takes every container ID", rows: []string{"ENV-05"}, scenario: "identifiers",
	input: func(_ string, in map[string]any) {
		in["containerID"] = strings.TrimLeft(in["containerID"].(string), "-./")
	},
}, {
	name: "ignores the exit status", rows: []string{"EXE-05", "RT-ADD-03", "EXE-12"}, scenario: "add-exit",
	start: func(c *invoke.Call, _ func() (invoke.Reply, error)) (invoke.Reply, error) { return started(c, c.Path) },
}, {
	name: "runs plugins in the container", rows: []string{"EXE-11", "EXE-12"}, scenario: "namespace",
	start: func(c *invoke.Call, call func() (invoke.Reply, error)) (invoke.Reply, error) {
		if !is(c, "first", cni.Add) {
			return call()
		}
		return started(c, "nsenter", "--net="+c.Env.Netns, c.Path)
	},
}, {
	name: "ignores the deadline", rows: []string{"EXE-12"}, scenario: "deadline", slow: true,
	input: func(_ string, in map[string]any) { in["timeoutMs"] = 60_000 },
}, {
	name: "replaces the code of a plugin", rows: []string{"RT-ADD-03"}, scenario: "add-fails",
	output: errorWith("add", func(e map[string]any) { e["code"] = 999 }),
}, {
	name: "does not name the plugin", rows: []string{"ERR-08"}, scenario: "add-fails",
	output: errorWith("add", func(e map[string]any) { e["msg"] = "conform-refusal" }),
}, {
	name: "takes failures for success", rows: []string{"EXE-05", "EXE-01", "ENV-05", "ENV-06", "EXE-12"}, scenario: "add-missing",
	output: forgives("add"),
}, {
	name: "cleans up only the plugins that ran", rows: []string{"RT-ADD-05"}, scenario: "add-again-after-failure",
	start: func(c *invoke.Call, call func() (invoke.Reply, error)) (invoke.Reply, error) {
		if is(c, "third", cni.Del) {
			return invoke.Reply{}, nil
		}
		return call()
	},
}, {
	name: "returns a part of the result", rows: []string{"RT-ADD-09"}, scenario: "add",
	output: func(verb string, status int, out []byte) (int, []byte) {
		r := map[string]any{}
		if verb != "add" || exactly(bytes.NewReader(out), &r) != nil {
			return status, out
		}
		delete(r, "dns")
		return status, encode(r)
	},
}}

// lifeDefects are the defects of DEL, CHECK, GC and STATUS.
var lifeDefects = []*defect{{
	name: "runs DEL in the order of ADD", rows: []string{"RT-DEL-01", "RT-DEL-06", "RT-DEL-05"}, scenario: "del",
	start: func(c *invoke.Call, call func() (invoke.Reply, error)) (invoke.Reply, error) {
		dir := filepath.Dir(c.Path)
		switch {
		case is(c, "third", cni.Del):
			c.Path = dir + "/conform-first"
		case is(c, "first", cni.Del):
			c.Path = dir + "/conform-third"
		}
		return call()
	},
}, {
	name: "drops prevResult on DEL", rows: []string{"RT-DEL-02", "RT-DEL-03"}, scenario: "del",
	request: on(cni.Del, func(_ *cni.Env, r map[string]any) { delete(r, "prevResult") }),
}, {
	name: "passes prevResult on DEL below 0.4.0", rows: []string{"REQ-05"}, scenario: "del",
	request: on(cni.Del, func(_ *cni.Env, r map[string]any) {
		if r["prevResult"] == nil && r["cniVersion"] == "0.3.1" {
			r["prevResult"] = map[string]any{"cniVersion": "0.3.1"}
		}
	}),
}, {
	name: "keeps no state", rows: []string{"RT-DEL-02", "CACHE-05", "RT-DEL-03"}, scenario: "del-changed",
	input: func(verb string, _ map[string]any) {
		if verb == "del" {
			forget()
		}
	},
}, {
	name: "takes failures of DEL for success", rows: []string{"RT-DEL-03"}, scenario: "del-fails", output: forgives("del"),
}, {
	name: "deletes the record after a failed DEL", rows: []string{"RT-DEL-03"}, scenario: "del-fails",
	output: func(verb string, status int, out []byte) (int, []byte) {
		if verb == "del" && status != 0 {
			forget()
		}
		return status, out
	},
}, {
	name: "keeps the record after DEL", rows: []string{"RT-DEL-04", "RT-CHK-03"}, scenario: "del",
	input: func(verb string, _ map[string]any) {
		if verb == "del" {
			shell("rm -rf /var/copy; cp -a " + state + " /var/copy")
		}
	},
	output: func(verb string, status int, out []byte) (int, []byte) {
		if verb == "del" {
			shell("rm -rf " + state + "; cp -a /var/copy " + state)
		}
		return status, out
	},
}, {
	name: "an empty record blocks DEL", rows: []string{"RT-DEL-05"}, scenario: "del-record-unreadable",
	input: func(verb string, _ map[string]any) {
		refuse(verb == "del" && shell("find "+state+" -type f") != "" && shell("find "+state+" -type f -size +0") == "")
	},
}, {
	name: "DEL requires a namespace", rows: []string{"RT-DEL-07"}, scenario: "del-netns-gone",
	input: func(verb string, in map[string]any) { refuse(verb == "del" && in["netns"] == "") },
}, {
	name: "DEL requires a record", rows: []string{"RT-DEL-06"}, scenario: "del-record-lost",
	input: func(verb string, _ map[string]any) { refuse(verb == "del" && shell("ls "+state) == "") },
}, {
	name: "overwrites an attachment", rows: []string{"RT-ADD-10"}, scenario: "add-twice",
	input: func(verb string, _ map[string]any) {
		if verb == "add" {
			forget()
		}
	},
}, {
	name: "CHECK gives a plugin its own result", rows: []string{"REQ-03"}, scenario: "check",
	request: on(cni.Check, func(_ *cni.Env, r map[string]any) { delete(r["prevResult"].(map[string]any), "routes") }),
}, {
	name: "CHECK loses the arguments", rows: []string{"RT-CHK-06"}, scenario: "check",
	request: on(cni.Check, func(e *cni.Env, _ map[string]any) { e.Args = "" }),
}, {
	name: "takes failures of CHECK for success", rows: []string{"RT-CHK-01", "RT-CHK-03", "ERR-08", "RT-CHK-08"},
	scenario: "check-unknown", output: forgives("check"),
}, {
	name: "ignores disableCheck", rows: []string{"CFG-08"}, scenario: "check-disabled",
	input: func(string, map[string]any) { shell("sed -i s/disableCheck/disabledCheck/ " + networks) },
}, {
	name: "GC lists no attachment", rows: []string{"RT-GC-01"}, scenario: "gc",
	request: on(cni.GC, func(_ *cni.Env, r map[string]any) { r["cni.dev/valid-attachments"] = []any{} }),
}, {
	name: "GC sends null", rows: []string{"RT-GC-09"}, scenario: "gc",
	request: on(cni.GC, func(_ *cni.Env, r map[string]any) {
		if list, _ := r["cni.dev/valid-attachments"].([]any); len(list) == 0 {
			r["cni.dev/valid-attachments"] = nil
		}
	}),
}, {
	name: "GC ends at the first error", rows: []string{"RT-GC-02"}, scenario: "gc-fails",
	start: func(c *invoke.Call, call func() (invoke.Reply, error)) (invoke.Reply, error) {
		if c.Env.Command != cni.GC || !ended {
			r, err := call()
			ended = ended || c.Env.Command == cni.GC && err != nil
			return r, err
		}
		return invoke.Reply{}, nil
	},
}, {
	name: "GC runs no DEL", rows: []string{"RT-GC-05", "RT-GC-06"}, scenario: "gc",
	start: func(c *invoke.Call, call func() (invoke.Reply, error)) (invoke.Reply, error) {
		if c.Env.Command == cni.Del {
			return invoke.Reply{}, nil
		}
		return call()
	},
}, {
	name: "GC takes no list for an empty one", rows: []string{"RT-GC-08"}, scenario: "gc-without-list",
	input: func(verb string, in map[string]any) {
		if verb == "gc" && in["validAttachments"] == nil {
			in["validAttachments"] = []any{}
		}
	},
}, {
	name: "GC has variables of an attachment", rows: []string{"RT-GC-13"}, scenario: "gc",
	request: on(cni.GC, func(e *cni.Env, _ map[string]any) { e.ContainerID = "conform-1" }),
}, {
	name: "GC has arguments of capabilities", rows: []string{"REQ-13"}, scenario: "gc",
	request: on(cni.GC, func(_ *cni.Env, r map[string]any) { r["runtimeConfig"] = map[string]any{"mac": ""} }),
}, {
	name: "GC reports one error", rows: []string{"ERR-11"}, scenario: "gc-fails",
	output: errorWith("gc", func(e map[string]any) { e["msg"] = "conform-refusal-first" }),
}, {
	name: "ignores disableGC", rows: []string{"CFG-09"}, scenario: "gc-disabled",
	input: func(string, map[string]any) { shell("sed -i s/disableGC/disabledGC/ " + networks) },
}, {
	name: "replaces the code of STATUS", rows: []string{"RT-STA-02"}, scenario: "status-fails",
	output: errorWith("status", func(e map[string]any) { e["code"] = 999 }),
}, {
	name: "STATUS has variables of an attachment", rows: []string{"RT-STA-03"}, scenario: "status",
	request: on(cni.Status, func(e *cni.Env, _ map[string]any) { e.IfName = "eth0" }),
}, {
	name: "STATUS has a prevResult", rows: []string{"REQ-14"}, scenario: "status",
	request: on(cni.Status, func(_ *cni.Env, r map[string]any) { r["prevResult"] = map[string]any{} }),
}, {
	name: "STATUS leaves out a plugin", rows: []string{"RT-STA-05"}, scenario: "status",
	start: func(c *invoke.Call, call func() (invoke.Reply, error)) (invoke.Reply, error) {
		if is(c, "second", cni.Status) {
			return invoke.Reply{}, nil
		}
		return call()
	},
}, {
	name: "executes STATUS of 1.0.0", rows: []string{"RT-STA-01"}, scenario: "status-old",
	input: func(verb string, _ map[string]any) {
		if verb == "status" {
			shell("sed -i s/1.0.0/1.1.0/ " + networks)
		}
	},
}}

// readDefects are the defects of reading configurations and results.
var readDefects = []*defect{
	edits("ignores cniVersions", "VER-05", "versions", "sed -i s/cniVersions/ignored/ "+networks),
	edits("accepts malformed versions", "VER-08", "versions-malformed", "sed -i s/latest/1.0.0/ "+networks),
	edits("sorts numbers in names", "DSC-03", "file-order", "mv "+files+"/100-judged.conflist "+files+"/99-judged.conflist"),
	edits("takes single plugins first", "DSC-04", "list-before-single", "rm "+files+"/99-judged.conflist"),
	edits("ignores single plugins", "CFG-21", "single", "rm "+files+"/10-judged.conf"),
	edits("ignores drop-ins", "DRP-03", "drop-ins", "rm -r "+files+"/judged"),
	edits("ignores loadOnlyInlinedPlugins", "CFG-10", "drop-ins-ignored", "sed -i s/loadOnlyInlinedPlugins/ignored/ "+networks),
	edits("drops directories in types", "CFG-31", "type-escapes", "sed -i s,../bin/,, "+networks),
	{
		name: "selects an unpublished version", rows: []string{"VER-09"}, scenario: "versions-unpublished",
		request: on(cni.Add, func(_ *cni.Env, r map[string]any) { r["cniVersion"] = "1.0.7" }),
	}, {
		name: "keeps the name of a drop-in", rows: []string{"DRP-07"}, scenario: "drop-ins",
		request: setting("second", "name", "inner"),
	}, {
		name: "takes the base name of a network", rows: []string{"CFG-03"}, scenario: "name-escapes",
		input: func(_ string, in map[string]any) {
			in["network"] = filepath.Base(in["network"].(string))
			shell("sed -i s,../other,other, " + networks)
		},
	}, {
		name: "keeps the version of a result", rows: []string{"REQ-06", "RT-ADD-02"}, scenario: "result-other-version",
		request: onAdd("second", func(r map[string]any) { r["prevResult"].(map[string]any)["cniVersion"] = "0.4.0" }),
	}, {
		name: "hides the output of a plugin", rows: []string{"ERR-06"}, scenario: "error-text",
		output: errorWith("add", func(e map[string]any) { e["msg"], e["details"] = "plugin failed", "" }),
	},
	prints("takes no output for a result", "RES-05", "result-empty", `^\s*$`, `{}`),
	prints("takes text for a result", "RES-05", "result-text", `^done\s*$`, `{}`),
	prints("takes an unknown version for its own", "RES-07", "result-unknown-version", `99\.0\.0`, `1.1.0`),
	prints("takes an error for a result", "RES-14", "result-error", `^{"code".*`, `{}`),
	prints("takes results without version for old ones", "RES-06", "result-without-version", `^{"interfaces"`,
		`{"cniVersion":"0.2.0","interfaces"`),
	prints("refuses another version", "VER-12", "result-other-version", `^{"cniVersion":"0.4.0".*`, `refused`),
}

// lookupDefects are the defects of finding and reading the files of a network.
var lookupDefects = []*defect{
	edits("takes an empty array for no plugins", "CFG-11", "plugins-empty",
		`sed -i 's/"plugins":\[\],*/"ignored":0/' `+networks),
	edits("compares keys without regard to case", "CFG-13", "key-case", `sed -i 's/"Name"/"name"/' `+networks),
	edits("takes the first of two keys", "CFG-14", "key-twice", `sed -i 's/,"name":"judged"}/}/' `+networks),
	stops("refuses unknown keys", "CFG-17", "key-unknown", "grep -rl conformPlugin "+files),
	stops("refuses single plugins", "CFG-20", "single-old", "find "+files+" -name '*.conf'"),
	edits("reads lists in .conf", "CFG-23", "single-without-type",
		"for f in $(find "+files+" -name '*.conf'); do mv $f ${f}list; done"),
	edits("accepts text as a capability", "CFG-32", "capability-text", `sed -i 's/:"true"/:true/' `+networks),
	stops("refuses reserved keys", "CFG-33", "reserved-keys", "grep -rl cni.dev/conform "+files),
	edits("ignores hidden files", "DSC-02", "file-names", "find "+files+" -name '.*.conflist' -delete"),
	edits("ignores the case of suffixes", "DSC-02", "file-names",
		"for f in $(find "+files+" -name '*.CONFLIST'); do mv $f ${f%CONFLIST}conflist; done"),
	{
		name: "reads all files first", rows: []string{"DSC-06", "R-07"}, scenario: "file-broken",
		input: stops("", "", "", "grep -rl '\\[$' "+files).input,
	},
	stops("stops at a broken file", "R-07", "file-broken-before", "find "+files+" -name '00-broken.conflist'"),
	edits("reports another network in an empty directory", "DSC-07", "directory-empty",
		"[ -e "+files+"/other.conflist ] && mkdir -p "+files+"/empty && "+
			"[ -z \"$(ls "+files+"/empty)\" ] && cp "+files+"/other.conflist "+files+"/empty || true"),
	edits("skips dangling links", "DSC-09", "directory-empty", "find "+files+" -xtype l -delete"),
	edits("leaves out drop-ins without type", "DRP-04", "drop-in-without-type",
		"find "+files+" -name '20-untyped.conf' -delete"),
	edits("ignores a file instead of drop-ins", "DRP-05", "drop-in-directory",
		"find "+files+" -name judged -type f -delete"),
	edits("runs a network without plugins", "DRP-06", "drop-ins-none",
		`sed -i 's/"judged"}/"judged","plugins":[{"type":"conform-first"}]}/' `+networks),
	edits("ignores drop-ins of old lists", "DRP-08", "drop-ins-old", "rm -rf "+files+"/old/judged"),
	stops("refuses disableCheck as text", "R-13", "disable-check-text", `grep -rl '"disableCheck":"' `+files),
	{
		name: "merges runtimeConfig", rows: []string{"REQ-10"}, scenario: "runtime-config",
		request: onAdd("first", func(r map[string]any) {
			if config, ok := r["runtimeConfig"].(map[string]any); ok {
				config["stray"] = "of the file"
			}
		}),
	},
}

// stops returns a driver that fails if commands find something.
func stops(name, row, scenario, commands string) *defect {
	return &defect{name: name, rows: []string{row}, scenario: scenario,
		input: func(string, map[string]any) { refuse(shell("mkdir -p "+files+"; "+commands+" || true") != "") }}
}

// edits returns a driver that changes files before a verb.
func edits(name, row, scenario, commands string) *defect {
	return &defect{name: name, rows: []string{row}, scenario: scenario,
		input: func(string, map[string]any) { shell(commands) }}
}

// prints returns a driver that changes the result of a plugin.
func prints(name, row, scenario, old, now string) *defect {
	return &defect{name: name, rows: []string{row}, scenario: scenario,
		start: func(c *invoke.Call, call func() (invoke.Reply, error)) (invoke.Reply, error) {
			r, err := call()
			var failed *invoke.Error // of an output that the caller refuses
			if errors.As(err, &failed) && failed.Status == "" {
				r.Stdout, err = failed.Stdout, nil
			}
			if is(c, "first", cni.Add) {
				r.Stdout = regexp.MustCompile(old).ReplaceAll(r.Stdout, []byte(now))
			}
			return r, err
		}}
}

// The paths in a cell.
const (
	state    = "/var/lib/conform"
	files    = "/run/conform/net.d"
	networks = "$(find " + files + " -type f)"
)

// ended is set after an error in the process of the driver.
var ended bool

// on returns a change of the variables and the request of all plugins for a command.
func on(verb cni.Command, change func(e *cni.Env, r map[string]any)) func(*invoke.Call, map[string]any) {
	return func(c *invoke.Call, r map[string]any) {
		if c.Env.Command == verb {
			change(&c.Env, r)
		}
	}
}

// forget removes the state of the runtime.
func forget() { shell("find " + state + " -mindepth 1 -delete") }

// refuse ends the driver with an error object.
func refuse(when bool) {
	if when {
		_, _ = os.Stdout.WriteString(`{"cniVersion":"1.1.0","code":7,"msg":"refused"}`)
		os.Exit(1)
	}
}

// shell returns the output of commands in the process of the driver.
func shell(commands string) string {
	out, err := exec.Command("sh", "-c", commands).CombinedOutput()
	if err != nil {
		panic(errors.New(string(out)))
	}
	return string(out)
}

// named returns the defect of a name.
func named(name string) *defect {
	all := slices.Concat(defects, lifeDefects, readDefects, lookupDefects)
	i := slices.IndexFunc(all, func(d *defect) bool { return d.name == name })
	if i < 0 {
		panic(errors.New("no defect " + name + " in " + filepath.Base(os.Args[0])))
	}
	return all[i]
}
