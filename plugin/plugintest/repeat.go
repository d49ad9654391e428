package plugintest

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// repeat calls ADD for an existing attachment and for an interface name that is in use. Neither may
// change anything. If several ADDs of the same attachment run at the same time, one succeeds.
// PL-ADD-03
func repeat(_ *testing.T, r *Runtime) {
	r.Container("c")
	unattached := r.state()
	r.Add("c")
	before := r.state()
	again, err := r.Do(r.t.Context(), r.Request(cni.Add, "c"))
	if (err == nil) != r.suite.repeatable() {
		r.t.Errorf("second ADD of an attachment: error %v; success required by Suite.Repeatable or the role chained: %t (PL-ADD-03)",
			err, r.suite.repeatable())
	}
	if err == nil && string(again) != string(r.prev["c"]) {
		r.t.Errorf("second ADD of an attachment has result %s, want the first result, %s", again,
			r.prev["c"])
	}
	r.unchanged(before)
	if r.makesInterface("c") {
		another := r.Request(cni.Add, "c")
		another.ContainerID = "another"
		r.refusedName(another, before)
		another.Command = cni.Del // a runtime calls DEL after a failed ADD
		r.Must(another)
		r.unchanged(before)
		another = r.Request(cni.Add, "c")
		another.Conf["name"] = "another"
		r.refusedName(another, before)
	}
	if r.newest(cni.Check) {
		r.Check("c")
	}
	r.Del("c")
	r.addAtOnce("c")
	r.Del("c")
	r.unchanged(unattached)
}

// addAtOnce makes simultaneous ADDs of one attachment.
func (r *Runtime) addAtOnce(container string) {
	r.t.Helper()
	results := make([]json.RawMessage, 8)
	var wg sync.WaitGroup
	for i := range results {
		q := r.Request(cni.Add, container)
		wg.Go(func() { results[i], _ = r.Do(r.t.Context(), q) })
	}
	wg.Wait()
	successes := 0
	for _, out := range results {
		if len(out) > 0 {
			r.prev[container] = out
			successes++
		}
	}
	if successes != 1 && !r.suite.repeatable() || successes == 0 {
		r.t.Fatalf("%d of %d simultaneous ADDs of one attachment succeed, want exactly one, or at least one if ADD is repeatable",
			successes, len(results))
	}
	if r.newest(cni.Check) {
		r.Check(container)
	}
}

// refusedName calls ADD with an interface name that is in use in the namespace, and expects an
// error.
func (r *Runtime) refusedName(q Request, before string) {
	r.t.Helper()
	if _, err := r.Do(r.t.Context(), q); err == nil {
		r.t.Errorf("ADD of %s succeeds although its namespace already has %s, want an error (PL-ADD-03)", q.ContainerID, q.IfName)
	}
	r.unchanged(before)
}
