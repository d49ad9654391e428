package plugintest

import (
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// repeat attaches what is attached already, and under a name that is in use. Neither may change anything.
func repeat(_ *testing.T, r *Runtime) {
	r.Add("c")
	before := r.State()
	_, err := r.Do(r.t.Context(), r.Request(cni.Add, "c"))
	if (err == nil) != r.suite.Repeatable {
		r.t.Errorf("second ADD of an attachment: %v", err)
	}
	r.Unchanged(before)
	if r.makesInterface("c") {
		another := r.Request(cni.Add, "c")
		another.ContainerID = "another"
		r.nameInUse(another, before)
		another = r.Request(cni.Add, "c")
		another.Conf["name"] = "another"
		r.nameInUse(another, before)
	}
	if r.newest(cni.Check) {
		r.Check("c")
	}
}

// nameInUse asks for an interface whose name another attachment has in the namespace. A runtime calls DEL after that.
func (r *Runtime) nameInUse(q Request, before string) {
	r.t.Helper()
	if _, err := r.Do(r.t.Context(), q); err == nil {
		r.t.Errorf("ADD of %s to a namespace that has %s succeeded", q.ContainerID, q.IfName)
	}
	r.Unchanged(before)
	q.Command = cni.Del
	r.Must(q)
	r.Unchanged(before)
}
