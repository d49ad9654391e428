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
	cmd.Stdin, cmd.Env = bytes.NewReader(c.Stdin), os.Environ()
	for _, kv := range c.Env.Environ() {
		cmd.Env = append(cmd.Env, kv)
	}
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
	name: "drops prevResult", rows: []string{"RT-ADD-02", "REQ-06"}, scenario: "add",
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

// named returns the defect of a name.
func named(name string) *defect {
	i := slices.IndexFunc(defects, func(d *defect) bool { return d.name == name })
	if i < 0 {
		panic(errors.New("no defect " + name + " in " + filepath.Base(os.Args[0])))
	}
	return defects[i]
}
