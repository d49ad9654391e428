package plugintest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
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
