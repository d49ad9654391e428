//go:build programs

package interop

import (
	"path/filepath"
	"testing"
)

// TestProgramGoCNI: the example of go-cni's manual prints the same with both libraries, attaches
// and detaches, with each set of plugins.
func TestProgramGoCNI(t *testing.T) {
	t.Parallel()
	withPlugins(t, func(t *testing.T, install func(*node)) {
		logs := map[library]string{}
		for _, built := range []library{original, compat} {
			n := newNode(t)
			install(n)
			n.privateEtc()
			n.run("ip", "netns", "add", "example-ns-1") // the example's name
			program := filepath.Join(built.dir(t, "go-cni"), "go-cni")
			example := func() string {
				out, err := n.command(program).CombinedOutput()
				return string(out) + errorText(err)
			}
			logs[built] = example()
			n.write("/etc/cni/net.d/10-pods.conflist", podsConf)
			logs[built] += example() // leaves the shared objects
			before := n.snapshot()
			logs[built] += example()
			n.unchanged(before)
			n.installNote()
			n.write(noteDir+"/refuse", "")
			n.write("/etc/cni/net.d/10-pods.conflist", podsConf[:len(podsConf)-len("]}")]+noteConf+"]}")
			logs[built] += example()
			if built == compat { // which rolls back
				n.unchanged(before)
				if left := n.files("/var/lib/cni/networks/pods/1*"); left != nil {
					t.Errorf("reserved addresses: %q", left)
				}
			}
		}
		sameAs(t, logs[original], logs[compat])
		t.Log(logs[compat])
	})
}

// errorText returns the text of an error, and a line's end.
func errorText(err error) string {
	if err == nil {
		return "\n"
	}
	return err.Error() + "\n"
}
