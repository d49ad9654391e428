package plugintest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// Foreign calls another implementation of the plugin: the binary of its name in a directory, with
// the delegates in the same directory. It returns the output. If the call fails, the test ends.
func (r *Runtime) Foreign(dir string, q Request) json.RawMessage {
	r.t.Helper()
	q.Path = dir
	cmd := exec.Command(filepath.Join(dir, r.suite.Plugin.Name))
	cmd.Env, cmd.Stdin = append(os.Environ(), q.Environ()...), bytes.NewReader(r.marshal(q.Conf))
	var out []byte
	err := r.Host.Run(func() (err error) {
		out, err = cmd.Output()
		return err
	})
	if err != nil {
		r.t.Fatalf("%s %s: %v: %s", cmd.Path, q.Command, err, out)
	}
	return out
}

// Mixed calls ADD of another implementation, see [Runtime.Foreign], and CHECK and DEL of the plugin
// under test; if ownAdds is true, the other way round. All calls must succeed. It returns the
// difference between the states before and after, or "" if nothing is left.
func (r *Runtime) Mixed(dir string, ownAdds bool) (left string) {
	r.t.Helper()
	before := r.State()
	theirs := func(q Request) json.RawMessage { return r.Foreign(dir, q) }
	add, rest := theirs, r.Must
	if ownAdds {
		add, rest = r.Must, theirs
	}
	q := r.Request(cni.Add, "c")
	q.Conf["prevResult"] = add(q)
	for _, verb := range []cni.Command{cni.Check, cni.Del} {
		q.Command = verb
		rest(q)
	}
	return testnet.Diff(before, r.State())
}
