package plugintest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// gc expects that GC removes everything that belongs to attachments of this network that are not
// valid, and nothing else. It ignores the namespaces of the invalid attachments' containers, which
// end with the containers.
// PL-GC-01, PL-GC-02, PL-GC-06
func gc(_ *testing.T, r *Runtime) {
	if !r.newest(cni.GC) {
		return
	}
	elsewhere := r.with(r.t)
	elsewhere.Conf = clone(r.Conf)
	elsewhere.Conf["name"] = "elsewhere"
	elsewhere.Add("neighbour")
	nothing := r.stateOf(r.Host, r.Container("neighbour"))
	spaces := []*Namespace{r.Host, r.Container("neighbour"), r.Container("kept")}
	for _, stale := range []string{"stale-1", "stale-2"} {
		r.Container(stale)
	}

	r.Add("kept")
	kept := r.stateOf(spaces...)
	r.Add("stale-1")
	r.Add("stale-2")
	before := r.state()
	q := r.Collect()
	delete(q.Conf, validKey)
	r.Refused(q, cni.CodeInvalidConfig)
	for _, list := range []any{"x", []any{5}, []any{object{"containerID": "kept"}}, object{}} {
		q = r.Collect()
		q.Conf[validKey] = list
		r.Refused(q, cni.CodeInvalidConfig, cni.CodeDecodingFailure)
	}
	r.unchanged(before)

	r.Must(r.Collect("kept", "long-gone"))
	r.same(kept, r.stateOf(spaces...))
	r.Check("kept")
	elsewhere.Check("neighbour")
	r.Must(r.Collect("kept"))

	r.unmark("kept")
	unmarked := r.stateOf(spaces...)
	r.Must(r.Collect("kept"))
	r.same(unmarked, r.stateOf(spaces...))
	q = r.Collect()
	q.Conf[validKey] = nil // libcni sends null for an empty list
	r.Must(q)
	for _, container := range []string{"kept", "stale-1", "stale-2"} {
		r.Remove(container)
	}
	r.same(nothing, r.stateOf(r.Host, r.Container("neighbour")))
	elsewhere.Check("neighbour")
}

// unmark removes the mark from the host's objects of a container, as if the process had been killed
// before it set the mark.
func (r *Runtime) unmark(container string) {
	var links []struct{ IfName, IfAlias string }
	if err := json.Unmarshal([]byte(r.Host.Command("ip", "-j", "link")), &links); err != nil {
		r.t.Fatal(err)
	}
	for _, l := range links {
		if strings.HasSuffix(l.IfAlias, " "+container) {
			r.Host.Command("ip", "link", "set", l.IfName, "alias", "")
		}
	}
}
