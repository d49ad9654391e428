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

// Foreign makes a call of the executable of the plugin's name in a folder, and through it of the delegates there: those of
// another project, for tests that one takes over from the other. The call has to succeed; otherwise the test ends.
func (r *Runtime) Foreign(folder string, q Request) json.RawMessage {
	r.t.Helper()
	conf, err := json.Marshal(q.Conf)
	if err != nil {
		r.t.Fatal(err)
	}
	q.Path = folder
	cmd := exec.Command(filepath.Join(folder, r.suite.Plugin.Name))
	cmd.Env, cmd.Stdin = append(os.Environ(), q.Environ()...), bytes.NewReader(conf)
	var out []byte
	r.Host.Do(func() { out, err = cmd.Output() })
	if err != nil {
		r.t.Fatalf("%s %s: %v: %s", cmd.Path, q.Command, err, out)
	}
	return out
}

// Mixed makes ADD with the plugins of a folder and CHECK and DEL with Tenon's, or the other way round. It returns how the
// state differs from before.
func (r *Runtime) Mixed(folder string, tenonAdds bool) (left string) {
	r.t.Helper()
	before := r.State()
	theirs := func(q Request) json.RawMessage { return r.Foreign(folder, q) }
	add, rest := theirs, r.Must
	if tenonAdds {
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
