//go:build programs

package interop

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// odd are the values of "do" of the plugin testdata/odd.
var odd = []string{
	"silent", "status", "killed", "message", "text", "list", "code", "message-only", "wrong-code", "later", "warning", "nothing", "garbage",
	"null", "object", "full", "no-version", "empty-version", "number", "unknown-version", "old", "ancient", "bad-address",
}

// oddNetworks are networks with the plugin in all forms that a configuration can have.
var oddNetworks = map[string]string{
	"any.conf":           `{"cniVersion":"1.0.0","name":"any","type":"odd","do":"full","number":12345678901,"text":"<&>\u00e9\"","list":[1,{"b":1,"a":null}],"prevResult":{},"runtimeConfig":{"x":1},"capabilities":{"portMappings":true,"ips":false}}`,
	"json.json":          `{"cniVersion":"0.4.0","name":"json","type":"odd","do":"old"}`,
	"chain.conflist":     `{"cniVersion":"1.0.0","name":"chain","plugins":[{"type":"odd","do":"old","name":"own","cniVersion":"0.3.1"},{"type":"odd","do":"full","z":1,"a":[1.5,true]},{"type":"odd","do":"no-version","capabilities":{"portMappings":true}}]}`,
	"versions.conflist":  `{"cniVersion":"0.3.1","cniVersions":["0.4.0","1.0.0","9.9.9"],"name":"versions","plugins":[{"type":"odd","do":"full"}]}`,
	"only-new.conflist":  `{"cniVersions":["9.9.9"],"name":"only-new","plugins":[{"type":"odd","do":"full"}]}`,
	"new.conflist":       `{"cniVersion":"9.9.9","name":"new","plugins":[{"type":"odd","do":"full"}]}`,
	"none.conflist":      `{"name":"none","plugins":[{"type":"odd","do":"ancient"}]}`,
	"unchecked.conflist": `{"cniVersion":"1.1.0","name":"unchecked","disableCheck":true,"disableGC":"True","plugins":[{"type":"odd","do":"full"}]}`,
	"inlined.conflist":   `{"cniVersion":"1.1.0","name":"inlined","loadOnlyInlinedPlugins":true,"plugins":[{"type":"odd","do":"full","n":1}]}`,
	"inlined/10.conf":    `{"type":"odd","do":"code"}`,
	"more.conflist":      `{"cniVersion":"1.1.0","name":"more","plugins":[{"type":"odd","do":"full","n":1}]}`,
	"more/20.conf":       `{"type":"odd","do":"full","n":2}`,
	"more/10.conf":       `{"type":"odd","do":"full","n":3}`,
	"files.conflist":     `{"cniVersion":"1.1.0","name":"files"}`,
	"files/10.conf":      `{"type":"odd","do":"full"}`,
}

// badNetworks are configurations that cannot be loaded, each in a directory of its own.
var badNetworks = map[string]string{
	"a.conflist": `wrong`, "b.conflist": `{}`, "c.conflist": `{"name":1}`, "d.conflist": `{"name":"x","cniVersion":1}`, "e.conflist": `{"name":"x","plugins":{}}`,
	"f.conflist": `{"name":"x","plugins":[]}`, "g.conflist": `{"name":"x"}`, "h.conflist": `{"name":"x","plugins":[{}]}`, "i.conflist": `{"name":"x","plugins":[1]}`,
	"j.conflist": `{"name":"x","disableCheck":"maybe","plugins":[{"type":"odd"}]}`, "k.conflist": `{"name":"x","disableGC":1,"plugins":[{"type":"odd"}]}`,
	"l.conflist": `{"name":"x","loadOnlyInlinedPlugins":true}`, "m.conflist": `{"name":"x","cniVersion":"a","cniVersions":["1.0.0"],"plugins":[{"type":"odd"}]}`,
	"n.conflist": `{"name":"x","cniVersions":["a"],"plugins":[{"type":"odd"}]}`, "o.conflist": `{"name":"x","cniVersions":[1],"plugins":[{"type":"odd"}]}`,
	"p.conf": `wrong`, "q.conf": `{}`, "r.conf": `{"name":"x"}`, "s.conf": `{"name":"x","type":1}`, "t.conf": `{"name":"y","type":"odd"}`, "u.json": `[]`,
	"v.conf": ``, "w.conflist": ``, "x.conflist": `null`, "y.conflist": `[]`, "z.txt": `{"name":"x","type":"odd"}`,
}

// TestProgramCnitoolOdd: with plugins that fail in all ways, results of all forms and versions, and
// configurations that are unusual or wrong, cnitool prints the same with both libraries, leaves the
// same cached results, and gives plugins the same input.
func TestProgramCnitoolOdd(t *testing.T) {
	t.Parallel()
	logs := map[library]string{}
	for _, built := range []library{original, compat} {
		logs[built] = oddLog(t, built)
	}
	sameAs(t, logs[original], logs[compat])
}

func oddLog(t *testing.T, built library) string {
	t.Helper()
	n := newCnitool(t, built, func(*node) {})
	n.env = []string{withoutRollback}
	n.installScript("odd")
	var log strings.Builder
	call := func(args ...string) {
		cmd := n.call(args...)
		cmd.Stdout, cmd.Stderr = &log, &log
		fmt.Fprintf(&log, "$ %s\n", args)
		_ = cmd.Run() // the log has the status
		fmt.Fprintf(&log, "%v\ncache: %s", cmd.ProcessState, n.cache())
		input, _ := n.try("sh", "-c", "cat /run/odd; rm -f /run/odd")
		fmt.Fprintf(&log, "input: %s\n", input)
	}
	attach, all := []string{"add", "check", "del"}, []string{"status", "add", "check", "gc", "add", "del", "del"}
	calls := func(verbs []string, network, dir string) {
		for _, verb := range verbs {
			call(defaults, webPort, "CNI_ARGS=A=1;B=2", "NETCONFPATH="+dir, verb, network, "/run/netns/web")
		}
	}
	for name, network := range oddNetworks {
		n.write("/run/odd.d/"+name, network)
	}
	for _, name := range []string{"any", "json", "chain", "versions", "only-new", "new", "none", "unchecked", "inlined", "more", "files"} {
		calls(all, name, "/run/odd.d")
	}
	for _, version := range []string{"0.2.0", "0.4.0", "1.1.0"} {
		verbs := attach
		if version == "1.1.0" {
			verbs = all
		}
		for _, do := range odd {
			dir := "/run/" + version + "-" + do
			n.write(dir+"/10.conflist", fmt.Sprintf(`{"cniVersion":%q,"name":"x","plugins":[{"type":"odd","do":%q}]}`, version, do))
			calls(verbs, "x", dir)
			n.run("rm", "-rf", "/var/lib/cni/results")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(badNetworks)) {
		dir := "/run/bad-" + name
		n.write(dir+"/"+name, badNetworks[name])
		call(defaults, "NETCONFPATH="+dir, "add", "x", "/run/netns/web")
	}
	return log.String()
}
