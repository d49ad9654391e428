package plugintest

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// del calls DEL under all circumstances. DEL must succeed, leave nothing of the attachment, and not
// change another attachment of the same network.
// PL-DEL-01, PL-DEL-02, PL-DEL-03, PL-DEL-04, PL-DEL-05, R-32
func del(_ *testing.T, r *Runtime) {
	r.Add("other")
	cases := slices.Concat(delCases, r.brokenConfigurations())
	for _, c := range cases {
		if !c.blind && !c.gone {
			r.Container(c.container)
		}
	}
	before := r.state()
	for _, c := range cases {
		r.delCase(c)
	}
	r.unchanged(before)
	r.renamed()
	r.Check("other")
}

// renamed detaches a container after its network was renamed. Addresses are reserved under the
// former name, so a DEL with that name, or GC, releases them.
// PL-DEL-10
func (r *Runtime) renamed() {
	r.t.Helper()
	const container = "renamed"
	r.Container(container)
	before := r.state()
	r.Add(container)
	if !r.makesInterface(container) {
		r.Del(container)
		return
	}
	q := r.Request(cni.Del, container)
	q.Conf["name"] = "another"
	r.Must(q)
	if inside := r.Container(container); inside.Try("ip", "link", "show", q.IfName) == nil {
		r.t.Errorf("DEL under another network name has left %s (PL-DEL-10): %s", q.IfName,
			inside.Command("ip", "link"))
	}
	r.Del(container)
	r.unchanged(before)
}

// delCase is one way to call DEL.
type delCase struct {
	container string // the ID describes the case
	blind     bool   // DEL cannot find the namespace, which is removed afterwards
	missing   bool   // there was no ADD
	// The interface, and possibly the namespace, no longer exists. The namespace is removed
	// afterwards.
	gone   bool
	change func(*Runtime, *Request)
}

func (r *Runtime) delCase(c delCase) {
	r.t.Helper()
	r.Container(c.container)
	host := r.stateOf(r.Host)
	if !c.missing {
		r.Add(c.container)
	}
	q := r.Request(cni.Del, c.container)
	c.change(r, &q)
	for range 2 { // DEL is idempotent
		if _, err := r.Do(r.t.Context(), q); err != nil {
			r.t.Errorf("DEL, %s: want success (PL-DEL-02, PL-DEL-03, PL-DEL-04): %v", c.container,
				err)
		}
	}
	if c.blind {
		r.same(host, r.stateOf(r.Host))
	}
	if c.blind || c.gone {
		r.Remove(c.container)
	}
}

var delCases = []delCase{
	{container: "twice", change: func(*Runtime, *Request) {}},
	{container: "never-added", missing: true, change: func(*Runtime, *Request) {}},
	{container: "never-added-no-netns", missing: true,
		change: func(_ *Runtime, q *Request) { q.Netns = "" }},
	{container: "no-prevResult",
		change: func(_ *Runtime, q *Request) { delete(q.Conf, "prevResult") }},
	{container: "prevResult-of-garbage",
		change: func(_ *Runtime, q *Request) { q.Conf["prevResult"] = []any{"x"} }},
	{container: "prevResult-of-the-future", change: func(_ *Runtime, q *Request) {
		q.Conf["prevResult"] = json.RawMessage(`{"cniVersion":"9.0.0","ips":"x"}`)
	}},
	{container: "prevResult-of-another",
		change: func(r *Runtime, q *Request) { q.Conf["prevResult"] = r.prev["other"] }},
	{container: "CNI_ARGS-of-garbage", change: func(_ *Runtime, q *Request) { q.Args = ";=;" }},
	{container: "no-netns", blind: true, change: func(_ *Runtime, q *Request) { q.Netns = "" }},
	{container: "netns-path-gone", blind: true,
		change: func(_ *Runtime, q *Request) { q.Netns = "/run/netns/absent" }},
	{container: "netns-path-is-a-file", blind: true, change: func(r *Runtime, q *Request) {
		q.Netns = r.bin + ".file"
		if err := os.WriteFile(q.Netns, nil, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}},
	{container: "netns-path-is-a-directory", blind: true,
		change: func(r *Runtime, q *Request) { q.Netns = r.bin }},
	{container: "netns-destroyed", gone: true,
		change: func(r *Runtime, q *Request) { r.Remove(q.ContainerID) }},
	{container: "interface-gone", gone: true,
		change: func(r *Runtime, q *Request) { r.unplug(q.ContainerID) }},
}

// brokenConfigurations returns cases with one invalid member of the configuration each, and one
// case with only the members that identify the attachment and the server.
func (r *Runtime) brokenConfigurations() []delCase {
	needed := append([]string{"name", "cniVersion", "type", "dataDir"}, r.serverKeys...)
	cases := []delCase{{container: "reduced-configuration", change: func(_ *Runtime, q *Request) {
		reduced := object{}
		for _, key := range needed {
			if value, ok := q.Conf[key]; ok {
				reduced[key] = value
			}
		}
		if ipam, ok := q.Conf["ipam"].(object); ok {
			reduced["ipam"] = object{"type": ipam["type"], "dataDir": ipam["dataDir"],
				"dir": ipam["dir"]}
		}
		q.Conf = reduced
	}}}
	for _, m := range members(r.Conf) {
		if slices.Contains(append([]string{"ipam", "ipam.type", "ipam.dataDir", "ipam.dir"}, needed...),
			m.String()) {
			continue
		}
		cases = append(cases, delCase{container: identifier("broken-" + m.String()),
			change: func(_ *Runtime, q *Request) {
				q.Conf = m.set(q.Conf, wrong(m.value)[0])
			}})
	}
	return cases
}

// identifier turns any text into a container ID.
func identifier(s string) string {
	return strings.Map(func(c rune) rune {
		if cni.ValidateContainerID("x"+string(c)) != nil {
			return '-'
		}
		return c
	}, s)
}
